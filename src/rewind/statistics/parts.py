"""What seeds and what queries add to the error of a mean over both, in closed form.

Every array may have leading axes (metric, replicate, …); the last ones are seed and cluster. A cluster is what
succeeds or fails together; clusters may differ in size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# Constant values leave residues of rounding; below this share of the values' size they are zero.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Clusters:
    """Which queries belong together.

    Attributes:
        order: (Q,) queries sorted by cluster.
        starts: (C,) where each cluster begins in that order.
        sizes: (C,) queries of each cluster.
    """

    order: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, cluster_ids: np.ndarray) -> Clusters:
        """Clusters of queries whose cluster ids are given, (Q,)."""
        _, codes = np.unique(np.asarray(cluster_ids), return_inverse=True)
        sizes = np.bincount(codes)
        return cls(np.argsort(codes, kind="stable"), np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)

    def totals(self, values: np.ndarray) -> np.ndarray:
        """Sums over each cluster's queries: (…, Q) → (…, C)."""
        return np.add.reduceat(values[..., self.order], self.starts, axis=-1)


@dataclass(frozen=True)
class Parts:
    """One method's mean and what its error is made of.

    Attributes:
        mean: (…) mean over seeds of the means over queries.
        seed: (…) A, the variance of the mean between seeds; it holds the seed × query interaction. 0 for one seed.
        seed_df: (…) S − 1, the degrees of freedom of A; 0 for one seed, infinite for a fixed model, which has none.
        overlap: (…) E, the interaction as it is counted in the query part too. 0 for one seed.
        residuals: (…, C) deviation of each cluster from the mean, averaged over seeds; they sum to 0.
    """

    mean: np.ndarray
    seed: np.ndarray
    seed_df: np.ndarray
    overlap: np.ndarray
    residuals: np.ndarray

    def __getitem__(self, at: Any) -> Parts:
        """The parts at an index of the leading axes."""
        return Parts(self.mean[at], self.seed[at], self.seed_df[at], self.overlap[at], self.residuals[at])


def parts(totals: np.ndarray, sizes: np.ndarray, fixed: bool = False) -> Parts:
    """Parts of a method's error.

    Args:
        totals: (…, S, C) sums of the per-query values of each seed in each cluster.
        sizes: (C,) queries of each cluster.
        fixed: a model that cannot be trained again, S = 1: queries are all that is random.

    Returns:
        Its leading axes are those of ``totals``.
    """
    seeds, clusters = totals.shape[-2:]
    queries = sizes.sum()
    per_seed = totals.sum(axis=-1) / queries  # (…, S)
    mean = per_seed.mean(axis=-1)
    residuals = (clusters / queries) * (totals - per_seed[..., None] * sizes.astype(totals.dtype))
    averaged = residuals.mean(axis=-2)
    size = np.abs(totals).max(axis=(-2, -1), initial=0)
    averaged = np.where(np.abs(averaged) <= ROUNDING * size[..., None], 0, averaged)
    if seeds == 1:
        none = np.zeros_like(mean)
        return Parts(mean, none, np.full_like(mean, np.inf) if fixed else none, none, averaged)
    seed = per_seed.var(axis=-1, ddof=1) / seeds
    seed = np.where(seed <= (ROUNDING * size) ** 2, 0, seed)
    beyond = np.square(residuals - averaged[..., None, :]).sum(axis=(-2, -1))
    overlap = beyond / (seeds * (seeds - 1) * clusters * max(clusters - 1, 1))
    return Parts(mean, seed, np.full_like(mean, seeds - 1), overlap, averaged)


def stack(found: list[Parts]) -> Parts:
    """Several methods' parts along a new first axis."""
    return Parts(
        np.stack([p.mean for p in found]),
        np.stack([p.seed for p in found]),
        np.stack([p.seed_df for p in found]),
        np.stack([p.overlap for p in found]),
        np.stack([p.residuals for p in found]),
    )
