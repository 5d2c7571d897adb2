"""Data of the page's explorer: for every query its rank, its first ten results and its margin over the twin.

Ranks, results and margins are packed into base64 so that the page stays small. A margin is in standard deviations of
the query's scores and is stored in thousandths of one. The page's scripts are in :mod:`rewind.report.page`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rewind.config.study import RunKey
from rewind.data.annotations import twin_rows
from rewind.errors import RewindError
from rewind.evaluation.ranking import (
    PairScores,
    matrix_part,
    pair_scores,
    row_blocks,
    setting_selection,
    setting_without_twins,
)
from rewind.evaluation.twins import binary_candidates

# ---- Retrieval results: the queries of a setting, their best candidates, and margins over the twin -----------------


@dataclass(frozen=True)
class QueryView:
    """Queries of one setting and search direction, as row numbers of the captions or items of the test split.

    Attributes:
        ids: (q,) query ids as in the rank tables.
        queries: (q,) captions for text→item, items for item→text (in Binary: captions, whose item is the query).
        candidates: (c,) the gallery: items or captions; in Binary (q, 2), the truth and then its rival.
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
class ScoredSplit:
    """Captions and items of a similarity matrix, and how they belong together.

    Example:
        >>> captions = pd.DataFrame({"caption_id": ["c1", "c2"], "video_id": ["v1", "v2"], "caption": ["up", "down"]})
        >>> items = pd.DataFrame({"item_id": ["v1", "v2"], "path": ["v1.mp4", "v2.mp4"], "reversed": [0, 0]})
        >>> split = ScoredSplit.of(captions, items)
        >>> split.own.tolist(), split.twin.tolist()
        ([0, 1], [-1, -1])
    """

    captions: pd.DataFrame  # rows of the matrix: caption_id, video_id, caption
    items: pd.DataFrame  # columns: item_id, path, reversed
    own: np.ndarray  # (n,) column of each caption's item
    twin: np.ndarray  # (m,) column of each item's twin, -1 where it has none

    @classmethod
    def of(cls, captions: pd.DataFrame, items: pd.DataFrame) -> ScoredSplit:
        """Match captions with their items, and items with their twins, by their ids."""
        captions, items = captions.reset_index(drop=True), items.reset_index(drop=True)
        column_of_item = {item: column for column, item in enumerate(items["item_id"])}
        own = np.array([column_of_item[v] for v in captions["video_id"]], dtype=int)
        return cls(captions, items, own, twin_rows(items["item_id"].tolist()))


def make_query_view(split: ScoredSplit, setting: str, direction: str) -> QueryView:
    """The queries of a setting, in the order of the rank tables.

    Without twins, Origin is the whole split; other settings that need twins are refused.
    """
    effective_setting = setting if (split.items["reversed"] == 1).any() else setting_without_twins(setting)
    selection = setting_selection(effective_setting, split.captions, split.items)
    captions, own = selection.captions, split.own[selection.captions]
    names = split.captions["caption_id"].to_numpy()
    if selection.binary:
        rows, columns = binary_candidates(split.captions, split.items, captions, direction)
        candidates = columns if direction == "text_to_item" else rows
        return QueryView(setting, direction, names[captions], captions, candidates, own, split.twin[own])
    if direction == "text_to_item":
        return QueryView(
            setting,
            direction,
            names[captions],
            captions,
            selection.items,
            own,
            _rivals_in_gallery(split.twin[own], selection),
        )
    queries = selection.items[np.isin(selection.items, own)]
    ids = split.items["item_id"].to_numpy()[queries]
    return QueryView(
        setting, direction, ids, queries, captions, queries, _rivals_in_gallery(split.twin[queries], selection)
    )


class SearchResults(NamedTuple):
    """What the queries of a view find: their best candidates, and how far the truth is above its twin.

    Attributes:
        margin: (q,) the truth's score minus its twin's, in standard deviations of the query's scores in the whole
            split: exactly 0 for a tie, negative where the twin is preferred, NaN where the gallery has no twin.
    """

    top: np.ndarray  # int (q, k), best first; equal scores in the order of the files
    margin: np.ndarray


