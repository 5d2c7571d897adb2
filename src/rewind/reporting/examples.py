"""Retrieval examples: what a caption found, the truth framed."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rewind.errors import RewindError
from rewind.reporting import style

# Lengths in inches: the page is laid out by hand, because every row has its own height.
_CAPTION, _GAP, _SCORE, _LINE, _EDGE, _FOOT = 1.65, 0.09, 0.27, 0.135, 0.05, 0.2
_NOTE, _NOTE_LETTERS = 0.13, 108
_LETTERS_PER_LINE, _LINES = 26, 8


def retrieval_examples(
    queries: Sequence[Mapping[str, Any]], top: int = 5, score: str = "score", note: str = ""
) -> Figure:
    """One row per query: its outcome and caption, then its first clips from left to right, each with its score.

    The truth has a thick frame and a tick before its score, its reversed twin a dashed frame and two arrows; where
    the truth is not among those shown, its rank is printed under the caption.

    Args:
        queries: dicts with ``caption``, ``rank`` of the truth (1-based, a half under ties), ``kind`` (its outcome in
            words, may be missing) and ``hits``, best first: dicts with ``image`` (uint8 [H, W, 3], or [T, H, W, 3], a
            strip of T frames), ``score``, ``truth`` (whether this is the true item), ``twin`` (whether its twin).
        top: clips per row.
        score: what the numbers are, printed once at the foot.
        note: how the queries were chosen, printed over them.

    Raises:
        RewindError: naming the query, if it lacks a key or an image or a caption cannot be drawn.
    """
    with style.applied():
        if not queries:
            return style.message("No retrieval examples were asked for.")
        side = (style.DOUBLE - 2 * _EDGE - _CAPTION) / top - _GAP
        rows = [_Row(query, place, top, side) for place, query in enumerate(queries)]
        lines = textwrap.wrap(note, _NOTE_LETTERS)
        above = _NOTE * len(lines) + 0.08 * bool(lines)
        height = sum(row.height for row in rows) + _EDGE + _FOOT + above
        fig = style.figure(style.DOUBLE, height)
        fig.set_layout_engine("none")
        plain = {"fontsize": 7, "color": style.FAINT, "parse_math": False}
        y = height - _EDGE
        fig.text(_EDGE / style.DOUBLE, y / height, "\n".join(lines), va="top", ha="left", linespacing=1.2, **plain)
        y -= above
        for row in rows:
            row.draw(fig, y, side)
            y -= row.height
        twins = any(hit.get("twin") for row in rows for hit in row.hits)
        foot = f"✓ the true item; {'⇄ its reversed twin; ' if twins else ''}numbers: {score}"
        fig.text(1 - _EDGE / style.DOUBLE, _EDGE / height, foot, ha="right", va="bottom", **plain)
    return fig


class _Row:
    """One query, checked and measured."""

    def __init__(self, query: Mapping[str, Any], place: int, top: int, side: float) -> None:
        for name in ("caption", "rank", "hits"):
            if name not in query:
                raise RewindError(f"examples: query {place} has no {name!r}.")
        self.hits = list(query["hits"])[:top]
        self.images = [_strip(hit["image"], place, j) for j, hit in enumerate(self.hits)]
        self.lines = _wrap(str(query["caption"]), place)
        self.kind = str(query.get("kind", "")).upper()
        found = any(hit.get("truth") for hit in self.hits)
        self.rank = "" if found else f"true item at rank {_number(query['rank'])}"
        picture = max((side * image.shape[0] / image.shape[1] for image in self.images), default=side)
        words = _LINE * (len(self.lines) + 1.5 * bool(self.rank) + 1.1 * bool(self.kind))
        self.height = max(picture + _SCORE, words + _GAP)

    def draw(self, fig: Figure, top: float, side: float) -> None:
        """Draw the row with its upper edge ``top`` inches above the foot of the figure."""
        width, height = fig.get_size_inches()
        plain = {"va": "top", "ha": "left", "parse_math": False}
        x, y = _EDGE / width, (top - 0.02) / height
        if self.kind:
            fig.text(x, y, self.kind, fontsize=6.5, fontweight="bold", color=style.FAINT, **plain)
            y -= 1.1 * _LINE / height
        fig.text(x, y, "\n".join(self.lines), fontsize=8, linespacing=1.2, **plain)
        below = y - _LINE * (len(self.lines) + 0.4) / height
        fig.text(x, below, self.rank, fontsize=7.5, fontweight="bold", **plain)
        for j, (hit, image) in enumerate(zip(self.hits, self.images, strict=True)):
            left, tall = _EDGE + _CAPTION + j * (side + _GAP) + _GAP, side * image.shape[0] / image.shape[1]
            box = (left / width, (top - tall) / height, side / width, tall / height)
            _clip(fig.add_axes(box), image, hit)


def _clip(axes: Axes, image: np.ndarray, hit: Mapping[str, Any]) -> None:
    truth, twin = bool(hit.get("truth")), bool(hit.get("twin"))
    axes.imshow(image, interpolation="antialiased", aspect="auto")
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    for spine in axes.spines.values():
        colour = style.TRUTH if truth else style.ORANGE if twin else "#c8c8c8"
        spine.set(visible=True, color=colour, linewidth=2.4 if truth else 1.6 if twin else 0.6)
        spine.set_linestyle((0, (3, 1.5)) if twin else "-")
    mark = "✓ " if truth else "⇄ " if twin else ""
    axes.set_xlabel(f"{mark}{hit['score']:.3f}", fontsize=7.5, labelpad=3, fontweight="bold" if truth else "normal")


def _strip(image: Any, query: int, hit: int) -> np.ndarray:
    """[H, W, 3] as it is; [T, H, W, 3] side by side with thin grey rules between."""
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4) or pixels.shape[-1] != 3 or 0 in pixels.shape:
        raise RewindError(
            f"examples: query {query}, hit {hit}: an image is uint8 [H, W, 3] or [T, H, W, 3], this one is "
            f"{pixels.dtype} {list(pixels.shape)}."
        )
    if pixels.ndim == 3:
        return pixels
    rule = np.full((pixels.shape[1], max(1, pixels.shape[2] // 60), 3), 200, np.uint8)
    parts = [part for frame in pixels for part in (frame, rule)][:-1]
    return np.concatenate(parts, axis=1)


def _wrap(caption: str, place: int) -> list[str]:
    lines = textwrap.wrap(caption, _LETTERS_PER_LINE, max_lines=_LINES, placeholder=" …")
    if not lines:
        raise RewindError(f"examples: query {place}: the caption is empty.")
    return lines


def _number(rank: float) -> str:
    return f"{rank:,.0f}" if float(rank).is_integer() else f"{rank:,.1f}"
