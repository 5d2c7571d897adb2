"""Retrieval examples: which queries are shown, and the figure of what they found, with the true item framed.

Queries are chosen by outcome in a fixed way (:func:`choose_examples`), so that nobody picks the good ones, and the
figure says how.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rewind.errors import RewindError
from rewind.figures import style

# ---- Choice of examples by outcome ---------------------------------------------------------------------------------

OUTCOMES = ("hit", "miss", "twin")
OUTCOME_TITLES = {"hit": "hit", "miss": "miss", "twin": "confused with the twin"}
OUTCOME_MEANINGS = {
    "hit": "the true item alone first",
    "miss": "another item ranked at or above the true item",
    "twin": "only the twin ranked at or above the true item",
}


def classify_outcomes(higher: np.ndarray, ties: np.ndarray, margin: np.ndarray) -> np.ndarray:
    """One of :data:`OUTCOMES` per query, (q,).

    Args:
        higher: (q,) number of items that score above the truth.
        ties: (q,) number of other items at the truth's score.
        margin: (q,) the truth's score minus its twin's; NaN without a twin in the gallery.

    Example:
        >>> classify_outcomes(np.array([0, 2, 1]), np.array([0, 0, 0]), np.array([0.2, 0.1, -0.1])).tolist()
        ['hit', 'miss', 'twin']
    """
    # Exactly one item is at or above the truth, and the twin is not below it: so it is the twin.
    twin = (np.asarray(higher) + ties == 1) & (margin <= 0)
    return np.where(np.asarray(higher) + ties == 0, "hit", np.where(twin, "twin", "miss"))


def choose_examples(kinds: np.ndarray, count: int) -> list[int]:
    """``count`` queries, equally many of each kind where there are enough, evenly spaced over the file within a kind.

    Returned are positions in ``kinds``: hits first, then misses, then confusions with the twin.
    """
    positions = {kind: np.flatnonzero(kinds == kind) for kind in OUTCOMES}
    counts = dict.fromkeys(OUTCOMES, 0)
    while sum(counts.values()) < min(count, len(kinds)):
        for kind in OUTCOMES:
            if counts[kind] < len(positions[kind]) and sum(counts.values()) < count:
                counts[kind] += 1
    return [int(position) for kind in OUTCOMES for position in _evenly_spaced(positions[kind], counts[kind])]


def choice_sentence(kinds: np.ndarray, shown: list[int]) -> str:
    """How queries were chosen, in a sentence for the picture and its caption."""
    parts = []
    for kind in OUTCOMES:
        total, count = int((kinds == kind).sum()), sum(kinds[position] == kind for position in shown)
        if total:
            parts.append(f"{count} of {total:,} {_outcome_plural(kind)} ({OUTCOME_MEANINGS[kind]})")
    return "Chosen by outcome, evenly spaced over the test file: " + ", ".join(parts) + "."


def _outcome_plural(kind: str) -> str:
    return {"hit": "hits", "miss": "misses", "twin": "confusions with the twin"}[kind]


def _evenly_spaced(positions: np.ndarray, count: int) -> np.ndarray:
    """Centres of ``count`` equal segments of ``positions``."""
    return positions[((np.arange(count) + 0.5) * len(positions) / max(1, count)).astype(int)]


# ---- The figure ----------------------------------------------------------------------------------------------------

# Lengths in inches: rows are laid out by hand, because each has its own height.
_CAPTION_WIDTH, _CLIP_GAP, _SCORE_HEIGHT, _LINE_HEIGHT, _PAGE_EDGE, _FOOT_HEIGHT = 1.65, 0.09, 0.27, 0.135, 0.05, 0.2
_NOTE_LINE_HEIGHT, _NOTE_LETTERS_PER_LINE = 0.13, 108
_LETTERS_PER_LINE, _MAX_CAPTION_LINES = 26, 8
_SHOWN_WIDTH = 0.6  # of the picture that a query shows
Box = tuple[float, float, float, float]  # left, bottom, width and height, as parts of the figure


def retrieval_examples(
    queries: Sequence[Mapping[str, Any]], top: int = 5, score: str = "score", note: str = ""
) -> Figure:
    """One row per query: its outcome and caption, then its first clips from left to right, each with its score.

    The truth has a thick frame and a tick before its score, its reversed twin a dashed frame and two arrows; if the
    truth is not shown, its rank is below the caption.

    Args:
        queries: dicts with ``caption``, ``rank`` of the truth (1-based, a half under ties), ``kind`` (its outcome in
            words, may be missing), ``shown`` (uint8 [H, W, 3], the picture of a query that has one) and ``hits``, best
            first: dicts with ``image`` (uint8 [H, W, 3], or [T, H, W, 3], a strip of T frames), ``score``, ``truth``
            (whether this is the true item), ``twin`` (whether its twin).
        score: what the numbers are, printed once at the foot.
        note: how the queries were chosen, printed above them.

    Raises:
        RewindError: naming the query, if it lacks a key or an image or a caption cannot be drawn.
    """
    with style.applied():
        if not queries:
            return style.message_figure("No retrieval examples were requested.")
        side = (style.DOUBLE_COLUMN - 2 * _PAGE_EDGE - _CAPTION_WIDTH) / top - _CLIP_GAP
        rows = [_QueryRow(query, number, top, side) for number, query in enumerate(queries)]
        lines = textwrap.wrap(note, _NOTE_LETTERS_PER_LINE)
        note_height = _NOTE_LINE_HEIGHT * len(lines) + 0.08 * bool(lines)
        height = sum(row.height for row in rows) + _PAGE_EDGE + _FOOT_HEIGHT + note_height
        fig = style.figure(style.DOUBLE_COLUMN, height)
        fig.set_layout_engine("none")
        text_style: dict[str, Any] = {"fontsize": 7, "color": style.FAINT, "parse_math": False}
        y = height - _PAGE_EDGE
        fig.text(
            _PAGE_EDGE / style.DOUBLE_COLUMN,
            y / height,
            "\n".join(lines),
            va="top",
            ha="left",
            linespacing=1.2,
            **text_style,
        )
        y -= note_height
        for row in rows:
            row.draw(fig, y, side)
            y -= row.height
        twins = any(hit.get("twin") for row in rows for hit in row.hits)
        footer = f"✓ the true item; {'⇄ its reversed twin; ' if twins else ''}numbers: {score}"
        fig.text(
            1 - _PAGE_EDGE / style.DOUBLE_COLUMN, _PAGE_EDGE / height, footer, ha="right", va="bottom", **text_style
        )
    return fig


class _QueryRow:
    """One query of the figure: its checked contents and its height in inches."""

    def __init__(self, query: Mapping[str, Any], number: int, top: int, side: float) -> None:
        for name in ("caption", "rank", "hits"):
            if name not in query:
                raise RewindError(f"examples: query {number} has no {name!r}.")
        self.hits = list(query["hits"])[:top]
        self.images = [_strip_image(hit["image"], number, j) for j, hit in enumerate(self.hits)]
        self.lines = _wrap_caption(str(query["caption"]), number)
        self.kind = str(query.get("kind", "")).upper()
        self.shown = None if query.get("shown") is None else _strip_image(query["shown"], number, 0)
        has_truth = any(hit.get("truth") for hit in self.hits)
        self.rank = "" if has_truth else f"true item at rank {_rank_text(query['rank'])}"
        picture_height = max((side * image.shape[0] / image.shape[1] for image in self.images), default=side)
        text_height = _LINE_HEIGHT * (len(self.lines) + 1.5 * bool(self.rank) + 1.1 * bool(self.kind))
        self.shown_height = 0.0 if self.shown is None else _SHOWN_WIDTH * self.shown.shape[0] / self.shown.shape[1]
        text_height += self.shown_height + _CLIP_GAP * (self.shown is not None)
        self.height = max(picture_height + _SCORE_HEIGHT, text_height + _CLIP_GAP)

    def draw(self, fig: Figure, top: float, side: float) -> None:
        """Draw the row with its upper edge ``top`` inches above the bottom of the figure."""
        width, height = fig.get_size_inches()
        plain: dict[str, Any] = {"va": "top", "ha": "left", "parse_math": False}
        x, y = _PAGE_EDGE / width, (top - 0.02) / height
        if self.kind:
            fig.text(x, y, self.kind, fontsize=6.5, fontweight="bold", color=style.FAINT, **plain)
            y -= 1.1 * _LINE_HEIGHT / height
        fig.text(x, y, "\n".join(self.lines), fontsize=8, linespacing=1.2, **plain)
        below = y - _LINE_HEIGHT * (len(self.lines) + 0.4) / height
        fig.text(x, below, self.rank, fontsize=7.5, fontweight="bold", **plain)
        if self.shown is not None:
            below -= (1.5 * _LINE_HEIGHT * bool(self.rank) + self.shown_height) / height
            _draw_picture(fig, (x, below, _SHOWN_WIDTH / width, self.shown_height / height), self.shown)
        for column, (hit, image) in enumerate(zip(self.hits, self.images, strict=True)):
            x_inches = _PAGE_EDGE + _CAPTION_WIDTH + column * (side + _CLIP_GAP) + _CLIP_GAP
            image_height = side * image.shape[0] / image.shape[1]
            box = (x_inches / width, (top - image_height) / height, side / width, image_height / height)
            _draw_clip(fig, box, image, hit)


def _draw_picture(fig: Figure, box: Box, image: np.ndarray, truth: bool = False, twin: bool = False) -> Axes:
    axes = fig.add_axes(box)
    axes.imshow(image, interpolation="antialiased", aspect="auto")
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    style.frame_clip(axes, truth, twin)
    return axes


def _draw_clip(fig: Figure, box: Box, image: np.ndarray, hit: Mapping[str, Any]) -> None:
    truth, twin = bool(hit.get("truth")), bool(hit.get("twin"))
    axes = _draw_picture(fig, box, image, truth, twin)
    symbol = "✓ " if truth else "⇄ " if twin else ""
    axes.set_xlabel(f"{symbol}{hit['score']:.3f}", fontsize=7.5, labelpad=3, fontweight="bold" if truth else "normal")


def twin_choices(queries: Sequence[Mapping[str, Any]], note: str = "") -> Figure:
    """One row per caption of Binary: its clip, the clip's twin, and below each the methods that preferred it.

    Args:
        queries: dicts with ``caption``, ``clip`` and ``twin`` (uint8 [T, H, W, 3], strips of frames) and ``preferred``:
            for ``clip``, ``twin`` and ``tie`` the names of methods.
        note: how the captions were chosen, printed above them.
    """
    with style.applied():
        if not queries:
            return style.message_figure("No caption has a clip with a time-reversed twin.")
        strip = (style.DOUBLE_COLUMN - 2 * _PAGE_EDGE - _CAPTION_WIDTH - _TIE_WIDTH - 3 * _CLIP_GAP) / 2
        lefts = (_PAGE_EDGE + _CAPTION_WIDTH, _PAGE_EDGE + _CAPTION_WIDTH + strip + _CLIP_GAP)
        rows = [_ChoiceRow(query, number, strip) for number, query in enumerate(queries)]
        lines = textwrap.wrap(note, _NOTE_LETTERS_PER_LINE)
        heading = _NOTE_LINE_HEIGHT * len(lines) + 0.08 * bool(lines) + _LINE_HEIGHT + 0.05
        height = sum(row.height for row in rows) + 2 * _PAGE_EDGE + heading
        fig = style.figure(style.DOUBLE_COLUMN, height)
        fig.set_layout_engine("none")
        plain: dict[str, Any] = {"va": "top", "ha": "left", "parse_math": False}
        y = height - _PAGE_EDGE
        faint: dict[str, Any] = {"fontsize": 7, "color": style.FAINT, "linespacing": 1.2}
        fig.text(_PAGE_EDGE / style.DOUBLE_COLUMN, y / height, "\n".join(lines), **faint, **plain)
        y -= heading - _LINE_HEIGHT - 0.05
        ties = lefts[1] + strip + 2 * _CLIP_GAP
        for x, title in zip((*lefts, ties), ("The clip", "Its twin: the clip backwards", "Equal"), strict=True):
            fig.text(x / style.DOUBLE_COLUMN, y / height, title, fontsize=7.5, fontweight="bold", **plain)
        y -= _LINE_HEIGHT + 0.05
        for row in rows:
            row.draw(fig, y, lefts, ties, strip)
            y -= row.height
    return fig


_TIE_WIDTH = 0.85  # inches, of the column with methods that prefer neither
_NAME_LETTERS_PER_LINE = {"clip": 42, "twin": 42, "tie": 15}
_PREFERRED = {"clip": "✓ ", "twin": "✗ ", "tie": "= "}


class _ChoiceRow:
    """One caption of the figure of twins: its checked contents and its height in inches."""

    def __init__(self, query: Mapping[str, Any], number: int, strip: float) -> None:
        self.images = [_strip_image(query[name], number, hit) for hit, name in enumerate(("clip", "twin"))]
        self.lines = _wrap_caption(str(query["caption"]), number)
        self.names = {
            kind: textwrap.wrap(_PREFERRED[kind] + ", ".join(names), _NAME_LETTERS_PER_LINE[kind]) if names else []
            for kind, names in query["preferred"].items()
        }
        self.picture_height = max(strip * image.shape[0] / image.shape[1] for image in self.images)
        below = _LINE_HEIGHT * max(len(self.names["clip"]), len(self.names["twin"])) + 0.05
        text_height = _LINE_HEIGHT * max(len(self.lines), len(self.names["tie"]))
        self.height = max(self.picture_height + below, text_height) + _CLIP_GAP

    def draw(self, fig: Figure, top: float, lefts: Sequence[float], ties: float, strip: float) -> None:
        """Draw the row with its upper edge ``top`` inches above the bottom of the figure."""
        width, height = fig.get_size_inches()
        plain: dict[str, Any] = {"va": "top", "ha": "left", "parse_math": False, "linespacing": 1.2}
        fig.text(_PAGE_EDGE / width, (top - 0.02) / height, "\n".join(self.lines), fontsize=8, **plain)
        for left, image, kind in zip(lefts, self.images, ("clip", "twin"), strict=True):
            image_height = strip * image.shape[0] / image.shape[1]
            box = (left / width, (top - image_height) / height, strip / width, image_height / height)
            _draw_picture(fig, box, image, kind == "clip", kind == "twin")
            below = (top - image_height - 0.05) / height
            weight = "bold" if kind == "clip" else "normal"
            fig.text(left / width, below, "\n".join(self.names[kind]), fontsize=7.5, fontweight=weight, **plain)
        fig.text(ties / width, (top - 0.02) / height, "\n".join(self.names["tie"]), fontsize=7.5, **plain)


def _strip_image(image: Any, query: int, hit: int) -> np.ndarray:
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


def _wrap_caption(caption: str, number: int) -> list[str]:
    lines = textwrap.wrap(caption, _LETTERS_PER_LINE, max_lines=_MAX_CAPTION_LINES, placeholder=" …")
    if not lines:
        raise RewindError(f"examples: query {number}: the caption is empty.")
    return lines


def _rank_text(rank: float) -> str:
    return f"{rank:,.0f}" if float(rank).is_integer() else f"{rank:,.1f}"
