"""Topical batches: captions of one topic together, so that negatives are hard and some are false (skcpda/CLIPSE).

Topics are clusters of captions: at first by k-means on TF-IDF, later on the model's own text vectors. With probability
``p_topical`` a batch comes from one cluster, drawn ∝ size^(1/temperature), with at most a share of ``max_spill`` from
elsewhere; what is left fills uniform batches. Every caption is seen once an epoch (upstream draws without regard to
what was seen, its spill has no limit, and its refresh changes nothing).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from rewind.errors import RewindError
from rewind.feeding.training_data import TrainingData
from rewind.study.keys import SEEDS, Keys, key, read_options
from rewind.study.training import Batch
from rewind.training.batches import epoch_batches
from rewind.training.samplers.interface import Sampler, State

WHERE = "training.batch.sampler_options"


class Options(Keys):
    """Options of the sampler."""

    clusters: int = key(80, "Topics: k of k-means.", ge=2, le=10_000)
    p_topical: float = key(0.5, "Probability that a batch is topical.", ge=0, le=1)
    temperature: float = key(0.7, "A cluster is drawn with probability ∝ size^(1/temperature).", gt=0, le=10)
    max_spill: float = key(0.1, "Largest share of a topical batch that comes from other clusters.", ge=0, lt=1)
    refresh_every: int | None = key(
        2, "Epochs after which captions are clustered anew, by their text vectors; none: never.", ge=1
    )
    features: int = key(1000, "Words of the TF-IDF.", ge=1)
    random_state: int = key(0, "Seed of k-means, the same for all runs.", **SEEDS)


class Topical(Sampler):
    """Batches of one topic among uniform ones.

    Its state is ``cluster`` (n,), one per caption, and ``count`` (), how many were asked of k-means.
    """

    def __init__(self, options: Options) -> None:
        self.options, self.refresh_every = options, options.refresh_every

    def prepare(self, data: TrainingData, keys: Batch, seed: int) -> dict[str, np.ndarray]:
        """Clusters by TF-IDF of the captions, English stop words left out.

        Raises:
            RewindError: if there are no captions, no words in them, or a key of the batches does not fit.
        """
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
        state = self._clusters(points, _usable(self.options.clusters, rows, keys.size))
        self._say_what_is_small(np.bincount(state["cluster"]) * rows / len(data.captions), min(keys.size, rows))
        return state

    def check(self, keys: Batch) -> None:
        """Refuse a key of the batches that does not fit.

        Raises:
            RewindError: naming it.
        """
        if keys.twins_together:
            raise RewindError("training.batch.twins_together: cannot be combined with sampler: topical; set only one.")

    def refresh(self, epoch: int, text_vectors: np.ndarray, state: State) -> dict[str, np.ndarray]:
        """Clusters by text vectors (n, D) of unit length, as many as before."""
        return self._clusters(text_vectors, int(state["count"]))

    def _clusters(self, points: Any, count: int) -> dict[str, np.ndarray]:
        from sklearn.cluster import KMeans
        from sklearn.exceptions import ConvergenceWarning
        from threadpoolctl import threadpool_limits

        means = KMeans(count, n_init=1, random_state=self.options.random_state)
        with threadpool_limits(1), warnings.catch_warnings():  # one thread: sums in one order on any machine
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct captions than clusters
            found = means.fit_predict(points)
        return {"cluster": found.astype(np.int64), "count": np.array(count)}

    def _say_what_is_small(self, sizes: np.ndarray, size: int) -> None:
        small = sizes < self._needed(size)
        if small.any():
            print(
                f"topical batches: {small.sum()} of {len(sizes)} clusters are too small for a batch of {size} with at "
                f"most {self.options.max_spill:.0%} from elsewhere: {sizes[small].sum() / sizes.sum():.0%} of the "
                "captions only occur in uniform batches."
            )

    def _needed(self, size: int) -> int:
        """Captions of one cluster in a topical batch, at least."""
        return size - math.floor(self.options.max_spill * size + 1e-9)

    def batches(
        self,
        item_of_caption: np.ndarray,
        cluster_of_item: np.ndarray,
        keys: Batch,
        seed: int,
        epoch: int,
        state: State,
    ) -> list[np.ndarray]:
        """Caption rows of every batch of one epoch, in random order.

        Where the rows do not divide into batches, the last uniform one is filled up with rows of others.
        """
        rng = np.random.default_rng([seed, epoch, 1])
        rows = rng.permutation(len(item_of_caption))
        if keys.captions == "one":
            rows = rng.permutation(rows[np.unique(item_of_caption[rows], return_index=True)[1]])
        size = min(keys.size, len(rows))
        topical, left = self._topical(rows, state["cluster"], size, rng)
        plan = topical + self._uniform(left, topical, item_of_caption, cluster_of_item, keys, size, rng)
        return [plan[place] for place in rng.permutation(len(plan))]

    def _topical(
        self, rows: np.ndarray, cluster: np.ndarray, size: int, rng: np.random.Generator
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """Topical batches, and the rows that are not in them.

        They are drawn before the uniform ones, which leaves the clusters as large as can be.
        """
        pools = [rows[cluster[rows] == name] for name in np.unique(cluster[rows])]
        sizes = np.array([len(pool) for pool in pools])
        owed = 0  # rows that topical batches so far still need from elsewhere
        made: list[np.ndarray] = []
        for _ in range(rng.binomial(-(-len(rows) // size), self.options.p_topical)):
            enough = np.flatnonzero(sizes >= self._needed(size))
            if not len(enough) or sizes.sum() - owed < size:
                break
            odds = sizes[enough].astype(float) ** (1 / self.options.temperature)
            chosen = enough[rng.choice(len(enough), p=odds / odds.sum())]
            made.append(pools[chosen][:size])
            pools[chosen] = pools[chosen][size:]
            sizes[chosen] = len(pools[chosen])
            owed += size - len(made[-1])
        left = rng.permutation(np.concatenate(pools))
        for place, batch in enumerate(made):
            lacking = size - len(batch)  # its cluster is used up where it lacks any
            made[place], left = np.concatenate([batch, left[:lacking]]), left[lacking:]
        return made, left

    def _uniform(
        self,
        left: np.ndarray,
        topical: list[np.ndarray],
        item_of_caption: np.ndarray,
        cluster_of_item: np.ndarray,
        keys: Batch,
        size: int,
        rng: np.random.Generator,
    ) -> list[np.ndarray]:
        """Batches of the rows that are left, the captions of an item spread over them."""
        if not len(left):
            return []
        seed = int(rng.integers(2**31))
        plan = [left[rows] for rows in epoch_batches(item_of_caption[left], cluster_of_item, keys, seed, 0)]
        if len(plan[-1]) < size:  # one batch, and too few rows for it
            fill = rng.choice(np.concatenate(topical), size - len(plan[-1]), replace=False)
            plan[-1] = np.concatenate([plan[-1], fill])
        return plan

    def describe(self, batches: list[np.ndarray], state: State) -> dict[str, float]:
        """What an epoch's batches were: columns of ``history.csv``.

        ``topical_pct``: share of batches that have a cluster in common, up to the spill. ``spill_pct``: rows of those
        that are from elsewhere. ``largest_cluster_pct``: of an average batch, its largest cluster. ``clusters`` and the
        sizes of the smallest, the median and the largest one.
        """
        cluster = state["cluster"]
        largest = np.array([np.bincount(cluster[rows]).max() for rows in batches])
        size = np.array([len(rows) for rows in batches])
        topical = largest >= np.array([self._needed(n) for n in size])
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


def _usable(clusters: int, captions: int, size: int) -> int:
    """So many clusters that the average one holds a batch; says so where that is fewer than asked for."""
    most = max(1, captions // size)
    if clusters > most:
        print(
            f"{WHERE}.clusters: {clusters} clusters of {captions} captions would contain {captions / clusters:.1f} "
            f"each on average, less than a batch of {size}: {most} are made."
        )
    return min(clusters, most)


def build(options: Mapping[str, Any]) -> Topical:
    """The sampler with ``training.batch.sampler_options``.

    Raises:
        RewindError: for an unknown option or a wrong value.
    """
    return Topical(read_options(Options, options, WHERE, "sampler: topical"))
