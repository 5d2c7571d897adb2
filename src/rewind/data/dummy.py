"""Dummy data: a few drawn clips or pictures with captions, written in the files of a dataset's format.

``rewind rehearse`` reads them where the user's own files are missing. A format has its own, next to its reader::

    @DUMMY_DATA.register("mine", published=PublishedSizes(…))
    def make_dummy_data(dataset, folder, sizes): ...

It writes about ``sizes`` items into ``folder`` and returns the keys of ``source`` that must change for its reader to
find them. A format of the user's own has the function in its module, or as an attribute of its reader. What else may be
named in the decorator is optional: ``published``, the sizes of the dataset that the format is named after, and
``first_items(dataset, folder, sizes)``, which copies the first of the user's own items, for formats that no list of ids
(``only``) makes smaller.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from rewind.config.dataset import Dataset, ImageSplitConfig
from rewind.data.annotations import SPLITS
from rewind.data.clip_writer import write_clip
from rewind.data.scenes import CaptionedScene, compose_splits, random_style, render_scene
from rewind.registry import DUMMY_DATA, FORMATS

# yuv420p stores colour for blocks of 2 × 2 pixels, so that both sides must be even: pad rounds them up.
FFMPEG_OPTIONS = "-pix_fmt yuv420p -crf 23 -vf pad=ceil(iw/2)*2:ceil(ih/2)*2"


class SplitSizes(NamedTuple):
    """Number of originals (items without reversed twins) of each split."""

    train: int
    valid: int
    test: int

    def counts(self) -> dict[str, int]:
        """The numbers by split."""
        return self._asdict()


class PublishedSizes(NamedTuple):
    """Sizes of a published dataset: numbers of items (reversed twins included) and of captions of each split."""

    train: tuple[int, int]
    valid: tuple[int, int]
    test: tuple[int, int]
    originals: int  # source files in all
    source: str  # which publication the numbers are of, for the report


def find_dummy_data(name: str) -> Callable[[Dataset, Path, SplitSizes], dict[str, Any]] | None:
    """What writes dummy data of a format, with its attributes ``published`` and ``first_items``; None: nothing does."""
    if "." not in name:
        return DUMMY_DATA.find(name) if name in DUMMY_DATA.names() else None
    module = FORMATS.find(name)
    makers = (getattr(part, "make_dummy_data", None) for part in (module, getattr(module, "read", None)))
    if maker := next(filter(None, makers), None):
        return maker
    if former := getattr(module, "stand_in", None):
        message = f"source.format: {name}: rename `stand_in(source, …)` to `make_dummy_data(dataset, …)`"
        warnings.warn(message, FutureWarning, stacklevel=2)
        return lambda dataset, folder, sizes: former(dataset.source.model_dump(mode="json"), folder, sizes)
    return None


# ---- Drawn items, with captions that are true of them --------------------------------------------------------------


@dataclass(frozen=True)
class DummyItem:
    """An item that is drawn: its name, its split, and the scene with its captions."""

    name: str
    split: str
    entry: CaptionedScene


def make_dummy_items(sizes: SplitSizes, captions: int) -> list[DummyItem]:
    """Dummy items of every split, in order, drawn as ``shapes``; each has ``captions`` in each direction of time."""
    splits = compose_splits(sizes.counts(), captions, seed=0)
    return [
        DummyItem(f"standin{split}{n:03}", split, entry) for split in SPLITS for n, entry in enumerate(splits[split])
    ]


def make_dummy_images(keys: ImageSplitConfig, sizes: SplitSizes, captions: int) -> list[DummyItem]:
    """Dummy items for a format that draws its split itself: enough that no split is smaller than asked."""
    count = max(sizes.valid / keys.valid_share, sizes.test / (1 - keys.train_share - keys.valid_share))
    return make_dummy_items(SplitSizes(math.ceil(count) + 2, 0, 0), captions)


def draw_clip(item: DummyItem, path: Path, side: int = 96, seconds: float = 9.0) -> None:
    """Write an item as an H.264 clip, ``side`` pixels wide and high, and ``seconds`` long."""
    frames = _draw_frames(item, side)
    path.parent.mkdir(parents=True, exist_ok=True)
    rate = f"{len(frames) * 1000}/{round(seconds * 1000)}"  # frames per second, as a fraction
    write_clip(path, frames.tobytes(), (frames.shape[2], frames.shape[1]), rate, FFMPEG_OPTIONS)


def draw_picture(item: DummyItem, path: Path, side: int = 128) -> None:
    """Write the middle frame of an item as a picture, in the format of the file's suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(_draw_frames(item, side, 3)[1]).save(path)


def draw_animation(item: DummyItem, path: Path, side: int = 64, count: int = 12) -> None:
    """Write an item as an animated picture of ``count`` frames (WebP or GIF)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    first, *rest = (Image.fromarray(frame) for frame in _draw_frames(item, side, count))
    first.save(path, save_all=True, append_images=rest, duration=100, loop=0)  # 100 ms a frame, endless


def _draw_frames(item: DummyItem, side: int, count: int | None = None) -> np.ndarray:
    """uint8 RGB [count, height, width, 3]; as many frames as the item's style has, if ``count`` is None."""
    style = random_style(item.name, side)
    return render_scene(item.entry.scene, replace(style, frames=count or style.frames))
