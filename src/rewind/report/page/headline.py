"""The head of the page: what was asked, the answer in sentences, and the main figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from rewind.config import Study
from rewind.report.answer import Finding, join_names
from rewind.report.footnotes import Footnotes, confidence_percent, finish_sentences, pair_count, seed_caution
from rewind.report.notes import direction_names_sentence, queries_sentence
from rewind.report.page.document import interval_scope
from rewind.report.render import render_template
from rewind.report.results import Results, evaluated_directions

QuestionRows = list[tuple[str, list[str]]]
"""(term, sentences about it)."""


def question_rows(study: Study, results: Results, facts: Footnotes) -> QuestionRows:
    """Settings, methods, seeds, and what decides.

    Args:
        study: the study file.
        results: its numbers.
        facts: ``settings``, ``items`` and ``family``.
    """
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
    """The content of the page's head; ``picture`` is a figure element, or empty."""
    content: dict[str, Any] = {"findings": findings, "questions": rows, "picture": Markup(picture)}
    return render_template("headline.html", **content).rstrip("\n")


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
    counts = sorted({len(study.seeds_of(name)) for name in study.trained()})
    listed = [f"{seeds} ({', '.join(names)})" if len(groups) > 1 else seeds for seeds, names in groups.items()]
    pretraining = (
        f"Pre-training seeds: {', '.join(map(str, study.pretraining_seeds()))}" if study.pretrains_per_seed else ""
    )
    return ["; ".join(listed), pretraining, seed_caution(counts)]


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
        f"In brackets {confidence_percent(results.confidence)} intervals over {interval_scope(study)}, "
        "not adjusted for multiple comparisons",
        f"All numbers are {results.given}" if results.given else "",
    ]
