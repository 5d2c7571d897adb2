"""Ranks and retrieval metrics from a similarity matrix, in the settings Origin, Hard, Binary and the plain test split.

A query has ``higher`` items scored above its truth and ``ties`` other items scored equal to it. Under a random order of
the tied items, its rank is 1 + higher + u with u uniform on 0, 1, …, ties: the expected rank is
``1 + higher + ties / 2``, and the query is among the first k with probability

    R@k = clip((k − higher) / (ties + 1), 0, 1).

Metrics (:mod:`rewind.ranking_metrics`) are expectations over that order, so that a model which gives many items one
score gains nothing from the order in which they happen to be sorted. Pairs without a score rank below all others;
settings that would depend on such pairs are found and left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rewind.data.annotations import is_among, twin_rows
from rewind.data.readers import MISSING_SCORE
from rewind.errors import RewindError
from rewind.evaluation.twins import binary_candidates, count_binary_left_out, why_not_in_binary
from rewind.ranking_metrics import BINARY_GALLERY, METRICS, expected_worth, hits, median_rank_with_ties, reciprocal_rank

# ---- Settings: which queries search which gallery ------------------------------------------------------------------


@dataclass(frozen=True)
class SettingSelection:
    """Rows (captions) and columns (items) of the similarity matrix that a setting uses."""

    setting: str
    captions: np.ndarray
    items: np.ndarray
    binary: bool = False  # each query searches the clip and its twin or, from item to text, their two captions


def setting_selection(setting: str, captions: pd.DataFrame, items: pd.DataFrame) -> SettingSelection:
    """Select a setting's captions and items.

    - ``origin``: captions of originals × originals.
    - ``hard``: all captions × originals and twins.
    - ``binary``: captions of originals whose twin has a caption too (as RTime-Binary counts them), where
      words and clips tell the two apart; :func:`~rewind.evaluation.twins.count_binary_left_out` counts the others.
    - ``test``: all captions × all items.

    >>> items = pd.DataFrame({"item_id": ["a", "a_rev"], "reversed": [0, 1]})
    >>> captions = pd.DataFrame({"video_id": ["a", "a_rev"]})
    >>> setting_selection("origin", captions, items).captions.tolist()
    [0]
    """
    item_ids = set(items["item_id"])
    unknown = [v for v in captions["video_id"] if v not in item_ids]
    if unknown:
        raise RewindError(
            f"setting {setting}: {len(unknown)} captions name items outside the gallery, first {unknown[0]!r}."
        )
    is_twin = items["reversed"].to_numpy() == 1
    if setting != "test" and not is_twin.any():
        raise RewindError(
            f"evaluation.settings: {setting!r} needs time-reversed twins and the data set has none; use ['test']."
        )
    original = set(items["item_id"][~is_twin])
    forward = is_among(captions["video_id"], original)
    rows, columns = np.arange(len(captions)), np.arange(len(items))
    if setting == "origin":
        return SettingSelection(setting, rows[forward], columns[~is_twin])
    if setting == "binary":
        reasons = why_not_in_binary(captions.reset_index(drop=True), items)
        queries = reasons.index[reasons == ""].to_numpy()
        if not len(queries):
            counts = "; ".join(f"{count:,} {why}" for why, count in count_binary_left_out(captions, items).items())
            raise RewindError(
                "evaluation.settings: 'binary' needs captions of a clip that its time-reversed twin does not have, and "
                f"no caption of the split is one ({counts or 'none is of a clip with a twin'}); remove binary."
            )
        return SettingSelection(setting, queries, columns, binary=True)
    return SettingSelection(setting, rows, columns)


def setting_without_twins(setting: str) -> str:
    """The setting in which a run without twins is evaluated in place of ``setting``: all that it has is Origin.

    >>> setting_without_twins("origin"), setting_without_twins("hard")
    ('test', 'hard')
    """
    return "test" if setting == "origin" else setting


# ---- Settings that a matrix with missing scores cannot answer ------------------------------------------------------
# In a retrieval run, items that are not listed for a caption rank last. In a file that never scored them they do not:
# with scores of only a clip and its twin (Binary's candidates), every caption would find its clip in Origin.

ORIGINAL_CAPTIONS, TWIN_CAPTIONS = "an original", "a twin"  # whose caption a pair has
ORIGINAL_ITEMS, TWIN_ITEMS = "originals", "twins"  # with which items
_NO_OTHER_ITEM = "no caption has a score for any item but its own and that item's twin"
_REASONS_BY_KIND = {
    (ORIGINAL_CAPTIONS, ORIGINAL_ITEMS): _NO_OTHER_ITEM,
    (ORIGINAL_CAPTIONS, TWIN_ITEMS): "no caption of an original has a score for a twin",
    (TWIN_CAPTIONS, TWIN_ITEMS): "no caption of a twin has a score for another twin",
    (TWIN_CAPTIONS, ORIGINAL_ITEMS): "no caption of a twin has a score for an original",
}
"""Kinds of pairs in a gallery of originals and twins → the reason given if no pair of the kind has a score."""


def unscored_settings(
    similarity: Any, captions: pd.DataFrame, items: pd.DataFrame, settings: list[str], directions: list[str]
) -> dict[str, str]:
    """Settings that need a kind of pair of which the matrix has no score → the reason.

    Keys are ``setting``, or ``setting direction`` if the other direction has what it needs.
    ``origin`` needs scores of captions of originals with other originals; ``hard`` and ``test`` need them for captions
    of originals and of twins, each with other originals and with other twins; in either direction. ``binary`` needs
    captions with their own clip, and from text to item with its twin, from item to text the twin's captions with the
    original. One score is enough for each kind of pair that the data have: a retrieval run lists a few items for each
    caption.
    """
    captions, items = captions.reset_index(drop=True), items.reset_index(drop=True)
    if not _any_score_missing(similarity):
        return {}
    scored_kinds, existing_kinds = _pair_kinds(similarity, captions, items)
    unscored: dict[str, str] = {}
    for setting in settings:
        reasons = {
            direction: _binary_reason(similarity, captions, items, direction)
            if setting == "binary"
            else _gallery_reason(setting, scored_kinds, existing_kinds)
            for direction in directions
        }
        if len(set(reasons.values())) == 1:
            reasons = {"": next(iter(reasons.values()))}
        unscored |= {f"{setting} {direction}".rstrip(): reason for direction, reason in reasons.items() if reason}
    return unscored


def unscored_reason(reasons: Mapping[str, str], setting: str, direction: str) -> str:
    """Why a setting has no numbers in a direction, according to :func:`unscored_settings`; empty if it has some.

    >>> unscored_reason({"binary item_to_text": "no caption of a twin"}, "binary", "item_to_text")
    'no caption of a twin'
    """
    return reasons.get(setting) or reasons.get(f"{setting} {direction}", "")


def _any_score_missing(similarity: Any) -> bool:
    return any((similarity[rows] == MISSING_SCORE).any() for rows in row_blocks(*similarity.shape))


def _gallery_reason(setting: str, scored: set[tuple[str, str]], existing: set[tuple[str, str]]) -> str:
    among_originals = (ORIGINAL_CAPTIONS, ORIGINAL_ITEMS)
    for kind, reason in _REASONS_BY_KIND.items():
        needed = setting != "origin" or kind == among_originals
        if needed and kind in existing and kind not in scored:
            # Data without twins: the reason must not mention them.
            return reason if existing != {among_originals} else _NO_OTHER_ITEM.partition(" and ")[0]
    return ""


def _pair_kinds(
    similarity: Any, captions: pd.DataFrame, items: pd.DataFrame
) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Kinds of pairs that have a score, and kinds that exist in the data."""
    own = own_columns(captions["video_id"], items)
    is_twin = items["reversed"].to_numpy() == 1
    item_masks = ((ORIGINAL_ITEMS, ~is_twin), (TWIN_ITEMS, is_twin))
    scored: set[tuple[str, str]] = set()
    for rows in row_blocks(*similarity.shape):
        has_score = similarity[rows] != MISSING_SCORE
        has_score[np.arange(len(has_score)), own[rows]] = False  # the truth alone is not a gallery
        for whose, mask in ((ORIGINAL_CAPTIONS, ~is_twin[own[rows]]), (TWIN_CAPTIONS, is_twin[own[rows]])):
            columns = has_score[mask].any(axis=0)
            scored |= {(whose, which) for which, of_items in item_masks if columns[of_items].any()}
    originals, twins = int((~is_twin).sum()), int(is_twin.sum())
    forward, reverse = (is_twin[own] == value for value in (False, True))
    exists_by_kind = {
        (ORIGINAL_CAPTIONS, ORIGINAL_ITEMS): forward.any() and originals > 1,
        (ORIGINAL_CAPTIONS, TWIN_ITEMS): forward.any() and twins > 0,
        (TWIN_CAPTIONS, TWIN_ITEMS): reverse.any() and twins > 1,
        (TWIN_CAPTIONS, ORIGINAL_ITEMS): reverse.any() and originals > 0,
    }
    return scored, {kind for kind, exists in exists_by_kind.items() if exists}


