"""Cluster bootstrap of metrics: clusters of queries are drawn with replacement, training seeds are held fixed.

The intervals answer: would *these checkpoints* score differently on other queries? They say nothing about other
training seeds. A video and its twin (or an image and its captions) form one cluster, because their queries tend to
succeed or fail together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rewind.ranking_metrics import recall_at
from rewind.statistics.variance import Clusters

PROCEDURE = "cluster bootstrap over queries, these checkpoints"
_MAX_CELLS = 8_000_000  # drawn cluster numbers held in memory at once
_JUST_BELOW_ONE = 1 - 1e-6  # single-precision sums of R@r that amount to one half may fall short of it by rounding


@dataclass(frozen=True)
class Resamples:
    """How often each cluster is drawn in each resample."""

    weights: np.ndarray  # (B, C) counts, float32; every row sums to C
    clusters: Clusters

    @classmethod
    def draw(cls, clusters: Clusters, resamples: int, seed: int) -> Resamples:
        """Draw ``resamples`` resamples of the clusters; the same seed and number of clusters give the same draws.

        So all methods, and both methods of a pair, are resampled alike: their differences are paired.
        """
        return cls(draw_weights(len(clusters.sizes), resamples, seed), clusters)

    def means(self, totals: np.ndarray) -> np.ndarray:
        """(B, K) float32 resampled means of ``totals``, (K, C) sums over each cluster's queries.

        The sum over the drawn clusters' queries divided by their number, ``θ_b = Σ_c w_bc · total_c / Σ_c w_bc · n_c``.
        NaN with one cluster, which is the same in every resample.
        """
        if len(self.clusters.sizes) < 2:
            return np.full((len(self.weights), len(totals)), np.nan, dtype=np.float32)
        # One matrix product in single precision for all resamples. Whole numbers up to 2²⁴ stay exact in it, so that a
        # resampled difference of hits that is 0 is exactly 0 and counts on both sides of the p-value.
        sizes = self.clusters.sizes.astype(np.float32)
        return (self.weights @ totals.T.astype(np.float32)) / (self.weights @ sizes)[:, None]

    def medians(self, higher: np.ndarray, ties: np.ndarray) -> np.ndarray:
        """(B,) resampled lower medians of the expected ranks, from (S, Q) of S seeds; NaN with one cluster.

        The smallest r where R@r of the drawn queries, all seeds pooled, is ½ or more.
        """
        if len(self.clusters.sizes) < 2:
            return np.full(len(self.weights), np.nan)
        if np.ptp(higher) == 0 and np.ptp(ties) == 0:
            # As of chance: all queries rank alike, and every resample has the median of one query.
            return np.full(len(self.weights), _median_of_one(int(higher.flat[0]), int(ties.flat[0])))
        # Half of the queries drawn, over all seeds; R@r summed over the same queries reaches it at the median.
        half = self.weights @ (self.clusters.sizes * (len(higher) / 2)).astype(np.float32) * np.float32(_JUST_BELOW_ONE)
        # The ranks at which some query's R@r begins or ceases to rise: first and last of its tied positions.
        ranks = np.sort(np.concatenate([higher, higher + ties], axis=None)) + 1
        # A resampled median is nearly always between the 40th and the 60th percentile; only if one is not are R@r at
        # all ranks computed, which takes (B, gallery) numbers.
        for margin in (0.1, 0.5):  # the second takes in all ranks, and so every median
            first, last = (int(ranks[int(q * (ranks.size - 1))]) for q in (0.5 - margin, 0.5 + margin))
            cumulative = self.weights @ self._hits(higher, ties, first, last)
            inside = cumulative[:, -1] >= half
            if first > 1:  # below rank 1 R@r is 0, so that nothing can have been missed
                inside &= cumulative[:, 0] < half
            if inside.all():
                break
        # The first rank that reaches it: R@r never falls with r, and argmax finds the first True.
        return (first + (cumulative >= half[:, None]).argmax(axis=1)).astype(float)

    def _hits(self, higher: np.ndarray, ties: np.ndarray, first: int, last: int) -> np.ndarray:
        """(C, last − first + 1) sums over each cluster's queries and all seeds of R@r, r from first to last."""
        hits = np.empty((last - first + 1, len(self.clusters.sizes)), dtype=np.float32)
        for row, r in enumerate(range(first, last + 1)):
            hits[row] = self.clusters.totals(recall_at(r, higher, ties).sum(axis=0))
        return hits.T


def _median_of_one(higher: int, ties: int) -> float:
    """The smallest rank r at which R@r of a query is ½ or more."""
    ranks = np.arange(higher + 1, higher + ties + 2)
    recall = np.array([float(recall_at(int(r), np.array([higher]), np.array([ties]))[0]) for r in ranks])
    return float(ranks[(recall >= 0.5 * _JUST_BELOW_ONE).argmax()])


def draw_weights(clusters: int, resamples: int, seed: int) -> np.ndarray:
    """(B, C) float32 counts of ``clusters`` draws with replacement out of as many, B times."""
    rng = np.random.default_rng(seed)
    weights = np.empty((resamples, clusters), dtype=np.float32)  # counts up to 2²⁴ are exact in it
    rows_per_chunk = max(1, _MAX_CELLS // clusters)
    for start in range(0, resamples, rows_per_chunk):
        rows = min(rows_per_chunk, resamples - start)
        draws = rng.integers(0, clusters, size=(rows, clusters), dtype=np.int64)
        # Numbers of different rows are made distinct, so that a single bincount counts the draws of all rows.
        draws += (np.arange(rows) * clusters)[:, None]
        weights[start : start + rows] = np.bincount(draws.ravel(), minlength=rows * clusters).reshape(rows, clusters)
    return weights


def percentile_interval(samples: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper percentile bounds along axis 0."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(samples, [tail, 1 - tail], axis=0)
    return low, high


def bootstrap_p_value(samples: np.ndarray) -> np.ndarray:
    """Two-sided bootstrap p-value of a difference from 0, along axis 0.

    ``p = min(1, 2 · (1 + min(#{d_b ≤ 0}, #{d_b ≥ 0})) / (B + 1))``: never 0, because the observed sample counts as one
    of the resamples. Those exactly at 0 count on both sides, so that two identical methods have p = 1. NaN where a
    sample is NaN.

    Example:
        >>> bootstrap_p_value(np.array([1.0, 2.0, 0.5, 1.5])).item()  # all above 0, B = 4
        0.4
    """
    b = len(samples)
    below, above = (samples <= 0).sum(axis=0), (samples >= 0).sum(axis=0)
    p = np.minimum(1.0, 2 * (1 + np.minimum(below, above)) / (b + 1))
    # Comparisons with NaN are false: it would count on neither side, which gives the smallest p-value.
    return np.where(np.isnan(samples).any(axis=0), np.nan, p)
