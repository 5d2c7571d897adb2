"""Ranks of methods among each other, with simultaneous confidence intervals.

A method's rank is 1 plus the number of methods that are truly better. Holm's comparisons of all pairs say, at one level
for all of them, which methods are truly better than which: at least those that are significantly better than a method
are above it, and at least those that are significantly worse are below it. Where no such comparison errs, every
interval holds its method's rank, in any order of methods that are truly equal (Al Mohamad, Goeman and van Zwet, 2022;
Mogstad, Romano, Shaikh and Wilhelm, 2024).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from rewind.ranking_metrics import METRICS, tested_metrics
from rewind.statistics.inference import significance_level

METHOD_RANK_COLUMNS = ("method", "setting", "direction", "metric", "rank", "low", "high", "compared", "confidence")
_GROUP_BY = ["setting", "direction", "metric"]


def rank_by_mean(values: np.ndarray, lower_is_better: bool = False) -> np.ndarray:
    """(…, K) ranks of K methods by their means, 1 for the best; equal means share the best of their ranks.

    Example:
        >>> rank_by_mean(np.array([40.0, 42.0, 40.0])).tolist()
        [2, 1, 2]
    """
    values = np.asarray(values, dtype=float) * (-1 if lower_is_better else 1)
    own, other = values[..., :, None], values[..., None, :]
    # atol=0: the default of np.isclose is absolute and would take small means for equal.
    above = (other > own) & ~np.isclose(other, own, rtol=1e-12, atol=0)  # equal means may differ in the last bit
    return 1 + above.sum(axis=-1)


def rank_bounds(better: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the intervals of ranks, (…, K) each.

    1 + the number of methods that are significantly better, and K − the number that are significantly worse. ``better``
    is (…, K, K) bool: whether the method of the row is significantly better than that of the column.

    Example:
        >>> better = np.array([[0, 1, 1], [0, 0, 0], [0, 0, 0]], dtype=bool)  # the first is better than the others
        >>> low, high = rank_bounds(better)
        >>> low.tolist(), high.tolist()
        ([1, 2, 2], [1, 3, 3])
    """
    return 1 + better.sum(axis=-2), better.shape[-1] - better.sum(axis=-1)


def method_ranks(
    intervals: pd.DataFrame, pairs: pd.DataFrame, compared: Collection[str], confidence: float
) -> pd.DataFrame:
    """Rows of :data:`METHOD_RANK_COLUMNS`: ranks of compared methods in every setting, direction and tested metric.

    ``intervals`` and ``pairs`` are those of :func:`rewind.statistics.comparisons.compare_methods`; ``confidence`` is
    that of all intervals of a setting, direction and metric together. A method without a result has no rank there.
    There is no row of a setting and direction where fewer than two methods have results, where two of them were not
    compared with each other, or where no comparison has a p-value.
    """
    rows: list[dict[str, Any]] = []
    means = intervals[intervals["metric"].isin(tested_metrics()) & intervals["method"].isin(list(compared))]
    tests = dict(iter(pairs.groupby(_GROUP_BY, sort=False))) if len(pairs) else {}
    for key, rows_of_key in means.groupby(_GROUP_BY, sort=False):
        estimates = rows_of_key.set_index("method")["estimate"]
        methods = [method for method in compared if method in estimates.index]
        better = _significantly_better(methods, tests.get(key), METRICS[key[2]].lower_is_better, confidence)
        if better is None:
            continue
        rank = rank_by_mean(estimates[methods].to_numpy(), METRICS[key[2]].lower_is_better)
        low, high = rank_bounds(better)
        for i, method in enumerate(methods):
            rows.append(
                {"method": method} | dict(zip(_GROUP_BY, key, strict=True))
                | {"rank": int(rank[i]), "low": int(low[i]), "high": int(high[i])}
                | {"compared": len(methods), "confidence": confidence}
            )  # fmt: skip
    return pd.DataFrame(rows, columns=list(METHOD_RANK_COLUMNS))


def _significantly_better(
    methods: Sequence[str], tests: pd.DataFrame | None, lower_is_better: bool, confidence: float
) -> np.ndarray | None:
    """(K, K) whether the row's method is significantly better than the column's; None where comparisons are missing."""
    if tests is None or len(methods) < 2 or tests["p_holm"].isna().all():
        return None
    position = {method: i for i, method in enumerate(methods)}
    tests = tests[tests["first"].isin(position) & tests["second"].isin(position)]
    tested_pairs = {frozenset(pair) for pair in zip(tests["first"], tests["second"], strict=True)}
    # A missing comparison could go either way, so that no interval would hold.
    if any(frozenset(pair) not in tested_pairs for pair in combinations(methods, 2)):
        return None
    level, sign = significance_level(confidence), -1 if lower_is_better else 1
    better = np.zeros((len(methods), len(methods)), dtype=bool)
    for row in tests.itertuples():
        if row.p_holm < level and row.difference != 0:  # false for NaN: what is not tested shows nothing
            winner, loser = (row.first, row.second) if sign * row.difference > 0 else (row.second, row.first)
            better[position[winner], position[loser]] = True
    return better
