"""Where a model's input comes from: clips, a store of decoded frames, or cached features of a frozen tower."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch

from rewind.errors import RewindError
from rewind.files import digest
from rewind.models.retriever import Features
from rewind.study import Frames
from rewind.video.frames import sample_clip
from rewind.video.store import Store, View


class Inputs(Protocol):
    """Gives the model's input for items by their row number.

    Attributes:
        copies: whether a batch is no more than a copy of memory (see :func:`load`).
    """

    copies: bool

    def __len__(self) -> int: ...

    def batch(self, rows: np.ndarray) -> Features: ...


class Clips:
    """Frames of video files: ``pixels`` uint8 (n, T, 3, S, S) and ``mask`` (n, T).

    Args:
        items: rows with ``item_id``, ``path`` (relative to ``folder``), ``reversed``.
        folder: folder of the dataset's prepared files.
        frames: which frames; their number is ``max_frames``.
    """

    copies = False

    def __init__(self, items: pd.DataFrame, folder: str | Path, frames: Frames, max_frames: int) -> None:
        self.paths = [Path(folder) / path for path in items["path"]]
        self.reversed = items["reversed"].to_numpy() == 1
        self.frames, self.max_frames = frames, max_frames
        self.kept: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Pixels and mask of one clip."""
        if row in self.kept:
            return self.kept[row]
        keys = self.frames
        chosen = {"sampling": keys.sampling, "rate": keys.rate, "fit": keys.fit}
        clip = sample_clip(self.paths[row], self.max_frames, keys.size, reversed=bool(self.reversed[row]), **chosen)
        if keys.keep_in_memory:
            self.kept[row] = clip
        return clip

    def batch(self, rows: np.ndarray) -> Features:
        pixels, masks = zip(*(self.read(int(row)) for row in rows), strict=True)
        return {"pixels": torch.from_numpy(np.stack(pixels)), "mask": torch.from_numpy(np.stack(masks))}


class StoredClips:
    """The same values as :class:`Clips`, read from a frame store.

    Args:
        items: rows with ``item_id``.
        index: the store's ``index.json``.
        frames: which frames; a store made with other keys is refused.

    Raises:
        RewindError: if the store is not whole, was made with other keys, or lacks an item.
    """

    copies = True

    def __init__(self, items: pd.DataFrame, index: str | Path, frames: Frames, max_frames: int) -> None:
        self.store = Store(index, View.of(frames, max_frames))
        self.places = self.store.places(items["item_id"])

    def __len__(self) -> int:
        return len(self.places)

    def batch(self, rows: np.ndarray) -> Features:
        pixels = _room((len(rows), *self.store.view.shape))
        return {"pixels": pixels, "mask": torch.from_numpy(self.store.read(self.places[rows], pixels.numpy()))}


class Noise:
    """A control: uniform noise in the shape of :class:`Clips`, the same for an item in every run and epoch.

    No clip is read. Every item has ``max_frames`` frames, drawn from the hash of its id.
    """

    copies = False

    def __init__(self, items: pd.DataFrame, frames: Frames, max_frames: int) -> None:
        self.seeds = [int(digest("noise", item), 16) for item in items["item_id"]]
        self.shape = (max_frames, 3, frames.size, frames.size)

    def __len__(self) -> int:
        return len(self.seeds)

    def batch(self, rows: np.ndarray) -> Features:
        pixels = np.stack([self.read(int(row)) for row in rows])
        return {"pixels": torch.from_numpy(pixels), "mask": torch.ones(len(rows), self.shape[0], dtype=torch.uint8)}

    def read(self, row: int) -> np.ndarray:
        """Pixels of one item, uint8."""
        return np.random.default_rng(self.seeds[row]).integers(0, 256, self.shape, dtype=np.uint8)


