"""The order of methods in tables, their ranks, and what is said where there are none."""

from __future__ import annotations

import pandas as pd

from rewind.metrics import known
from rewind.reporting.results import Results, directions, estimate
from rewind.reporting.significance import LETTERS_FROM
from rewind.study.report import RANK, split_column

PRIMARY = "primary"
"""Value of the key ``tables.order``: the best method first."""


def shows_ranks(results: Results) -> bool:
    """Whether the study's tables have a column of ranks."""
    return any(split_column(column)[1] == RANK for column in results.columns)


def leading(results: Results, setting: str) -> str:
    """The search direction that orders a setting's table: of the first column that shows the deciding metric."""
    ways = directions(results, setting)
    if setting != "binary":
        for column in results.columns:
            direction, metric, _ = split_column(column)
            if metric == results.deciding(setting):
                return direction or ways[0]
    return ways[0]


def ordered(results: Results, setting: str) -> list[str]:
    """All methods in the order of a setting's table: compared ones, then baselines.

    With ``tables.order: primary`` each of the two goes from best to worst in the deciding metric, and those without a
    result in this setting come last; equal methods keep the order of the study.
    """
    if results.order != PRIMARY:
        return results.ordered()
    way, metric = leading(results, setting), results.deciding(setting)
    sign = 1 if known(metric).lower_is_better else -1

    def place(method: str) -> tuple[bool, bool, float]:
        absent = bool(results.reason(method, setting, way))
        value = 0.0 if absent else sign * estimate(results, method, setting, way, metric)
        return method in results.baselines, absent, value

    return sorted(results.ordered(), key=place)


def rank(results: Results, method: str, setting: str, direction: str) -> tuple[float, float, float] | None:
    """A method's place by the deciding metric with the ends of its interval; None where it has none."""
    return results.places_of.get((method, setting, direction, results.deciding(setting)))


def trusted(results: Results) -> pd.DataFrame:
    """Rows of ``ranks.csv`` of the settings that have enough clusters of queries for letters."""
    if results.places.empty or results.pairs.empty:
        return results.places
    clusters = results.pairs.groupby("setting")["clusters"].min()
    return results.places[results.places["setting"].map(clusters) >= LETTERS_FROM]


def order_sentence(results: Results, setting: str) -> str:
    """How rows are ordered, where not as in the study's file."""
    if results.order != PRIMARY:
        return ""
    way = leading(results, setting)
    said = f" {results.short(way)}" if len(directions(results, setting)) > 1 else ""
    metric = "accuracy" if setting == "binary" else results.deciding(setting)
    return f"Ordered by{said} {metric}"


def rank_sentence(results: Results, setting: str, few: bool) -> str:
    """What ranks and their intervals mean, or why there are none; nothing in tables without the column."""
    if not shows_ranks(results):
        return ""
    if few:
        return "No ranks: like letters, they need more clusters of queries"
    metric = "accuracy" if setting == "binary" else results.deciding(setting)
    found = [key for key in results.places_of if key[1] == setting and key[3] == results.deciding(setting)]
    if found:
        count = max(sum(key[2] == way for key in found) for way in {key[2] for key in found})
        return (
            f"Rank: the place by {metric} among the {count} compared methods. In brackets its "
            f"{100 * results.confidence:g}% interval, which holds for all places at once: methods that are shown to be "
            "better are above it and methods that are shown to be worse below it; how the others compare with this one "
            "is open"
        )
    tested = results.pairs
    tested = tested[tested["setting"] == setting] if len(tested) else tested
    if not len(tested) or tested["p_holm"].isna().all():
        return "No ranks: no two methods were tested"
    return (
        "No ranks: they need a comparison of every two methods, and statistics.pairs names only some; name all pairs, "
        "or leave the key out"
    )
