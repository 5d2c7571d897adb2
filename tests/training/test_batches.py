"""Batches: what an epoch shows, in which order, with whom."""

from __future__ import annotations

import numpy as np

from rewind.config.training import Batch
from rewind.training.batches import epoch_batches


def batches(captions=4, items=20, seed=0, epoch=0, **over):
    item_of_caption = np.repeat(np.arange(items), captions)
    plan = epoch_batches(item_of_caption, np.arange(items) // 2, Batch(**{"size": 8} | over), seed, epoch)
    return item_of_caption, plan


def test_every_caption_is_seen_and_every_batch_is_full():
    item_of_caption, plan = batches()
    assert all(len(batch) == 8 for batch in plan)
    assert set(np.concatenate(plan)) == set(range(len(item_of_caption)))
    assert all(len(set(item_of_caption[batch])) >= 7 for batch in plan), "captions of one item are spread out"


def test_one_caption_per_item_and_epoch():
    item_of_caption = np.repeat(np.arange(16), 4)
    plan = epoch_batches(item_of_caption, np.arange(16) // 2, Batch(size=8, captions="one"), 0, 0)
    rows = np.concatenate(plan)
    assert sorted(item_of_caption[rows]) == list(range(16))
    other = np.concatenate(epoch_batches(item_of_caption, np.arange(16) // 2, Batch(size=8, captions="one"), 0, 1))
    assert set(rows) != set(other), "another epoch draws other captions"


def test_twins_share_a_batch():
    item_of_caption = np.repeat(np.arange(20), 3)
    plan = epoch_batches(item_of_caption, np.arange(20) // 2, Batch(size=8, captions="one", twins_together=True), 0, 0)
    for batch in plan[:-1]:
        clusters, counts = np.unique(item_of_caption[batch] // 2, return_counts=True)
        assert (counts == 2).all() and len(clusters) == 4


def test_batches_follow_seed_and_epoch_alone():
    _, one = batches(seed=1)
    _, again = batches(seed=1)
    _, other_seed = batches(seed=2)
    _, other_epoch = batches(seed=1, epoch=1)
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not np.array_equal(one[0], other_seed[0]) and not np.array_equal(one[0], other_epoch[0])


def test_fewer_captions_than_a_batch_make_one():
    _, plan = batches(captions=1, items=5)
    assert len(plan) == 1 and sorted(plan[0]) == list(range(5))
