"""Cluster bootstrap of metrics: clusters of queries are drawn with replacement, training seeds are held fixed.

The intervals answer: would *these checkpoints* score differently on other queries? They do not speak of other training
seeds. A video and its twin (or an image and its captions) form one cluster, because their queries succeed together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rewind.metrics import recall_at
from rewind.statistics.parts import Clusters

PROCEDURE = "cluster bootstrap over queries, these checkpoints"
_CELLS = 8_000_000  # numbers held at once while drawing


@dataclass(frozen=True)
class Resamples:
    """How often each cluster is drawn in each resample.

    Attributes:
        weights: (B, C) counts, float32; every row sums to C.
        clusters: of the queries.
    """

    weights: np.ndarray
    clusters: Clusters

    @classmethod
    def draw(cls, clusters: Clusters, resamples: int, seed: int) -> Resamples:
        """Draw ``resamples`` resamples of the clusters; the same seed and number of clusters give the same draws."""
        return cls(draw_weights(len(clusters.sizes), resamples, seed), clusters)

    def means(self, totals: np.ndarray) -> np.ndarray:
        """Resampled means.

        Args:
            totals: (K, C) sums over each cluster's queries, K columns such as metric × method. Whole numbers up to
                2²⁴ stay exact, so that a resampled difference of hits that is 0 is exactly 0.

        Returns:
            (B, K) float32: the sum over the drawn clusters' queries divided by their number. NaN with one cluster,
            which is the same in every resample.
        """
        if len(self.clusters.sizes) < 2:
            return np.full((len(self.weights), len(totals)), np.nan, dtype=np.float32)
        sizes = self.clusters.sizes.astype(np.float32)
        return (self.weights @ totals.T.astype(np.float32)) / (self.weights @ sizes)[:, None]

    def medians(self, higher: np.ndarray, ties: np.ndarray) -> np.ndarray:
        """Resampled medians: the smallest r where R@r of the drawn queries, all seeds pooled, is ½ or more.

        Args:
            higher, ties: (S, Q) of S seeds.

        Returns:
            (B,), NaN with one cluster.
        """
        if len(self.clusters.sizes) < 2:
            return np.full(len(self.weights), np.nan)
        if np.ptp(higher) == 0 and np.ptp(ties) == 0:  # as of chance: every resample has the median of one query
            return np.full(len(self.weights), _median_of_one(int(higher.flat[0]), int(ties.flat[0])))
        half = self.weights @ (self.clusters.sizes * (len(higher) / 2)).astype(np.float32) * np.float32(1 - 1e-6)
        places = np.sort(np.concatenate([higher, higher + ties], axis=None)) + 1
        for reach in (0.1, 0.5):  # a resampled median is nearly always near the median; else look everywhere
            first, last = (int(places[int(q * (places.size - 1))]) for q in (0.5 - reach, 0.5 + reach))
            cumulative = self.weights @ self._hits(higher, ties, first, last)
            inside = cumulative[:, -1] >= half
            if first > 1:
                inside &= cumulative[:, 0] < half
            if inside.all():
                break
        return (first + (cumulative >= half[:, None]).argmax(axis=1)).astype(float)

    def _hits(self, higher: np.ndarray, ties: np.ndarray, first: int, last: int) -> np.ndarray:
        """(C, last − first + 1) sums over each cluster's queries and all seeds of R@r, r from first to last."""
        found = np.empty((last - first + 1, len(self.clusters.sizes)), dtype=np.float32)
        for at, r in enumerate(range(first, last + 1)):
            found[at] = self.clusters.totals(recall_at(r, higher, ties).sum(axis=0))
        return found.T


def _median_of_one(higher: int, ties: int) -> float:
    """The smallest rank r at which R@r of a query is ½ or more."""
    places = np.arange(higher + 1, higher + ties + 2)
    reached = np.array([float(recall_at(int(r), np.array([higher]), np.array([ties]))[0]) for r in places])
    return float(places[(reached >= 0.5 * (1 - 1e-6)).argmax()])


def draw_weights(clusters: int, resamples: int, seed: int) -> np.ndarray:
    """(B, C) float32 counts of ``clusters`` draws with replacement out of as many, B times."""
    rng = np.random.default_rng(seed)
    weights = np.empty((resamples, clusters), dtype=np.float32)
    step = max(1, _CELLS // clusters)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        drawn = rng.integers(0, clusters, size=(rows, clusters), dtype=np.int64)
        drawn += (np.arange(rows) * clusters)[:, None]
        weights[start : start + rows] = np.bincount(drawn.ravel(), minlength=rows * clusters).reshape(rows, clusters)
    return weights


def percentile_interval(samples: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper percentile bounds along axis 0."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(samples, [tail, 1 - tail], axis=0)
    return low, high


def two_sided_p(samples: np.ndarray) -> np.ndarray:
    """Bootstrap p of a difference from 0 along axis 0: ``2 · (1 + count beyond 0) / (B + 1)``, never 0, at most 1.

    Resamples exactly at 0 count on both sides, so two identical methods give p = 1. NaN where the samples are.
    """
    b = len(samples)
    below, above = (samples <= 0).sum(axis=0), (samples >= 0).sum(axis=0)
    p = np.minimum(1.0, 2 * (1 + np.minimum(below, above)) / (b + 1))
    return np.where(np.isnan(samples).any(axis=0), np.nan, p)
