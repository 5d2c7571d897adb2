"""Intervals and tests of cosine gaps over training seeds and clusters of items.

A gap is a mean over pairs of a caption and another's item, so every cluster enters twice: by its captions, and as a
candidate of all others. Both are in its residual (the first-order part of a U-statistic, Hoeffding, 1948); the rest is
:mod:`rewind.statistics.inference`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from rewind.evaluation.cosine_gap import Gap
from rewind.statistics import labels
from rewind.statistics.inference import holm, one
from rewind.statistics.pairs import NOTHING_SAID, Random, compare_pair
from rewind.statistics.parts import parts

QUANTITIES = ("gap", "positive", "negative")
INTERVALS = (
    *("method", "split", "scoring", "quantity", "seeds", "captions", "clusters", "estimate", "std", "low", "high"),
    *("procedure", "df", "seed_share"),
)
PAIRS = (
    *("first", "second", "split", "scoring", "difference", "low", "high", "p", "p_holm", "procedure", "family", "df"),
)
Found = Mapping[tuple[str, str], Mapping[str, list[Gap]]]
"""(split, scoring) → method → its gaps, one per seed."""


def gap_totals(found: Gap, cluster_of_caption: np.ndarray, cluster_of_item: np.ndarray, clusters: int) -> np.ndarray:
    """(3, C) sums over each cluster of what it adds to gap, positives and negatives, over captions.

    Args:
        found: one run's gap.
        cluster_of_caption, cluster_of_item: (Q,) and (M,), from 0 to ``clusters`` - 1.
        clusters: their number.
    """

    def summed(values: np.ndarray, of: np.ndarray) -> np.ndarray:
        return np.bincount(of, values, minlength=clusters)

    positive = summed(found.positive, cluster_of_caption)
    negative = summed(found.negative, cluster_of_caption) + summed(found.influence, cluster_of_item)
    return np.stack([positive - negative, positive, negative])


def compare_gaps(
    found: Found,
    clusters: Mapping[str, tuple[np.ndarray, np.ndarray]],
    pairs: list[tuple[str, str]],
    confidence: float,
    random: Random = NOTHING_SAID,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Intervals of gap, positive and negative mean of every method, and differences in gap of every pair.

    Args:
        found: gaps of all runs.
        clusters: split → clusters of its captions and of its items, counted from 0.
        pairs: the declared family. Holm's correction runs over those of it that a split and scoring have.
        confidence: of the intervals.
        random: which methods are fixed models, and whether seeds go in pairs.
    """
    intervals, differences = [], []
    for (split, scoring), methods in found.items():
        captions, items = clusters[split]
        count = int(items.max()) + 1
        sizes = np.bincount(captions, minlength=count)
        place = {"split": split, "scoring": scoring}
        totals = {
            method: np.stack([gap_totals(gap, captions, items, count) for gap in seeds], axis=1)  # (3, S, C)
            for method, seeds in methods.items()
        }
        for method, each in totals.items():
            intervals += _interval_rows(method, place, each, sizes, confidence, method in random.fixed)
        there = [pair for pair in pairs if pair[0] in methods and pair[1] in methods]
        if there:
            differences += _pair_rows(
                there, place, {m: each[0] for m, each in totals.items()}, sizes, confidence, random
            )
    return pd.DataFrame(intervals, columns=list(INTERVALS)), pd.DataFrame(differences, columns=list(PAIRS))


def _interval_rows(
    method: str, place: dict[str, str], totals: np.ndarray, sizes: np.ndarray, confidence: float, fixed: bool
) -> list[dict[str, Any]]:
    result, seeds = one(parts(totals, sizes, fixed), confidence), totals.shape[1]
    per_seed = totals.sum(axis=-1) / sizes.sum()
    size = {"seeds": seeds, "captions": int(sizes.sum()), "clusters": len(sizes)}
    return [
        {"method": method, "quantity": quantity}
        | place
        | size
        | {"estimate": result.estimate[k], "low": result.low[k], "high": result.high[k]}
        | {"std": float(per_seed[k].std(ddof=1)) if seeds > 1 else np.nan}
        | {"procedure": labels.method(seeds, fixed=fixed), "df": result.df[k], "seed_share": result.seed_share[k]}
        for k, quantity in enumerate(QUANTITIES)
    ]


def _pair_rows(
    pairs: list[tuple[str, str]],
    place: dict[str, str],
    totals: dict[str, np.ndarray],
    sizes: np.ndarray,
    confidence: float,
    random: Random,
) -> list[dict[str, Any]]:
    """``totals``: method → (S, C) of the gap."""
    found = [compare_pair(totals, pair, sizes, confidence, random) for pair in pairs]
    adjusted = holm(np.array([float(result.p) for result, _ in found]))
    return [
        {"first": a, "second": b, "difference": float(result.estimate)}
        | {"low": float(result.low), "high": float(result.high)}
        | place
        | {"p": float(result.p), "p_holm": adjusted[at], "procedure": procedure}
        | {"family": len(pairs), "df": float(result.df)}
        for at, ((a, b), (result, procedure)) in enumerate(zip(pairs, found, strict=True))
    ]
