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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rewind.data.annotations import twin_of
from rewind.data.readers import MISSING_SCORE
from rewind.errors import RewindError
from rewind.evaluation.twins import binary_candidates
from rewind.ranking_metrics import BINARY_GALLERY, METRICS, expected_worth, hits, median_rank_with_ties, reciprocal_rank

# ---- Settings: which queries search which gallery ------------------------------------------------------------------


@dataclass(frozen=True)
class SettingSelection:
    """Rows (captions) and columns (items) of the similarity matrix that a setting uses.

    ``binary`` limits each query's gallery to the clip and its twin (text→item), or to the two captions, the clip's own
    and its twin's (item→text).

    >>> SettingSelection("test", np.arange(3), np.arange(2)).binary
    False
    """

    setting: str
    captions: np.ndarray
    items: np.ndarray
    binary: bool = False


def setting_selection(setting: str, captions: pd.DataFrame, items: pd.DataFrame) -> SettingSelection:
    """Select a setting's captions and items.

    - ``origin``: captions of originals × originals.
    - ``hard``: all captions × originals and twins.
    - ``binary``: captions of originals whose twin has a caption too (as RTime-Binary counts them); those whose twin has
      none are counted by :func:`count_binary_left_out`.
    - ``test``: all captions × all items.

    Raises:
        RewindError: if the setting needs twins and there are none, or a caption's item is not in the gallery.

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
    forward = captions["video_id"].isin(original).to_numpy()
    rows, columns = np.arange(len(captions)), np.arange(len(items))
    if setting == "origin":
        return SettingSelection(setting, rows[forward], columns[~is_twin])
    if setting == "binary":
        paired = forward & _twin_has_caption(captions, items)
        if not paired.any():
            raise RewindError(
                "evaluation.settings: 'binary' needs captions of a clip and of its time-reversed twin, and no twin "
                "of the split has one; remove binary."
            )
        return SettingSelection(setting, rows[paired], columns, binary=True)
    return SettingSelection(setting, rows, columns)


def setting_without_twins(setting: str) -> str:
    """The setting in which a run without twins is evaluated in place of ``setting``: all that it has is Origin.

    >>> setting_without_twins("origin"), setting_without_twins("hard")
    ('test', 'hard')
    """
    return "test" if setting == "origin" else setting


def count_binary_left_out(captions: pd.DataFrame, items: pd.DataFrame) -> int:
    """Number of captions of originals that Binary leaves out because the clip's twin has no caption."""
    item_ids, twins = set(items["item_id"]), set(items["item_id"][items["reversed"] == 1])
    has_twin = captions["video_id"].map(lambda v: twin_of(v) in item_ids).to_numpy(dtype=bool)
    forward = ~captions["video_id"].isin(twins).to_numpy()
    return int((forward & has_twin & ~_twin_has_caption(captions, items)).sum())


def _twin_has_caption(captions: pd.DataFrame, items: pd.DataFrame) -> np.ndarray:
    """Whether the twin of each caption's clip is an item and has a caption."""
    described = set(captions["video_id"]) & set(items["item_id"])
    return captions["video_id"].map(lambda v: twin_of(v) in described).to_numpy(dtype=bool)


