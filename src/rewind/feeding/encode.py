"""Everything encoded once: all captions or all items of a split in batches, on all processes that there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch

from rewind.distributed import ALONE, World
from rewind.feeding.ids import Text, text_batch
from rewind.feeding.inputs import Inputs, load
from rewind.models.retriever import Backbone, Features

Encode = Callable[[Features], Features]
"""A batch, on the device where it is encoded → its features, one row each."""


def encode_texts(encode: Encode, text: Text, size: int, device: torch.device, world: World = ALONE) -> Features:
    """Features of all prepared captions (n, ...), ``size`` at once, in their order.

    Args:
        encode: takes what :func:`rewind.feeding.ids.text_batch` gives; usually a retriever's ``encode_text``.
        text: prepared captions, one row each.
        size: rows of a batch.
        device: where batches are encoded.
        world: processes that share the work, batch by batch; every one gets all features.
    """

    def work(batches: list[slice]) -> Iterator[Features]:
        for rows in batches:
            yield encode({name: value.to(device) for name, value in text_batch(text, rows).items()})

    return _encoded(work, len(text), size, world)


def encode_all(
    encode: Encode,
    inputs: Inputs,
    size: int,
    device: torch.device,
    world: World = ALONE,
    workers: int = 0,
    done: Callable[[int], object] | None = None,
) -> Features:
    """Features of all items of ``inputs``, ``size`` at once, in their order; batches are read ahead.

    What a batch holds follows from ``size`` alone, not from the number of workers or processes.

    Args:
        encode: takes what ``inputs`` gives; usually a retriever's ``encode_items``.
        inputs: the items.
        size: rows of a batch.
        device: where batches are encoded.
        world: processes that share the work, batch by batch; every one gets all features.
        workers: decoding processes, see :func:`rewind.feeding.inputs.load`.
        done: called with the number of items of every encoded batch.
    """

    def work(batches: list[slice]) -> Iterator[Features]:
        read = load(partial(_slice, inputs), batches, inputs, min(workers, len(batches)), device)
        for rows, batch in zip(batches, read, strict=True):
            yield encode({name: value.to(device, non_blocking=True) for name, value in batch.items()})
            if done is not None:
                done(rows.stop - rows.start)

    return _encoded(work, len(inputs), size, world)


def tower_features(backbone: Backbone, batch: Features) -> Features:
    """Clips as the features of their frames: ``frames`` float32 (n, T, F) and ``mask`` (n, T), as caches have them."""
    if "frames" in batch:
        return batch
    return {"frames": backbone.clip_features(batch["pixels"], batch["mask"]), "mask": batch["mask"]}


def in_memory(features: Features) -> Features:
    """The same in main memory."""
    return {name: value.cpu() for name, value in features.items()}


def _slice(inputs: Inputs, rows: slice) -> Features:
    return inputs.batch(np.arange(rows.start, rows.stop))


def _encoded(encode: Callable[[list[slice]], Iterator[Features]], count: int, size: int, world: World) -> Features:
    """Features of ``count`` rows in batches of ``size``; batch i is made by rank i mod ``world.size``."""
    batches = [slice(at, min(at + size, count)) for at in range(0, count, size)]
    mine = batches[world.rank :: world.size]
    parts = dict(zip((rows.start for rows in mine), encode(mine), strict=True))
    if world.size == 1:
        return {name: torch.cat([part[name] for part in parts.values()]) for name in parts[0]}
    first = parts.get(0, {})  # rank 0 has it
    whole = {}
    for name, (shape, dtype) in world.agree({n: (v.shape[1:], v.dtype) for n, v in first.items()}).items():
        # Rows of other ranks are zeros here, so that the sum over ranks is exact.
        own = torch.zeros(count, *shape, dtype=dtype, device=world.device)
        for at, part in parts.items():
            own[at : at + len(part[name])] = part[name]
        whole[name] = world.sum(own)
    return whole
