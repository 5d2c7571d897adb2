"""Metrics where a caption has several right clips, or a clip several right captions (relevance judgements).

Candidates with equal scores have no order. Every value here is the expectation over a uniformly random order of them,
in closed form (McSherry and Najork, *Computing information retrieval performance measures efficiently in the presence
of tied scores*, ECIR 2008). A group of n tied candidates, r of them right, has M candidates above it, R of which are
right. Its i-th position holds a right one with probability r / n, and, given that, (i − 1)(r − 1) / (n − 1) of the
group's right ones are expected before it. So the group adds

    Σᵢ r/n · (R + 1 + (i − 1)(r − 1) / (n − 1)) / (M + i)    to the sum of precisions that average precision divides,
    Σᵢ g/n / log₂(1 + M + i)                                 to DCG, where g is the sum of its grades.

Pairs without a score (:data:`rewind.data.readers.MISSING_SCORE`) rank below all others and tie with one another.

With one right answer per query these are R@k and nDCG@k of :mod:`rewind.ranking_metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rewind.data.questions import ANSWER_COLUMNS, GRADES, JUDGED_ITEMS
from rewind.errors import RewindError

# ---- One query: tied candidates in groups, and what is expected over their orders ----------------------------------


class TieGroups(NamedTuple):
    """Candidates of a query in groups of exactly equal scores, from the highest score to the lowest."""

    sizes: np.ndarray  # candidates in each group
    rights: np.ndarray  # right ones in each
    gains: np.ndarray  # sums of their grades
    ideal: np.ndarray  # grades of all right ones, the highest first


def tie_groups(scores: np.ndarray, grades: np.ndarray) -> TieGroups:
    """The groups of a query's candidates; ``scores`` are finite, (m,) like ``grades``, which are 0 for wrong ones.

    >>> groups = tie_groups(np.array([0.5, 0.9, 0.5, 0.1]), np.array([3, 0, 0, 1]))
    >>> groups.sizes.tolist(), groups.rights.tolist(), groups.gains.tolist(), groups.ideal.tolist()
    ([1, 2, 1], [0, 1, 1], [0, 3, 1], [3, 1])
    """
    order = np.argsort(scores)[::-1]  # need not be stable: only sums over each group are used
    ordered, grades = scores[order], np.asarray(grades)[order].astype(np.int64)
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    sizes = np.diff(np.append(starts, len(ordered)))
    rights, gains = (np.add.reduceat(values, starts) for values in ((grades > 0).astype(np.int64), grades))
    return TieGroups(sizes, rights, gains, np.sort(grades[grades > 0])[::-1])


def expected_average_precision(groups: TieGroups) -> float:
    """Average precision: the mean over the right candidates of the precision at their rank; 0 to 1.

    Its mean over queries is MAP. At least one candidate of the groups (:func:`tie_groups`) is right, here and below;
    a grade of 1 or more is right.

    >>> expected_average_precision(tie_groups(np.array([3, 2, 1]), np.array([1, 0, 1])))  # (1/1 + 2/3) / 2
    0.8333333333333333
    >>> expected_average_precision(tie_groups(np.array([1, 1]), np.array([1, 0])))  # first or second
    0.75
    """
    sizes, rights = groups.sizes, groups.rights
    size, right = np.repeat(sizes, sizes), np.repeat(rights, sizes)  # of the group at each rank
    rank = np.arange(1, len(size) + 1)
    above = np.repeat(np.cumsum(sizes) - sizes, sizes)  # M
    right_above = np.repeat(np.cumsum(rights) - rights, sizes)  # R
    # A group of one has no other right candidate: i − 1 is 0, and so is the numerator.
    expected_before = (rank - above - 1) * (right - 1) / np.maximum(size - 1, 1)
    precision = (right_above + 1 + expected_before) / rank
    return float((right / size * precision).sum() / rights.sum())


def expected_hit(groups: TieGroups, k: int) -> float:
    """Probability that a right candidate is among the first k; 0 to 1. Its mean over queries is R@k over any right one.

    The first group with a right candidate decides: d of its n candidates are among the first k, and none of them is
    right with the probability C(n − r, d) / C(n, d) of the hypergeometric distribution.

    >>> groups = tie_groups(np.array([9, 1, 1, 1, 1]), np.array([0, 1, 1, 0, 0]))
    >>> [round(expected_hit(groups, k), 4) for k in (1, 2, 3, 4)]
    [0.0, 0.5, 0.8333, 1.0]
    """
    sizes, rights = groups.sizes, groups.rights
    first = int(np.argmax(rights > 0))
    size, right = int(sizes[first]), int(rights[first])
    # Empty if the groups above fill all k places: the product is then 1 and the value 0.
    drawn = np.arange(min(max(k - int(sizes[:first].sum()), 0), size))
    # Drawn one after the other: each is wrong, given that those before it were. 0 once the wrong ones are used up.
    return 1 - float(np.prod(np.maximum(size - right - drawn, 0) / (size - drawn)))


def expected_ndcg(groups: TieGroups, k: int | None = None) -> float:
    """Normalised discounted cumulative gain, 0 to 1: a candidate's grade is its gain, 1/log₂(1 + rank) its discount.

    Gains and discount are those of trec_eval (Järvelin and Kekäläinen, 2002, with the discount of Burges et al., 2005).
    The ideal ranking has the highest grades first; with a cut-off, as many of them as there are places; without one
    (``k`` None) the whole ranking counts.

    >>> round(expected_ndcg(tie_groups(np.array([1, 1]), np.array([1, 0]))), 4)  # (1 + 1/log₂ 3) / 2
    0.8155
    >>> round(expected_ndcg(tie_groups(np.array([2, 1]), np.array([1, 3]))), 4)  # (1 + 3/log₂ 3) / (3 + 1/log₂ 3)
    0.7967
    """
    gains = np.repeat(groups.gains / groups.sizes, groups.sizes)[:k]
    discounts = 1 / np.log2(1 + np.arange(1, len(gains) + 1))
    # Discounts end at rank k, which cuts off the ideal ranking there too.
    best = groups.ideal[: len(gains)]
    return float((gains * discounts).sum() / (best * discounts[: len(best)]).sum())


ANSWER_METRICS: Mapping[str, Callable[[TieGroups], float]] = {
    "AP": expected_average_precision,
    "R@1": lambda groups: expected_hit(groups, 1),
    "R@5": lambda groups: expected_hit(groups, 5),
    "R@10": lambda groups: expected_hit(groups, 10),
    "nDCG": expected_ndcg,
    "nDCG@10": lambda groups: expected_ndcg(groups, 10),
}
"""Name → the value of a query, 0 to 1, from its groups of tied candidates."""


# ---- All queries of a similarity matrix ----------------------------------------------------------------------------

VALUE_COLUMNS = ("setting", "direction", "metric", "query_id", "cluster_id", "value")


def answer_values(
    similarity: np.ndarray,
    captions: pd.DataFrame,
    items: pd.DataFrame,
    answers: pd.DataFrame,
    directions: Sequence[str],
    where: str = "answers",
) -> pd.DataFrame:
    """The metrics :data:`ANSWER_METRICS` of every query in every setting and direction.

    A setting whose gallery is ``judged`` is closed: a caption's candidates are the clips that its rows list, a clip's
    the captions whose rows list it. A setting of the gallery ``all`` is open: every clip, or caption, of the matrix is
    a candidate, and rows of ``right`` 0 change nothing. Queries are the captions with a right clip and the clips with a
    right caption; in a closed setting, a clip that is wrong for all captions that list it is a candidate but not a
    query.

    ``answers`` has one row per pair; ``right`` is 0, or the grade of a right one, 1 where there are none.
    ``similarity`` has ``MISSING_SCORE`` where a pair has no score. ``value`` is in percent for every metric, nDCG too;
    ``cluster_id`` is a clip's own, and for a caption that of the item in its ``video_id``.

    Raises:
        RewindError: naming row and ids, for an id that is not in the matrix, a pair that a setting lists twice, a value
            of ``right`` that is no whole number from 0 on, or a caption without a right clip.

    >>> captions = pd.DataFrame({"caption_id": ["opens", "closes"], "video_id": ["a", "c"]})
    >>> items = pd.DataFrame({"item_id": ["a", "b", "c"], "cluster_id": ["door", "door", "door"]})
    >>> answers = pd.DataFrame({"caption_id": ["opens", "opens", "closes"], "item_id": ["a", "b", "c"]})
    >>> answers = answers.assign(setting="all", right=1, gallery="all")
    >>> similarity = np.array([[0.9, 0.2, 0.2], [0.1, 0.3, 0.5]])  # the first caption's clip b ties with a wrong one
    >>> values = answer_values(similarity, captions, items, answers, ["text_to_item"])
    >>> values[values["metric"] == "AP"][["query_id", "value"]].round(1).to_dict("split")["data"]
    [['opens', 91.7], ['closes', 100.0]]
    """
    captions, items = captions.reset_index(drop=True), items.reset_index(drop=True)
    _check_matrix(similarity, captions, items)
    pairs = _answer_pairs(captions, items, answers, where)
    item_clusters = items["cluster_id"].to_numpy()
    own = pd.Index(items["item_id"]).get_indexer(captions["video_id"])
    sides = {
        "text_to_item": (similarity, "caption", captions["caption_id"].to_numpy(), item_clusters[own]),
        "item_to_text": (similarity.T, "item", items["item_id"].to_numpy(), item_clusters),
    }
    tables = []
    for setting, rows in pairs.groupby("setting", sort=False):
        for direction in directions:
            scores, side, ids, clusters = sides[direction]
            queries, values = _query_values(scores, list(_queries(rows, side)))
            metrics = np.repeat(list(ANSWER_METRICS), len(queries))
            named = {"metric": metrics, "query_id": np.tile(ids[queries], len(ANSWER_METRICS))}
            named |= {"cluster_id": np.tile(clusters[queries], len(ANSWER_METRICS)), "value": 100 * values.T.ravel()}
            tables.append(pd.DataFrame(named).assign(setting=setting, direction=direction))
    table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
    return table.reindex(columns=list(VALUE_COLUMNS))


def judged_share(
    similarity: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, answers: pd.DataFrame, k: int = 10
) -> pd.DataFrame:
    """How many of a caption's first ``k`` clips the answers name, right or wrong, in percent: the metric ``judged@k``.

    Where it is low, a model may have found right clips that nobody judged. Arguments and columns are as in
    :func:`answer_values`; ties are expectations here too.
    """
    pairs = _answer_pairs(captions, items, answers, "answers")
    clusters = items["cluster_id"].to_numpy()[pd.Index(items["item_id"]).get_indexer(captions["video_id"])]
    rows = []
    for (setting, caption), named in pairs.groupby(["setting", "caption"], sort=False):
        known = np.zeros(similarity.shape[1], dtype=np.int64)
        known[named["item"]] = 1
        groups = tie_groups(similarity[caption], known)
        share = np.repeat(groups.rights / groups.sizes, groups.sizes)[:k].mean()
        asked = captions["caption_id"].iloc[caption], clusters[caption]
        rows.append((setting, "text_to_item", f"judged@{k}", *asked, 100 * float(share)))
    return pd.DataFrame(rows, columns=list(VALUE_COLUMNS))


class _Query(NamedTuple):
    """A query's row in the matrix of its direction, its right candidates with their grades, and its candidates."""

    row: int
    right: np.ndarray
    grades: np.ndarray
    candidates: np.ndarray | None  # None: all there are


