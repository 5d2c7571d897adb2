"""Variance components: what training seeds and clusters of queries add to the error of a mean, in closed form.

Separate from the intervals that are computed from them (:mod:`rewind.statistics.inference`), so that jobs which only
rank queries need not import SciPy. The symbols are those of docs/statistics.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# Constant values leave rounding errors where zeros should be; below this share of the values' size they are zero.
# Without it, V would be tiny instead of 0 and a t statistic huge.
RELATIVE_ROUNDING = 1e-12


@dataclass(frozen=True)
class Clusters:
    """Which queries belong together.

    Example:
        >>> clusters = Clusters.of(np.array(["dog", "cat", "dog"]))
        >>> clusters.totals(np.array([1, 0, 1])).tolist()  # cat, dog
        [0, 2]
    """

    order: np.ndarray  # (Q,) queries sorted by cluster
    starts: np.ndarray  # (C,) where each cluster begins in that order
    sizes: np.ndarray  # (C,) queries of each cluster

    @classmethod
    def of(cls, cluster_ids: np.ndarray) -> Clusters:
        """Clusters of queries whose cluster ids are given, (Q,)."""
        _, codes = np.unique(np.asarray(cluster_ids), return_inverse=True)
        sizes = np.bincount(codes)
        return cls(np.argsort(codes, kind="stable"), np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)

    def totals(self, values: np.ndarray) -> np.ndarray:
        """Sums over each cluster's queries: (…, Q) → (…, C)."""
        # Every cluster has a query: for an empty one, reduceat would not return 0 but a value of the next cluster.
        return np.add.reduceat(values[..., self.order], self.starts, axis=-1)


@dataclass(frozen=True)
class VarianceComponents:
    """One method's mean and the parts of its variance; arrays are (…), residuals (…, C).

    B, the query part, is computed from the residuals once it is known whether one method or a difference is meant.

    Example:
        >>> hits = np.array([[1.0, 0.0, 1.0, 1.0], [1.0, 0.0, 0.0, 1.0]])  # two seeds, four clusters of one query
        >>> components = variance_components(hits, sizes=np.ones(4, dtype=int))
        >>> components.mean.item(), components.seed.item(), components.residuals.shape
        (0.625, 0.015625, (4,))
    """

    mean: np.ndarray  # y, the mean over seeds of the means over queries
    seed: np.ndarray  # A, the variance of the mean between seeds, with the seed × query interaction; 0 for one seed
    seed_df: np.ndarray  # S − 1, the degrees of freedom of A; 0 for one seed, infinite for a fixed model (it has none)
    overlap: np.ndarray  # E, the interaction, which is contained in B too; 0 for one seed
    residuals: np.ndarray  # r, the deviation of each cluster from the mean, averaged over seeds; they sum to 0

    def __getitem__(self, at: Any) -> VarianceComponents:
        """The components at an index of the leading axes."""
        return VarianceComponents(self.mean[at], self.seed[at], self.seed_df[at], self.overlap[at], self.residuals[at])


def variance_components(totals: np.ndarray, sizes: np.ndarray, fixed: bool = False) -> VarianceComponents:
    """Mean and variance components of a method, with the leading axes of ``totals``.

    Args:
        totals: (…, S, C) sums of the per-query values of each seed in each cluster.
        sizes: (C,) queries of each cluster.
        fixed: a model that cannot be trained again, S = 1: only queries are random.
    """
    seeds, clusters = totals.shape[-2:]
    queries = sizes.sum()
    per_seed = totals.sum(axis=-1) / queries  # (…, S)
    mean = per_seed.mean(axis=-1)
    # r_sc = (C/Q) Σ_{q in c} (Y_sq − y_s): a sum, not a mean, so that larger clusters count for more.
    residuals = (clusters / queries) * (totals - per_seed[..., None] * sizes.astype(totals.dtype))
    averaged = residuals.mean(axis=-2)
    # The size of the largest value: what is far smaller is rounding error.
    scale = np.abs(totals).max(axis=(-2, -1), initial=0)
    averaged = np.where(np.abs(averaged) <= RELATIVE_ROUNDING * scale[..., None], 0, averaged)
    if seeds == 1:
        zero = np.zeros_like(mean)
        return VarianceComponents(mean, zero, np.full_like(mean, np.inf) if fixed else zero, zero, averaged)
    seed = per_seed.var(axis=-1, ddof=1) / seeds  # A = Σ_s (y_s − y)² / (S (S − 1))
    seed = np.where(seed <= (RELATIVE_ROUNDING * scale) ** 2, 0, seed)  # squared, as a variance is
    # E = Σ_sc (r_sc − r_c)² / (S (S − 1) C (C − 1)): retraining changes the answers to single queries, which adds to
    # both A and B.
    interaction = np.square(residuals - averaged[..., None, :]).sum(axis=(-2, -1))
    # max: residuals of a single cluster are 0 in every seed, and so is E.
    overlap = interaction / (seeds * (seeds - 1) * clusters * max(clusters - 1, 1))
    return VarianceComponents(mean, seed, np.full_like(mean, seeds - 1), overlap, averaged)


def stack_components(methods: list[VarianceComponents]) -> VarianceComponents:
    """Several methods' components along a new first axis."""
    return VarianceComponents(
        np.stack([p.mean for p in methods]),
        np.stack([p.seed for p in methods]),
        np.stack([p.seed_df for p in methods]),
        np.stack([p.overlap for p in methods]),
        np.stack([p.residuals for p in methods]),
    )
