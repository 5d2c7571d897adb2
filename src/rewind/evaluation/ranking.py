"""Ranks with honest ties, and the metrics that are computed from them (:mod:`rewind.metrics`).

A query has ``higher`` items scored above its truth and ``ties`` other items scored equal to it; under a random order of
the tied items its rank is ``1 + higher + ties / 2``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from rewind.datasets.annotations import twin_of
from rewind.errors import RewindError
from rewind.evaluation.settings import Pool, pool
from rewind.metrics import METRICS, expected, hits, median_of, reciprocal

NEAR = 1e-5
"""Relative difference of two scores below which rounding may be all that tells them apart."""

BLOCK = 2**24
"""Scores looked at a time."""

ALL_CAPTIONS, BEST_CAPTION = "all_captions", "best_caption"

RECALLS = {"R@1": 1, "R@5": 5, "R@10": 10}
"""Recalls that validation reads and that stand beside cosine gaps, with their cut-offs."""


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
        item_to_text: what a query item searches: ``all_captions``, or of each item the ``best_caption`` alone, as
            CLIP4Clip does; Binary has two captions either way.

    Returns:
        One row per query, setting and direction: query_id, setting, direction, higher, ties, rank, cluster_id,
        gallery.

    Raises:
        RewindError: for a matrix of another shape, repeated ids, or scores that are not numbers.
    """
    _check(similarity, captions, items, where)
    captions, items = captions.reset_index(drop=True), items.reset_index(drop=True)
    tables = []
    for setting in settings:
        chosen = pool(setting, captions, items)
        for direction in directions:
            if chosen.binary:
                table = _binary(similarity, captions, items, chosen, direction)
            elif direction == "text_to_item":
                table = _text_to_item(similarity, captions, items, chosen)
            else:
                table = _item_to_text(similarity, captions, items, chosen, item_to_text == BEST_CAPTION)
            tables.append(table.assign(setting=setting, direction=direction))
    table = pd.concat(tables, ignore_index=True)
    table["rank"] = 1 + table["higher"] + table["ties"] / 2
    return table[["query_id", "setting", "direction", "higher", "ties", "rank", "cluster_id", "gallery"]]


def scores(ranks: pd.DataFrame) -> dict[str, float]:
    """Those of the :func:`metrics` that validation reads too, by themselves: a further metric trains nothing again."""
    higher, ties = ranks["higher"].to_numpy(), ranks["ties"].to_numpy()
    found = {name: 100 * float(expected(hits(k), higher, ties).mean()) for name, k in RECALLS.items()}
    return found | {
        "MdR": median_of(higher, ties),
        "MnR": float(ranks["rank"].mean()),
        "MRR": float(expected(reciprocal, higher, ties).mean()),
    }


def metrics(ranks: pd.DataFrame) -> dict[str, float]:
    """All metrics of one run in one setting and direction, an entry of :data:`rewind.metrics.METRICS` each.

    Of those with ``bounds``, the values that count every tie as a hit (``_optimistic``) or as a miss
    (``_pessimistic``) are beside the expectation.
    """
    higher, ties = ranks["higher"].to_numpy(), ranks["ties"].to_numpy()
    row: dict[str, float] = {"queries": len(ranks), "gallery": int(ranks["gallery"].max())}
    row |= {name: metric.value(higher, ties) for name, metric in METRICS.items()}
    for name, metric in METRICS.items():
        if metric.bounds:
            row[f"{name}_optimistic"] = metric.value(higher, 0 * ties)
            row[f"{name}_pessimistic"] = metric.value(higher + ties, 0 * ties)
    return row


def _check(similarity: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, where: str) -> None:
    if similarity.shape != (len(captions), len(items)):
        raise RewindError(
            f"{where}: the matrix is {similarity.shape}, but there are {len(captions)} captions and {len(items)} items."
        )
    for name, ids in (("caption", captions["caption_id"]), ("item", items["item_id"])):
        if ids.duplicated().any():
            raise RewindError(f"{where}: the {name} id {ids[ids.duplicated()].iloc[0]!r} occurs twice.")
    bad = [rows for rows in row_blocks(*similarity.shape) if not np.isfinite(similarity[rows]).all()]
    if bad:
        odd = ~np.isfinite(similarity)
        row, column = np.argwhere(odd)[0]
        raise RewindError(
            f"{where}: {int(odd.sum())} scores are not numbers, first for caption {captions['caption_id'].iloc[row]!r} "
            f"and item {items['item_id'].iloc[column]!r}; train this run again."
        )