def search_results(views: Sequence[QueryView], scores: np.ndarray, split: ScoredSplit, k: int) -> list[SearchResults]:
    """The ``k`` best candidates and the margins of all queries of some views, in two passes over the matrix.

    Args:
        scores: float (n_captions, n_items), an array or a file.
        k: candidates of each query, fewer where a gallery has fewer; 0 for only the margins.

    >>> captions = pd.DataFrame({"caption_id": ["c1", "c2"], "video_id": ["v1", "v2"], "caption": ["up", "down"]})
    >>> items = pd.DataFrame({"item_id": ["v1", "v2"], "path": ["v1.mp4", "v2.mp4"], "reversed": [0, 0]})
    >>> split = ScoredSplit.of(captions, items)
    >>> view = make_query_view(split, "test", "text_to_item")
    >>> search_results([view], np.array([[0.9, 0.1], [0.8, 0.2]]), split, k=2)[0].top.tolist()
    [[0, 1], [0, 1]]
    """
    pairs = pair_scores(scores, split.own, split.twin)
    best: dict[int, _BestItems | _BestCaptions] = {}
    for number, view in enumerate(views):
        if k and not view.binary:
            best[number] = (_BestItems if view.to_items else _BestCaptions)(view, k, scores.dtype)
    spread_of_captions = np.empty(len(split.captions), scores.dtype)
    spread_of_items = _ColumnSpread(np.unique(np.concatenate([_query_items(view) for view in views])), scores.shape)
    for rows in row_blocks(*scores.shape):
        block = scores[rows]
        spread_of_captions[rows] = block.std(axis=1)
        spread_of_items.add(block)
        for candidates in best.values():
            candidates.add(rows, block)
    results = []
    for number, view in enumerate(views):
        spread = spread_of_captions[view.queries] if view.to_items else spread_of_items.of(view.truth)
        truth, rival = _truths_and_rivals(view, pairs, split)
        if not k:
            found = np.zeros((len(view.queries), 0), dtype=int)
        elif view.binary:
            order = np.argsort(-np.stack([truth, rival], axis=1), axis=1, kind="stable")
            found = np.take_along_axis(view.candidates, order, axis=1)[:, :k]
        else:
            found = best[number].rows()
        has_twin = (view.rival >= 0) & np.isfinite(rival)  # a twin without captions is not in the gallery
        with np.errstate(invalid="ignore"):
            distance = (truth.astype(float) - rival) / np.where(spread > 0, spread, 1)
        results.append(SearchResults(found, np.where(has_twin, distance, np.nan)))
    return results


def _query_items(view: QueryView) -> np.ndarray:
    """Items whose columns are searched from item to text; none from text to item."""
    return np.empty(0, dtype=int) if view.to_items else view.truth


def _truths_and_rivals(view: QueryView, pairs: PairScores, split: ScoredSplit) -> tuple[np.ndarray, np.ndarray]:
    """Scores of each query for its truth and the truth's twin, (q,) each; -inf where there is no twin."""
    if view.to_items:
        return pairs.own[view.queries], pairs.twin[view.queries]
    if view.binary:  # the rival is a caption of the twin, whose own twin the query item is
        return pairs.own[view.candidates[:, 0]], pairs.twin[view.candidates[:, 1]]
    own = split.own[view.candidates]
    best, best_of_twin = np.full((2, len(split.items)), -np.inf, pairs.own.dtype)
    np.maximum.at(best, own, pairs.own[view.candidates])
    has_twin = split.twin[own] >= 0
    np.maximum.at(best_of_twin, split.twin[own[has_twin]], pairs.twin[view.candidates[has_twin]])
    return best[view.queries], best_of_twin[view.queries]


class _BestItems:
    """The best items of each caption; every row of the matrix is complete."""

    def __init__(self, view: QueryView, k: int, dtype: np.dtype) -> None:
        self.view, self.k = view, min(k, len(view.candidates))
        self.found = np.empty((len(view.queries), self.k), dtype=int)

    def add(self, rows: slice, block: np.ndarray) -> None:
        here = slice(*np.searchsorted(self.view.queries, (rows.start, rows.stop)))
        part = matrix_part(block, self.view.queries[here] - rows.start, self.view.candidates)
        self.found[here] = self.view.candidates[_top_columns(part, self.k)]

    def rows(self) -> np.ndarray:
        return self.found


