"""Which queries are shown as examples: a fixed choice by outcome, said in words."""

from __future__ import annotations

import numpy as np

KINDS = ("hit", "miss", "twin")
TITLES = {"hit": "hit", "miss": "miss", "twin": "confused with the twin"}
MEANING = {
    "hit": "the true item alone first",
    "miss": "another item ranked at or above the true item",
    "twin": "only the twin ranked at or above the true item",
}


def outcomes(higher: np.ndarray, ties: np.ndarray, margin: np.ndarray) -> np.ndarray:
    """One of :data:`KINDS` per query (q,): every query has exactly one.

    Args:
        higher: (q,) items above the truth.
        ties: (q,) other items at the truth's score.
        margin: (q,) the truth's score above its twin's; NaN without a twin in the gallery.
    """
    twin = (np.asarray(higher) + ties == 1) & (margin <= 0)
    return np.where(np.asarray(higher) + ties == 0, "hit", np.where(twin, "twin", "miss"))


def choose(kinds: np.ndarray, count: int) -> list[int]:
    """``count`` queries, as many of each kind as there can be, evenly spaced over the file within a kind.

    Returns:
        Places in ``kinds``: hits first, then misses, then confusions with the twin.
    """
    places = {kind: np.flatnonzero(kinds == kind) for kind in KINDS}
    shares = dict.fromkeys(KINDS, 0)
    while sum(shares.values()) < min(count, len(kinds)):
        for kind in KINDS:
            if shares[kind] < len(places[kind]) and sum(shares.values()) < count:
                shares[kind] += 1
    return [int(place) for kind in KINDS for place in _spread(places[kind], shares[kind])]


def stated(kinds: np.ndarray, shown: list[int]) -> str:
    """The choice in a sentence for the picture and its caption."""
    parts = []
    for kind in KINDS:
        there, drawn = int((kinds == kind).sum()), sum(kinds[place] == kind for place in shown)
        if there:
            parts.append(f"{drawn} of {there:,} {_plural(kind)} ({MEANING[kind]})")
    return "Chosen by outcome, evenly spaced over the test file: " + ", ".join(parts) + "."


def _plural(kind: str) -> str:
    return {"hit": "hits", "miss": "misses", "twin": "confusions with the twin"}[kind]


def _spread(places: np.ndarray, count: int) -> np.ndarray:
    """Centres of ``count`` equal segments of ``places``."""
    return places[((np.arange(count) + 0.5) * len(places) / max(1, count)).astype(int)]
