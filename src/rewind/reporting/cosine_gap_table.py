"""The tables of cosine gaps: every method with its interval and R@k beside it, and differences of declared pairs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from rewind.errors import RewindError
from rewind.evaluation.ranking import RECALLS
from rewind.reporting.sheet import MISSING, Entry, Head, Part, Sheet, bounds, number, p_value, slug

SPLITS = {"test": "Test split", "valid": "Validation split"}
SCORINGS = {"independent": "Independent embeddings", "pair_conditioned": "Pair-conditioned (sees the answer)"}
GROUPS = {"independent": "Independent", "pair_conditioned": "Sees the answer"}
DIGITS = 3


@dataclass(frozen=True, eq=False)
class GapResults:
    """A study's cosine gaps.

    Attributes:
        runs: one row per run, split and scoring: gap, positive, negative, captions, items, R@k in percent.
        intervals: one row per method, split, scoring and quantity.
        pairs: one row per compared pair, split and scoring; may be empty.
        labels: method → name, in table order.
        baselines: methods that were not trained, which come last.
        confidence: of the intervals.
    """

    runs: pd.DataFrame
    intervals: pd.DataFrame
    pairs: pd.DataFrame
    labels: Mapping[str, str]
    baselines: Collection[str] = ()
    confidence: float = 0.95

    def __post_init__(self) -> None:
        for name, table in (("cosine_gap.csv", self.runs), ("statistics/cosine_gap.csv", self.intervals)):
            strangers = [method for method in table["method"].unique() if method not in self.labels]
            if strangers:
                raise RewindError(f"{name}: method {strangers[0]!r} is not in the study; compute the gaps again.")

    def ordered(self) -> list[str]:
        """Methods that have a gap, baselines last."""
        there = [method for method in self.labels if method in set(self.runs["method"])]
        return sorted(there, key=lambda method: method in self.baselines)

    def absent(self) -> list[str]:
        """Names of methods without vectors to compare."""
        return [label for method, label in self.labels.items() if method not in set(self.runs["method"])]

    def scorings(self) -> list[str]:
        """How vectors were made, in table order."""
        return [scoring for scoring in SCORINGS if scoring in set(self.runs["scoring"])]


def numbers(results: GapResults) -> pd.DataFrame:
    """The table's CSV: the intervals at full precision, with names and mean R@k over seeds."""
    keys = ["method", "split", "scoring"]
    recall = results.runs.groupby(keys, as_index=False)[list(RECALLS)].mean()
    order = {method: at for at, method in enumerate(results.ordered())}
    rows = results.intervals.merge(recall, how="left", on=keys)
    rows = rows.sort_values("method", key=lambda m: m.map(order), kind="stable", ignore_index=True)
    rows.insert(0, "label", rows["method"].map(results.labels))
    return rows


def sheet(results: GapResults, dataset: str = "") -> Sheet:
    """``Configuration | Cosine gap``, a part per split; means, R@k and what pair-conditioning makes of it beside."""
    rows = numbers(results).set_index(["split", "method", "scoring", "quantity"])
    parts = tuple(
        Part(title, tuple(_line(results, rows, split, method) for method in results.ordered()))
        for split, title in SPLITS.items()
        if split in rows.index.get_level_values("split")
    )
    first, *others = results.scorings()
    heads = [Head("Configuration", number=False), Head("Cosine gap", "↑", GROUPS[first])]
    heads += [Head(title, group=GROUPS[first]) for title in ("Pairs", "Others")]
    heads += [Head(metric, "↑", GROUPS[first]) for metric in RECALLS]
    heads += [Head(title, group=GROUPS[other]) for other in others for title in ("Cosine gap", "R@1")]
    title = ": ".join(part for part in (dataset, "captions with their own clips against others") if part)
    return Sheet("Cosine gap", title, slug(dataset, "cosine-gap"), tuple(heads), parts)


def short(whole: Sheet) -> Sheet:
    """The columns that a console has room for: names, gaps and R@1."""
    return whole.pick(
        [at for at, head in enumerate(whole.heads) if head.title in ("Configuration", "Cosine gap", "R@1")]
    )


def _line(results: GapResults, rows: pd.DataFrame, split: str, method: str) -> tuple[Entry, ...]:
    first, *others = results.scorings()
    gap = rows.loc[split, method, first, "gap"]
    cells = [Entry(results.labels[method]), _entry(gap)]
    means = (rows.loc[split, method, first, quantity] for quantity in ("positive", "negative"))
    cells += [Entry(number(row["estimate"], DIGITS)) for row in means]
    cells += [Entry(number(gap[metric])) for metric in RECALLS]
    for other in others:
        there = (split, method, other, "gap") in rows.index
        row = rows.loc[split, method, other, "gap"] if there else None
        cells += [_entry(row), Entry(number(row["R@1"]))] if there else [Entry(MISSING), Entry(MISSING)]
    return tuple(cells)


def _entry(row: pd.Series) -> Entry:
    spread = number(row["std"], DIGITS) if row["std"] == row["std"] else ""
    return Entry(number(row["estimate"], DIGITS), spread, bounds(row["low"], row["high"], DIGITS))


def pair_numbers(results: GapResults) -> pd.DataFrame:
    """The CSV of differences, with the names of both methods."""
    rows = results.pairs.copy()
    for column in ("second", "first"):
        rows.insert(0, f"{column}_label", rows[column].map(results.labels))
    return rows


def pair_sheet(results: GapResults, dataset: str = "") -> Sheet:
    """Differences in cosine gap, a part per split and scoring; some pair was compared."""
    rows, level = pair_numbers(results), round(1 - results.confidence, 12)
    parts = []
    for split, name in SPLITS.items():
        for scoring in results.scorings():
            chosen = rows[(rows["split"] == split) & (rows["scoring"] == scoring)]
            if len(chosen):
                title = f"{name}, {SCORINGS[scoring][0].lower()}{SCORINGS[scoring][1:]}"
                parts.append(Part(title, tuple(_pair(row, level) for row in chosen.itertuples())))
    heads = (Head("Pair", number=False), Head("Difference"), Head("p"), Head("Holm’s p"))
    title = ": ".join(part for part in (dataset, "differences in cosine gap") if part)
    return Sheet("Cosine gap, pairs", title, slug(dataset, "cosine-gap-pairs"), heads, tuple(parts))


def _pair(row: Any, level: float) -> tuple[Entry, ...]:
    significant = bool(row.p_holm < level)
    ends = bounds(row.low, row.high, DIGITS, signed=True)
    return (
        Entry(f"{row.first_label} − {row.second_label}"),
        Entry(number(row.difference, DIGITS, signed=True), "", ends, bold=significant),
        Entry(p_value(row.p)),
        Entry(p_value(row.p_holm), bold=significant),
    )
