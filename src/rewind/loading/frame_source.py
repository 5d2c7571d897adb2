"""Frame sources: where a model's input comes from, and how batches of it are read ahead.

A ``FrameSource`` gives the input of items by row number: decoded clips, a frame store, cached features of a frozen
tower, or noise (a control). Frames are ``pixels`` uint8 (n, T, 3, S, S) or ``frames`` float32 (n, T, F), with
``mask`` (n, T).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch

from rewind.config import Frames
from rewind.data.annotations import twin_rows
from rewind.errors import RewindError
from rewind.hashing import stable_hash
from rewind.models.retriever import Features
from rewind.video.frame_store import FrameStore, FrameView
from rewind.video.frames import sample_clip

MAX_LOADER_THREADS = 4  # that copy; they share one memory bus


class FrameSource(Protocol):
    """Gives the model's input for items by their row number.

    ``copies`` tells whether making a batch only copies memory (see :func:`load_batches`). Where items may have twins,
    there is also ``twins``, see :func:`rewind.data.annotations.twin_rows`.
    """

    copies: bool

    def __len__(self) -> int: ...

    def batch(self, rows: np.ndarray) -> Features: ...


class ClipFrames:
    """Frames of video files: ``pixels`` uint8 (n, T, 3, S, S) and ``mask`` (n, T), with T = ``max_frames``.

    Paths of ``items`` (item_id, path, reversed) are relative to ``folder``.

    >>> import tempfile
    >>> from PIL import Image
    >>> folder = Path(tempfile.mkdtemp())
    >>> Image.new("RGB", (64, 48)).save(folder / "img1.png")
    >>> items = pd.DataFrame({"item_id": ["img1"], "path": ["img1.png"], "reversed": [0]})
    >>> batch = ClipFrames(items, folder, Frames(size=32), max_frames=2).batch(np.array([0]))
    >>> batch["pixels"].shape, batch["mask"]
    (torch.Size([1, 2, 3, 32, 32]), tensor([[1, 0]], dtype=torch.uint8))
    """

    copies = False

    def __init__(self, items: pd.DataFrame, folder: str | Path, frames: Frames, max_frames: int) -> None:
        self.twins = twin_rows(items["item_id"])
        self.paths = [Path(folder) / path for path in items["path"]]
        self.reversed = items["reversed"].to_numpy() == 1
        self.frames, self.max_frames = frames, max_frames
        self._decoded: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Pixels and mask of one clip."""
        if row in self._decoded:
            return self._decoded[row]
        keys = self.frames
        clip = sample_clip(
            self.paths[row],
            self.max_frames,
            keys.size,
            keys.sampling,
            keys.rate,
            reversed=bool(self.reversed[row]),
            fit=keys.fit,
        )
        if keys.keep_in_memory:
            self._decoded[row] = clip
        return clip

    def batch(self, rows: np.ndarray) -> Features:
        pixels, masks = zip(*(self.read(int(row)) for row in rows), strict=True)
        return {"pixels": torch.from_numpy(np.stack(pixels)), "mask": torch.from_numpy(np.stack(masks))}


class StoredFrames:
    """The same values as :class:`ClipFrames`, read from a frame store whose ``index.json`` is ``index``.

    A store that is damaged, was written with other keys, or lacks an item is refused.
    """

    copies = True

    def __init__(self, items: pd.DataFrame, index: str | Path, frames: Frames, max_frames: int) -> None:
        self.store = FrameStore(index, FrameView.of(frames, max_frames))
        self.places, self.twins = self.store.places(items["item_id"]), twin_rows(items["item_id"])

    def __len__(self) -> int:
        return len(self.places)

    def batch(self, rows: np.ndarray) -> Features:
        pixels = _empty_pixels((len(rows), *self.store.view.shape))
        return {"pixels": pixels, "mask": torch.from_numpy(self.store.read(self.places[rows], pixels.numpy()))}


def _empty_pixels(shape: tuple[int, ...]) -> torch.Tensor:
    """Memory for a batch of uint8, for its one copy."""
    if torch.cuda.is_available() and torch.utils.data.get_worker_info() is None:
        # Page-locked: the GPU fetches it by itself and torch recycles it. A worker process must not touch the GPU.
        return torch.empty(shape, dtype=torch.uint8, pin_memory=True)
    return torch.from_numpy(np.empty(shape, np.uint8))  # NumPy's comes in huge pages, which fill several times as fast


