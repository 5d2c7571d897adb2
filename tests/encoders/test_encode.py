"""Everything encoded once: order, batches and who decodes."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from rewind.loading.encode import encode_all_items, encode_all_texts

CPU = torch.device("cpu")


class Slow:
    """Items that are decoded, not copied; each row also says which process made it."""

    def __len__(self) -> int:
        return 11

    def batch(self, rows: np.ndarray):
        return {"value": torch.from_numpy(rows) * 10, "process": torch.full((len(rows),), os.getpid())}


class Copied(Slow):
    copies = True


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("inputs", [Slow(), Copied()])
def test_items_keep_their_order_and_their_batches_whoever_reads_them(inputs, workers: int) -> None:
    seen, done = [], []

    def encode(batch):
        seen.append(batch["value"].tolist())
        return {"value": batch["value"] + 1, "process": batch["process"]}

    found = encode_all_items(encode, inputs, 4, CPU, workers=workers, done=done.append)
    assert seen == [[0, 10, 20, 30], [40, 50, 60, 70], [80, 90, 100, 80]], "all of one shape"
    assert found["value"].tolist() == [10 * row + 1 for row in range(11)]
    assert done == [4, 4, 3]
    elsewhere = {pid for pid in found["process"].tolist() if pid != os.getpid()}
    assert len(elsewhere) == (0 if isinstance(inputs, Copied) else workers)  # what is only copied, threads copy


def test_captions_keep_their_order_and_their_batches() -> None:
    text, seen = torch.arange(14).reshape(7, 2), []

    def encode(batch):
        seen.append(len(batch["text"]))
        return {"sum": batch["text"].sum(1), "first": batch["text"][:, :1]}

    found = encode_all_texts(encode, text, 3, CPU)
    assert seen == [3, 3, 3], "all of one shape"
    assert torch.equal(found["sum"], text.sum(1)) and torch.equal(found["first"], text[:, :1])