def _count(scores: np.ndarray, truth: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Higher and tied among the columns that are not ``positive``; ``truth`` (n,) are the scores to beat."""
    other = ~positive
    higher = ((scores > truth[:, None]) & other).sum(axis=1)
    ties = ((scores == truth[:, None]) & other).sum(axis=1)
    return higher, ties


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Rows at a time: the matrix may take gigabytes, what is computed from it must not."""
    step = max(1, BLOCK // max(1, columns))
    return (slice(top, min(top + step, rows)) for top in range(0, rows, step))


def _text_to_item(similarity: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, chosen: Pool) -> pd.DataFrame:
    queries, gallery = captions.iloc[chosen.captions], items.iloc[chosen.items]
    place = pd.Series(np.arange(len(gallery)), index=gallery["item_id"].to_numpy())
    truth = place[queries["video_id"]].to_numpy()
    higher, ties = np.zeros((2, len(queries)), np.int64)
    for rows in row_blocks(len(queries), len(gallery)):
        scores = similarity[np.ix_(chosen.captions[rows], chosen.items)]
        positive = truth[rows, None] == np.arange(len(gallery))
        higher[rows], ties[rows] = _count(scores, scores[np.arange(len(scores)), truth[rows]], positive)
    clusters = gallery["cluster_id"].to_numpy()[truth]
    return _rows(queries["caption_id"].to_numpy(), higher, ties, clusters, len(gallery))


def _item_to_text(
    similarity: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, chosen: Pool, best: bool
) -> pd.DataFrame:
    texts = captions.iloc[chosen.captions]
    described = items["item_id"].isin(texts["video_id"]).to_numpy()[chosen.items]
    columns = chosen.items[described]
    queries = items.iloc[columns]
    place = pd.Series(np.arange(len(queries)), index=queries["item_id"].to_numpy())
    owner = place[texts["video_id"]].to_numpy()
    searched = chosen.captions
    if best:  # captions of an item next to one another, of which one maximum stays
        order = np.argsort(owner, kind="stable")
        owner, searched = owner[order], searched[order]
        first = np.searchsorted(owner, np.arange(len(queries)))
    higher, ties = np.zeros((2, len(queries)), np.int64)
    for rows in row_blocks(len(queries), len(texts)):
        scores = similarity[np.ix_(searched, columns[rows])].T
        if best:
            scores = np.maximum.reduceat(scores, first, axis=1)
        positive = np.arange(len(queries))[rows, None] == (np.arange(len(queries)) if best else owner)
        truth = np.where(positive, scores, -np.inf).max(axis=1)
        higher[rows], ties[rows] = _count(scores, truth, positive)
    size = len(queries) if best else len(texts)
    return _rows(queries["item_id"].to_numpy(), higher, ties, queries["cluster_id"].to_numpy(), size)


def _binary(
    similarity: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, chosen: Pool, direction: str
) -> pd.DataFrame:
    queries = captions.iloc[chosen.captions]
    column = pd.Series(np.arange(len(items)), index=items["item_id"].to_numpy())
    own = column[queries["video_id"]].to_numpy()
    truth = similarity[chosen.captions, own]
    clusters = items["cluster_id"].to_numpy()[own]
    if direction == "text_to_item":
        rival = similarity[chosen.captions, column[[twin_of(v) for v in queries["video_id"]]].to_numpy()]
        ids = queries["caption_id"].to_numpy()
    else:
        # The rival of a forward caption is the twin's caption at the same place in the list, the last if it has fewer.
        rival = similarity[twin_captions(captions, queries), own]
        ids = queries["caption_id"].to_numpy()
    return _rows(ids, (rival > truth).astype(int), (rival == truth).astype(int), clusters, 2)


def near_ties(similarity: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame) -> float:
    """Share of Binary's queries (text to item) whose two scores differ by less than ``NEAR`` of the larger one.

    Equal scores do not count: they are ties. Of a model that cannot see the order of frames nearly all queries are
    ties; where rounding has broken them it decides at random, and 0.5 is not what comes out.
    """
    captions, items = captions.reset_index(drop=True), items.reset_index(drop=True)
    queries = captions.iloc[pool("binary", captions, items).captions]
    column = pd.Series(np.arange(len(items)), index=items["item_id"].to_numpy())
    own, other = (column[names].to_numpy() for names in (queries["video_id"], queries["video_id"].map(twin_of)))
    truth, rival = similarity[queries.index, own], similarity[queries.index, other]
    apart = np.abs(truth.astype(np.float64) - rival)
    return float(((apart > 0) & (apart < NEAR * np.maximum(np.abs(truth), np.abs(rival)))).mean())


def twin_captions(captions: pd.DataFrame, queries: pd.DataFrame) -> np.ndarray:
    """Rows of the captions of twins that Binary sets against those of originals, (n,) as ``queries``."""
    rows: dict[str, list[int]] = {}
    for row, video in enumerate(captions["video_id"]):
        rows.setdefault(video, []).append(row)
    place = captions.groupby("video_id").cumcount().loc[queries.index]
    return np.array(
        [rows[twin_of(v)][min(p, len(rows[twin_of(v)]) - 1)] for v, p in zip(queries["video_id"], place, strict=True)]
    )


def _rows(ids: np.ndarray, higher: np.ndarray, ties: np.ndarray, clusters: np.ndarray, gallery: int) -> pd.DataFrame:
    return pd.DataFrame({"query_id": ids, "higher": higher, "ties": ties, "cluster_id": clusters, "gallery": gallery})
