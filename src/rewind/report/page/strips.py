"""Small moving previews of clips: a few frames side by side in one JPEG, through which the page's style sheet steps."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

STRIP_FRAMES, STRIP_SIDE, STRIP_QUALITY = 6, 64, 70
MAX_STRIP_BYTES = 15_000_000  # of base64 in a page
# Largest mean difference, out of 255, between the frames of a twin and of its original that re-encoding explains.
MAX_MIRROR_DIFFERENCE = 8.0


@dataclass
class PageStrips:
    """The strips of a page.

    ``of_item`` has for each item the number of its strip, ``~number`` for that strip played backwards, None for none.

    Example:
        >>> clip = np.arange(2 * 8 * 8 * 3, dtype=np.uint8).reshape(2, 8, 8, 3)
        >>> strips = make_strips([clip, clip[::-1]].__getitem__, twin=[1, 0], reversed_=[False, True])
        >>> strips.numbers(), strips.frames  # the twin is the original's strip played backwards
        ([0, -1], [2])
    """

    data: list[str] = field(default_factory=list)  # JPEGs in base64, one per strip
    frames: list[int] = field(default_factory=list)  # in each strip
    of_item: list[int | None] = field(default_factory=list)
    bytes: int = 0  # of all ``data``
    places: dict[str, int] = field(default_factory=dict)  # data → its number: equal strips are stored once

    def numbers(self) -> list[int]:
        """``of_item``, with the number of strips in place of None."""
        return [len(self.data) if number is None else number for number in self.of_item]

    def embedded(self) -> int:
        """Items that have a strip."""
        return sum(number is not None for number in self.of_item)

    def content(self) -> dict[str, Any]:
        """What the page's script reads."""
        return {"frames": self.frames, "data": self.data}


def make_strips(
    read: Callable[[int], np.ndarray], twin: Iterable[int], reversed_: Iterable[bool], budget: int = MAX_STRIP_BYTES
) -> PageStrips:
    """Strips of items in the order of the file, up to the first clip that does not fit into the budget.

    A twin whose frames mirror its original's shares the original's strip, played backwards.

    Args:
        read: item → its frames, uint8 (t, h, w, 3).
        twin: (m,) item of each item's twin, -1 for none.
        reversed_: (m,) whether an item is a twin.
        budget: most bytes of base64.
    """
    twin, reversed_ = list(twin), list(reversed_)
    strips = PageStrips(of_item=[None] * len(twin))
    for item in range(len(twin)):
        if reversed_[item] and twin[item] >= 0:
            continue  # read together with its original
        frames = read(item)
        if (number := _add_strip(strips, frames, budget)) is None:
            break
        strips.of_item[item] = number
        if twin[item] >= 0:
            mirror = read(twin[item])
            strips.of_item[twin[item]] = ~number if is_mirrored(frames, mirror) else _add_strip(strips, mirror, budget)
    return strips


def is_mirrored(frames: np.ndarray, twin: np.ndarray) -> bool:
    """Whether a twin's frames are those of its original in reverse order, up to differences by encoding."""
    if frames.shape != twin.shape:
        return False
    return float(np.abs(frames.astype(int) - twin[::-1]).mean()) <= MAX_MIRROR_DIFFERENCE


def encode_strip(frames: np.ndarray) -> str:
    """uint8 (t, h, w, 3) → base64 of a JPEG with the frames side by side."""
    stream = io.BytesIO()
    strip = Image.fromarray(np.concatenate(list(frames), axis=1))
    strip.save(stream, "JPEG", quality=STRIP_QUALITY, optimize=True)
    return base64.b64encode(stream.getvalue()).decode("ascii")


def _add_strip(strips: PageStrips, frames: np.ndarray, budget: int) -> int | None:
    text = encode_strip(frames)
    if text in strips.places:
        return strips.places[text]
    if strips.bytes + len(text) > budget:
        return None
    strips.data.append(text)
    strips.frames.append(len(frames))
    strips.bytes += len(text)
    strips.places[text] = len(strips.data) - 1
    return strips.places[text]
