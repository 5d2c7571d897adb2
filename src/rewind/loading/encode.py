"""Encode all captions or all items of a split once, in batches, shared among all processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch

from rewind.distributed import SINGLE_PROCESS, World
from rewind.loading.frame_source import CachedFrames, FrameSource, load_batches
from rewind.loading.run_data import PreparedText, take_text
from rewind.models.backbone import Backbone
from rewind.models.retriever import Features

Encode = Callable[[Features], Features]
"""A batch, on the device where it is encoded → its features, one row per caption or item."""


def encode_all_texts(
    encode: Encode, text: PreparedText, size: int, device: torch.device, world: World = SINGLE_PROCESS
) -> Features:
    """Features of all prepared captions, in batches of ``size``, in their order.

    Args:
        encode: is called with what :func:`~rewind.loading.run_data.take_text` gives; usually a retriever's
            ``encode_text``.
        text: prepared captions, one row each.
        size: rows of a batch.
        device: where batches are encoded.
        world: processes that share the work, batch by batch; every one gets all features.

    >>> double = lambda batch: {"text": 2 * batch["text"]}
    >>> encode_all_texts(double, torch.ones(5, 8), size=2, device=torch.device("cpu"))["text"].shape
    torch.Size([5, 8])
    """

    def encode_batches(batches: list[slice]) -> Iterator[Features]:
        for rows in batches:
            yield encode({name: value.to(device) for name, value in take_text(text, rows).items()})

    return _encoded(encode_batches, len(text), size, world)


def encode_all_items(
    encode: Encode,
    inputs: FrameSource,
    size: int,
    device: torch.device,
    world: World = SINGLE_PROCESS,
    workers: int = 0,
    done: Callable[[int], object] | None = None,
) -> Features:
    """Features of all items of ``inputs``, in batches of ``size``, in their order; batches are read ahead.

    What a batch holds depends on ``size`` alone, not on the number of workers or processes: a row's features may differ
    in the last bits with the rows that are encoded beside it.

    Args:
        encode: is called with what ``inputs`` gives; usually a retriever's ``encode_items``.
        inputs: the items.
        size: rows of a batch.
        device: where batches are encoded.
        world: processes that share the work, batch by batch; every one gets all features.
        workers: decoding processes, see :func:`rewind.loading.frame_source.load_batches`.
        done: called with the number of items of each encoded batch, for progress.
    """

    def encode_batches(batches: list[slice]) -> Iterator[Features]:
        read = load_batches(partial(_slice, inputs), batches, inputs, min(workers, len(batches)), device)
        for rows, batch in zip(batches, read, strict=True):
            yield encode({name: value.to(device, non_blocking=True) for name, value in batch.items()})
            if done is not None:
                done(rows.stop - rows.start)

    return _encoded(encode_batches, len(inputs), size, world)


def tower_features(backbone: Backbone, batch: Features) -> Features:
    """The features of a batch's frames: ``frames`` float32 (n, T, F) and ``mask`` (n, T), as in caches."""
    if "frames" in batch:
        return batch
    return {"frames": backbone.clip_features(batch["pixels"], batch["mask"]), "mask": batch["mask"]}


@torch.inference_mode()
def frame_features(
    backbone: Backbone,
    inputs: FrameSource,
    size: int,
    device: torch.device | None = None,
    world: World = SINGLE_PROCESS,
    workers: int = 0,
) -> CachedFrames:
    """The features of all frames of ``inputs``, kept in main memory for callers that use them several times.

    Args:
        backbone: whose visual tower encodes them; put into evaluation mode. Cached features stay as they are.
        inputs: the items.
        size: rows of a batch.
        device: where batches are encoded; None: that of the backbone's parameters.
        world, workers: see :func:`encode_all_items`.
    """
    if device is None:
        device = next((parameter.device for parameter in backbone.parameters()), torch.device("cpu"))
    backbone.eval().to(device)
    encoded = encode_all_items(
        lambda batch: to_main_memory(tower_features(backbone, batch)), inputs, size, device, world, workers
    )
    return CachedFrames(encoded["frames"].float().cpu().numpy(), encoded["mask"].cpu().numpy())


def to_main_memory(features: Features) -> Features:
    """The same features in main memory.

    >>> to_main_memory({"text": torch.zeros(2, 3)})["text"].device
    device(type='cpu')
    """
    return {name: value.cpu() for name, value in features.items()}


def _slice(inputs: FrameSource, rows: slice) -> Features:
    return inputs.batch(np.arange(rows.start, rows.stop))


def _encoded(encode: Callable[[list[slice]], Iterator[Features]], count: int, size: int, world: World) -> Features:
    """Features of ``count`` rows in batches of ``size``; batch i is made by rank i mod ``world.size``."""
    batches = [slice(at, min(at + size, count)) for at in range(0, count, size)]
    own_batches = batches[world.rank :: world.size]
    encoded = dict(zip((rows.start for rows in own_batches), encode(own_batches), strict=True))
    if world.size == 1:
        return {name: torch.cat([features[name] for features in encoded.values()]) for name in encoded[0]}
    # Shapes and types come from rank 0, which always has the first batch; another rank may have none.
    first = encoded.get(0, {})
    all_features = {}
    for name, (shape, dtype) in world.agree({n: (v.shape[1:], v.dtype) for n, v in first.items()}).items():
        # Rows of other ranks are zeros here, so that the sum over ranks is exact.
        rows_here = torch.zeros(count, *shape, dtype=dtype, device=world.device)
        for at, features in encoded.items():
            rows_here[at : at + len(features[name])] = features[name]
        all_features[name] = world.sum(rows_here)
    return all_features
