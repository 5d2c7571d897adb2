"""What every query of a setting found: who was asked, what came first, how far the twin was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rewind.datasets.annotations import twin_of
from rewind.evaluation.ranking import BLOCK, row_blocks
from rewind.evaluation.settings import among_originals, pool


@dataclass(frozen=True)
class View:
    """Queries of one setting and search direction; numbers are rows of the captions or items of the test split.

    Attributes:
        setting, direction: which.
        ids: (q,) query ids as the rank tables have them.
        queries: (q,) captions for text→item, items for item→text (in Binary: captions, whose item is the query).
        candidates: (c,) what is searched: items or captions; in Binary (q, 2), the truth and then its rival.
        truth: (q,) the answer; for item→text the query's item, whose captions are all true.
        rival: (q,) the twin of the truth's item, -1 where the gallery has none.
    """

    setting: str
    direction: str
    ids: np.ndarray
    queries: np.ndarray
    candidates: np.ndarray
    truth: np.ndarray
    rival: np.ndarray

    @property
    def binary(self) -> bool:
        return self.candidates.ndim == 2

    @property
    def to_items(self) -> bool:
        return self.direction == "text_to_item"


@dataclass(frozen=True)
class Split:
    """Captions and items of a similarity matrix, and how they belong together.

    Attributes:
        captions: rows of the matrix: caption_id, video_id, caption.
        items: columns: item_id, path, reversed.
        own: (n,) column of each caption's item.
        twin: (m,) column of each item's twin, -1 where it has none.
    """

    captions: pd.DataFrame
    items: pd.DataFrame
    own: np.ndarray
    twin: np.ndarray

    @classmethod
    def of(cls, captions: pd.DataFrame, items: pd.DataFrame) -> Split:
        captions, items = captions.reset_index(drop=True), items.reset_index(drop=True)
        place = {item: column for column, item in enumerate(items["item_id"])}
        twin = np.full(len(items), -1)
        for item, column in place.items():
            if (partner := place.get(twin_of(item))) is not None:
                twin[column], twin[partner] = partner, column
        return cls(captions, items, np.array([place[v] for v in captions["video_id"]], dtype=int), twin)


def view(split: Split, setting: str, direction: str) -> View:
    """The queries of a setting, in the order of the rank tables.

    Where there are no twins, Origin is the whole split.

    Raises:
        RewindError: for another setting that needs twins where there are none.
    """
    asked = setting if (split.items["reversed"] == 1).any() else among_originals(setting)
    chosen = pool(asked, split.captions, split.items)
    captions, own = chosen.captions, split.own[chosen.captions]
    names = split.captions["caption_id"].to_numpy()
    if chosen.binary:
        pairs = [own, split.twin[own]] if direction == "text_to_item" else [captions, _counterparts(split, captions)]
        return View(setting, direction, names[captions], captions, np.stack(pairs, axis=1), own, split.twin[own])
    if direction == "text_to_item":
        return View(setting, direction, names[captions], captions, chosen.items, own, _within(split.twin[own], chosen))
    queries = chosen.items[np.isin(chosen.items, own)]
    ids = split.items["item_id"].to_numpy()[queries]
    return View(setting, direction, ids, queries, captions, queries, _within(split.twin[queries], chosen))


def top(found: View, scores: np.ndarray, k: int) -> np.ndarray:
    """The first ``k`` candidates of every query (q, k), best first; equal scores in the order of the files."""
    if found.binary:
        rows = found.queries[:, None] if found.to_items else found.candidates
        columns = found.candidates if found.to_items else found.truth[:, None]
        mine = scores[rows, columns]
        return np.take_along_axis(found.candidates, np.argsort(-mine, axis=1, kind="stable"), axis=1)[:, :k]
    k = min(k, len(found.candidates))
    places = np.empty((len(found.queries), k), dtype=int)
    for block in row_blocks(len(found.queries), len(found.candidates)):
        places[block] = _first(np.ascontiguousarray(_scores(found, scores, block)), k)
    return found.candidates[places]


def _first(scores: np.ndarray, k: int) -> np.ndarray:
    """Columns of the ``k`` largest of each row (q, k), best first; equal ones in their order."""
    least = np.partition(scores, scores.shape[1] - k, axis=1)[:, -k, None]
    kept = scores >= least  # k of them, and those tied with the last
    for row in np.flatnonzero(kept.sum(axis=1) > k):
        tied = np.flatnonzero(scores[row] == least[row])
        kept[row, tied[k - int((scores[row] > least[row]).sum()) :]] = False
    columns = np.nonzero(kept)[1].reshape(-1, k)
    order = np.argsort(-np.take_along_axis(scores, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)


def margins(found: View, scores: np.ndarray, split: Split) -> np.ndarray:
    """How far the truth is above its twin (q,), in standard deviations of the query's scores over the whole split.

    Exactly 0 for a tie, negative where the twin is preferred, NaN where the gallery has no twin.
    """
    there = found.rival >= 0
    if found.to_items:
        truth, rival = scores[found.queries, found.truth], scores[found.queries, found.rival]
        spread = _spread(scores, axis=1)[found.queries]
    elif found.binary:
        (truth, rival), spread = scores[found.candidates, found.truth[:, None]].T, _spread(scores, axis=0)[found.truth]
    else:
        own = split.own[found.candidates]
        truth, rival = np.empty((2, len(found.queries)), dtype=scores.dtype)
        for block in row_blocks(len(found.queries), len(own)):
            mine = _scores(found, scores, block)
            for best, items in ((truth, found.truth), (rival, found.rival)):
                best[block] = np.where(own == items[block, None], mine, -np.inf).max(axis=1)
        there = there & np.isfinite(rival)
        spread = _spread(scores, axis=0)[found.queries]
    with np.errstate(invalid="ignore"):
        distance = (truth.astype(float) - rival) / np.where(spread > 0, spread, 1)
    return np.where(there, distance, np.nan)


def _scores(found: View, scores: np.ndarray, block: slice) -> np.ndarray:
    """Scores of some of the queries, (block, c)."""
    if found.to_items:
        return scores[np.ix_(found.queries[block], found.candidates)]
    return scores[np.ix_(found.candidates, found.queries[block])].T


def _spread(scores: np.ndarray, axis: int) -> np.ndarray:
    """Standard deviations along an axis, without a second matrix."""
    if scores.size <= BLOCK:
        return scores.std(axis=axis)
    count, across = scores.shape[1 - axis], scores.shape[axis]
    parts = row_blocks(count, across)
    return np.concatenate([(scores[part] if axis else scores[:, part]).std(axis=axis) for part in parts])


def _within(rival: np.ndarray, chosen: Any) -> np.ndarray:
    return np.where(np.isin(rival, chosen.items), rival, -1)


def _counterparts(split: Split, captions: np.ndarray) -> np.ndarray:
    """The twin's caption at the same place of its list, the last where it has fewer (as RTime-Binary pairs them)."""
    rows: dict[int, list[int]] = {}
    place = np.zeros(len(split.own), dtype=int)
    for row, item in enumerate(split.own):
        place[row] = len(rows.setdefault(int(item), []))
        rows[int(item)].append(row)
    partners = [rows[int(split.twin[split.own[row]])] for row in captions]
    return np.array([mine[min(place[row], len(mine) - 1)] for row, mine in zip(captions, partners, strict=True)])
