"""Encode all captions or all items of a split once, in batches, shared among all processes.

All batches have one number of rows, and a clip and its twin have the same place in two of them: products of few rows
round otherwise than those of many, and a head that cannot see order would see this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch

from rewind.distributed import SINGLE_PROCESS, World
from rewind.hashing import content_key
from rewind.loading.frame_source import CachedFrames, FrameSource, load_batches
from rewind.loading.text import PreparedText, take_text
from rewind.models.backbone import Backbone
from rewind.models.retriever import Features

Encode = Callable[[Features], Features]
"""A batch, on the device where it is encoded → its features, one row per caption or item."""


def encode_all_texts(
    encode: Encode, text: PreparedText, size: int, device: torch.device, world: World = SINGLE_PROCESS
) -> Features:
    """Features of all prepared captions, in batches of ``size``, in their order; equal captions are encoded once.

    Towers cut a batch at its longest caption, so in two batches a caption could have other last bits, and not tie.
    Processes of ``world`` share the work batch by batch, and every one gets all features.

    >>> double = lambda batch: {"text": 2 * batch["text"]}
    >>> encode_all_texts(double, torch.ones(5, 8), size=2, device=torch.device("cpu"))["text"].shape
    torch.Size([5, 8])
    """

    def encode_batches(batches: list[np.ndarray]) -> Iterator[Features]:
        for rows in batches:
            batch = take_text(text, distinct[rows])
            yield encode({name: value.to(device) for name, value in batch.items()})

    distinct, row_of_caption = distinct_rows(take_text(text, slice(None)), len(text))
    encoded = _encoded(encode_batches, len(distinct), size, world)
    if len(distinct) == len(text):
        return encoded
    return {name: value[row_of_caption.to(value.device)] for name, value in encoded.items()}


def distinct_rows(features: Features, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows that are the first with their content, and for each row the index of its content among them.

    >>> [part.tolist() for part in distinct_rows({"text": torch.tensor([[5.0], [7.0], [5.0]])}, 3)]
    [[0, 1], [0, 1, 0]]
    """
    # Compared as bytes: two rows are one only if every bit is the same.
    parts = [value.cpu().contiguous().view(count, -1).view(torch.uint8).numpy() for value in features.values()]
    index_of_content: dict[bytes, int] = {}
    first_rows: list[int] = []
    indices: list[int] = []
    for row in range(count):
        key = content_key(*(part[row].tobytes() for part in parts))
        if key not in index_of_content:
            index_of_content[key] = len(first_rows)
            first_rows.append(row)
        indices.append(index_of_content[key])
    return torch.tensor(first_rows), torch.tensor(indices)


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

    What a batch holds depends only on ``size`` and ``inputs.twins``, not on the number of workers or processes: a row's
    features may differ in the last bits with the rows that are encoded next to it. Processes of ``world`` share the
    work batch by batch, and every one gets all features; ``done`` is called with the number of items of each encoded
    batch.
    """

    def encode_batches(batches: list[np.ndarray]) -> Iterator[Features]:
        read = load_batches(inputs.batch, batches, inputs, min(workers, len(batches)), device)
        for batch in read:
            yield encode({name: value.to(device, non_blocking=True) for name, value in batch.items()})

    return _encoded(encode_batches, len(inputs), size, world, getattr(inputs, "twins", None), done)


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

    The visual tower of ``backbone``, put into evaluation mode, encodes them; cached features stay as they are.
    ``device`` None is that of the backbone's parameters.
    """
    if device is None:
        device = next((parameter.device for parameter in backbone.parameters()), torch.device("cpu"))
    backbone.eval().to(device)
    encoded = encode_all_items(
        lambda batch: to_main_memory(tower_features(backbone, batch)), inputs, size, device, world, workers
    )
    frames, mask = encoded["frames"].float().cpu().numpy(), encoded["mask"].cpu().numpy()
    return CachedFrames(frames, mask, getattr(inputs, "twins", None))


def to_main_memory(features: Features) -> Features:
    return {name: value.cpu() for name, value in features.items()}


def _encoded(
    encode: Callable[[list[np.ndarray]], Iterator[Features]],
    count: int,
    size: int,
    world: World,
    twins: np.ndarray | None = None,
    done: Callable[[int], object] | None = None,
) -> Features:
    """Features of ``count`` rows in the batches of :func:`_equal_batches`; batch i is made by rank i mod its size."""
    own_batches = _equal_batches(count, size, twins)[world.rank :: world.size]
    encoded: list[tuple[np.ndarray, Features]] = []
    for (rows, kept), features in zip(own_batches, encode([rows for rows, _ in own_batches]), strict=True):
        encoded.append((rows[:kept], {name: value[:kept] for name, value in features.items()}))
        if done is not None:
            done(kept)
    # Shapes and types come from rank 0, which always has the first batch; another rank may have none.
    first = encoded[0][1] if encoded else {}
    all_features = {}
    for name, (shape, dtype) in world.agree({n: (v.shape[1:], v.dtype) for n, v in first.items()}).items():
        device = world.device if world.size > 1 else first[name].device
        # Rows of other ranks are zeros here, so that the sum over ranks is exact.
        all_rows = torch.zeros(count, *shape, dtype=dtype, device=device)
        for rows, features in encoded:
            all_rows[torch.from_numpy(rows).to(device)] = features[name].to(device)
        all_features[name] = world.sum(all_rows)
    return all_features


def _equal_batches(count: int, size: int, twins: np.ndarray | None) -> list[tuple[np.ndarray, int]]:
    """Rows of each batch, and how many count: where a row is missing, the batch's first one is repeated.

    Clips that have a twin come first; the batch after theirs has their twins, at the same places.

    >>> [(rows.tolist(), kept) for rows, kept in _equal_batches(3, 2, None)]
    [([0, 1], 2), ([2, 2], 1)]
    >>> [rows.tolist() for rows, _ in _equal_batches(5, 2, np.array([1, 0, -1, 4, 3]))]
    [[0, 3], [1, 4], [2]]
    """
    rows = np.arange(count)
    twins = np.full(count, -1) if twins is None else twins
    mutual = (twins >= 0) & (twins[twins] == rows)  # of a, a_rev and a_rev_rev two are twins
    batches = []
    for group, paired in ((rows[mutual & (twins > rows)], True), (rows[~mutual], False)):
        parts = np.array_split(group, math.ceil(len(group) / size)) if len(group) else []
        for part in parts:
            full = np.resize(part, len(parts[0]))  # the parts differ by one row at most
            batches.append((full, len(part)))
            if paired:
                batches.append((twins[full], len(part)))
    return batches