def _binary_reason(similarity: Any, captions: pd.DataFrame, items: pd.DataFrame, direction: str) -> str:
    queries = setting_selection("binary", captions, items).captions
    truth, rival = similarity[binary_candidates(captions, items, queries, direction)].T
    if not (truth != MISSING_SCORE).any():
        return "no caption of an original has a score for its own clip"
    if (rival != MISSING_SCORE).any():
        return ""
    if direction == "text_to_item":
        return "no caption has a score for its clip's twin"
    return "no caption of a twin has a score for the original"


# ---- Ranks with ties, and the metrics of a run ---------------------------------------------------------------------

NEAR_TIE_TOLERANCE = 1e-5
"""Relative difference of two scores below which only rounding may distinguish them."""

MIN_NEAR_TIE_SHARE = 0.01
"""Share of queries from which near ties are worth a note."""

SCORES_PER_BLOCK = 2**24
"""Scores that are in memory at a time."""

ALL_CAPTIONS, BEST_CAPTION = "all_captions", "best_caption"  # what an item searches, see rank_table

RECALL_CUTOFFS = {"R@1": 1, "R@5": 5, "R@10": 10}
"""Recalls that validation computes and that are shown next to cosine gaps, with their cut-offs."""


def rank_table(
    similarity: np.ndarray,
    captions: pd.DataFrame,
    items: pd.DataFrame,
    settings: list[str],
    directions: list[str],
    where: str = "similarity",
    item_to_text: str = ALL_CAPTIONS,
) -> pd.DataFrame:
    """Ranks of every query in every setting and direction, one row each.

    Captions (caption_id, video_id) are the rows of ``similarity``, items (item_id, cluster_id, reversed) its columns. A
    query item's rank is that of its best caption. Under ``item_to_text`` it searches ``all_captions``, or only each
    item's ``best_caption``, as in CLIP4Clip; Binary has two captions either way.

    >>> captions = pd.DataFrame({"caption_id": ["a#0", "b#0"], "video_id": ["a", "b"]})
    >>> items = pd.DataFrame({"item_id": ["a", "b"], "cluster_id": [0, 1], "reversed": [0, 0]})
    >>> similarity = np.array([[0.9, 0.1], [0.5, 0.5]])  # the second caption ties
    >>> rank_table(similarity, captions, items, ["test"], ["text_to_item"])[["query_id", "higher", "ties", "rank"]]
      query_id  higher  ties  rank
    0      a#0       0     0   1.0
    1      b#0       0     1   1.5
    """
    captions, items = captions.reset_index(drop=True), items.reset_index(drop=True)
    searches = rank_searches(similarity, captions, items, settings, directions, where, item_to_text)
    return searches_table(searches, captions, items)


