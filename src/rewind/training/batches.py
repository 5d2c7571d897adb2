"""Batches of an epoch: which captions are seen together, a pure function of data, seed and epoch."""

from __future__ import annotations

import numpy as np

from rewind.config.training import Batch


def epoch_batches(
    item_of_caption: np.ndarray, cluster_of_item: np.ndarray, keys: Batch, seed: int, epoch: int
) -> list[np.ndarray]:
    """Caption rows of an epoch's batches, each of exactly ``keys.size`` (one of all rows if there are fewer).

    ``item_of_caption`` is (n,), ``cluster_of_item`` (m,); a clip and its twin share a cluster. The last batch is filled
    up from the epoch's beginning, so that every caption counts against the same number of negatives. Captions of one
    item are spread over the epoch: a batch holds two of them only if they meet at a border between rounds, or where the
    last batch is filled up.

    >>> batches = epoch_batches(np.array([0, 0, 1, 1]), np.array([0, 1]), Batch(size=2), seed=1, epoch=0)
    >>> [len(rows) for rows in batches], sorted(np.concatenate(batches).tolist())
    ([2, 2], [0, 1, 2, 3])
    """
    rng = np.random.default_rng([seed, epoch])
    by_item, turn = group_by_item(item_of_caption, rng)
    # Round r holds the r-th caption of every item that has this many.
    rounds = 1 if keys.captions == "one" else int(turn.max()) + 1
    order = np.concatenate(
        [_shuffle(by_item[turn == r], item_of_caption, cluster_of_item, keys, rng) for r in range(rounds)]
    )
    return cut_into_batches(order, keys.size)


def group_by_item(item_of_caption: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Caption rows (n,), those of one item together and shuffled, and the turn (n,) of each within its item, from 0.

    >>> group_by_item(np.array([5, 9, 5]), np.random.default_rng(0))[1].tolist()
    [0, 1, 0]
    """
    shuffled = rng.permutation(len(item_of_caption))
    rows = shuffled[np.argsort(item_of_caption[shuffled], kind="stable")]  # stable: an item's captions stay shuffled
    items = item_of_caption[rows]
    starts = np.flatnonzero(np.r_[True, items[1:] != items[:-1]])
    # The turn of a caption is its place less the place where its item begins.
    return rows, np.arange(len(rows)) - np.repeat(starts, np.diff(np.r_[starts, len(rows)]))


def cut_into_batches(order: np.ndarray, size: int) -> list[np.ndarray]:
    """Batches of exactly ``size`` rows, the last filled up from the beginning; one of all rows if there are fewer.

    >>> [batch.tolist() for batch in cut_into_batches(np.arange(5), 2)]
    [[0, 1], [2, 3], [4, 0]]
    """
    if len(order) <= size:
        return [order]
    # -n % size is what the last batch lacks, 0 if it is full.
    return list(np.concatenate([order, order[: -len(order) % size]]).reshape(-1, size))


def _shuffle(
    rows: np.ndarray, item_of_caption: np.ndarray, cluster_of_item: np.ndarray, keys: Batch, rng: np.random.Generator
) -> np.ndarray:
    if not keys.twins_together:
        return rng.permutation(rows)
    clusters = cluster_of_item[item_of_caption[rows]]
    names, codes, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    # Clusters of equal size are next to each other, so that no batch border splits a pair where the size is even.
    rank = rng.permutation(len(names))
    return rows[np.lexsort((rng.permutation(len(rows)), rank[codes], -sizes[codes]))]
