"""Runs and relevance judgements in TREC's formats, so that any evaluation tool can recompute the metrics.

The judgements (qrels) hold a line ``query 0 document 1`` per relevant document, a run ``query Q0 document rank score
tag`` per retrieved one. Scores have as many digits as single precision needs to be read back exactly, so equal scores
stay equal and no others become equal. Tools order tied documents each in its own way; the rank column follows
trec_eval's, ids descending.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from rewind.datasets.annotations import twin_of
from rewind.datasets.score_files import NO_SCORE
from rewind.errors import RewindError
from rewind.evaluation.settings import pool

DEPTH = 1000
"""Documents per query in a run, the usual cut; the best relevant one is always there, so that no query is left out."""
BLOCK = 500
"""Queries sorted at once."""


@dataclass(frozen=True)
class Task:
    """The queries of one setting and direction.

    Attributes:
        queries: (n,) ids, escaped.
        documents: (n, m) ids of each query's gallery, or (m,) where all queries share it.
        scores: (n, m).
        relevant: (n, m) of bool; each row has one at least.
    """

    queries: np.ndarray
    documents: np.ndarray
    scores: np.ndarray
    relevant: np.ndarray


def task(
    similarity: np.ndarray,
    captions: pd.DataFrame,
    items: pd.DataFrame,
    setting: str,
    direction: str,
    where: str = "similarity",
) -> Task:
    """What is asked, found and right in one setting and direction.

    Binary has galleries of two: a clip and its twin, or their captions. A query of Binary from item to text is called
    ``<item>/<caption>``, because its caption is one of its documents, and tools drop a document called as the query.

    Args:
        similarity: (n_captions, n_items).
        captions: rows of the matrix: caption_id, video_id.
        items: its columns: item_id, cluster_id, reversed.
        setting: ``origin``, ``hard``, ``binary`` or ``test``.
        direction: ``text_to_item`` or ``item_to_text``.
        where: names the matrix in messages.

    Raises:
        RewindError: for scores that are not numbers, a repeated id, or a query called as a document.
    """
    captions, items = captions.reset_index(drop=True), items.reset_index(drop=True)
    _check(similarity, captions, items, where)
    chosen = pool(setting, captions, items)
    return (_choices if chosen.binary else _gallery)(similarity, captions, items, chosen, direction)


def qrels(asked: Task) -> pa.Table:
    """The judgements, a line per relevant document."""
    query, document = np.nonzero(asked.relevant)
    names = asked.documents[document] if asked.documents.ndim == 1 else asked.documents[query, document]
    count = len(query)
    return pa.table(
        {
            "query": asked.queries[query],
            "iteration": np.zeros(count, dtype=np.int8),
            "document": names,
            "relevance": np.ones(count, dtype=np.int8),
        }
    )


def run(asked: Task, tag: str, depth: int = DEPTH) -> Iterator[pa.Table]:
    """The run, queries in order, documents from the highest score to the lowest.

    R@k for k up to ``depth`` and their bounds under ties are those of the whole ranking, and 1/rank too where the
    truth is within ``depth``; a truth beyond it follows as the last document, with its true rank. Pairs without a score
    have no line.

    Args:
        asked: the queries.
        tag: names the run.
        depth: documents per query, the best relevant one apart.

    Yields:
        Tables of some hundred queries: query, Q0, document, rank, score, tag.
    """
    for top in range(0, len(asked.queries), BLOCK):
        rows = slice(top, top + BLOCK)
        documents = asked.documents if asked.documents.ndim == 1 else asked.documents[rows]
        yield _ranked(asked.queries[rows], documents, asked.scores[rows], asked.relevant[rows], escape(tag), depth)


def escape(name: object) -> str:
    """An id without blanks: they and the percent sign are written as in addresses, for example ``%20``."""
    return re.sub(
        r"[\s%\x00-\x1f]", lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8")), str(name)
    )


def _ranked(
    queries: np.ndarray, documents: np.ndarray, scores: np.ndarray, relevant: np.ndarray, tag: str, depth: int
) -> pa.Table:
    width = scores.shape[1]
    # Ids descending, as trec_eval orders ties; then a stable order by score.
    by_name = np.broadcast_to(np.argsort(documents, axis=-1, kind="stable")[..., ::-1], scores.shape)
    by_score = np.argsort(-np.take_along_axis(scores, by_name, axis=1), axis=1, kind="stable")
    order = np.take_along_axis(by_name, by_score, axis=1)
    best = np.take_along_axis(relevant, order, axis=1).argmax(axis=1)  # where the first relevant one stands
    scored = np.take_along_axis(scores, order, axis=1) != NO_SCORE
    query, place = np.nonzero(((np.arange(width) < depth) | (np.arange(width) == best[:, None])) & scored)
    column = order[query, place]
    return pa.table(
        {
            "query": _taken(queries, query),
            "Q0": _taken(["Q0"], np.zeros_like(query)),
            "document": _taken(documents.ravel(), column if documents.ndim == 1 else query * width + column),
            "rank": place + 1,
            "score": scores[query, column],
            "tag": _taken([tag], np.zeros_like(query)),
        }
    )


def _taken(names: np.ndarray | list[str], at: np.ndarray) -> pa.Array:
    return pa.array(names, type=pa.string()).take(pa.array(at))


def _gallery(similarity: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, chosen: Any, direction: str) -> Task:
    texts, clips = captions.iloc[chosen.captions], items.iloc[chosen.items]
    scores = similarity[np.ix_(chosen.captions, chosen.items)]
    relevant = texts["video_id"].to_numpy()[:, None] == clips["item_id"].to_numpy()
    names = _escaped(texts["caption_id"]), _escaped(clips["item_id"])
    if direction == "text_to_item":
        return Task(names[0], names[1], scores, relevant)
    asked = relevant.any(axis=0)  # an item without a caption asks nothing
    return Task(names[1][asked], names[0], scores.T[asked], relevant.T[asked])


def _choices(similarity: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, chosen: Any, direction: str) -> Task:
    column = {item: at for at, item in enumerate(items["item_id"])}
    texts: dict[str, list[int]] = {}
    for row, video in enumerate(captions["video_id"]):
        texts.setdefault(video, []).append(row)
    pairs = []  # (row, column) of the truth, then of the rival
    for row in chosen.captions:
        video = captions["video_id"][row]
        others, place = texts[twin_of(video)], texts[video].index(row)
        rival = (
            (row, column[twin_of(video)])
            if direction == "text_to_item"
            else (others[min(place, len(others) - 1)], column[video])
        )
        pairs.append([(row, column[video]), rival])
    at = np.array(pairs).reshape(-1, 2, 2)
    caption_ids, item_ids = _escaped(captions["caption_id"]), _escaped(items["item_id"])
    relevant = np.broadcast_to([True, False], at.shape[:2])
    scores = similarity[at[..., 0], at[..., 1]]
    if direction == "text_to_item":
        return Task(caption_ids[at[:, 0, 0]], item_ids[at[..., 1]], scores, relevant)
    names = [f"{item_ids[c]}/{caption_ids[r]}" for r, c in at[:, 0]]
    return Task(np.array(names, dtype=str), caption_ids[at[..., 0]], scores, relevant)


def _escaped(names: pd.Series) -> np.ndarray:
    return np.array([escape(name) for name in names], dtype=str)


def _check(similarity: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, where: str) -> None:
    if similarity.shape != (len(captions), len(items)):
        raise RewindError(f"{where}: the matrix is {similarity.shape}, not ({len(captions)}, {len(items)}).")
    if not np.isfinite(similarity).all():
        row, column = np.argwhere(~np.isfinite(similarity))[0]
        raise RewindError(
            f"{where}: the score of caption {captions['caption_id'][row]!r} and item {items['item_id'][column]!r} is "
            "not a number; train this run again."
        )
    for names in (captions["caption_id"], items["item_id"]):
        if names.duplicated().any():
            raise RewindError(f"{where}: the id {names[names.duplicated()].iloc[0]!r} occurs twice.")
    both = set(captions["caption_id"]) & set(items["item_id"])
    if both:
        raise RewindError(
            f"{where}: {min(both)!r} is both a caption and an item, and tools drop a document called as the query; "
            "give captions ids of their own."
        )