def _room(shape: tuple[int, ...]) -> torch.Tensor:
    """Memory for a batch of uint8, for its one copy."""
    if torch.cuda.is_available() and torch.utils.data.get_worker_info() is None:
        # Page-locked: the GPU fetches it by itself and torch recycles it. A worker process must not touch the GPU.
        return torch.empty(shape, dtype=torch.uint8, pin_memory=True)
    return torch.from_numpy(np.empty(shape, np.uint8))  # NumPy's comes in huge pages, which fill several times as fast


class CachedFrames:
    """Frame features of a frozen tower: ``frames`` float32 (n, T, F) and ``mask`` (n, T)."""

    copies = True

    def __init__(self, frames: np.ndarray, mask: np.ndarray) -> None:
        self.frames, self.mask = torch.from_numpy(frames), torch.from_numpy(mask)

    def __len__(self) -> int:
        return len(self.frames)

    def batch(self, rows: np.ndarray) -> Features:
        index = torch.as_tensor(rows)
        return {"frames": self.frames[index], "mask": self.mask[index]}


def cached_frames(cache: dict[str, np.ndarray], items: pd.DataFrame, where: str) -> CachedFrames:
    """Rows of a feature cache in the order of ``items``.

    Raises:
        RewindError: if an item has no features there.
    """
    place = {item: row for row, item in enumerate(cache["item_ids"].tolist())}
    missing = [item for item in items["item_id"] if item not in place]
    if missing:
        raise RewindError(
            f"{where}: no features of {len(missing)} items, first {missing[0]!r}; delete this file and run again."
        )
    rows = [place[item] for item in items["item_id"]]
    return CachedFrames(cache["frames"][rows], cache["mask"][rows])


def cached_text(cache: dict[str, np.ndarray], captions: pd.DataFrame, where: str) -> torch.Tensor:
    """Prepared captions of a feature cache in the order of ``captions``."""
    place = {caption: row for row, caption in enumerate(cache["caption_ids"].tolist())}
    missing = [caption for caption in captions["caption_id"] if caption not in place]
    if missing:
        raise RewindError(
            f"{where}: no features of {len(missing)} captions, first {missing[0]!r}; delete this file and run again."
        )
    return torch.from_numpy(cache["text"][[place[caption] for caption in captions["caption_id"]]])


def load(
    make: Callable[[Any], Features], keys: Iterable[Any], inputs: Inputs, workers: int, device: torch.device
) -> Iterator[Features]:
    """Batches ``make(key)`` in the order of ``keys``, some ahead of the caller.

    Decoding is spread over processes. Where a batch is only a copy, threads make it: a process would send it on through
    shared memory, which costs several times more than reading it. Either way each batch is made whole by one of them,
    so what it holds does not depend on their number, and no random number of the caller's is drawn.

    Args:
        make: makes one batch out of ``inputs``.
        keys: one for each batch; taken one by one, in the calling thread.
        inputs: what ``make`` reads.
        workers: how many batches are made at a time; 0: decode in the calling thread.
        device: where batches will go.
    """
    if getattr(inputs, "copies", False):  # inputs of a user's own model need not say
        return ahead(make, keys, max(1, min(workers, MOST_THREADS)))
    loader = torch.utils.data.DataLoader(
        _Made(make),
        sampler=keys,
        batch_size=None,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        generator=torch.Generator(),  # its own: a loader draws a number when it starts
    )
    return iter(loader)


MOST_THREADS = 4  # they share one bus to memory


class _Made(torch.utils.data.Dataset):
    def __init__(self, make: Callable[[Any], Features]) -> None:
        self.make = make

    def __getitem__(self, key: Any) -> Features:
        return self.make(key)


def ahead(make: Callable[[Any], Any], keys: Iterable[Any], threads: int) -> Iterator[Any]:
    """``make(key)`` in the order of ``keys``, made by threads, as many as there are ahead of the caller."""
    waiting: deque[Any] = deque()
    pool = ThreadPoolExecutor(threads, "batches")
    try:
        for key in keys:
            waiting.append(pool.submit(make, key))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
