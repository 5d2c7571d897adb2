"""Answers of a search as terminal text, JSON and pictures."""

from __future__ import annotations

import io
import statistics
import textwrap
import threading
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from PIL import Image

from rewind.errors import count_noun
from rewind.io.files import atomic_write
from rewind.search.searcher import Answer, Hit
from rewind.video.frames import sample_clip
from rewind.video.shards import clip_within

if TYPE_CHECKING:
    # matplotlib starts slowly, and most searches draw no picture: it is imported, through rewind.figures.style,
    # in the functions that draw.
    from matplotlib.figure import Figure

# ---- Text and JSON -------------------------------------------------------------------------------------------------

TRUTH_MARK, TWIN_MARK = "✓", "⇄"
_MAX_CAPTIONS = 3  # captions shown of an item


def answer_text(answer: Answer, width: int = 100) -> str:
    """The query, then one line per hit: place, mark of the truth or its twin, score, item, captions cut to ``width``.

    >>> hit = Hit(place=1, row=0, item="door", score=0.25, captions=["A door opens."])
    >>> print(answer_text(Answer("open a door", [hit], gallery=1, truth="door", rank=1.0)))
    “open a door”
       1   0.250  door  A door opens.
      ✓ door at rank 1 of 1
    """
    lines = [f"“{printable_caption(answer.query)}”", *(f"  ({note})" for note in answer.notes)]
    ids = max((len(hit.item) for hit in answer.hits), default=0)
    scores = max((len(_score_text(hit)) for hit in answer.hits), default=0)
    for hit in answer.hits:
        start = f"{hit.place:>4} {hit_mark(hit) or ' '} {_score_text(hit):>{scores}}  {hit.item:<{ids}}  "
        lines.append((start + _cut_text(captions_text(hit.captions), max(20, width - len(start)))).rstrip())
    return "\n".join(lines + truth_rank_lines(answer))


def truth_rank_lines(answer: Answer) -> list[str]:
    """A line with the rank of the truth, if the truth is known."""
    if answer.rank is None:
        return []
    return [f"  {TRUTH_MARK} {answer.truth} at rank {answer.rank:,g} of {answer.gallery:,}"]


def times_text(answer: Answer) -> str:
    """How long a query took, in milliseconds."""
    return f"  encode {1000 * answer.encode:.2f} ms, rank {answer.gallery:,} items {1000 * answer.rank_all:.2f} ms"


def median_times_text(answers: Sequence[Answer]) -> str:
    """Median times of several queries, in milliseconds."""
    encode, rank = (
        1000 * statistics.median(values)
        for values in zip(*((answer.encode, answer.rank_all) for answer in answers), strict=True)
    )
    queries = count_noun(len(answers), "query", "queries")
    return f"median of {queries}: encode {encode:.2f} ms, rank {answers[0].gallery:,} items {rank:.2f} ms"


def hit_mark(hit: Hit) -> str:
    """A tick for the truth, arrows for its reversed twin, else nothing."""
    return TRUTH_MARK if hit.truth else TWIN_MARK if hit.twin else ""


def captions_text(captions: Sequence[str]) -> str:
    """The first captions of an item on one line, and the number of further ones."""
    more = [f"+{len(captions) - _MAX_CAPTIONS:,}"] if len(captions) > _MAX_CAPTIONS else []
    return " · ".join([*map(printable_caption, captions[:_MAX_CAPTIONS]), *more])


