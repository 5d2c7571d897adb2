"""Which methods of a column differ: who beats whom, and who may be called best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rewind.reporting.results import LOWER_IS_BETTER, Results


@dataclass(frozen=True)
class Verdict:
    """Of one metric, setting and direction.

    Attributes:
        beats: method → the methods that it is significantly better than.
        best: the method with the best value and those that are not significantly worse than it; empty where nobody
            is significantly worse than it.
        tested: whether any two methods were.
    """

    beats: Mapping[str, frozenset[str]]
    best: frozenset[str]
    tested: bool


def judge(results: Results, setting: str, direction: str, metric: str, estimates: Mapping[str, float]) -> Verdict:
    """Read the comparisons of one column.

    A method that was not compared with the best one is not called best.

    Args:
        results: the study's numbers.
        setting, direction, metric: which column.
        estimates: every trained method's value.
    """
    table = tests(results, setting, direction, metric)
    sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
    level = round(1 - results.confidence, 12)
    beats: dict[str, set[str]] = {}
    equals: dict[str, set[str]] = {}
    for row in table.itertuples():
        if row.p_holm < level and row.difference != 0:
            winner, loser = (row.first, row.second) if sign * row.difference > 0 else (row.second, row.first)
            beats.setdefault(winner, set()).add(loser)
        else:
            equals.setdefault(row.first, set()).add(row.second)
            equals.setdefault(row.second, set()).add(row.first)
    frozen = {method: frozenset(others) for method, others in beats.items()}
    return Verdict(frozen, _best(estimates, sign, frozen, equals), len(table) > 0)


def tests(results: Results, setting: str, direction: str, metric: str) -> pd.DataFrame:
    """Comparisons of two trained methods that have a p-value."""
    table = results.pairs
    if table.empty:
        return table
    trained = results.trained()
    here = (table["setting"] == setting) & (table["direction"] == direction) & (table["metric"] == metric)
    return table[here & table["first"].isin(trained) & table["second"].isin(trained) & table["p_holm"].notna()]


def _best(
    estimates: Mapping[str, float], sign: float, beats: Mapping[str, frozenset[str]], equals: Mapping[str, set[str]]
) -> frozenset[str]:
    top = max((sign * value for value in estimates.values()), default=np.nan)
    # Means of equal values may differ in the last bit.
    first = {method for method, value in estimates.items() if np.isclose(sign * value, top, rtol=1e-12)}
    beaten = set().union(*(beats.get(method, ()) for method in first))
    if not beaten:
        return frozenset()
    alike = set().union(*(equals.get(method, ()) for method in first))
    return frozenset(first | (alike - beaten))