class NoiseFrames:
    """A control: uniform noise in the shape of :class:`ClipFrames`, the same for an item in every run and epoch.

    No clip is read. Every item has ``max_frames`` frames, drawn with a seed that is a hash of its id.

    >>> items = pd.DataFrame({"item_id": ["a", "b"]})
    >>> NoiseFrames(items, Frames(size=32), max_frames=4).batch(np.arange(2))["pixels"].shape
    torch.Size([2, 4, 3, 32, 32])
    """

    copies = False

    def __init__(self, items: pd.DataFrame, frames: Frames, max_frames: int) -> None:
        self.seeds = [int(stable_hash("noise", item), 16) for item in items["item_id"]]
        self.twins = twin_rows(items["item_id"])
        self.shape = (max_frames, 3, frames.size, frames.size)

    def __len__(self) -> int:
        return len(self.seeds)

    def batch(self, rows: np.ndarray) -> Features:
        pixels = np.stack([self.read(int(row)) for row in rows])
        return {"pixels": torch.from_numpy(pixels), "mask": torch.ones(len(rows), self.shape[0], dtype=torch.uint8)}

    def read(self, row: int) -> np.ndarray:
        return np.random.default_rng(self.seeds[row]).integers(0, 256, self.shape, dtype=np.uint8)


class CachedFrames:
    """Frame features of a frozen tower: ``frames`` float32 (n, T, F) and ``mask`` (n, T)."""

    copies = True

    def __init__(self, frames: np.ndarray, mask: np.ndarray, twins: np.ndarray | None = None) -> None:
        self.frames, self.mask, self.twins = torch.from_numpy(frames), torch.from_numpy(mask), twins

    def __len__(self) -> int:
        return len(self.frames)

    def batch(self, rows: np.ndarray) -> Features:
        index = torch.as_tensor(rows)
        return {"frames": self.frames[index], "mask": self.mask[index]}


def cached_frames(cache: dict[str, np.ndarray], items: pd.DataFrame, where: str) -> CachedFrames:
    """Rows of a feature cache in the order of ``items``, all of which must be in it.

    ``cache`` has arrays ``item_ids`` (n,), ``frames`` (n, T, F) and ``mask`` (n, T).
    """
    row_of_item = {item: row for row, item in enumerate(cache["item_ids"].tolist())}
    missing = [item for item in items["item_id"] if item not in row_of_item]
    if missing:
        raise RewindError(
            f"{where}: no features of {len(missing)} items, first {missing[0]!r}; delete this file and run again."
        )
    rows = [row_of_item[item] for item in items["item_id"]]
    return CachedFrames(cache["frames"][rows], cache["mask"][rows], twin_rows(items["item_id"]))


def cached_text(cache: dict[str, np.ndarray], captions: pd.DataFrame, where: str) -> torch.Tensor:
    """Prepared captions of a feature cache, its arrays ``caption_ids`` and ``text``, in the order of ``captions``."""
    row_of_caption = {caption: row for row, caption in enumerate(cache["caption_ids"].tolist())}
    missing = [caption for caption in captions["caption_id"] if caption not in row_of_caption]
    if missing:
        raise RewindError(
            f"{where}: no features of {len(missing)} captions, first {missing[0]!r}; delete this file and run again."
        )
    return torch.from_numpy(cache["text"][[row_of_caption[caption] for caption in captions["caption_id"]]])


def load_batches(
    make: Callable[[Any], Features], keys: Iterable[Any], inputs: FrameSource, workers: int, device: torch.device
) -> Iterator[Features]:
    """Batches ``make(key)`` in the order of ``keys``, some of them made ahead.

    Decoding is spread over processes. If a batch is only a copy, threads make it: a process would pass it on through
    shared memory, which takes several times as long as reading it. In either case each batch is made by one worker as a
    whole, so it does not depend on their number, and the caller's random generators are left alone. Keys are drawn one
    by one, in the calling thread. With ``workers`` 0 it also decodes, else this many batches are made at a time.
    """
    if getattr(inputs, "copies", False):  # the inputs of a user's own model may lack the attribute
        return prefetch(make, keys, max(1, min(workers, MAX_LOADER_THREADS)))
    loader = torch.utils.data.DataLoader(
        _BatchDataset(make),
        sampler=keys,
        batch_size=None,  # `make` gives a whole batch: the loader must not batch again
        num_workers=workers,
        pin_memory=device.type == "cuda",
        generator=torch.Generator(),  # its own: a loader draws a number when it starts
    )
    return iter(loader)


class _BatchDataset(torch.utils.data.Dataset[Features]):
    """``make`` in the form of a dataset whose "items" are whole batches."""

    def __init__(self, make: Callable[[Any], Features]) -> None:
        self.make = make

    def __getitem__(self, key: Any) -> Features:
        return self.make(key)


def prefetch(make: Callable[[Any], Any], keys: Iterable[Any], threads: int) -> Iterator[Any]:
    """``make(key)`` in the order of ``keys``, made by threads; there is one batch ahead of the caller per thread.

    >>> list(prefetch(lambda key: key * 10, range(5), threads=2))
    [0, 10, 20, 30, 40]
    """
    waiting: deque[Any] = deque()
    pool = ThreadPoolExecutor(threads, "batches")
    try:
        for key in keys:
            waiting.append(pool.submit(make, key))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # also when the caller stops early
        pool.shutdown(cancel_futures=True)