def printable_caption(text: str) -> str:
    """A caption without line breaks and control characters: captions may be anybody's, and could control a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def answer_json(answer: Answer, run: str, split: str) -> dict[str, Any]:
    """The answer as plain values, without times: the same query gives the same file."""
    return {
        "run": run,
        "split": split,
        "query": answer.query,
        "notes": answer.notes,
        "gallery": answer.gallery,
        "truth": answer.truth,
        "rank": answer.rank,
        "hits": [
            {"place": hit.place, "item_id": hit.item, "score": round(hit.score, 6), "captions": hit.captions}
            | ({"truth": hit.truth, "twin": hit.twin} if answer.truth else {})
            for hit in answer.hits
        ],
    }


def _score_text(hit: Hit) -> str:
    return f"{hit.score:.3f}"


def _cut_text(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


# ---- Preview of a found item: an image, or a few frames of a clip side by side -------------------------------------

STRIP_FRAMES, STRIP_SIDE = 3, 160  # frames of a strip, and their side in pixels
STRIP_QUALITY = 85  # of JPEG
MAX_KEPT_STRIPS = 1000  # strips in memory, some 20 kB each
FRAME_GAP = 4  # pixels between frames


class StripReader:
    """Reads previews of items, by their row in the gallery; several threads may use one reader.

    Args:
        items: the gallery: path (relative to ``folder``), reversed.
        folder: the dataset's results folder.
        side: height of a strip and width of each frame in pixels; the centre square, as a model sees it.
        trust: also show files outside of ``results/data``.
    """

    def __init__(self, items: pd.DataFrame, folder: Path, side: int = STRIP_SIDE, trust: bool = False) -> None:
        self.folder, self.trust = Path(folder), trust
        self.paths = [Path(folder) / path for path in items["path"]]
        self.reversed = (items["reversed"] == 1).tolist()
        self.side = side
        self._cache: OrderedDict[int, bytes] = OrderedDict()  # the least recently used strip first
        self._lock = threading.Lock()

    def check(self, row: int) -> None:
        """Refuse a file outside of ``results/data``, unless the results are trusted."""
        if not self.trust:
            clip_within(self.paths[row], self.folder)

    def read(self, row: int) -> np.ndarray:
        """At most :data:`STRIP_FRAMES` frames spread over the clip, uint8 RGB (t, side, side, 3); one of an image.

        Raises:
            RewindError: if the file is gone, broken, or must not be shown.
        """
        self.check(row)
        pixels, mask = sample_clip(self.paths[row], STRIP_FRAMES, self.side, reversed=self.reversed[row])
        return np.ascontiguousarray(pixels[mask.astype(bool)].transpose(0, 2, 3, 1))

    def jpeg(self, row: int) -> bytes:
        """The strip as a JPEG; the last :data:`MAX_KEPT_STRIPS` that were asked for are kept in memory."""
        with self._lock:
            if row in self._cache:
                self._cache.move_to_end(row)
                return self._cache[row]
        # Decoded outside the lock: two threads may make the same strip, but none waits for another clip.
        stream = io.BytesIO()
        Image.fromarray(side_by_side(self.read(row))).save(stream, "JPEG", quality=STRIP_QUALITY)
        with self._lock:
            self._cache[row] = stream.getvalue()
            while len(self._cache) > MAX_KEPT_STRIPS:
                self._cache.popitem(last=False)
        return stream.getvalue()


def side_by_side(frames: np.ndarray) -> np.ndarray:
    """uint8 (t, h, w, 3) → (h, t·w + gaps, 3), with white between the frames.

    >>> side_by_side(np.zeros((3, 160, 160, 3), np.uint8)).shape
    (160, 488, 3)
    """
    gap = np.full((frames.shape[1], FRAME_GAP, 3), 255, np.uint8)
    return np.concatenate([part for frame in frames for part in (gap, frame)][1:], axis=1)  # no gap before the first


# ---- Picture of a whole answer: the query on top, the items below, best first --------------------------------------

# Inches. Laid out by hand, because captions and strips have heights of their own.
_PAGE_EDGE, _HIT_GAP, _LINE_HEIGHT = 0.1, 0.12, 0.135
_IMAGES_PER_ROW, _CLIPS_PER_ROW = 5, 2
_LETTERS_PER_INCH, _BOLD_PER_INCH, _MAX_CAPTION_LINES = 17, 14, 3  # letters of captions, and of bold headings


def save_answer_picture(answer: Answer, strips: StripReader, run: str, path: Path) -> None:
    """Write the answer's picture as PNG, atomically; the same answer gives the same bytes.

    Raises:
        RewindError: naming the file of a hit that cannot be read.
    """
    from rewind.figures import style

    pictures = [side_by_side(strips.read(hit.row)) for hit in answer.hits]
    with style.applied(), atomic_write(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # letters that the font lacks become boxes; the JSON has them
        answer_picture(answer, pictures, run).savefig(temporary, dpi=200)


def answer_picture(answer: Answer, pictures: list[np.ndarray], run: str) -> Figure:
    """A figure of an answer; ``pictures``, one of each hit, are uint8 [H, W, 3] and of one height."""
    from rewind.figures import style

    widest = max(picture.shape[1] / picture.shape[0] for picture in pictures)
    columns = min(_IMAGES_PER_ROW if widest < 2 else _CLIPS_PER_ROW, max(2, len(pictures)))
    width = (style.DOUBLE_COLUMN - 2 * _PAGE_EDGE - (columns - 1) * _HIT_GAP) / columns
    tall = width / widest  # height of a picture
    captions = [_caption_lines(hit, width) for hit in answer.hits]
    cell = tall + _LINE_HEIGHT * (1.6 + max(map(len, captions))) + _HIT_GAP
    head = textwrap.wrap(f"“{answer.query}”", 78, max_lines=4, placeholder=" …")
    foot = [
        f"{run}: the first {len(answer.hits)} of {answer.gallery:,} items",
        *answer.notes,
        *truth_rank_lines(answer),
    ]
    results_top = _PAGE_EDGE + 0.19 * len(head) + _LINE_HEIGHT * len(foot) + _HIT_GAP
    rows = -(-len(pictures) // columns)
    fig = style.figure(style.DOUBLE_COLUMN, results_top + rows * cell)
    fig.set_layout_engine("none")
    _write_lines(fig, _PAGE_EDGE, _PAGE_EDGE, head, fontsize=11, fontweight="bold")
    _write_lines(
        fig, _PAGE_EDGE, _PAGE_EDGE + 0.19 * len(head), [line.strip() for line in foot], fontsize=7, color=style.FAINT
    )
    for n, (hit, picture) in enumerate(zip(answer.hits, pictures, strict=True)):
        left, top_edge = _PAGE_EDGE + (n % columns) * (width + _HIT_GAP), results_top + (n // columns) * cell
        _draw_hit(fig, hit, picture, left, top_edge, tall)
        name = f"{hit.place}  {hit_mark(hit)}  {hit.score:.3f}  {hit.item}".replace("    ", "  ")
        room = int(width * _BOLD_PER_INCH)
        name = name if len(name) <= room else f"{name[: room - 1]}…"
        _write_lines(fig, left, top_edge + tall + 0.05, [name], fontsize=7.5, fontweight="bold")
        _write_lines(fig, left, top_edge + tall + 0.05 + 1.1 * _LINE_HEIGHT, captions[n], fontsize=7, color=style.FAINT)
    return fig


def _draw_hit(fig: Figure, hit: Hit, picture: np.ndarray, left: float, above: float, tall: float) -> None:
    from rewind.figures import style

    width, height = fig.get_size_inches()
    strip_width = tall * picture.shape[1] / picture.shape[0]
    axes = fig.add_axes((left / width, 1 - (above + tall) / height, strip_width / width, tall / height))
    axes.imshow(picture, interpolation="antialiased", aspect="auto")
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    style.frame_clip(axes, hit.truth, hit.twin)


def _caption_lines(hit: Hit, width: float) -> list[str]:
    letters = int(width * _LETTERS_PER_INCH)
    return textwrap.wrap(captions_text(hit.captions), letters, max_lines=_MAX_CAPTION_LINES, placeholder=" …")


def _write_lines(fig: Figure, left: float, above: float, lines: list[str], **properties: Any) -> None:
    width, height = fig.get_size_inches()
    defaults: dict[str, Any] = {"va": "top", "ha": "left", "parse_math": False, "linespacing": 1.2}
    fig.text(left / width, 1 - above / height, "\n".join(lines), **defaults, **properties)
