"""The answer of a study in a few sentences, from the numbers of its tables: who wins, by how much, how surely."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from rewind.metrics import known
from rewind.reporting import cosine_gap_table, verdict_notes, zero_shot_table
from rewind.reporting.cells import TITLES, numbers
from rewind.reporting.contest import Contest, Value, detects, holm, listed, remarks, sentences
from rewind.reporting.cosine_gap_table import GapResults
from rewind.reporting.differences import Difference, between
from rewind.reporting.footnotes import seed_caution
from rewind.reporting.notes import span
from rewind.reporting.order import leading
from rewind.reporting.results import Results, directions
from rewind.reporting.setting_table import decimals
from rewind.reporting.sheet import bounds, number
from rewind.reporting.significance import LETTERS_FROM, tests
from rewind.reporting.verdict import Judged, judge, place


@dataclass(frozen=True)
class Finding:
    """A heading, the sentences that answer it, and remarks on what took no part."""

    heading: str
    sentences: list[str]
    remarks: list[str] = field(default_factory=list)


def answer(results: Results, settings: Sequence[str], gaps: GapResults | None = None) -> list[Finding]:
    """What the study found: its verdict where it has one; else who is best in each setting, and what else was asked.

    Args:
        results: the study's numbers.
        settings: in the order of the study.
        gaps: cosine gaps, where they were asked for.

    Raises:
        RewindError: as :func:`rewind.reporting.results.check`.
    """
    if results.verdict:
        return [_verdict(results)]
    found = [_setting(results, setting) for setting in settings]
    if len(results.zero_shot):
        found.append(_zero_shot(results))
    if gaps is not None and len(gaps.runs):
        found.append(_cosine_gap(gaps))
    return found


def _setting(results: Results, setting: str) -> Finding:
    way, metric = leading(results, setting), results.deciding(setting)
    several = len(directions(results, setting)) > 1
    what = "accuracy" if setting == "binary" else metric
    heading = f"{TITLES[setting]}, {results.short(way)} {what}" if several else f"{TITLES[setting]}, {what}"
    rows = numbers(results, setting)
    rows = rows[(rows["direction"] == way) & (rows["metric"] == metric)].set_index("method")
    compared = [method for method in results.compared() if method in rows.index]
    names = _unique(results, [*rows.index])
    tested = tests(results, setting, way, metric)
    entry = known(metric)

    def against(one: str, other: str) -> Difference | None:
        return between(results.pairs, names[one], names[other], setting=setting, direction=way, metric=metric)

    contest = Contest(
        values={label: _value(rows.loc[m]) for label, m in names.items() if m in compared},
        against=against,
        level=_level(results.confidence),
        lower=entry.lower_is_better,
        digits=decimals(metric),
        unit="%" if entry.percent else "",
        points=" points" if entry.percent else "",
        seen=lambda ends: span(setting, metric, ends),
        aside={label: _value(rows.loc[m]) for label, m in names.items() if m not in compared},
        untested=_untested(results, tested, compared, lambda ends: span(setting, metric, ends)),
    )
    absent = [f"{results.labels[m]} ({why})" for m in results.labels if (why := results.reason(m, setting, way))]
    lacking = [f"Without numbers here: {', '.join(absent)}."] if absent else []
    return Finding(heading, sentences(contest), [*remarks(contest), *lacking])


def _untested(
    results: Results, tested: pd.DataFrame, compared: Sequence[str], seen: Callable[[tuple[float, float]], str]
) -> str:
    """Why there are no tests that can be trusted; empty where there are."""
    if len(compared) < 2:
        return ""
    if tested.empty:
        counts = sorted({len(set(results.seeds[m])) for m in results.trained() if m in results.seeds})
        why = seed_caution(counts) if counts and counts[0] == 1 else ""
        return f"{why}." if why else "No differences between methods were tested."
    clusters = int(tested["clusters"].min())
    if clusters >= LETTERS_FROM:
        return ""
    blind = tested["detectable"].dropna()
    sees = f"; between two methods, {detects(seen((blind.min(), blind.max())))}" if len(blind) else ""
    return (
        f"Who is better is left open: tests need {LETTERS_FROM} clusters of queries, and there are {clusters:,}{sees}."
    )


def _zero_shot(results: Results) -> Finding:
    rows = zero_shot_table.numbers(results).set_index("method")
    names = _unique(results, [*rows.index])
    compared = results.compared()

    def against(one: str, other: str) -> Difference | None:
        return between(results.zero_shot_pairs, names[one], names[other])

    contest = Contest(
        values={label: _value(rows.loc[m]) for label, m in names.items() if m in compared},
        against=against,
        level=_level(results.confidence),
        unit="%",
        points=" points",
        aside={label: _value(rows.loc[m]) for label, m in names.items() if m not in compared},
        untested="" if len(results.zero_shot_pairs) else "No differences between methods were tested.",
    )
    data = zero_shot_table.TITLES.get(rows["data"].iloc[0], rows["data"].iloc[0])
    return Finding(f"Zero-shot accuracy on {data}", sentences(contest), remarks(contest))


def _cosine_gap(gaps: GapResults) -> Finding:
    """The test split's gap of vectors that have not seen the answer, and what the same vectors find."""
    scoring = gaps.scorings()[0]
    rows = cosine_gap_table.numbers(gaps)
    splits = [split for split in cosine_gap_table.SPLITS if split in set(rows["split"])]
    rows = rows[(rows["split"] == splits[0]) & (rows["scoring"] == scoring) & (rows["quantity"] == "gap")]
    rows = rows.set_index("method")
    names = _unique(gaps, [*rows.index])

    def against(one: str, other: str) -> Difference | None:
        return between(gaps.pairs, names[one], names[other], split=splits[0], scoring=scoring)

    declared = {*gaps.pairs["first"], *gaps.pairs["second"]} if len(gaps.pairs) else set()
    compared = [m for m in rows.index if m not in gaps.baselines or m in declared] or list(rows.index)
    contest = Contest(
        values={label: _value(rows.loc[m]) for label, m in names.items() if m in compared},
        against=against,
        level=_level(gaps.confidence),
        digits=cosine_gap_table.DIGITS,
        aside={label: _value(rows.loc[m]) for label, m in names.items() if m not in compared},
        untested="" if len(gaps.pairs) else "No differences between methods were tested.",
    )
    first = max(rows.index, key=lambda method: rows.loc[method, "R@1"])
    caution = (
        "The gap is not a retrieval score: a search by these cosines has at best an R@1 of "
        f"{number(float(rows.loc[first, 'R@1']))}% ({gaps.labels[first]})."
    )
    absent = [f"No gap, because they do not compare vectors: {listed(gaps.absent())}."] if gaps.absent() else []
    name = cosine_gap_table.SPLITS[splits[0]]
    heading = f"Cosine gap, {name[0].lower()}{name[1:]}"
    return Finding(heading, [*sentences(contest), caution], [*remarks(contest), *absent])


