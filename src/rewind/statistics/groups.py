"""Results group by group: intervals, and in Binary whether a method is right more often than by chance."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from rewind.metrics import METRICS
from rewind.statistics import labels
from rewind.statistics.blocks import Block, Left, Runs, blocks
from rewind.statistics.bounds import unseen_p, wilson_p
from rewind.statistics.inference import holm, one
from rewind.statistics.pairs import Random
from rewind.statistics.parts import Clusters, parts

CHANCE = 50.0
"""Percent of Binary's queries that a method gets right that cannot tell a clip from its twin."""
TESTED_FROM = 10
"""Clusters of queries from which a group is tested: with fewer, tests would find next to nothing (the sign test over
five clusters has no p below 0.06) and would only make the others' correction stricter."""
COLUMNS = (
    *("setting", "direction", "group", "method", "metric", "seeds", "queries", "clusters", "estimate", "low", "high"),
    *("p", "p_holm", "family", "procedure"),
)


def by_group(
    runs: Runs,
    groups: Mapping[str, str],
    deciding: Mapping[str, str],
    confidence: float,
    random: Random,
    compared: Collection[str],
    left_out: Left | None = None,
) -> pd.DataFrame:
    """The deciding metric of every method in every group.

    The test is of Binary alone: accuracy against 50%, two-sided, at the interval's own standard error under chance
    (:func:`~rewind.statistics.bounds.wilson_p`). Holm's correction runs over all compared methods and all groups with
    ``TESTED_FROM`` clusters, per search direction.

    Args:
        runs: rank tables.
        groups: query → its group; other queries are in none.
        deciding: setting → its metric.
        confidence: of the intervals, which are not adjusted for the number of groups.
        random: which methods are fixed models or exact.
        compared: methods that are tested; others are baselines.
        left_out: where methods were not evaluated, for a reason that is known.

    Returns:
        A row per setting, direction, group and method, groups by name; settings in which no query has a group have no
        rows.
    """
    rows: list[dict[str, Any]] = []
    for block in blocks(runs, left_out):
        named = np.array([groups.get(query, "") for query in block.queries], dtype=object)
        here = [
            _row(_part(block, named == group), group, method, deciding[block.setting], confidence, random)
            for group in sorted(set(named) - {""})
            for method in block.higher
        ]
        rows += _corrected(here, compared) if block.setting == "binary" else [row | _UNTESTED for row in here]
    return pd.DataFrame(rows, columns=list(COLUMNS))


_UNTESTED = {"p": np.nan, "p_holm": np.nan, "family": 0}


def _part(block: Block, chosen: np.ndarray) -> Block:
    """Some queries of a block."""
    clusters = np.empty(len(block.queries), int)
    clusters[block.clusters.order] = np.repeat(np.arange(len(block.clusters.sizes)), block.clusters.sizes)
    higher, ties = ({m: of[:, chosen] for m, of in counts.items()} for counts in (block.higher, block.ties))
    queries = block.queries[chosen]
    return Block(block.setting, block.direction, queries, Clusters.of(clusters[chosen]), higher, ties, block.gallery)


def _row(block: Block, group: str, method: str, metric: str, confidence: float, random: Random) -> dict[str, Any]:
    fixed, sizes = method in random.fixed, block.clusters.sizes
    found = parts(block.totals(method, (metric,))[0], sizes, fixed)
    least, most = METRICS[metric].range(block.gallery)
    result = one(found, confidence, METRICS[metric].skewed, least, most)
    exact, estimate = method in random.exact, float(result.estimate)
    p = np.nan
    if block.setting == "binary" and result.claims and not exact:
        share, variance = result.estimate / 100, result.variance / 100**2
        p = float(
            unseen_p(result.estimate - CHANCE, np.asarray(CHANCE), len(sizes))
            if result.variance == 0
            else wilson_p(share, variance, result.df, CHANCE / 100)
        )
    return {
        **{"setting": block.setting, "direction": block.direction, "group": group, "method": method},
        **{"metric": metric, "seeds": len(block.higher[method]), "queries": len(block.queries)},
        **{"clusters": len(sizes), "estimate": estimate, "p": p},
        "low": estimate if exact else float(result.low),
        "high": estimate if exact else float(result.high),
        "procedure": labels.method(len(block.higher[method]), METRICS[metric].skewed, fixed),
    }


def _corrected(rows: list[dict[str, Any]], compared: Collection[str]) -> list[dict[str, Any]]:
    tested = [row["method"] in compared and row["clusters"] >= TESTED_FROM for row in rows]
    p = np.array([row["p"] for row, asked in zip(rows, tested, strict=True) if asked])
    adjusted = iter(holm(p).tolist())
    return [
        row | ({"p_holm": next(adjusted), "family": len(p)} if asked else _UNTESTED)
        for row, asked in zip(rows, tested, strict=True)
    ]
