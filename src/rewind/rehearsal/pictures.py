"""Stand-ins for what a user would bring: drawn clips and pictures with captions that are true of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from rewind.datasets.annotations import SPLITS
from rewind.datasets.clip_file import write_clip
from rewind.datasets.shapes_draw import draw_style, render
from rewind.datasets.shapes_grammar import Entry, compose

CODING = "-pix_fmt yuv420p -crf 23 -vf pad=ceil(iw/2)*2:ceil(ih/2)*2"


@dataclass(frozen=True)
class Sizes:
    """Originals of each split that a rehearsal sees."""

    train: int
    valid: int
    test: int

    def counts(self) -> dict[str, int]:
        """By split."""
        return {"train": self.train, "valid": self.valid, "test": self.test}


@dataclass(frozen=True)
class StandIn:
    """A drawn clip: its name, its split, what happens in it."""

    name: str
    split: str
    entry: Entry


def invent(sizes: Sizes, captions: int) -> list[StandIn]:
    """Stand-ins of every split, in order; the scenes are those of moving shapes, each with so many captions."""
    splits = compose(sizes.counts(), captions, seed=0)
    return [StandIn(f"standin{split}{n:03}", split, entry) for split in SPLITS for n, entry in enumerate(splits[split])]


def draw_clip(stand_in: StandIn, path: Path, side: int = 96, seconds: float = 9.0) -> None:
    """Write a clip as H.264, ``seconds`` long."""
    style = draw_style(stand_in.name, side)
    frames = render(stand_in.entry.scene, style)
    path.parent.mkdir(parents=True, exist_ok=True)
    rate = f"{len(frames) * 1000}/{round(seconds * 1000)}"
    write_clip(path, frames.tobytes(), (style.width, style.height), rate, CODING)


def draw_picture(stand_in: StandIn, path: Path, side: int = 128) -> None:
    """Write the middle of a clip as a picture, in the format of the file's suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(_frames(stand_in, side, 3)[1]).save(path)


def draw_animation(stand_in: StandIn, path: Path, side: int = 64, count: int = 12) -> None:
    """Write an animated picture of ``count`` frames (webp or gif)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    first, *rest = (Image.fromarray(frame) for frame in _frames(stand_in, side, count))
    first.save(path, save_all=True, append_images=rest, duration=100, loop=0)


def _frames(stand_in: StandIn, side: int, count: int) -> np.ndarray:
    return render(stand_in.entry.scene, replace(draw_style(stand_in.name, side), frames=count))
