"""Batches come in order and ahead of the caller: from processes where they are decoded, from threads where copied."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pandas as pd
import pytest
import torch

from messages import refusal
from patience import patience
from rewind.loading.frame_source import CachedFrames, ClipFrames, StoredFrames, cached_text, load_batches

CPU = torch.device("cpu")


class Source:
    """Batches that say where they were made."""

    def __init__(self, copies: bool) -> None:
        self.copies = copies

    def batch(self, key: int) -> dict[str, torch.Tensor]:
        time.sleep(0.02 * (key % 3 == 0))  # later batches are ready before earlier ones
        return {"key": torch.tensor(key), "where": torch.tensor([os.getpid(), threading.get_native_id()])}


def places(batches: list) -> set[tuple[int, int]]:
    """Process and thread of each batch."""
    return {tuple(batch["where"].tolist()) for batch in batches}


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_come_in_order(copies, workers):
    source = Source(copies)
    state = torch.get_rng_state()
    batches = list(load_batches(source.batch, range(20), source, workers, CPU))
    assert [int(batch["key"]) for batch in batches] == list(range(20))
    assert torch.equal(torch.get_rng_state(), state), "the caller's random numbers stay where they were"
    here = (os.getpid(), threading.get_native_id())
    assert len(places(batches)) == max(1, workers)
    if copies:
        assert {process for process, _ in places(batches)} == {os.getpid()} and here not in places(batches)
    else:
        assert (here in places(batches)) == (workers == 0)


def test_which_inputs_are_copies():
    assert StoredFrames.copies and CachedFrames.copies and not ClipFrames.copies


def test_the_next_batch_is_made_while_the_caller_works_but_not_all_of_them():
    made = []
    source = Source(True)

    def make(key: int) -> dict[str, torch.Tensor]:
        made.append(key)
        return source.batch(key)

    batches = load_batches(make, range(100), source, 2, CPU)
    next(batches)
    end = time.monotonic() + patience(10)
    while len(made) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.3)
    assert sorted(made) == [0, 1, 2], "one for the caller, two ahead"
    batches.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("batches")]
    assert len(made) == 3


@pytest.mark.parametrize("copies", [True, False])
def test_keys_are_taken_in_the_calling_thread(copies):
    """They may come from something that is not made for threads."""
    source = Source(copies)

    def keys():
        for key in range(5):
            assert threading.current_thread() is threading.main_thread()
            yield key

    assert len(list(load_batches(source.batch, keys(), source, 2, CPU))) == 5


def test_a_fault_reaches_the_caller_at_its_batch():
    source = Source(True)

    def make(key: int) -> dict[str, torch.Tensor]:
        if key == 3:
            raise ValueError("broken")
        return source.batch(key)

    seen = []
    with pytest.raises(ValueError, match="broken"):
        for batch in load_batches(make, range(10), source, 2, CPU):
            seen.append(int(batch["key"]))
    assert seen == [0, 1, 2]


def test_cached_features_come_without_processes():
    frames = np.random.default_rng(0).normal(size=(8, 3, 4)).astype(np.float32)
    cached = CachedFrames(frames, np.ones((8, 3), np.uint8))
    rows = [np.array([5, 1]), np.array([0, 7])]
    batches = list(load_batches(cached.batch, rows, cached, 8, CPU))
    for batch, chosen in zip(batches, rows, strict=True):
        assert np.array_equal(batch["frames"].numpy(), frames[chosen])


def test_cached_captions_are_found_by_their_ids():
    cache = {"caption_ids": np.array(["a#0", "b#0", "c#0"]), "text": np.eye(3, dtype=np.float32)}
    found = cached_text(cache, pd.DataFrame({"caption_id": ["c#0", "a#0"]}), "features.npz")
    assert found.tolist() == [[0, 0, 1], [1, 0, 0]]
    with refusal("features.npz"):
        cached_text(cache, pd.DataFrame({"caption_id": ["a#0", "d#0"]}), "features.npz")
