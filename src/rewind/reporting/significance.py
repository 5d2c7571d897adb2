"""Which methods of a column differ: who beats whom, and who may be called best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from rewind.metrics import known
from rewind.reporting.results import Results


@dataclass(frozen=True)
class Verdict:
    """Of one metric, setting and direction.

    Attributes:
        beats: method → the methods that it is significantly better than.
        best: the method with the best value and those that are not shown to be worse than it, above the first that
            is; empty where nobody is.
        tested: whether any two methods were.
        few: the clusters of queries, where they are too few for letters.
        blind: of each bold method but the best, the smallest difference to the best that the comparison could see; with
            too few clusters, of every pair.
    """

    beats: Mapping[str, frozenset[str]] = field(default_factory=dict)
    best: frozenset[str] = frozenset()
    tested: bool = False
    few: int | None = None
    blind: tuple[float, ...] = ()


LETTERS_FROM = 20
"""Clusters of queries from which letters are given: with fewer, tests err less often than they say, but find next to
nothing, and intervals of mean ranks cover too seldom (benchmarks/calibration.py)."""


def judge(results: Results, setting: str, direction: str, metric: str, estimates: Mapping[str, float]) -> Verdict:
    """Read the comparisons of one column. Only the deciding metric's have letters.

    A method that was not compared with the best one is not called best.

    Args:
        results: the study's numbers.
        setting, direction, metric: which column.
        estimates: every compared method's value.
    """
    if metric != results.deciding(setting):
        return Verdict()
    table = tests(results, setting, direction, metric)
    if table.empty:
        return Verdict()
    if table["clusters"].min() < LETTERS_FROM:
        return Verdict(few=int(table["clusters"].min()), blind=tuple(table["detectable"].dropna()))
    sign = -1.0 if known(metric).lower_is_better else 1.0
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
    first, best = _best(estimates, sign, frozen, equals)
    near = table[
        (table["first"].isin(first) & table["second"].isin(best - first))
        | (table["second"].isin(first) & table["first"].isin(best - first))
    ]
    return Verdict(frozen, best, len(table) > 0, blind=tuple(near["detectable"].dropna()))


def tests(results: Results, setting: str, direction: str, metric: str) -> pd.DataFrame:
    """Comparisons of two methods that earn letters, as far as they have a p-value."""
    table = results.pairs
    if table.empty:
        return table
    compared = results.compared()
    here = (table["setting"] == setting) & (table["direction"] == direction) & (table["metric"] == metric)
    return table[here & table["first"].isin(compared) & table["second"].isin(compared) & table["p_holm"].notna()]


def _best(
    estimates: Mapping[str, float], sign: float, beats: Mapping[str, frozenset[str]], equals: Mapping[str, set[str]]
) -> tuple[set[str], frozenset[str]]:
    """Methods with the best value; those that are bold."""
    top = max((sign * value for value in estimates.values()), default=np.nan)
    # Means of equal values may differ in the last bit.
    first = {method for method, value in estimates.items() if np.isclose(sign * value, top, rtol=1e-12)}
    beaten = set().union(*(beats.get(method, ()) for method in first))
    if not beaten:
        return first, frozenset()
    alike = set().union(*(equals.get(method, ()) for method in first))
    # A value below one that is shown to be worse has only varied too much to be: it is no rival of the best.
    bar = max(sign * estimates[method] for method in beaten)
    return first, frozenset(first | {method for method in alike - beaten if sign * estimates[method] > bar})
