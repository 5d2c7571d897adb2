"""Which methods know which way time runs, in sentences: from tests of their accuracy in Binary against chance.

All numbers are those of ``statistics/chance.csv`` and ``statistics/groups.csv``. What was not shown is never said to be
absent; only a method that ties every clip with its twin in every run cannot know.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from rewind.errors import RewindError
from rewind.ranking_metrics import ACCURACY_METRIC, CHANCE_ACCURACY
from rewind.statistics.chance import ALL_TIED, MIN_TESTED_CLUSTERS
from rewind.statistics.inference import significance_level
from rewind.tables.best_method import Verdict
from rewind.tables.results import (
    ABOVE_CHANCE,
    BELOW_CHANCE,
    Results,
    chance_mark,
    evaluated_directions,
    leading_direction,
    metric_estimate,
    ties_every_query,
)
from rewind.tables.settings import SETTING_TITLES, metric_decimals
from rewind.tables.table import format_bounds, format_number

MAX_METHODS_LISTED = 8
"""Most methods, or groups of captions, that a sentence names; of more it gives the number."""

# By search direction. T2V: which of two clips, one played backwards; V2T: which of two captions.
_KNOWS = {"text_to_item": "Knows which way time runs", "item_to_text": "Above chance"}
_NONE_KNOWS = {
    "text_to_item": "No method was shown to know which way time runs",
    "item_to_text": "No method was shown to be above chance",
}
_TIED = {
    "text_to_item": "every clip ties with its twin",
    "item_to_text": "a clip’s caption always ties with that of its twin",
}
_QUESTION = {
    "text_to_item": "Of a clip and that clip played backwards, which one fits the caption?",
    "item_to_text": "Of a clip’s caption and that of the clip played backwards, which one fits? A method that never "
    "looks at the order of frames can be right more often than not.",
}


@dataclass(frozen=True)
class MethodsAgainstChance:
    """Compared methods by what was shown of them, each kind from the highest accuracy to the lowest."""

    above: list[str] = field(default_factory=list)  # significantly above chance
    below: list[str] = field(default_factory=list)  # significantly below chance
    open: list[str] = field(default_factory=list)  # tested, and not shown to be either
    tied: list[str] = field(default_factory=list)  # they score every clip and its twin exactly the same, in every run
    untested: dict[str, str] = field(default_factory=dict)  # method → the reason


@dataclass(frozen=True)
class TimeAnswer:
    """The answer to the question of the title.

    The first of ``sentences`` says which methods know; the others, who was not shown to, who cannot, who is below
    chance.
    """

    heading: str  # names setting, direction and metric
    sentences: list[str]
    group_sentences: list[str] = field(default_factory=list)  # what is below chance in groups of captions
    remarks: list[str] = field(default_factory=list)  # what the words mean, and what was left out


QUESTION = "Does it know which way time runs?"


def time_verdicts(results: Results) -> list[Verdict]:
    """:func:`time_answer` as rows: who knows, who was not shown to, who cannot, with their numbers.

    Empty where only captions are searched in Binary, which says nothing of time (see :data:`_QUESTION`).
    """
    direction = leading_direction(results, "binary")
    if direction != "text_to_item" or results.chance.empty:
        return []
    rows = chance_by_method(results, direction)
    found = sort_by_chance(rows, significance_level(results.confidence))
    corrected, blind = _correction_text(rows), _blind_rows(results, direction)
    beyond = set(blind.loc[_beyond_blind(results, blind), "method"]) if len(blind) else set()
    and_blind = ", and than every blind baseline" if found.above and beyond.issuperset(found.above) else ""
    numbers = {str(method): (results.labels[str(method)], *_shown_interval(row)) for method, row in rows.iterrows()}
    baselines = _blind_numbers(results, direction)
    every = [
        ("yes", found.above, f"Better than guessing{corrected}{and_blind}."),
        ("open", found.open, "Shown to be neither better nor worse than guessing. That does not mean “cannot”."),
        ("below", found.below, f"Worse than guessing{corrected}: the clip played backwards is preferred."),
        ("no", found.tied, "A clip and the clip played backwards have exactly the same score, always."),
        ("untested", list(found.untested), f"Why: {', '.join(dict.fromkeys(found.untested.values()))}."),
        (
            "blind",
            list(baselines),
            "What captions, clips, single frames or artefacts give away by themselves. Not tested.",
        ),
    ]
    numbers |= baselines
    return [Verdict(kind, [numbers[m] for m in methods], why) for kind, methods, why in every if methods]


def _shown_interval(row: pd.Series) -> tuple[float, float, float]:
    """Accuracy and the ends of its interval; what is 50 by construction has none."""
    ends = (float(row["low"]), float(row["high"])) if row["tied"] != ALL_TIED else (math.nan, math.nan)
    return float(row["estimate"]), *ends


def _blind_numbers(results: Results, direction: str) -> dict[str, tuple[str, float, float, float]]:
    rows = results.intervals
    here = (rows["setting"] == "binary") & (rows["direction"] == direction) & (rows["metric"] == ACCURACY_METRIC)
    found = {}
    for row in rows[here & rows["method"].isin(list(results.only_in_binary))].itertuples():
        tied = ties_every_query(results, row.method, direction)
        ends = (math.nan, math.nan) if tied else (row.low, row.high)
        found[row.method] = (results.labels[row.method], row.estimate, *ends)
    return found


def time_answer(results: Results) -> TimeAnswer:
    """Who knows which way time runs, in the search direction that leads the tables of Binary.

    Raises:
        RewindError: if ``chance.csv`` lacks a compared method, or is of other runs than ``metrics.csv``.
    """
    direction = leading_direction(results, "binary")
    rows = chance_by_method(results, direction)
    sorted_methods = sort_by_chance(rows, significance_level(results.confidence))
    several = len(evaluated_directions(results, "binary")) > 1
    setting = f"{SETTING_TITLES['binary']}, {results.short(direction) + ' ' if several else ''}accuracy"
    title = "Which way time runs" if direction == "text_to_item" else "Against chance"
    return TimeAnswer(
        f"{title} ({setting})",
        [*chance_sentences(results, rows, sorted_methods, direction), *blind_sentences(results, direction)],
        _group_sentences(results, direction),
        _remarks(results, rows, direction),
    )


def sort_by_chance(rows: pd.DataFrame, level: float) -> MethodsAgainstChance:
    """Methods by what their tests show; those with a smaller ``p_holm`` than ``level`` are significant.

    ``rows`` of ``chance.csv`` have the method as index, one per compared method.

    Example:
        >>> numbers = {"estimate": [50.0, 82.0, 62.0], "tied": [100.0, 0.0, 0.0], "p_holm": [np.nan, 0.001, 0.2]}
        >>> rows = pd.DataFrame(numbers, index=["meanP", "seqLSTM", "tightTransf"]).assign(clusters=120)
        >>> found = sort_by_chance(rows, level=0.05)
        >>> found.above, found.open, found.tied
        (['seqLSTM'], ['tightTransf'], ['meanP'])
    """
    found = MethodsAgainstChance()
    for method, row in rows.sort_values("estimate", ascending=False, kind="stable").iterrows():
        mark = chance_mark(row["estimate"], row["p_holm"], level)
        if row["tied"] == ALL_TIED:
            found.tied.append(str(method))
        elif math.isnan(row["p_holm"]):
            seeds = "two training seeds, of more than three methods" if row.get("seeds") == 2 else "one training seed"
            few = row["clusters"] < MIN_TESTED_CLUSTERS
            found.untested[str(method)] = f"fewer than {MIN_TESTED_CLUSTERS} clusters of queries" if few else seeds
        else:
            {ABOVE_CHANCE: found.above, BELOW_CHANCE: found.below, "": found.open}[mark].append(str(method))
    return found


def chance_by_method(results: Results, direction: str) -> pd.DataFrame:
    """Rows of ``chance.csv`` of the compared methods evaluated in this direction; their index is the method."""
    table = results.chance[results.chance["direction"] == direction].set_index("method")
    methods = [m for m in results.compared() if not results.reason(m, "binary", direction)]
    for method in methods:
        where = f"chance.csv: method {method!r}, {direction}"
        if method not in table.index:
            raise RewindError(f"{where}: no row; run the statistics again.")
        mean = metric_estimate(results, method, "binary", direction, ACCURACY_METRIC)
        if not np.isclose(table.loc[method, "estimate"], mean, rtol=1e-6, atol=1e-6):
            raise RewindError(
                f"{where}: it is {table.loc[method, 'estimate']}, but its seeds in metrics.csv average {mean}; the two "
                "files are of different runs. Run the statistics again."
            )
    return table.loc[methods]


def chance_sentences(results: Results, rows: pd.DataFrame, found: MethodsAgainstChance, direction: str) -> list[str]:
    """A sentence on each kind of methods that there is, who knows first; empty without methods."""

    def listed(methods: Sequence[str]) -> str:
        return listed_accuracies(results, rows, methods)

    if not len(rows):
        return []
    decided = found.above or found.open or found.tied or found.below
    nobody = _NONE_KNOWS[direction] if decided else "No method was tested against chance"
    sentences = [f"{_KNOWS[direction]}: {listed(found.above)}." if found.above else f"{nobody}."]
    if found.open:
        sentences.append(f"Not shown: {listed(found.open)}.")
    if found.below:
        sentences.append(f"Below chance: {listed(found.below)}.")
    if found.tied:
        names = _join_listed([results.labels[m] for m in found.tied])
        sentences.append(f"Cannot: {names} ({_TIED[direction]}).")
    if found.untested:
        parts = [f"{results.labels[m]} ({_accuracy_text(rows.loc[m])}; {why})" for m, why in found.untested.items()]
        sentences.append(f"Not tested: {_join_listed(parts)}.")
    return sentences


def blind_sentences(results: Results, direction: str) -> list[str]:
    """Which methods are shown to be more accurate than every blind baseline; empty without such baselines."""
    rows = _blind_rows(results, direction)
    if rows.empty:
        return []
    beyond = _beyond_blind(results, rows)
    best = f"{results.labels[rows['best'].iloc[0]]}, {format_number(rows['blind'].iloc[0])}%"
    listed = _join_listed([f"{results.labels[row.method]} ({_points_text(row)})" for row in rows[beyond].itertuples()])
    # Methods that tie everything, or have one seed, were not tested: the sentences before state that.
    tested = rows["p_holm"].notna()
    others = _join_listed([results.labels[method] for method in rows.loc[~beyond & tested, "method"]])
    first = (
        f"More than language or vision alone give ({best}): {listed}."
        if listed
        else f"No method was shown to score more than language or vision alone give ({best})."
    )
    return [first, f"Not shown to give more: {others}."] if listed and others else [first]


def _blind_rows(results: Results, direction: str) -> pd.DataFrame:
    """Comparisons with blind baselines in a search direction, the largest difference first; empty without such."""
    blind = results.of("blind")
    return blind if blind.empty else blind[blind["direction"] == direction].sort_values("difference", ascending=False)


def _beyond_blind(results: Results, rows: pd.DataFrame) -> pd.Series:
    """Which rows of ``blind.csv`` are of methods that are shown to be more accurate than every blind baseline."""
    return (rows["p_holm"] < significance_level(results.confidence)) & (rows["difference"] > 0)


def _points_text(row: Any) -> str:
    """``+20.1 points [15.0, 25.2]``."""
    ends = format_bounds(row.low, row.high, signed=True)
    return f"{format_number(row.difference, signed=True)} points" + (f" [{', '.join(ends)}]" if ends else "")


def listed_accuracies(results: Results, rows: pd.DataFrame, methods: Sequence[str]) -> str:
    """``seqLSTM (81.9% [75.4, 87.0]), seqTransf (…)``."""
    return _join_listed([f"{results.labels[m]} ({_accuracy_text(rows.loc[m])})" for m in methods])


def _group_sentences(results: Results, direction: str) -> list[str]:
    """Groups of captions in which a method is below chance, after Holm's correction or by its interval alone."""
    table, level = results.of("groups"), significance_level(results.confidence)
    if table.empty:
        return []
    here = (table["setting"] == "binary") & (table["direction"] == direction) & table["method"].isin(results.compared())
    low = table[here & (table["family"] > 0) & (table["estimate"] < CHANCE_ACCURACY)].sort_values("estimate")
    significant = low["p_holm"] < level

    def listed(rows: pd.DataFrame) -> str:
        return _join_listed(
            [f"{results.labels[row['method']]} in {row['group']} ({_accuracy_text(row)})" for _, row in rows.iterrows()]
        )

    sentences = [f"Below chance in groups of captions: {listed(low[significant])}."] if significant.any() else []
    by_interval = low[~significant & (low["high"] < CHANCE_ACCURACY)]
    if len(by_interval):
        sentences.append(
            "Below chance by the interval alone, not after Holm’s correction over "
            f"{int(low['family'].max()):,} tests of groups: {listed(by_interval)}."
        )
    return sentences