class _BestCaptions:
    """The best captions of each item, kept from block to block: columns of the matrix are complete at its end."""

    def __init__(self, view: QueryView, k: int, dtype: np.dtype) -> None:
        self.view, self.k = view, min(k, len(view.candidates))
        self.scores, self.found = np.empty((len(view.queries), 0), dtype), np.empty((len(view.queries), 0), dtype=int)

    def add(self, rows: slice, block: np.ndarray) -> None:
        captions = self.view.candidates[slice(*np.searchsorted(self.view.candidates, (rows.start, rows.stop)))]
        if not len(captions):
            return
        part = matrix_part(block, captions - rows.start, self.view.queries)
        if self.scores.shape[1] == self.k:
            better = part > self.scores[:, -1]  # of equal captions the first stay
            if np.count_nonzero(better) < better.size // _MIN_BLOCK_PER_CANDIDATE:
                self._insert(captions, part, better)
                return
        scores = np.concatenate([self.scores, part.T], axis=1)
        found = np.concatenate([self.found, np.broadcast_to(captions, (len(self.found), len(captions)))], axis=1)
        columns = _top_columns(scores, min(self.k, scores.shape[1]))
        self.scores, self.found = (np.take_along_axis(values, columns, axis=1) for values in (scores, found))

    def _insert(self, captions: np.ndarray, part: np.ndarray, better: np.ndarray) -> None:
        """Put a few captions in their places; ``better`` (r, q) says which are better than an item's last one."""
        row, query = np.nonzero(better)
        changed = np.unique(query)
        queries = np.concatenate([np.repeat(changed, self.k), query])
        scores = np.concatenate([self.scores[changed].ravel(), part[row, query]])
        found = np.concatenate([self.found[changed].ravel(), captions[row]])
        order = np.lexsort((found, -scores, queries))
        first = np.searchsorted(queries[order], changed)
        kept = order[first[:, None] + np.arange(self.k)]
        self.scores[changed], self.found[changed] = scores[kept], found[kept]

    def rows(self) -> np.ndarray:
        return self.found


_MIN_BLOCK_PER_CANDIDATE = 16  # with more candidates in a block, all of it is searched once more


class _ColumnSpread:
    """Standard deviations of some columns of a matrix that is read block by block.

    For a matrix of one block they are NumPy's. Else sums are in double precision, of differences from the first row: so
    no digits are lost where scores are far from 0.
    """

    def __init__(self, columns: np.ndarray, shape: tuple[int, int]) -> None:
        self.columns, self.shape, self.spread = columns, shape, np.empty(0)
        self.first = np.empty(0)
        self.sums, self.squares = np.zeros((2, len(columns)))
        self.count = 0

    def add(self, block: np.ndarray) -> None:
        if not len(self.columns):
            return
        if len(block) == self.shape[0]:
            self.spread = block.std(axis=0)[self.columns]
            return
        if not self.count:
            self.first = block[0, self.columns].copy()
        difference = matrix_part(block, np.arange(len(block)), self.columns) - self.first
        self.sums += difference.sum(axis=0, dtype=np.float64)
        np.square(difference, out=difference)
        self.squares += difference.sum(axis=0, dtype=np.float64)
        self.count += len(block)
        if self.count == self.shape[0]:
            self.spread = np.sqrt(np.maximum(self.squares / self.count - (self.sums / self.count) ** 2, 0))

    def of(self, items: np.ndarray) -> np.ndarray:
        return self.spread[np.searchsorted(self.columns, items)]


