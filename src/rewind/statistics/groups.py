"""Results by group of queries: intervals, and in Binary a test of accuracy against chance."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from rewind.ranking_metrics import METRICS
from rewind.statistics import labels
from rewind.statistics.blocks import NotEvaluated, RankBlock, RunRanks, rank_blocks
from rewind.statistics.chance import MIN_TESTED_CLUSTERS, against_chance, tied_percent
from rewind.statistics.inference import Inference, family_adjusted, mean_inference
from rewind.statistics.pairs import RandomFactors
from rewind.statistics.variance import Clusters, variance_components

GROUP_RESULT_COLUMNS = (
    *("setting", "direction", "group", "method", "metric", "seeds", "queries", "clusters", "estimate", "low", "high"),
    *("p", "p_holm", "family", "procedure", "tied"),
)
_UNTESTED = {"p": np.nan, "p_holm": np.nan, "family": 0}


def results_by_group(
    runs: RunRanks,
    groups: Mapping[str, str],
    deciding: Mapping[str, str],
    confidence: float,
    random: RandomFactors,
    compared: Collection[str],
    left_out: NotEvaluated | None = None,
) -> pd.DataFrame:
    """The deciding metric of every method in every group.

    Only Binary has a test: accuracy against 50%, two-sided, with the standard error under chance, so that it inverts
    the interval (:func:`~rewind.statistics.chance.against_chance`). Holm's correction runs over all compared methods
    and all groups with ``MIN_TESTED_CLUSTERS`` clusters or more, per search direction. ``tied`` is the percentage of
    queries that tie with the twin, over all runs; it is empty outside of Binary.

    Args:
        runs: rank tables.
        groups: query → its group; queries that are absent are in no group.
        deciding: setting → its metric.
        confidence: of the intervals, which are not adjusted for the number of groups.
        random: which methods are fixed models or exact.
        compared: methods that are tested; others are baselines.
        left_out: where methods were deliberately not evaluated.

    Returns:
        Columns :data:`GROUP_RESULT_COLUMNS`: a row per setting, direction, group and method, groups sorted by name.
        Settings in which no query has a group have no rows.
    """
    rows: list[dict[str, Any]] = []
    for block in rank_blocks(runs, left_out):
        group_of_query = np.array([groups.get(query, "") for query in block.queries], dtype=object)
        group_rows = [
            _group_row(
                _select_queries(block, group_of_query == group),
                group,
                method,
                deciding[block.setting],
                confidence,
                random,
            )
            for group in sorted(set(group_of_query) - {""})
            for method in block.higher
        ]
        rows += (
            _holm_corrected(group_rows, compared)
            if block.setting == "binary"
            else [row | _UNTESTED for row, _ in group_rows]
        )
    return pd.DataFrame(rows, columns=list(GROUP_RESULT_COLUMNS))


def _select_queries(block: RankBlock, selected: np.ndarray) -> RankBlock:
    """A block of the queries where the mask (Q,) is true; they search the same gallery."""
    # Cluster number of each query, from the queries in the order of clusters.
    clusters = np.empty(len(block.queries), int)
    clusters[block.clusters.order] = np.repeat(np.arange(len(block.clusters.sizes)), block.clusters.sizes)
    higher, ties = ({m: ranks[:, selected] for m, ranks in counts.items()} for counts in (block.higher, block.ties))
    queries = block.queries[selected]
    return RankBlock(
        block.setting,
        block.direction,
        queries,
        Clusters.of(clusters[selected]),
        higher,
        ties,
        block.gallery,
        block.constant,
    )


def _group_row(
    block: RankBlock, group: str, method: str, metric: str, confidence: float, random: RandomFactors
) -> tuple[dict[str, Any], Inference]:
    fixed, sizes = method in random.fixed, block.clusters.sizes
    components = variance_components(block.totals(method, (metric,))[0], sizes, fixed)
    least, most = METRICS[metric].range(block.gallery)
    result = mean_inference(components, confidence, METRICS[metric].skewed, least, most)
    exact = method in random.exact | block.constant  # computed, not estimated: no error
    estimate = float(result.estimate)
    is_binary = block.setting == "binary"
    if is_binary:
        result = against_chance(result, len(sizes))
    row = {
        **{"setting": block.setting, "direction": block.direction, "group": group, "method": method},
        **{"metric": metric, "seeds": len(block.higher[method]), "queries": len(block.queries)},
        **{"clusters": len(sizes), "estimate": estimate, "p": float(result.p) if is_binary and not exact else np.nan},
        "low": estimate if exact else float(result.low),
        "high": estimate if exact else float(result.high),
        "procedure": labels.method(len(block.higher[method]), METRICS[metric].skewed, fixed),
        "tied": tied_percent(block, method) if is_binary else np.nan,
    }
    return row, result


def _holm_corrected(rows: list[tuple[dict[str, Any], Inference]], compared: Collection[str]) -> list[dict[str, Any]]:
    tested = [row["method"] in compared and row["clusters"] >= MIN_TESTED_CLUSTERS for row, _ in rows]
    family = [result for (_, result), is_tested in zip(rows, tested, strict=True) if is_tested]
    adjusted = iter(family_adjusted(family).tolist())
    return [
        row | ({"p_holm": next(adjusted), "family": len(family)} if is_tested else _UNTESTED)
        for (row, _), is_tested in zip(rows, tested, strict=True)
    ]