def rank_searches(
    similarity: np.ndarray,
    captions: pd.DataFrame,
    items: pd.DataFrame,
    settings: list[str],
    directions: list[str],
    where: str,
    item_to_text: str,
) -> list[Search]:
    """The searches of every setting and direction with their counts; arguments as for :func:`rank_table`."""
    _check_matrix(similarity, captions, items, where)
    searches = [
        make_search(setting_selection(setting, captions, items), direction, captions, items, item_to_text)
        for setting in settings
        for direction in directions
    ]
    own = own_columns(captions["video_id"], items)
    # Two passes over the matrix, which may be a file: the second compares all scores with those of the truths.
    pairs = pair_scores(similarity, own, twin_rows(items["item_id"].tolist()))
    _refuse_invalid(pairs, captions, items, where)
    _count_rivals(similarity, own, pairs, searches, item_to_text)
    return searches


def searches_table(searches: Sequence[Search], captions: pd.DataFrame, items: pd.DataFrame) -> pd.DataFrame:
    """The rows of :func:`rank_table` for searches whose counts are filled in."""
    table = pd.concat([search.table(captions, items) for search in searches], ignore_index=True)
    table["rank"] = 1 + table["higher"] + table["ties"] / 2  # the mean over all orders of the tied items
    return table[["query_id", "setting", "direction", "higher", "ties", "rank", "cluster_id", "gallery"]]


