"""Accuracy in Binary against chance: which methods are shown to tell a clip from its time-reversed twin.

The test is the inversion of the interval of one method's mean (:func:`rewind.statistics.inference.mean_inference`), so
training seeds and clusters of queries are random in both, and p < α exactly where the interval excludes 50%.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import scipy

from rewind.ranking_metrics import ACCURACY_METRIC, CHANCE_ACCURACY, METRICS
from rewind.statistics import labels
from rewind.statistics.blocks import RankBlock
from rewind.statistics.bounds import wilson_statistic, zero_variance_p_value
from rewind.statistics.inference import Inference, family_adjusted, mean_inference
from rewind.statistics.pairs import RandomFactors
from rewind.statistics.variance import variance_components

MIN_TESTED_CLUSTERS = 10
"""Least number of clusters for a test against chance: with fewer, tests would detect next to nothing (the sign test of
five has no p below 0.06) and would only make Holm's correction of the others stricter."""
CHANCE_COLUMNS = (
    *("method", "setting", "direction", "metric", "seeds", "queries", "clusters", "estimate", "low", "high"),
    *("chance", "tied", "p", "p_holm", "family", "procedure"),
)
ALL_TIED = 100.0
"""Value of the column ``tied`` of a method that ties every query in every run: it cannot tell a clip from its twin."""


def against_chance(accuracy: Inference, clusters: int) -> Inference:
    """The same accuracies with a test against 50%: p is the α at which their interval just excludes it.

    Where every cluster has the same value in every seed it is the sign test over clusters at 0% and 100%, and p = 1 at
    50% (:func:`~rewind.statistics.bounds.zero_variance_p_value`); elsewhere the standard error is that of a share of ½
    (:func:`~rewind.statistics.bounds.wilson_statistic`). ``accuracy`` is in percent, with any shape; p is NaN where a
    trained method has one seed, or there is one cluster.

    Example:
        >>> right = np.repeat([100.0, 0.0], [32, 8])  # 32 of 40 clusters, by a model that cannot be trained again
        >>> fixed = variance_components(right[None], np.ones(40, dtype=int), fixed=True)
        >>> result = mean_inference(fixed, 0.95, least=0, most=100)
        >>> bool(result.low > 50), bool(against_chance(result, clusters=40).p < 0.05)
        (True, True)
    """
    has_variance = accuracy.variance > 0
    # The 1 only avoids a division by 0: where there is no variance, p comes from zero_variance_p_value.
    share, variance = accuracy.estimate / 100, np.where(has_variance, accuracy.variance, 1) / 100**2
    statistic = wilson_statistic(share, variance, CHANCE_ACCURACY / 100)
    p = np.where(
        has_variance,
        2 * scipy.special.stdtr(accuracy.df, -statistic),
        # An accuracy is at most 50 points away from chance, which is the reach of the difference.
        zero_variance_p_value(accuracy.estimate - CHANCE_ACCURACY, np.asarray(CHANCE_ACCURACY), clusters),
    )
    return replace(
        accuracy,
        p=np.where(accuracy.claims & np.isfinite(accuracy.variance), p, np.nan),  # V is NaN with one cluster
        statistic=np.where(has_variance, statistic, np.nan),  # what family_p_value takes
    )


def tied_percent(block: RankBlock, method: str) -> float:
    """Percent of a method's queries, over all its runs, whose true item ties with another: 100 if all do."""
    return 100 * float((block.ties[method] > 0).mean())


def chance_rows(
    block: RankBlock, confidence: float, random: RandomFactors, compared: Collection[str]
) -> list[dict[str, Any]]:
    """Rows of :data:`CHANCE_COLUMNS` for one search direction of Binary, one per method.

    Methods in ``compared`` with ``MIN_TESTED_CLUSTERS`` clusters of queries or more are tested (others are baselines),
    but for those that tie every query in every run: they cannot tell a clip from its twin, and no other queries would
    show that they can. Holm's correction runs over the tested methods; one with a single training seed has no p-value
    and counts too. Intervals are not adjusted.
    """
    found = [_chance_row(block, method, confidence, random) for method in block.higher]
    rows = [row for row, _ in found]
    family = [(row, result) for row, result in found if _is_tested(row, compared, random)]
    adjusted = family_adjusted([result for _, result in family])
    for (row, _), p_holm in zip(family, adjusted.tolist(), strict=True):
        row.update(p_holm=p_holm, family=len(family))
    untested = {"p": np.nan, "p_holm": np.nan, "family": 0}
    return [row if "family" in row else row | untested for row in rows]


def _chance_row(
    block: RankBlock, method: str, confidence: float, random: RandomFactors
) -> tuple[dict[str, Any], Inference]:
    fixed, sizes, seeds = method in random.fixed, block.clusters.sizes, len(block.higher[method])
    components = variance_components(block.totals(method, (ACCURACY_METRIC,))[0], sizes, fixed)
    least, most = METRICS[ACCURACY_METRIC].range(block.gallery)
    result = against_chance(mean_inference(components, confidence, least=least, most=most), len(sizes))
    estimate, exact = float(result.estimate), method in random.exact  # chance is computed, not estimated: no error
    row = {
        **{"method": method, "setting": block.setting, "direction": block.direction, "metric": ACCURACY_METRIC},
        **{"seeds": seeds, "queries": len(block.queries), "clusters": len(sizes), "estimate": estimate},
        "low": estimate if exact else float(result.low),
        "high": estimate if exact else float(result.high),
        **{"chance": CHANCE_ACCURACY, "tied": tied_percent(block, method)},
        "p": float(result.p),
        "procedure": labels.method(seeds, fixed=fixed),
    }
    return row, result


def _is_tested(row: dict[str, Any], compared: Collection[str], random: RandomFactors) -> bool:
    is_compared = row["method"] in compared and row["method"] not in random.exact
    return is_compared and row["tied"] < ALL_TIED and row["clusters"] >= MIN_TESTED_CLUSTERS
