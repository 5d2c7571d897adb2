"""Answers as text for a terminal."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from rewind.search.searcher import Answer, Hit

TRUTH, TWIN = "✓", "⇄"
_CAPTIONS = 3  # shown of an item


def table(answer: Answer, width: int = 100) -> str:
    """The query, then one line per hit: place, mark of the truth or its twin, score, item, captions.

    Args:
        answer: what was found.
        width: columns of the terminal; captions are cut there.
    """
    lines = [f"“{printable(answer.query)}”", *(f"  ({note})" for note in answer.notes)]
    ids = max((len(hit.item) for hit in answer.hits), default=0)
    scores = max((len(_score(hit)) for hit in answer.hits), default=0)
    for hit in answer.hits:
        start = f"{hit.place:>4} {mark(hit) or ' '} {_score(hit):>{scores}}  {hit.item:<{ids}}  "
        lines.append((start + _cut(described(hit.captions), max(20, width - len(start)))).rstrip())
    return "\n".join(lines + verdict(answer))


def verdict(answer: Answer) -> list[str]:
    """Where the truth came, if it is known."""
    if answer.rank is None:
        return []
    return [f"  {TRUTH} {answer.truth} at rank {answer.rank:,g} of {answer.gallery:,}"]


def times(answer: Answer) -> str:
    """How long a query took."""
    return f"  encode {1000 * answer.encode:.2f} ms, rank {answer.gallery:,} items {1000 * answer.rank_all:.2f} ms"


def median_times(answers: Sequence[Answer]) -> str:
    """How long a query took that is typical of several."""
    encode, rank = (
        1000 * statistics.median(values) for values in zip(*((a.encode, a.rank_all) for a in answers), strict=True)
    )
    return f"median of {len(answers)} queries: encode {encode:.2f} ms, rank {answers[0].gallery:,} items {rank:.2f} ms"


def mark(hit: Hit) -> str:
    """A tick for the truth, arrows for its reversed twin, else nothing."""
    return TRUTH if hit.truth else TWIN if hit.twin else ""


def described(captions: Sequence[str]) -> str:
    """The first captions of an item on one line, and how many there are besides."""
    more = [f"+{len(captions) - _CAPTIONS:,}"] if len(captions) > _CAPTIONS else []
    return " · ".join([*map(printable, captions[:_CAPTIONS]), *more])


def printable(text: str) -> str:
    """Captions are anybody's words: no line breaks, nothing that steers a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def as_json(answer: Answer, run: str, split: str) -> dict[str, Any]:
    """The answer as plain values; the same query gives the same ones."""
    return {
        "run": run,
        "split": split,
        "query": answer.query,
        "notes": answer.notes,
        "gallery": answer.gallery,
        "truth": answer.truth,
        "rank": answer.rank,
        "hits": [
            {"place": h.place, "item_id": h.item, "score": round(h.score, 6), "captions": h.captions}
            | ({"truth": h.truth, "twin": h.twin} if answer.truth else {})
            for h in answer.hits
        ],
    }


def _score(hit: Hit) -> str:
    return f"{hit.score:.3f}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