def _verdict(results: Results) -> Finding:
    several = len(directions(results, place(results))) > 1
    said = [
        f"{outcome} {_gain(results, judged)}."
        for outcome, judged in zip(verdict_notes.outcomes(results), judge(results), strict=True)
    ]
    keys = results.verdict
    assert keys is not None
    wins = sum(judged.win for judged in judge(results))
    counted = f"{wins} of {len(said)} methods win over {results.labels[keys.baseline]}." if len(said) > 1 else ""
    where = f"{TITLES[place(results)]}" + (", either search direction" if several else "")
    heading = f"Verdict: who wins over {results.labels[keys.baseline]} ({where})"
    return Finding(heading, [*filter(None, [counted]), *said])


def _gain(results: Results, judged: Judged) -> str:
    """The mean gain that the verdict rests on."""
    best = judged.best
    ends = bounds(best.low, best.high, 1, signed=True)
    shown = f" [{ends[0]}, {ends[1]}]" if ends else ""
    p = "no p-value" if math.isnan(best.p_holm) else holm(best.p_holm)
    return f"Its mean gain there is {number(best.difference, 1, True)} points{shown}, {p}"


def _value(row: pd.Series) -> Value:
    low, high = (float(row.get(name, np.nan)) for name in ("low", "high"))
    return float(row["estimate"]), low, high


def _level(confidence: float) -> float:
    return round(1 - confidence, 12)


def _unique(results: Results | GapResults, methods: Sequence[str]) -> dict[str, str]:
    """Label → method, in order; two methods of one label are told apart by their keys."""
    labels = [results.labels[method] for method in methods]
    return {
        label if labels.count(label) == 1 else f"{label} ({method})": method
        for label, method in zip(labels, methods, strict=True)
    }
