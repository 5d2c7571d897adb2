"""The head of the page: what was asked, the answer in sentences, and the main figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from rewind.config import Study
from rewind.report.page.document import ASSETS_FOLDER, read_asset
from rewind.report.page.whisker import Scale
from rewind.tables.best_method import Finding, Verdict, join_names
from rewind.tables.footnotes import Footnotes, confidence_percent, finish_sentences, pair_count
from rewind.tables.notes import direction_names_sentence, queries_sentence
from rewind.tables.render import render_template
from rewind.tables.results import Results, evaluated_directions
from rewind.tables.table import format_bounds

QuestionRows = list[tuple[str, list[str]]]
"""(term, sentences about it)."""


def question_rows(study: Study, results: Results, facts: Footnotes) -> QuestionRows:
    """Settings, methods, seeds, and what decides; of ``facts`` it reads ``settings``, ``items`` and ``family``."""
    settings = study.evaluation.settings
    directions = dict.fromkeys(
        direction for setting in settings for direction in evaluated_directions(results, setting)
    )
    searches = [queries_sentence(facts, setting, tuple(evaluated_directions(results, setting))) for setting in settings]
    searches += [direction_names_sentence(facts, [*directions])] if len(directions) > 1 else []
    rows = [
        ("Settings", finish_sentences(searches)),
        ("Methods", finish_sentences(_methods(results))),
        ("Seeds", finish_sentences(_seeds(study, results))),
        ("Decided by", finish_sentences(_decided(study, results, facts))),
    ]
    return [(term, sentences) for term, sentences in rows if sentences]


def headline_html(rows: QuestionRows, findings: Sequence[Finding], picture: str) -> str:
    """The content of the page's head; ``picture`` is a figure element, or empty.

    A finding with verdicts is drawn, with its sentences folded below; the others are then cards.
    """
    drawn = next((finding for finding in findings if finding.verdicts), None)
    content: dict[str, Any] = {
        "findings": [finding for finding in findings if finding is not drawn],
        "whole": drawn,
        "questions": rows,
        "picture": Markup(picture),
        **_verdict_content(drawn.verdicts if drawn else ()),
    }
    return render_template("headline.html", ASSETS_FOLDER, **content).rstrip("\n")


def notebook_html(verdicts: Sequence[Verdict]) -> str:
    """Verdicts as the page draws them, with their style, for a notebook's cell; empty without any."""
    if not verdicts:
        return ""
    rows = render_template("verdicts.html", ASSETS_FOLDER, below="", **_verdict_content(verdicts))
    return f"<style>\n{read_asset('verdicts.css')}\n</style>\n{rows}"


def _verdict_content(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """What ``verdicts.html`` is filled with."""
    scale = Scale(low for verdict in verdicts for _, _, low, _ in verdict.methods)
    return {"verdicts": verdicts, "draw": scale.draw, "ends": format_bounds}


def _methods(results: Results) -> list[str]:
    names = results.labels
    trained = results.trained()
    fixed = [method for method in results.compared() if method not in trained]
    baselines = [method for method in names if method in results.baselines]
    return [
        f"{role}: {join_names([names[method] for method in group])}"
        for role, group in (("trained", trained), ("not trained", fixed), ("baselines, not tested", baselines))
        if group
    ]


def _seeds(study: Study, results: Results) -> list[str]:
    groups: dict[str, list[str]] = {}
    for name in study.seeded_methods():
        listed_seeds = ", ".join(map(str, study.seeds_of(name)))
        groups.setdefault(listed_seeds, []).append(results.labels[name])
    if not groups:
        return ["none: nothing is trained"]
    listed = [f"{seeds} ({', '.join(names)})" if len(groups) > 1 else seeds for seeds, names in groups.items()]
    pretraining = (
        f"Pre-training seeds: {', '.join(map(str, study.pretraining_seeds()))}" if study.pretrains_per_seed else ""
    )
    return ["; ".join(listed), pretraining]


def _decided(study: Study, results: Results, facts: Footnotes) -> list[str]:
    names = dict.fromkeys("accuracy" if s == "binary" else results.deciding(s) for s in study.evaluation.settings)
    several = "binary" in study.evaluation.settings and len(names) > 1
    metric = f"{study.primary_metric()}, in Binary accuracy" if several else next(iter(names))
    level = f"{1 - results.confidence:.3g}"
    tested = len(results.pairs) and results.pairs["p_holm"].notna().any()
    pairs = pair_count(facts.family) if facts.family else ""
    test = f"significant: p < {level} after Holm’s correction over {pairs}" if tested and pairs else ""
    return [
        "; ".join(filter(None, [metric, test])),
        f"In brackets {confidence_percent(results.confidence)} intervals over {study.interval_scope()}, "
        "not adjusted for multiple comparisons",
        f"All numbers are {results.given}" if results.given else "",
    ]