def _query_values(scores: np.ndarray, queries: Sequence[_Query]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the queries, and their values (queries, metrics) from 0 to 1."""
    values = np.empty((len(queries), len(ANSWER_METRICS)))
    for at, query in enumerate(queries):
        own, grades = scores[query.row], np.zeros(scores.shape[1], dtype=np.int64)
        grades[query.right] = query.grades
        if query.candidates is not None:
            own, grades = own[query.candidates], grades[query.candidates]
        groups = tie_groups(own, grades)
        values[at] = [metric(groups) for metric in ANSWER_METRICS.values()]
    return np.array([query.row for query in queries], dtype=int), values


def _queries(rows: pd.DataFrame, side: str) -> Iterator[_Query]:
    """The queries of one setting from one side, in the order of the matrix; ``rows``: see :func:`_answer_pairs`."""
    other = "item" if side == "caption" else "caption"
    closed = bool((rows["gallery"] == JUDGED_ITEMS).any())
    ordered = rows.sort_values(side, kind="stable")
    query, candidate, right = (ordered[name].to_numpy() for name in (side, other, "right"))
    starts = np.flatnonzero(np.diff(query, prepend=-1))  # positions are 0 or more, so that the first differs from -1
    for start, stop in zip(starts, [*starts[1:], len(query)], strict=True):
        listed, grades = candidate[start:stop], right[start:stop]
        is_right = grades > 0
        if is_right.any():
            yield _Query(int(query[start]), listed[is_right], grades[is_right], listed if closed else None)


def _answer_pairs(captions: pd.DataFrame, items: pd.DataFrame, answers: pd.DataFrame, where: str) -> pd.DataFrame:
    """The answers with positions in the matrix, ``caption`` and ``item``, in place of ids, all checked."""
    if missing := [name for name in ANSWER_COLUMNS if name not in answers]:
        raise RewindError(f"{where}: the column {missing[0]!r} is missing; needed: {', '.join(ANSWER_COLUMNS)}.")
    answers = answers.reset_index(drop=True)
    pairs = answers[["setting", "right", "gallery"]].copy()
    for side, ids in (("caption", captions["caption_id"]), ("item", items["item_id"])):
        pairs[side] = pd.Index(ids).get_indexer(answers[f"{side}_id"])
        if row := _first_row(pairs[side] < 0):
            raise RewindError(
                f"{where}: row {row}: the {side}_id {answers[f'{side}_id'][row - 2]!r} is not in the matrix; correct "
                "it or delete the row."
            )
    whole = pd.to_numeric(pairs["right"], errors="coerce")
    if row := _first_row((whole < 0) | (whole > 999) | (whole % 1 != 0)):  # NaN is no multiple of 1 either
        raise RewindError(f"{where}: row {row}: `right` is {pairs['right'][row - 2]}; {GRADES}.")
    pairs["right"] = whole.astype(np.int64)
    if row := _first_row(pairs.duplicated(["setting", "caption", "item"])):
        setting, caption, item = (answers[name][row - 2] for name in ANSWER_COLUMNS[:3])
        raise RewindError(
            f"{where}: row {row}: setting {setting!r} lists caption {caption!r} with item {item!r} twice; keep one row."
        )
    _check_right_answers(pairs, answers, where)
    return pairs


def _check_right_answers(pairs: pd.DataFrame, answers: pd.DataFrame, where: str) -> None:
    most = pairs.groupby(["setting", "caption"])["right"].transform("max")
    if row := _first_row(most == 0):
        setting, caption = (answers[name][row - 2] for name in ANSWER_COLUMNS[:2])
        raise RewindError(
            f"{where}: row {row}: caption {caption!r} has no right item in setting {setting!r}; add one, or delete its "
            "rows there."
        )


def _first_row(fault: Any) -> int:
    """The first faulty row as an editor numbers it, with the header in row 1; 0 if there is none."""
    rows = np.flatnonzero(fault)
    return int(rows[0]) + 2 if len(rows) else 0


def _check_matrix(similarity: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame) -> None:
    if similarity.shape != (len(captions), len(items)):
        raise RewindError(
            f"similarity: the matrix is {similarity.shape}, but there are {len(captions)} captions and {len(items)} "
            "items."
        )
    for name, ids in (("caption", captions["caption_id"]), ("item", items["item_id"])):
        if ids.duplicated().any():
            raise RewindError(f"similarity: the {name} id {ids[ids.duplicated()].iloc[0]!r} occurs twice.")
    if unknown := set(captions["video_id"]) - set(items["item_id"]):
        raise RewindError(f"similarity: {min(unknown)!r} is the clip of a caption and not among the items.")
    if not np.isfinite(similarity).all():
        row, column = np.argwhere(~np.isfinite(similarity))[0]
        raise RewindError(
            f"similarity: a score is not a number, for caption {captions['caption_id'].iloc[row]!r} and item "
            f"{items['item_id'].iloc[column]!r}; compute the matrix again."
        )
