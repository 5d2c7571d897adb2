"""Places of methods among each other, with intervals that hold for all of them at once.

A method's place is 1 plus the number of methods that are truly better. Holm's comparisons of all pairs say, with one
level for all of them, which methods are truly better than which: at least those are above a method that are
significantly better than it, and at least those are below it that are significantly worse. Where no such comparison
errs, every interval holds its method's place, in any order of methods that are truly equal (Al Mohamad, Goeman and van
Zwet, 2022; Mogstad, Romano, Shaikh and Wilhelm, 2024).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from rewind.metrics import METRICS, TESTED

RANKS = ("method", "setting", "direction", "metric", "rank", "low", "high", "compared", "confidence")
_PLACE = ["setting", "direction", "metric"]


def places(values: np.ndarray, lower_is_better: bool = False) -> np.ndarray:
    """(…, K) places of K methods by their means, 1 for the best; equal means share the best of their places."""
    values = np.asarray(values, dtype=float) * (-1 if lower_is_better else 1)
    one, other = values[..., :, None], values[..., None, :]
    above = (other > one) & ~np.isclose(other, one, rtol=1e-12, atol=0)  # equal means may differ in the last bit
    return 1 + above.sum(axis=-1)


def bounds(better: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the intervals of places.

    Args:
        better: (…, K, K) bool: whether the method of the row is significantly better than that of the column.

    Returns:
        (…, K) 1 + the number of methods that are significantly better, and K − the number that are significantly worse.
    """
    return 1 + better.sum(axis=-2), better.shape[-1] - better.sum(axis=-1)


def method_ranks(
    intervals: pd.DataFrame, pairs: pd.DataFrame, compared: Collection[str], confidence: float
) -> pd.DataFrame:
    """Rank of every compared method in every setting, direction and tested metric.

    Args:
        intervals, pairs: of :func:`rewind.statistics.comparisons.compare`.
        compared: methods that have places among each other; those without a result in a setting have none there.
        confidence: of all intervals of a setting, direction and metric together.

    Returns:
        Columns ``RANKS``. No row of a setting and direction where fewer than two methods are compared, where some two
        of them are not, or where no comparison has a p-value.
    """
    rows: list[dict[str, Any]] = []
    means = intervals[intervals["metric"].isin(TESTED) & intervals["method"].isin(list(compared))]
    tests = dict(iter(pairs.groupby(_PLACE, sort=False))) if len(pairs) else {}
    for place, part in means.groupby(_PLACE, sort=False):
        here = part.set_index("method")["estimate"]
        methods = [method for method in compared if method in here.index]
        better = _better(methods, tests.get(place), METRICS[place[2]].lower_is_better, confidence)
        if better is None:
            continue
        rank = places(here[methods].to_numpy(), METRICS[place[2]].lower_is_better)
        low, high = bounds(better)
        for at, method in enumerate(methods):
            rows.append(
                {"method": method} | dict(zip(_PLACE, place, strict=True))
                | {"rank": int(rank[at]), "low": int(low[at]), "high": int(high[at])}
                | {"compared": len(methods), "confidence": confidence}
            )  # fmt: skip
    return pd.DataFrame(rows, columns=list(RANKS))


def _better(
    methods: Sequence[str], tests: pd.DataFrame | None, lower_is_better: bool, confidence: float
) -> np.ndarray | None:
    """(K, K) who is significantly better than whom; None where the comparisons cannot say."""
    if tests is None or len(methods) < 2 or tests["p_holm"].isna().all():
        return None
    at = {method: place for place, method in enumerate(methods)}
    tests = tests[tests["first"].isin(at) & tests["second"].isin(at)]
    there = {frozenset(pair) for pair in zip(tests["first"], tests["second"], strict=True)}
    if any(frozenset(pair) not in there for pair in combinations(methods, 2)):
        return None
    level, sign = round(1 - confidence, 12), -1 if lower_is_better else 1
    better = np.zeros((len(methods), len(methods)), dtype=bool)
    for row in tests.itertuples():
        if row.p_holm < level and row.difference != 0:
            winner, loser = (row.first, row.second) if sign * row.difference > 0 else (row.second, row.first)
            better[at[winner], at[loser]] = True
    return better