def validation_scores(ranks: pd.DataFrame) -> dict[str, float]:
    """The metrics that validation computes, from a table of ranks of one setting and direction.

    They do not come from :func:`compute_metrics`: the hash of training's code must not change with a metric
    that is added for tables, or every run would be trained again.

    >>> ranks = pd.DataFrame({"higher": [0, 2], "ties": [1, 0], "rank": [1.5, 3.0]})
    >>> validation_scores(ranks)["R@1"]  # (½ + 0) / 2
    25.0
    """
    higher, ties = ranks["higher"].to_numpy(), ranks["ties"].to_numpy()
    recalls = {name: 100 * float(expected_worth(hits(k), higher, ties).mean()) for name, k in RECALL_CUTOFFS.items()}
    return recalls | {
        "MdR": median_rank_with_ties(higher, ties),
        "MnR": float(ranks["rank"].mean()),
        "MRR": float(expected_worth(reciprocal_rank, higher, ties).mean()),
    }


def compute_metrics(ranks: pd.DataFrame) -> dict[str, float]:
    """All metrics of one run in one setting and direction, those of :data:`rewind.ranking_metrics.METRICS`.

    Metrics with ``bounds`` come with two further values, in which every tie is won (``_optimistic``) or lost
    (``_pessimistic``).

    >>> row = compute_metrics(pd.DataFrame({"higher": [0, 2], "ties": [1, 0], "gallery": [10, 10]}))
    >>> row["R@1"], row["R@1_pessimistic"], row["R@1_optimistic"]
    (25.0, 0.0, 50.0)
    """
    higher, ties = ranks["higher"].to_numpy(), ranks["ties"].to_numpy()
    row: dict[str, float] = {"queries": len(ranks), "gallery": int(ranks["gallery"].max())}
    row |= {name: metric.value(higher, ties) for name, metric in METRICS.items()}
    for name, metric in METRICS.items():
        if metric.bounds:
            row[f"{name}_optimistic"] = metric.value(higher, 0 * ties)
            row[f"{name}_pessimistic"] = metric.value(higher + ties, 0 * ties)
    return row


def _check_matrix(similarity: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, where: str) -> None:
    if similarity.shape != (len(captions), len(items)):
        raise RewindError(
            f"{where}: the matrix is {similarity.shape}, but there are {len(captions)} captions and {len(items)} items."
        )
    for name, ids in (("caption", captions["caption_id"]), ("item", items["item_id"])):
        if ids.duplicated().any():
            raise RewindError(f"{where}: the {name} id {ids[ids.duplicated()].iloc[0]!r} occurs twice.")


class PairScores(NamedTuple):
    """Scores of captions for the item that they describe and for its twin, and what is wrong in their matrix."""

    own: np.ndarray  # (n,)
    twin: np.ndarray  # (n,); -inf for an item without a twin
    invalid: int  # number of scores of the whole matrix that are not finite
    first_invalid: tuple[int, int]  # row and column of the first of them


def pair_scores(similarity: np.ndarray, own: np.ndarray, twin: np.ndarray) -> PairScores:
    """Collect the scores of captions for their item and its twin in one pass over the matrix (n, m).

    ``own`` (n,) has the column of each caption's item, ``twin`` (m,) that of each item's twin, -1 where it has none.
    """
    # In the dtype of the matrix: ties are exact, and a conversion could make or break them.
    own_scores, twin_scores = np.empty((2, len(own)), similarity.dtype)
    invalid, first = 0, (0, 0)
    for rows in row_blocks(*similarity.shape):
        block = similarity[rows]
        places, partner = np.arange(len(block)), twin[own[rows]]
        own_scores[rows] = block[places, own[rows]]
        twin_scores[rows] = np.where(partner >= 0, block[places, partner], -np.inf)
        finite = np.isfinite(block)
        if not finite.all():
            row, column = np.argwhere(~finite)[0].tolist()
            first = first if invalid else (rows.start + row, column)
            invalid += finite.size - int(np.count_nonzero(finite))
    return PairScores(own_scores, twin_scores, invalid, first)