# ---- Settings that a matrix with missing scores cannot answer ------------------------------------------------------
# In a retrieval run, items that are not listed for a caption rank last. In a file that never scored them they do not:
# with scores of a clip and its twin alone (Binary's candidates), every caption would find its clip in Origin.

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
    """Settings that need a kind of pair of which the matrix has no score, with the reason.

    ``origin`` needs scores of captions of originals with other originals; ``hard`` and ``test`` need them for captions
    of originals and of twins, each with other originals and with other twins; in either direction. ``binary`` needs
    captions with their own clip, and from text to item with its twin, from item to text the twin's captions with the
    original. Of each kind of pair that the data have, one score is enough: a retrieval run lists a few items for each
    caption.

    Args:
        similarity: (n_captions, n_items), ``MISSING_SCORE`` where a pair has no score.
        captions: rows of the matrix: caption_id, video_id.
        items: its columns: item_id, reversed.
        settings: of the study, those that the items allow.
        directions: of the study.

    Returns:
        ``setting`` → reason, or ``setting direction`` → reason if the other direction has what it needs.
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
    own = _positions(items["item_id"])[captions["video_id"]].to_numpy()
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

SCORES_PER_BLOCK = 2**24
"""Scores that are in memory at a time."""

ALL_CAPTIONS, BEST_CAPTION = "all_captions", "best_caption"  # what an item searches, see rank_table

RECALL_CUTOFFS = {"R@1": 1, "R@5": 5, "R@10": 10}
"""Recalls that validation computes and that are shown beside cosine gaps, with their cut-offs."""


def rank_table(
    similarity: np.ndarray,
    captions: pd.DataFrame,
    items: pd.DataFrame,
    settings: list[str],
    directions: list[str],
    where: str = "similarity",
    item_to_text: str = ALL_CAPTIONS,
) -> pd.DataFrame:
    """Ranks of every query in every setting and direction.

    Args:
        similarity: (n_captions, n_items).
        captions: rows of the matrix: caption_id, video_id.
        items: columns: item_id, cluster_id, reversed.
        settings: of ``origin``, ``hard``, ``binary``, ``test``.
        directions: ``text_to_item``, ``item_to_text`` (a query item's rank is that of its best caption).
        where: names the matrix in messages.
        item_to_text: what a query item searches: ``all_captions``, or only each item's ``best_caption``, as in
            CLIP4Clip; Binary has two captions either way.

    Returns:
        One row per query, setting and direction: query_id, setting, direction, higher, ties, rank, cluster_id,
        gallery.

    Raises:
        RewindError: for a matrix of another shape, repeated ids, or scores that are not numbers.

    >>> captions = pd.DataFrame({"caption_id": ["a#0", "b#0"], "video_id": ["a", "b"]})
    >>> items = pd.DataFrame({"item_id": ["a", "b"], "cluster_id": [0, 1], "reversed": [0, 0]})
    >>> similarity = np.array([[0.9, 0.1], [0.5, 0.5]])  # the second caption ties
    >>> rank_table(similarity, captions, items, ["test"], ["text_to_item"])[["query_id", "higher", "ties", "rank"]]
      query_id  higher  ties  rank
    0      a#0       0     0   1.0
    1      b#0       0     1   1.5
    """
    _check_matrix(similarity, captions, items, where)
    captions, items = captions.reset_index(drop=True), items.reset_index(drop=True)
    tables = []
    for setting in settings:
        selection = setting_selection(setting, captions, items)
        for direction in directions:
            if selection.binary:
                table = _rank_binary(similarity, captions, items, selection, direction)
            elif direction == "text_to_item":
                table = _rank_text_to_item(similarity, captions, items, selection)
            else:
                table = _rank_item_to_text(similarity, captions, items, selection, item_to_text == BEST_CAPTION)
            tables.append(table.assign(setting=setting, direction=direction))
    table = pd.concat(tables, ignore_index=True)
    table["rank"] = 1 + table["higher"] + table["ties"] / 2  # the mean over all orders of the tied items
    return table[["query_id", "setting", "direction", "higher", "ties", "rank", "cluster_id", "gallery"]]


def validation_scores(ranks: pd.DataFrame) -> dict[str, float]:
    """The metrics that validation computes, from a table of ranks of one setting and direction.

    They are written here by themselves and not taken from :func:`compute_metrics`: the hash of training's code must not
    change with a metric that is added for tables, or every run would be trained again.

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
    if not all(np.isfinite(similarity[rows]).all() for rows in row_blocks(*similarity.shape)):
        invalid = ~np.isfinite(similarity)
        row, column = np.argwhere(invalid)[0]
        raise RewindError(
            f"{where}: {int(invalid.sum())} scores are not numbers, first for caption "
            f"{captions['caption_id'].iloc[row]!r} and item {items['item_id'].iloc[column]!r}; train this run again."
        )


def _count_higher_and_ties(
    scores: np.ndarray, truth: np.ndarray, positive: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Per row, the columns scored above ``truth`` and those scored equal to it, ``positive`` ones aside.

    Args:
        scores: (n, m).
        truth: (n,), the score of each row's own item.
        positive: bool (n, m), columns that are correct: they never count against the truth.
    """
    other = ~positive
    higher = ((scores > truth[:, None]) & other).sum(axis=1)
    ties = ((scores == truth[:, None]) & other).sum(axis=1)  # exactly equal: no tolerance, see near_tie_share
    return higher, ties


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of rows with at most SCORES_PER_BLOCK scores: a matrix may take gigabytes, intermediate results must not.

    >>> list(row_blocks(2, 10))
    [slice(0, 2, None)]
    """
    step = max(1, SCORES_PER_BLOCK // max(1, columns))
    return (slice(top, min(top + step, rows)) for top in range(0, rows, step))


def _rank_text_to_item(
    similarity: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, selection: SettingSelection
) -> pd.DataFrame:
    queries, gallery = captions.iloc[selection.captions], items.iloc[selection.items]
    own = _positions(gallery["item_id"])[queries["video_id"]].to_numpy()  # column of each query's item
    higher, ties = np.zeros((2, len(queries)), np.int64)
    for rows in row_blocks(len(queries), len(gallery)):
        scores = similarity[np.ix_(selection.captions[rows], selection.items)]
        positive = own[rows, None] == np.arange(len(gallery))
        higher[rows], ties[rows] = _count_higher_and_ties(scores, scores[np.arange(len(scores)), own[rows]], positive)
    clusters = gallery["cluster_id"].to_numpy()[own]
    return _rank_rows(queries["caption_id"].to_numpy(), higher, ties, clusters, len(gallery))


def _rank_item_to_text(
    similarity: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, selection: SettingSelection, best: bool
) -> pd.DataFrame:
    texts = captions.iloc[selection.captions]
    has_caption = items["item_id"].isin(texts["video_id"]).to_numpy()[selection.items]
    columns = selection.items[has_caption]  # an item without a caption is not a query: nothing is correct for it
    queries = items.iloc[columns]
    owner = _positions(queries["item_id"])[texts["video_id"]].to_numpy()  # query of each caption
    searched = selection.captions
    if best:  # an item's captions are put next to one another, to be replaced by their maximum
        order = np.argsort(owner, kind="stable")
        owner, searched = owner[order], searched[order]
        first = np.searchsorted(owner, np.arange(len(queries)))
    higher, ties = np.zeros((2, len(queries)), np.int64)
    for rows in row_blocks(len(queries), len(texts)):
        scores = similarity[np.ix_(searched, columns[rows])].T
        if best:
            scores = np.maximum.reduceat(scores, first, axis=1)
        positive = np.arange(len(queries))[rows, None] == (np.arange(len(queries)) if best else owner)
        truth = np.where(positive, scores, -np.inf).max(axis=1)  # the item's best caption
        higher[rows], ties[rows] = _count_higher_and_ties(scores, truth, positive)
    size = len(queries) if best else len(texts)
    return _rank_rows(queries["item_id"].to_numpy(), higher, ties, queries["cluster_id"].to_numpy(), size)


def _rank_binary(
    similarity: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, selection: SettingSelection, direction: str
) -> pd.DataFrame:
    rows, columns = binary_candidates(captions, items, selection.captions, direction)
    truth, rival = similarity[rows, columns].T
    clusters = items["cluster_id"].to_numpy()[columns[:, 0]]
    ids = captions["caption_id"].to_numpy()[selection.captions]
    return _rank_rows(ids, (rival > truth).astype(int), (rival == truth).astype(int), clusters, BINARY_GALLERY)


def near_tie_share(similarity: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame) -> float:
    """Share of Binary's queries (text to item) whose two scores differ by less than NEAR_TIE_TOLERANCE, relatively.

    Equal scores do not count: they are ties. For a model that cannot see the order of frames, nearly all queries should
    be ties; if rounding has broken them, rounding decides them, and R@1 need not be 0.5.
    """
    captions, items = captions.reset_index(drop=True), items.reset_index(drop=True)
    queries = setting_selection("binary", captions, items).captions
    truth, rival = similarity[binary_candidates(captions, items, queries, "text_to_item")].T
    difference = np.abs(truth.astype(np.float64) - rival)
    limit = NEAR_TIE_TOLERANCE * np.maximum(np.abs(truth), np.abs(rival))
    return float(((difference > 0) & (difference < limit)).mean())


def _positions(ids: pd.Series) -> pd.Series:
    """id → its position in a column of a table."""
    return pd.Series(np.arange(len(ids)), index=ids.to_numpy())


def _rank_rows(
    ids: np.ndarray, higher: np.ndarray, ties: np.ndarray, clusters: np.ndarray, gallery: int
) -> pd.DataFrame:
    return pd.DataFrame({"query_id": ids, "higher": higher, "ties": ties, "cluster_id": clusters, "gallery": gallery})
