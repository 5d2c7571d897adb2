"""Intervals and tests of cosine gaps over training seeds and clusters of items.

The negatives of a gap are pairs of a caption and an item of another cluster, so every cluster enters the mean twice: by
its captions, and as a candidate of all others. Both are in its residual (the first-order part of a U-statistic,
Hoeffding, 1948); the rest is :mod:`rewind.statistics.inference`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from rewind.evaluation.cosine_gap import CosineGap
from rewind.statistics import labels
from rewind.statistics.inference import holm_adjusted, mean_inference
from rewind.statistics.pairs import ALL_RANDOM, RandomFactors, compare_pair
from rewind.statistics.variance import variance_components

QUANTITIES = ("gap", "positive", "negative")
INTERVAL_COLUMNS = (
    *("method", "split", "scoring", "quantity", "seeds", "captions", "clusters", "estimate", "std", "low", "high"),
    *("procedure", "df", "seed_share"),
)
PAIR_COLUMNS = (
    *("first", "second", "split", "scoring", "difference", "low", "high", "p", "p_holm", "procedure", "family", "df"),
)

GapsByScoring = Mapping[tuple[str, str], Mapping[str, list[CosineGap]]]
"""(split, scoring) → method → its gaps, one per seed."""


def gap_totals(
    gap: CosineGap, cluster_of_caption: np.ndarray, cluster_of_item: np.ndarray, clusters: int
) -> np.ndarray:
    """Sums over each cluster of its contributions to gap, positive mean and negative mean, (3, C).

    Args:
        gap: of one run.
        cluster_of_caption, cluster_of_item: (Q,) and (M,), from 0 to ``clusters`` - 1.
        clusters: C.
    """

    def summed(values: np.ndarray, clusters_of_values: np.ndarray) -> np.ndarray:
        return np.bincount(clusters_of_values, values, minlength=clusters)

    # Influences of all items sum to 0: they leave the mean as it is and only move it between clusters' residuals.
    positive = summed(gap.positive, cluster_of_caption)
    negative = summed(gap.negative, cluster_of_caption) + summed(gap.influence, cluster_of_item)
    return np.stack([positive - negative, positive, negative])


def compare_gaps(
    gaps: GapsByScoring,
    clusters: Mapping[str, tuple[np.ndarray, np.ndarray]],
    pairs: list[tuple[str, str]],
    confidence: float,
    random: RandomFactors = ALL_RANDOM,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Intervals of gap, positive and negative mean of every method, and differences in gap of every pair.

    Args:
        gaps: of all runs.
        clusters: split → clusters of its captions and of its items, counted from 0.
        pairs: the declared family. Holm's correction runs over those of its pairs whose methods both have gaps in a
            split and scoring.
        confidence: of the intervals.
        random: which methods are fixed models, and whether seeds are paired.

    Returns:
        Tables with :data:`INTERVAL_COLUMNS` and :data:`PAIR_COLUMNS`.
    """
    intervals, differences = [], []
    for (split, scoring), methods in gaps.items():
        captions, items = clusters[split]
        count = int(items.max()) + 1
        sizes = np.bincount(captions, minlength=count)
        key = {"split": split, "scoring": scoring}
        totals = {
            method: np.stack([gap_totals(run, captions, items, count) for run in seeds], axis=1)  # (3, S, C)
            for method, seeds in methods.items()
        }
        for method, each in totals.items():
            intervals += _interval_rows(method, key, each, sizes, confidence, method in random.fixed)
        evaluated = [pair for pair in pairs if pair[0] in methods and pair[1] in methods]
        if evaluated:
            differences += _pair_rows(
                evaluated, key, {m: each[0] for m, each in totals.items()}, sizes, confidence, random
            )
    return pd.DataFrame(intervals, columns=list(INTERVAL_COLUMNS)), pd.DataFrame(
        differences, columns=list(PAIR_COLUMNS)
    )


def _interval_rows(
    method: str, key: dict[str, str], totals: np.ndarray, sizes: np.ndarray, confidence: float, fixed: bool
) -> list[dict[str, Any]]:
    result, seeds = mean_inference(variance_components(totals, sizes, fixed), confidence), totals.shape[1]
    per_seed = totals.sum(axis=-1) / sizes.sum()
    size = {"seeds": seeds, "captions": int(sizes.sum()), "clusters": len(sizes)}
    return [
        {"method": method, "quantity": quantity}
        | key
        | size
        | {"estimate": result.estimate[k], "low": result.low[k], "high": result.high[k]}
        | {"std": float(per_seed[k].std(ddof=1)) if seeds > 1 else np.nan}
        | {"procedure": labels.method(seeds, fixed=fixed), "df": result.df[k], "seed_share": result.seed_share[k]}
        for k, quantity in enumerate(QUANTITIES)
    ]


def _pair_rows(
    pairs: list[tuple[str, str]],
    key: dict[str, str],
    totals: dict[str, np.ndarray],
    sizes: np.ndarray,
    confidence: float,
    random: RandomFactors,
) -> list[dict[str, Any]]:
    """Rows of :data:`PAIR_COLUMNS`; ``totals``: method → (S, C) of the gap."""
    results = [compare_pair(totals, pair, sizes, confidence, random) for pair in pairs]
    adjusted = holm_adjusted(np.array([float(result.p) for result, _ in results]))
    return [
        {"first": a, "second": b, "difference": float(result.estimate)}
        | {"low": float(result.low), "high": float(result.high)}
        | key
        | {"p": float(result.p), "p_holm": adjusted[at], "procedure": procedure}
        | {"family": len(pairs), "df": float(result.df)}
        for at, ((a, b), (result, procedure)) in enumerate(zip(pairs, results, strict=True))
    ]
