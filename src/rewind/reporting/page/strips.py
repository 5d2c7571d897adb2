"""Small moving pictures of clips: a few frames side by side in one JPEG, which the page's style sheet steps through."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

FRAMES, SIDE, QUALITY = 6, 64, 70
BUDGET = 15_000_000  # bytes of base64 in a page
MIRROR = 8.0  # largest mean difference (of 255) between a twin's frames and its original's that is encoding alone


@dataclass
class Strips:
    """The strips of a page.

    Attributes:
        data: JPEGs in base64, one per strip.
        frames: frames in each.
        of_item: per item the number of its strip, ``~number`` for that strip played backwards, None for none.
        bytes: length of all ``data``.
        places: the number of every strip by its data, so that the same strip is kept once.
    """

    data: list[str] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)
    of_item: list[int | None] = field(default_factory=list)
    bytes: int = 0
    places: dict[str, int] = field(default_factory=dict)

    def numbers(self) -> list[int]:
        """``of_item`` with the number of strips standing for none."""
        return [len(self.data) if number is None else number for number in self.of_item]

    def embedded(self) -> int:
        """Items that have a strip."""
        return sum(number is not None for number in self.of_item)

    def content(self) -> dict[str, Any]:
        """What the page's script reads."""
        return {"frames": self.frames, "data": self.data}


def make_strips(
    read: Callable[[int], np.ndarray], twin: Iterable[int], reversed_: Iterable[bool], budget: int = BUDGET
) -> Strips:
    """Strips of items in the order of the file until the budget is spent; a clip that does not fit ends it.

    A twin whose frames mirror its original's shares the original's strip, played backwards.

    Args:
        read: item → its frames, uint8 (t, h, w, 3).
        twin: (m,) item of each item's twin, -1 for none.
        reversed_: (m,) whether an item is a twin.
        budget: most bytes of base64.
    """
    twin, reversed_ = list(twin), list(reversed_)
    made = Strips(of_item=[None] * len(twin))
    for item in range(len(twin)):
        if reversed_[item] and twin[item] >= 0:
            continue  # with its original
        frames = read(item)
        if (number := _keep(made, frames, budget)) is None:
            break
        made.of_item[item] = number
        if twin[item] >= 0:
            mirror = read(twin[item])
            made.of_item[twin[item]] = ~number if mirrors(frames, mirror) else _keep(made, mirror, budget)
    return made


def mirrors(frames: np.ndarray, twin: np.ndarray) -> bool:
    """Whether a twin's frames are those of its original in opposite order, but for what encoding did to them."""
    if frames.shape != twin.shape:
        return False
    return float(np.abs(frames.astype(int) - twin[::-1]).mean()) <= MIRROR


def encode(frames: np.ndarray) -> str:
    """uint8 (t, h, w, 3) → base64 of a JPEG with the frames side by side."""
    stream = io.BytesIO()
    strip = Image.fromarray(np.concatenate(list(frames), axis=1))
    strip.save(stream, "JPEG", quality=QUALITY, optimize=True)
    return base64.b64encode(stream.getvalue()).decode("ascii")


def _keep(made: Strips, frames: np.ndarray, budget: int) -> int | None:
    text = encode(frames)
    if text in made.places:
        return made.places[text]
    if made.bytes + len(text) > budget:
        return None
    made.data.append(text)
    made.frames.append(len(frames))
    made.bytes += len(text)
    made.places[text] = len(made.data) - 1
    return made.places[text]