def _top_columns(scores: np.ndarray, k: int) -> np.ndarray:
    """Columns of the ``k`` largest scores of each row, (q, k), best first; equal ones in their order."""
    threshold = np.partition(scores, scores.shape[1] - k, axis=1)[:, -k, None]
    # A partition, not a sort of all columns. It selects k columns and those that tie with the last of them; of the tied
    # ones only the first stay, so that k are left in each row.
    is_top = scores >= threshold
    for row in np.flatnonzero(np.count_nonzero(is_top, axis=1) > k):
        tied = np.flatnonzero(scores[row] == threshold[row])
        is_top[row, tied[k - int((scores[row] > threshold[row]).sum()) :]] = False
    columns = np.nonzero(is_top)[1].reshape(-1, k)
    order = np.argsort(-np.take_along_axis(scores, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)


def _rivals_in_gallery(rival: np.ndarray, selection: Any) -> np.ndarray:
    return np.where(np.isin(rival, selection.items), rival, -1)


# ---- Packing runs for the page -------------------------------------------------------------------------------------

TOP_COUNT = 10
MARGIN_STEPS = 1000  # a margin is stored in thousandths of a standard deviation
NO_TWIN = -32768  # the smallest 16-bit integer: quantised margins are at least -32767
MAX_BYTES_IN_PAGE = 1_000_000
"""Up to this many bytes, ranks and first results are in the page; more are in files next to it, read on demand."""

DATA_FILE_PARTS = {"ranks": ("rank", "margin"), "top": ("top",)}
"""Contents of a run's files: the page shows ranks of all runs together, but first results of one run at a time."""


class Explorer:
    """Collects one run after the other, so that a single similarity matrix is in memory at a time.

    Args:
        captions: rows of the similarity matrices: caption_id, video_id, caption.
        items: columns: item_id, path, reversed.
    """

    def __init__(
        self, captions: pd.DataFrame, items: pd.DataFrame, settings: Sequence[str], directions: Sequence[str]
    ) -> None:
        self.split = ScoredSplit.of(captions, items)
        self.views = [make_query_view(self.split, setting, way) for setting in settings for way in directions]
        self.runs: dict[RunKey, list[dict[str, str]]] = {}

    def check(self, split: ScoredSplit, where: str) -> None:
        """Refuse a run of other captions or items, naming its file."""
        for own, other, name in (
            (self.split.captions, split.captions, "caption_id"),
            (self.split.items, split.items, "item_id"),
        ):
            if own[name].tolist() != other[name].tolist():
                raise RewindError(f"{where}: its {name}s are not those of the other runs; evaluate the run again.")

    def add(self, method: str, seed: int, scores: np.ndarray, ranks: pd.DataFrame, where: str) -> None:
        """Add a run.

        Args:
            scores: float (n_captions, n_items).
            ranks: its rank table: query_id, setting, direction, rank.

        Raises:
            RewindError: if the matrix has another shape, or a query has no rank.
        """
        shape = len(self.split.captions), len(self.split.items)
        if scores.shape != shape:
            raise RewindError(f"{where}: the similarity matrix is {scores.shape}, but the test split is {shape}.")
        tables = dict(iter(ranks.groupby(["setting", "direction"])))
        ranks_of = [self._ranks(view, tables, where) for view in self.views]
        results = search_results(self.views, scores, self.split, TOP_COUNT)
        self.runs[method, seed] = [self._packed(*parts) for parts in zip(self.views, ranks_of, results, strict=True)]

    def bytes(self) -> int:
        """Length of the packed ranks, margins and first results of all runs."""
        return sum(len(text) for views in self.runs.values() for packed in views for text in packed.values())

    def files(self, folder: str) -> dict[str, str]:
        """Address → text of the scripts with the values that :meth:`data` leaves out if it gets this folder.

        A page that was opened from a disk may not read files, but it may run scripts: each passes its values to a
        function of the page.
        """
        scripts = {}
        for view in range(len(self.views)):
            for number, views in enumerate(self.runs.values()):
                for part, names in DATA_FILE_PARTS.items():
                    address = _data_file_address(folder, view, number, part)
                    values = {name: views[view][name] for name in names}
                    scripts[address] = f"rewindData({json.dumps(address)}, {json.dumps(values)});\n"
        return scripts

    def data(
        self,
        labels: Mapping[str, str],
        baselines: Collection[str],
        clips: Sequence[str],
        strips: Sequence[int],
        kind: str = "videos",
        folder: str = "",
        begin: tuple[str, str] | None = None,
    ) -> dict[str, Any]:
        """Everything the page's script needs, JSON-able; arrays are little-endian bytes in base64.

        Args:
            baselines: methods that the page leaves out where it measures how much methods disagree.
            clips: (m,) address of each item's clip, relative to the page.
            strips: (m,) number of each item's picture strip; ``~number`` for the strip played backwards; the number of
                strips for none. See :mod:`rewind.report.page.strips`.
            folder: where :meth:`files` are, relative to the page, if ranks and first results are not in the page.
            begin: methods A and B that stand side by side at first; none: the first method alone.
        """
        methods: dict[str, list[int]] = {}
        for method, seed in self.runs:
            methods.setdefault(method, []).append(seed)
        items = self.split.items
        return {
            "methods": [
                {"key": m, "label": labels[m], "seeds": seeds, "baseline": m in baselines}
                for m, seeds in methods.items()
            ],
            "items": {
                "id": items["item_id"].tolist(),
                "clip": list(clips),
                "twin": pack_array(self.split.twin, "i4"),
                "strip": pack_array(np.asarray(strips), "i4"),
            },
            "captions": {
                "id": self.split.captions["caption_id"].astype(str).tolist(),
                "text": self.split.captions["caption"].tolist(),
                "item": pack_array(self.split.own, "i4"),
            },
            "kind": kind,
            "begin": begin,
            "noTwin": NO_TWIN,
            "marginSteps": MARGIN_STEPS,
            "views": [self._view(number, view, folder) for number, view in enumerate(self.views)],
        }

    def _ranks(self, view: QueryView, tables: Mapping[tuple[str, str], Any], where: str) -> np.ndarray:
        """(q,) ranks of a view's queries."""
        key = view.setting, view.direction
        rows = tables.get(key)
        ranks = rows.set_index("query_id")["rank"].reindex(view.ids) if rows is not None else None
        if ranks is None or ranks.isna().any():
            first = view.ids[0] if ranks is None else ranks.index[ranks.isna()][0]
            raise RewindError(f"{where}: no rank of query {first!r} in {', '.join(key)}; evaluate the run again.")
        return ranks.to_numpy()

    def _packed(self, view: QueryView, ranks: np.ndarray, results: SearchResults) -> dict[str, str]:
        size = len(self.split.items) if view.to_items else len(self.split.captions)
        return {
            "rank": pack_array(ranks, "f4"),
            "top": pack_array(results.top, _index_type(size)),
            "margin": pack_array(quantise_margins(results.margin), "i2"),
        }

    def _view(self, view_number: int, view: QueryView, folder: str) -> dict[str, Any]:
        count = min(TOP_COUNT, view.candidates.shape[-1])
        return {
            "setting": view.setting,
            "direction": view.direction,
            "queries": pack_array(view.queries, "i4"),
            "gallery": int(view.candidates.shape[-1]),
            "top": count,
            "wide": _index_type(len(self.split.items) if view.to_items else len(self.split.captions)) == "u4",
            "runs": {
                f"{method}/{seed}": {
                    "files": {
                        part: _data_file_address(folder, view_number, run_number, part) for part in DATA_FILE_PARTS
                    }
                }
                if folder
                else packed[view_number]
                for run_number, ((method, seed), packed) in enumerate(self.runs.items())
            },
        }


def quantise_margins(margin: np.ndarray) -> np.ndarray:
    """Margins in whole thousandths; only an exact tie is 0, and :data:`NO_TWIN` stands for NaN."""
    steps = np.nan_to_num(margin) * MARGIN_STEPS
    steps_away = np.sign(steps) * np.clip(np.round(np.abs(steps)), 1, 32_767)
    return np.where(np.isnan(margin), NO_TWIN, steps_away).astype(int)


def pack_array(values: np.ndarray, kind: str) -> str:
    """Base64 of the values as little-endian ``kind`` of numpy, row by row.

    Example:
        >>> unpack_array(pack_array(np.array([1, 2, 3]), "u2"), "u2").tolist()
        [1, 2, 3]
    """
    return base64.b64encode(np.ascontiguousarray(values, dtype=f"<{kind}").tobytes()).decode("ascii")


def unpack_array(text: str, kind: str) -> np.ndarray:
    """The values of :func:`pack_array`, flattened."""
    return np.frombuffer(base64.b64decode(text), dtype=f"<{kind}")


def _data_file_address(folder: str, view: int, run: int, part: str) -> str:
    return f"{folder}/view{view}.run{run}.{part}.js"


def _index_type(size: int) -> str:
    return "u2" if size <= 65_536 else "u4"