def _remarks(results: Results, rows: pd.DataFrame, direction: str) -> list[str]:
    tested = rows[rows["p_holm"].notna()]
    remarks = [_QUESTION[direction]]
    if len(tested):
        remarks.append(
            f"Tested two-sided against the {CHANCE_ACCURACY:.0f}% of guessing, p < {1 - results.confidence:.3g}"
            f"{_correction_text(rows)}; "
            "intervals are not adjusted. “Not shown” does not mean “cannot”."
        )
    return remarks


def _correction_text(rows: pd.DataFrame) -> str:
    """`` after Holm’s correction over 3 methods``; empty where fewer than two were tested."""
    family = rows.loc[rows["p_holm"].notna(), "family"].max()
    return f" after Holm’s correction over {int(family):,} methods" if family > 1 else ""  # NaN where none was


def _accuracy_text(row: pd.Series) -> str:
    digits = metric_decimals(ACCURACY_METRIC)
    ends = format_bounds(row["low"], row["high"], digits)
    return f"{format_number(row['estimate'], digits)}%" + (f" [{ends[0]}, {ends[1]}]" if ends else "")


def _join_listed(parts: Sequence[str]) -> str:
    more = f" and {len(parts) - MAX_METHODS_LISTED:,} more" if len(parts) > MAX_METHODS_LISTED else ""
    return ", ".join(parts[:MAX_METHODS_LISTED]) + more
