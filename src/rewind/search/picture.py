"""The picture of an answer: the query on top, what it found below, best first."""

from __future__ import annotations

import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rewind.files import atomic
from rewind.reporting import style
from rewind.search.console import described, mark, verdict
from rewind.search.searcher import Answer, Hit
from rewind.search.strips import Strips, side_by_side

# Inches: laid out by hand, because captions and strips have heights of their own.
_EDGE, _GAP, _LINE = 0.1, 0.12, 0.135
_IMAGES, _CLIPS = 5, 2  # in a row
_LETTERS_PER_INCH, _BOLD_PER_INCH, _LINES = 17, 14, 3


def save_picture(answer: Answer, strips: Strips, run: str, path: Path) -> None:
    """Write the answer's picture as PNG, atomically; the same answer gives the same bytes.

    Raises:
        RewindError: naming the file of a hit that cannot be read.
    """
    pictures = [side_by_side(strips.read(hit.row)) for hit in answer.hits]
    with style.applied(), atomic(path) as draft, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # letters that the font lacks are boxes; the JSON has them
        answer_picture(answer, pictures, run).savefig(draft, dpi=200)


def answer_picture(answer: Answer, pictures: list[np.ndarray], run: str) -> Figure:
    """A figure of an answer.

    Args:
        answer: what was found.
        pictures: uint8 [H, W, 3] of each hit; all of one height.
        run: its name.
    """
    widest = max(picture.shape[1] / picture.shape[0] for picture in pictures)
    columns = min(_IMAGES if widest < 2 else _CLIPS, max(2, len(pictures)))
    width = (style.DOUBLE - 2 * _EDGE - (columns - 1) * _GAP) / columns
    tall = width / widest
    told = [_lines(hit, width) for hit in answer.hits]
    cell = tall + _LINE * (1.6 + max(map(len, told))) + _GAP
    head = textwrap.wrap(f"“{answer.query}”", 78, max_lines=4, placeholder=" …")
    foot = [f"{run}: the first {len(answer.hits)} of {answer.gallery:,} items", *answer.notes, *verdict(answer)]
    top = _EDGE + 0.19 * len(head) + _LINE * len(foot) + _GAP
    rows = -(-len(pictures) // columns)
    fig = style.figure(style.DOUBLE, top + rows * cell)
    fig.set_layout_engine("none")
    _write(fig, _EDGE, _EDGE, head, fontsize=11, fontweight="bold")
    _write(fig, _EDGE, _EDGE + 0.19 * len(head), [line.strip() for line in foot], fontsize=7, color=style.FAINT)
    for n, (hit, picture) in enumerate(zip(answer.hits, pictures, strict=True)):
        left, above = _EDGE + (n % columns) * (width + _GAP), top + (n // columns) * cell
        _draw(fig, hit, picture, left, above, tall)
        name = f"{hit.place}  {mark(hit)}  {hit.score:.3f}  {hit.item}".replace("    ", "  ")
        room = int(width * _BOLD_PER_INCH)
        name = name if len(name) <= room else f"{name[: room - 1]}…"
        _write(fig, left, above + tall + 0.05, [name], fontsize=7.5, fontweight="bold")
        _write(fig, left, above + tall + 0.05 + 1.1 * _LINE, told[n], fontsize=7, color=style.FAINT)
    return fig


def _draw(fig: Figure, hit: Hit, picture: np.ndarray, left: float, above: float, tall: float) -> None:
    width, height = fig.get_size_inches()
    wide = tall * picture.shape[1] / picture.shape[0]
    axes = fig.add_axes((left / width, 1 - (above + tall) / height, wide / width, tall / height))
    axes.imshow(picture, interpolation="antialiased", aspect="auto")
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    _frame(axes, hit)


def _frame(axes: Axes, hit: Hit) -> None:
    colour, width = (style.TRUTH, 2.4) if hit.truth else (style.ORANGE, 1.6) if hit.twin else ("#c8c8c8", 0.6)
    for spine in axes.spines.values():
        spine.set(visible=True, color=colour, linewidth=width, linestyle=(0, (3, 1.5)) if hit.twin else "-")


def _lines(hit: Hit, width: float) -> list[str]:
    letters = int(width * _LETTERS_PER_INCH)
    return textwrap.wrap(described(hit.captions), letters, max_lines=_LINES, placeholder=" …")


def _write(fig: Figure, left: float, above: float, lines: list[str], **look: Any) -> None:
    width, height = fig.get_size_inches()
    plain = {"va": "top", "ha": "left", "parse_math": False, "linespacing": 1.2}
    fig.text(left / width, 1 - above / height, "\n".join(lines), **plain, **look)
