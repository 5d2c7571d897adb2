"""Where a model's input comes from: decoded frames of clips, or cached features of a frozen tower."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
import pandas as pd
import torch

from rewind.errors import RewindError
from rewind.models.retriever import Features
from rewind.study import Frames
from rewind.video.frames import sample_clip


class Inputs(Protocol):
    """Gives the model's input for items by their row number."""

    def __len__(self) -> int: ...

    def batch(self, rows: np.ndarray) -> Features: ...


class Clips:
    """Frames of video files: ``pixels`` uint8 (n, T, 3, S, S) and ``mask`` (n, T).

    Args:
        items: rows with ``item_id``, ``path`` (relative to ``folder``), ``reversed``.
        folder: folder of the dataset's prepared files.
        frames: which frames; their number is ``max_frames``.
    """

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
        clip = sample_clip(
            self.paths[row], self.max_frames, keys.size, keys.sampling, keys.rate, reversed=bool(self.reversed[row])
        )
        if keys.keep_in_memory:
            self.kept[row] = clip
        return clip

    def batch(self, rows: np.ndarray) -> Features:
        pixels, masks = zip(*(self.read(int(row)) for row in rows), strict=True)
        return {"pixels": torch.from_numpy(np.stack(pixels)), "mask": torch.from_numpy(np.stack(masks))}


class CachedFrames:
    """Frame features of a frozen tower: ``frames`` float32 (n, T, F) and ``mask`` (n, T)."""

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
        raise RewindError(f"{where}: no features of {len(missing)} items, first {missing[0]!r}; make the file anew.")
    rows = [place[item] for item in items["item_id"]]
    return CachedFrames(cache["frames"][rows], cache["mask"][rows])


def cached_text(cache: dict[str, np.ndarray], captions: pd.DataFrame, where: str) -> torch.Tensor:
    """Prepared captions of a feature cache in the order of ``captions``."""
    place = {caption: row for row, caption in enumerate(cache["caption_ids"].tolist())}
    missing = [caption for caption in captions["caption_id"] if caption not in place]
    if missing:
        raise RewindError(f"{where}: no features of {len(missing)} captions, first {missing[0]!r}; make the file anew.")
    return torch.from_numpy(cache["text"][[place[caption] for caption in captions["caption_id"]]])
