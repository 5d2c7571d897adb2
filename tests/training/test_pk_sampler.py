"""Batches of P images with K captions: every epoch whole, captions of an image together."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from messages import refusal
from rewind.config.training import Batch
from rewind.training.samplers.base import make_sampler


def made(options):
    return make_sampler(Batch(sampler="pk", sampler_options=options))


def batches(sizes: list[int], size: int, k: int, epoch: int = 0, seed: int = 0) -> list[np.ndarray]:
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return made({"captions": k}).batches(owner, np.arange(len(sizes)), Batch(size=size), seed, epoch, {})


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=30), st.integers(1, 4), st.integers(1, 4), st.integers(0, 5))
def test_every_epoch_holds_every_caption(sizes, p, k, epoch):
    size, total = max(2, p * k), sum(sizes)
    if size % k:
        size = 2 * k
    found = batches(sizes, size, k, epoch)
    rows = np.concatenate(found)
    assert set(rows.tolist()) == set(range(total))
    assert all(len(batch) == size for batch in found) or len(found) == 1
    assert len(rows) - total < size


def test_full_groups_are_k_captions_of_p_images():
    owner = np.repeat(np.arange(12), 4)
    for batch in batches([4] * 12, 6, 2):
        images, counts = np.unique(owner[batch], return_counts=True)
        assert len(images) == 3
        assert set(counts) == {2}


def test_order_follows_from_seed_and_epoch():
    one, same, later, other = (
        np.concatenate(batches([3] * 9, 6, 3, e, s)) for e, s in ((0, 0), (0, 0), (1, 0), (0, 1))
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, later)
    assert not np.array_equal(one, other)


def test_bad_sizes_are_refused():
    with refusal("training.batch.sampler_options.captions"):
        batches([4] * 4, 6, 4)
    with refusal("training.batch.sampler_options.captions"):
        made({"captions": 2}).batches(np.arange(4), np.arange(4), Batch(size=2, captions="one"), 0, 0, {})
    with refusal("training.batch.sampler_options.k: sampler"):
        made({"k": 2})
