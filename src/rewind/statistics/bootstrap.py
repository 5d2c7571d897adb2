"""Cluster bootstrap of metrics: clusters of queries are drawn with replacement, training seeds are held fixed.

The intervals answer: would *these checkpoints* score differently on other queries? They do not speak of other training
seeds. A video and its twin (or an image and its captions) form one cluster, because their queries succeed together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

PROCEDURE = "cluster bootstrap over queries, these checkpoints"


@dataclass(frozen=True)
class Resamples:
    """How often each cluster is drawn in each resample.

    Attributes:
        weights: (B, C) counts; every row sums to C.
        cluster: (Q,) cluster of each query.
    """

    weights: np.ndarray
    cluster: np.ndarray

    @classmethod
    def draw(cls, cluster_ids: np.ndarray, resamples: int, seed: int) -> Resamples:
        """Draw ``resamples`` multinomial resamples of the distinct clusters; the same seed gives the same draws."""
        names, cluster = np.unique(cluster_ids, return_inverse=True)
        rng = np.random.default_rng(seed)
        count = len(names)
        weights = rng.multinomial(count, np.full(count, 1 / count), size=resamples)
        return cls(weights.astype(np.float32), cluster)

    def means(self, values: np.ndarray) -> np.ndarray:
        """Resampled means of per-query values.

        Args:
            values: (K, Q), K columns of values such as metric × method.

        Returns:
            (B, K): the sum over the drawn clusters' queries divided by their number.
        """
        count = self.weights.shape[1]
        sums = np.zeros((count, len(values)), dtype=np.float64)
        np.add.at(sums, self.cluster, values.T)
        sizes = np.bincount(self.cluster, minlength=count).astype(np.float64)
        return (self.weights @ sums.astype(np.float32)) / (self.weights @ sizes.astype(np.float32))[:, None]

    def medians(self, ranks: np.ndarray) -> np.ndarray:
        """Resampled lower medians of per-query ranks.

        Args:
            ranks: (S, Q) expected ranks of S seeds; their pooled median is taken.

        Returns:
            (B,)
        """
        levels, codes = np.unique(ranks, return_inverse=True)
        histogram = np.zeros((self.weights.shape[1], len(levels)), dtype=np.float32)
        np.add.at(histogram, (np.broadcast_to(self.cluster, ranks.shape).ravel(), codes.ravel()), 1)
        cumulative = (self.weights @ histogram).cumsum(axis=1)
        return levels[(cumulative >= cumulative[:, -1:] / 2).argmax(axis=1)]


def percentile_interval(samples: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper percentile bounds along axis 0."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(samples, [tail, 1 - tail], axis=0)
    return low, high


def two_sided_p(samples: np.ndarray) -> np.ndarray:
    """Bootstrap p of a difference from 0 along axis 0: ``2 · (1 + count beyond 0) / (B + 1)``, never 0, at most 1.

    Resamples exactly at 0 count on both sides, so two identical methods give p = 1.
    """
    b = len(samples)
    below, above = (samples <= 0).sum(axis=0), (samples >= 0).sum(axis=0)
    return np.minimum(1.0, 2 * (1 + np.minimum(below, above)) / (b + 1))
