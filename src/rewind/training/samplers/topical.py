"""Topical batches: captions of one topic together, so that negatives are hard and some are false (skcpda/CLIPSE).

Topics are clusters of captions, at first by k-means on TF-IDF, later on the model's own text vectors. With probability
``p_topical`` a batch comes from one cluster, drawn ∝ size^(1/temperature), with at most a share of ``max_spill`` from
other clusters; the remaining captions fill uniform batches. Every caption is seen once per epoch (upstream draws
without regard to what was seen, its spill has no limit, and its refresh changes nothing).

scikit-learn and threadpoolctl are imported where they are used, so that checking a study's keys does not load them.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from rewind.config.base import SEED_BOUNDS, ConfigModel, config_field
from rewind.config.training import Batch
from rewind.errors import RewindError
from rewind.loading.run_data import TrainingData
from rewind.registry import SAMPLERS
from rewind.training.batches import epoch_batches
from rewind.training.samplers.base import OPTIONS_KEY, Sampler, SamplerState


class TopicalOptions(ConfigModel):
    """Options of the sampler."""

    clusters: int = config_field(80, "Topics: k of k-means.", ge=2, le=10_000)
    p_topical: float = config_field(0.5, "Probability that a batch is topical.", ge=0, le=1)
    temperature: float = config_field(0.7, "A cluster is drawn with probability ∝ size^(1/temperature).", gt=0, le=10)
    max_spill: float = config_field(0.1, "Largest share of a topical batch that comes from other clusters.", ge=0, lt=1)
    refresh_every: int | None = config_field(
        2, "Epochs after which captions are clustered again, by their text vectors; none: never.", ge=1
    )
    features: int = config_field(1000, "Words of the TF-IDF.", ge=1)
    random_state: int = config_field(0, "Seed of k-means, the same for all runs.", **SEED_BOUNDS)


@SAMPLERS.register("topical")
class Topical(Sampler):
    """Batches of one topic among uniform ones.

    Its state is ``cluster`` (n,), one per caption, and ``count`` (), the k of k-means.

    >>> sampler, state = Topical(TopicalOptions(p_topical=0.5)), {"cluster": np.array([0, 0, 0, 0, 1, 1, 1, 1])}
    >>> batches = sampler.batches(np.arange(8), np.arange(8), Batch(size=4), 0, 0, state)
    >>> [len(rows) for rows in batches], sorted(np.concatenate(batches).tolist()) == list(range(8))
    ([4, 4], True)
    """

    Options = TopicalOptions

    def __init__(self, options: TopicalOptions) -> None:
        self.options, self.refresh_every = options, options.refresh_every

    def prepare(self, data: TrainingData, keys: Batch, seed: int) -> dict[str, np.ndarray]:
        """Clusters by TF-IDF of the captions, without English stop words."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.check(keys)
        if len(data.captions) != len(data.item_of_caption):
            raise RewindError("training.batch.sampler: topical reads captions, but this data has none.")
        try:
            tfidf = TfidfVectorizer(max_features=self.options.features, stop_words="english")
            points = tfidf.fit_transform(data.captions)
        except ValueError as error:  # an empty vocabulary
            raise RewindError(
                f"training.batch.sampler: topical finds no words that distinguish captions ({error}); use uniform."
            ) from error
        rows = len(np.unique(data.item_of_caption)) if keys.captions == "one" else len(data.captions)
        state = self._clusters(points, _usable_clusters(self.options.clusters, rows, keys.size))
        # With `captions: one` an epoch sees one caption per item, so clusters are smaller in proportion.
        self._print_small_clusters(np.bincount(state["cluster"]) * rows / len(data.captions), min(keys.size, rows))
        return state

    def check(self, keys: Batch) -> None:
        """Refuse a key of ``training.batch`` that does not fit."""
        if keys.twins_together:
            raise RewindError("training.batch.twins_together: cannot be combined with sampler: topical; set only one.")

    def refresh(self, epoch: int, text_vectors: np.ndarray, state: SamplerState) -> dict[str, np.ndarray]:
        """Clusters by text vectors (n, D) of unit length, as many as before."""
        return self._clusters(text_vectors, int(state["count"]))

    def _clusters(self, points: Any, count: int) -> dict[str, np.ndarray]:
        from sklearn.cluster import KMeans
        from sklearn.exceptions import ConvergenceWarning
        from threadpoolctl import threadpool_limits

        k_means = KMeans(count, n_init=1, random_state=self.options.random_state)
        with threadpool_limits(1), warnings.catch_warnings():  # one thread: sums in one order on any machine
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct captions than clusters
            cluster = k_means.fit_predict(points)
        return {"cluster": cluster.astype(np.int64), "count": np.array(count)}

    def _print_small_clusters(self, sizes: np.ndarray, size: int) -> None:
        small = sizes < self._min_from_cluster(size)
        if small.any():
            print(
                f"topical batches: {small.sum()} of {len(sizes)} clusters are too small for a batch of {size} with at "
                f"most {self.options.max_spill:.0%} from elsewhere: {sizes[small].sum() / sizes.sum():.0%} of the "
                "captions only occur in uniform batches."
            )

    def _min_from_cluster(self, size: int) -> int:
        """Fewest captions of one cluster in a topical batch of ``size``."""
        return size - math.floor(self.options.max_spill * size + 1e-9)  # in floating point 0.29 · 100 is less than 29

    def batches(
        self,
        item_of_caption: np.ndarray,
        cluster_of_item: np.ndarray,
        keys: Batch,
        seed: int,
        epoch: int,
        state: SamplerState,
    ) -> list[np.ndarray]:
        """Caption rows of every batch of one epoch, in random order.

        If the rows do not divide into batches, the last uniform one is filled up with rows of others.
        """
        rng = np.random.default_rng([seed, epoch, 1])  # another stream than epoch_batches' [seed, epoch]
        rows = rng.permutation(len(item_of_caption))
        if keys.captions == "one":
            # The first of each item among shuffled rows: a random caption of it.
            rows = rng.permutation(rows[np.unique(item_of_caption[rows], return_index=True)[1]])
        size = min(keys.size, len(rows))
        topical, rest = self._topical_batches(rows, state["cluster"], size, rng)
        batches = topical + self._uniform_batches(rest, topical, item_of_caption, cluster_of_item, keys, size, rng)
        return [batches[index] for index in rng.permutation(len(batches))]

    def _topical_batches(
        self, rows: np.ndarray, cluster: np.ndarray, size: int, rng: np.random.Generator
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """Topical batches, and the rows that are not in them.

        They are drawn before the uniform ones, while the clusters are as large as possible.
        """
        pools = [rows[cluster[rows] == name] for name in np.unique(cluster[rows])]
        sizes = np.array([len(pool) for pool in pools])
        spill = 0  # rows from other clusters that the batches so far still need
        batches: list[np.ndarray] = []
        # The number of topical batches is that of as many independent draws as the epoch has batches.
        for _ in range(rng.binomial(-(-len(rows) // size), self.options.p_topical)):
            enough = np.flatnonzero(sizes >= self._min_from_cluster(size))
            if not len(enough) or sizes.sum() - spill < size:
                break
            odds = sizes[enough].astype(float) ** (1 / self.options.temperature)
            drawn = enough[rng.choice(len(enough), p=odds / odds.sum())]
            batches.append(pools[drawn][:size])
            pools[drawn] = pools[drawn][size:]
            sizes[drawn] = len(pools[drawn])
            spill += size - len(batches[-1])
        # Only now is it known which rows remain of other clusters. A batch that needs some has used up its own cluster.
        rest = rng.permutation(np.concatenate(pools))
        for index, batch in enumerate(batches):
            lacking = size - len(batch)
            batches[index], rest = np.concatenate([batch, rest[:lacking]]), rest[lacking:]
        return batches, rest

    def _uniform_batches(
        self,
        rest: np.ndarray,
        topical: list[np.ndarray],
        item_of_caption: np.ndarray,
        cluster_of_item: np.ndarray,
        keys: Batch,
        size: int,
        rng: np.random.Generator,
    ) -> list[np.ndarray]:
        """Batches of the remaining rows, the captions of an item spread over them."""
        if not len(rest):
            return []
        seed = int(rng.integers(2**31))
        batches = [rest[rows] for rows in epoch_batches(item_of_caption[rest], cluster_of_item, keys, seed, 0)]
        if len(batches[-1]) < size:  # there is one batch, and too few rows for it
            fill = rng.choice(np.concatenate(topical), size - len(batches[-1]), replace=False)
            batches[-1] = np.concatenate([batches[-1], fill])
        return batches

    def describe(self, batches: list[np.ndarray], state: SamplerState) -> dict[str, float]:
        """Columns of ``history.csv`` about an epoch's batches.

        ``topical_pct``: share of batches that have a cluster in common, up to the spill. ``spill_pct``: share of the
        rows of those that are from other clusters. ``largest_cluster_pct``: share of a batch's largest cluster, mean
        over batches. ``clusters``: their number, with the sizes of the smallest, the median and the largest.
        """
        cluster = state["cluster"]
        largest = np.array([np.bincount(cluster[rows]).max() for rows in batches])
        size = np.array([len(rows) for rows in batches])
        topical = largest >= np.array([self._min_from_cluster(n) for n in size])
        spill = 1 - largest[topical].sum() / size[topical].sum() if topical.any() else math.nan
        sizes = np.bincount(cluster)
        return {
            "topical_pct": 100 * float(topical.mean()),
            "spill_pct": 100 * float(spill),
            "largest_cluster_pct": 100 * float((largest / size).mean()),
            "clusters": len(sizes),
            "smallest_cluster": int(sizes.min()),
            "median_cluster": float(np.median(sizes)),
            "largest_cluster": int(sizes.max()),
        }


def _usable_clusters(clusters: int, captions: int, size: int) -> int:
    """``clusters``, or fewer (with a printed message) if the average cluster would be smaller than a batch."""
    most = max(1, captions // size)
    if clusters > most:
        print(
            f"{OPTIONS_KEY}.clusters: {clusters} clusters of {captions} captions would contain "
            f"{captions / clusters:.1f} each on average, less than a batch of {size}: {most} are made."
        )
    return min(clusters, most)