def _refuse_invalid(pairs: PairScores, captions: pd.DataFrame, items: pd.DataFrame, where: str) -> None:
    if pairs.invalid:
        row, column = pairs.first_invalid
        raise RewindError(
            f"{where}: {pairs.invalid} scores are not numbers, first for caption {captions['caption_id'].iloc[row]!r} "
            f"and item {items['item_id'].iloc[column]!r}; correct what computed them, and compute them again."
        )


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of rows with at most SCORES_PER_BLOCK scores: a matrix may take gigabytes, intermediate results must not.

    >>> list(row_blocks(2, 10))
    [slice(0, 2, None)]
    """
    step = max(1, SCORES_PER_BLOCK // max(1, columns))
    return (slice(top, min(top + step, rows)) for top in range(0, rows, step))


@dataclass
class Search:
    """Queries of one setting and direction, and how many candidates score above the truth and equal to it.

    ``higher`` and ``ties`` are int64 (q,); ties are exactly equal scores, without tolerance (see
    :func:`near_tie_share`).
    """

    selection: SettingSelection
    direction: str
    queries: np.ndarray  # (q,) rows or columns of the matrix; in Binary captions
    clusters: np.ndarray  # (q,)
    gallery: int  # number of candidates
    rivals: np.ndarray | None = None  # (q,) in Binary: captions whose score for their item's twin is the rival's

    def __post_init__(self) -> None:
        self.higher, self.ties = np.zeros((2, len(self.queries)), np.int64)

    def table(self, captions: pd.DataFrame, items: pd.DataFrame) -> pd.DataFrame:
        """One row per query, without its rank."""
        to_captions = self.direction == "item_to_text" and not self.selection.binary
        ids = (items["item_id"] if to_captions else captions["caption_id"]).to_numpy()[self.queries]
        columns = {"query_id": ids, "higher": self.higher, "ties": self.ties, "cluster_id": self.clusters}
        return pd.DataFrame(columns | {"gallery": self.gallery}).assign(
            setting=self.selection.setting, direction=self.direction
        )


def make_search(
    selection: SettingSelection, direction: str, captions: pd.DataFrame, items: pd.DataFrame, item_to_text: str
) -> Search:
    clusters, texts = items["cluster_id"].to_numpy(), captions["video_id"].iloc[selection.captions]
    if selection.binary:
        rows, columns = binary_candidates(captions, items, selection.captions, direction)
        # The rival of a clip's caption is that of the twin, whose own twin the clip is.
        rivals = selection.captions if direction == "text_to_item" else rows[:, 1]
        return Search(selection, direction, selection.captions, clusters[columns[:, 0]], BINARY_GALLERY, rivals)
    if direction == "text_to_item":
        own = own_columns(texts, items)
        return Search(selection, direction, selection.captions, clusters[own], len(selection.items))
    # An item without a caption is not a query: nothing is correct for it.
    queries = selection.items[is_among(items["item_id"], texts)[selection.items]]
    gallery = len(queries) if item_to_text == BEST_CAPTION else len(selection.captions)
    return Search(selection, direction, queries, clusters[queries], gallery)


def _count_rivals(
    similarity: np.ndarray, own: np.ndarray, pairs: PairScores, searches: list[Search], item_to_text: str
) -> None:
    """Fill in the counts of all searches in one pass over the matrix; best captions take one more each."""
    by_block: list[Callable[[slice, np.ndarray], None]] = []
    for search in searches:
        if search.rivals is not None:
            truth, rival = pairs.own[search.queries], pairs.twin[search.rivals]
            search.higher, search.ties = (rival > truth).astype(np.int64), (rival == truth).astype(np.int64)
        elif search.direction == "text_to_item":
            by_block.append(partial(_count_items, search, pairs.own))
        elif item_to_text == BEST_CAPTION:
            _count_best_captions(similarity, own, search)
        else:
            captions = search.selection.captions
            best = np.full(similarity.shape[1], -np.inf, similarity.dtype)
            np.maximum.at(best, own[captions], pairs.own[captions])  # an item's truth is its best caption;
            # an assignment by index would keep only one of several.
            # Its other captions are correct too: none is above the truth, and those at it are no ties.
            at_truth = captions[pairs.own[captions] == best[own[captions]]]
            search.ties -= np.bincount(own[at_truth], minlength=similarity.shape[1])[search.queries]
            by_block.append(partial(_count_captions, search, best[search.queries]))
    for rows in row_blocks(*similarity.shape) if by_block else ():
        block = similarity[rows]
        for count in by_block:
            count(rows, block)


def _count_items(search: Search, own_scores: np.ndarray, rows: slice, block: np.ndarray) -> None:
    """Items above and at the truth of those captions that are among some rows of the matrix, ``block`` (r, m)."""
    # Queries ascend, as setting_selection leaves them, so that those of a block of rows are neighbours.
    here = slice(*np.searchsorted(search.queries, (rows.start, rows.stop)))
    captions = search.queries[here]
    scores, truth = matrix_part(block, captions - rows.start, search.selection.items), own_scores[captions, None]
    search.higher[here] = np.count_nonzero(scores > truth, axis=1)
    search.ties[here] = np.count_nonzero(scores == truth, axis=1) - 1  # without the truth itself


def _count_captions(search: Search, truth: np.ndarray, rows: slice, block: np.ndarray) -> None:
    """Captions among some rows of the matrix, ``block`` (r, m), that are above and at the truth (q,) of each item."""
    captions = search.selection.captions
    here = slice(*np.searchsorted(captions, (rows.start, rows.stop)))
    scores = matrix_part(block, captions[here] - rows.start, search.queries)
    search.higher += np.count_nonzero(scores > truth, axis=0)
    search.ties += np.count_nonzero(scores == truth, axis=0)


def _count_best_captions(similarity: np.ndarray, own: np.ndarray, search: Search) -> None:
    """Items whose best caption is above and at that of each query item, which searches one caption of every item."""
    # Every caption of the selection is of a query item, so that its position is exact and no item is without one.
    owner = np.searchsorted(search.queries, own[search.selection.captions])
    order = np.argsort(owner, kind="stable")  # an item's captions next to one another, to be replaced by their maximum
    captions = search.selection.captions[order]
    first = np.searchsorted(owner[order], np.arange(len(search.queries) + 1))

    def best_scores() -> Iterator[tuple[slice, np.ndarray]]:
        most = int(np.diff(first).max(initial=1)) * len(search.queries)
        for items in row_blocks(len(search.queries), most):
            begins = first[items.start : items.stop + 1]
            scores = similarity[np.ix_(captions[begins[0] : begins[-1]], search.queries)]
            yield items, np.maximum.reduceat(scores, begins[:-1] - begins[0], axis=0)

    truth = np.empty(len(search.queries), similarity.dtype)
    for items, scores in best_scores():
        truth[items] = scores[np.arange(len(scores)), np.arange(items.start, items.start + len(scores))]
    search.ties -= 1  # the truth itself
    for _, scores in best_scores():
        search.higher += np.count_nonzero(scores > truth, axis=0)
        search.ties += np.count_nonzero(scores == truth, axis=0)


def matrix_part(block: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Rows and columns of a block of a matrix, both ascending; without a copy where they are all of them."""
    if len(rows) < len(block):
        block = block[rows]
    return block if len(columns) == block.shape[1] else block[:, columns]


def near_tie_share(similarity: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame) -> float:
    """Share of Binary's queries (text to item) whose two scores differ by less than NEAR_TIE_TOLERANCE, relatively.

    Equal scores are ties and do not count. For a model that cannot see the order of frames, nearly all queries should
    be ties; if rounding has broken them, rounding decides them, and R@1 need not be 0.5.
    """
    captions, items = captions.reset_index(drop=True), items.reset_index(drop=True)
    queries = setting_selection("binary", captions, items).captions
    truth, rival = similarity[binary_candidates(captions, items, queries, "text_to_item")].T
    return share_of_near_ties(truth, rival)


def share_of_near_ties(truth: np.ndarray, rival: np.ndarray) -> float:
    """:func:`near_tie_share` of the scores of truths and of rivals, (q,) each.

    >>> share_of_near_ties(np.array([1.0, 1.0]), np.array([1.0 + 1e-7, 0.5]))
    0.5
    """
    difference = np.abs(truth.astype(np.float64) - rival)
    limit = NEAR_TIE_TOLERANCE * np.maximum(np.abs(truth), np.abs(rival))
    return float(((difference > 0) & (difference < limit)).mean())


def own_columns(videos: pd.Series, items: pd.DataFrame) -> np.ndarray:
    """(n,) column of the item that each caption describes."""
    return pd.Series(np.arange(len(items)), index=items["item_id"].to_numpy())[videos].to_numpy()
