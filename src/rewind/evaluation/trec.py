"""Runs and relevance judgements in TREC's formats, so that any evaluation tool can recompute the metrics.

The judgements (qrels) have a line ``query 0 document 1`` per relevant document, a run a line ``query Q0 document rank
score tag`` per retrieved one. Scores have as many digits as single precision needs to be read back exactly, so equal
scores stay equal and no others become equal. Every tool orders tied documents in its own way; the rank column follows
trec_eval's order, ids descending.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv

from rewind.config.study import RunKey
from rewind.data.captions import load_split
from rewind.data.readers import MISSING_SCORE
from rewind.data.score_matrix import repeat_column
from rewind.errors import RewindError
from rewind.evaluation.ranking import (
    SettingSelection,
    setting_selection,
    setting_without_twins,
    unscored_reason,
    unscored_settings,
)
from rewind.evaluation.run_metrics import not_evaluated
from rewind.evaluation.twins import binary_candidates
from rewind.io.files import atomic_write, reading_user_file, require_regular_file

RUN_DEPTH = 1000
"""Documents per query in a run, the usual cut-off; the best relevant one is always included."""
QUERIES_PER_BLOCK = 500
"""Queries sorted at once."""


@dataclass(frozen=True)
class RetrievalTask:
    """The queries of one setting and direction."""

    queries: np.ndarray  # (n,) ids, escaped
    documents: np.ndarray  # (n, m) ids of each query's gallery, or (m,) if all queries share one
    scores: np.ndarray  # (n, m)
    relevant: np.ndarray  # bool (n, m); each row has at least one


def make_retrieval_task(
    similarity: np.ndarray,
    captions: pd.DataFrame,
    items: pd.DataFrame,
    setting: str,
    direction: str,
    where: str = "similarity",
) -> RetrievalTask:
    """The queries, scores and relevant documents of one setting and direction.

    Binary has galleries of two: a clip and its twin, or their captions. A query of Binary from item to text is named
    ``<item>/<caption>``, because its caption is one of its documents, and tools drop a document with the query's name.
    """
    captions, items = captions.reset_index(drop=True), items.reset_index(drop=True)
    _check(similarity, captions, items, where)
    selection = setting_selection(setting, captions, items)
    return (_binary_task if selection.binary else _gallery_task)(similarity, captions, items, selection, direction)


def qrels_table(task: RetrievalTask) -> pa.Table:
    """The judgements: a row per relevant document."""
    query, document = np.nonzero(task.relevant)
    names = task.documents[document] if task.documents.ndim == 1 else task.documents[query, document]
    count = len(query)
    return pa.table(
        {
            "query": task.queries[query],
            "iteration": np.zeros(count, dtype=np.int8),
            "document": names,
            "relevance": np.ones(count, dtype=np.int8),
        }
    )


def run_tables(task: RetrievalTask, tag: str, depth: int = RUN_DEPTH) -> Iterator[pa.Table]:
    """The run in tables of QUERIES_PER_BLOCK queries, documents from the highest score to the lowest.

    R@k for k up to ``depth`` and their bounds under ties are those of the whole ranking, and so is 1/rank if the truth
    is within ``depth``; a truth beyond it follows as the last document, with its true rank. Pairs without a score have
    no line.

    >>> task = RetrievalTask(np.array(["a#0"]), np.array(["a", "b"]), np.array([[0.9, 0.2]]), np.array([[True, False]]))
    >>> [(row["document"], row["rank"]) for table in run_tables(task, "demo") for row in table.to_pylist()]
    [('a', 1), ('b', 2)]
    """
    for top in range(0, len(task.queries), QUERIES_PER_BLOCK):
        rows = slice(top, top + QUERIES_PER_BLOCK)
        documents = task.documents if task.documents.ndim == 1 else task.documents[rows]
        yield _rank_documents(
            task.queries[rows], documents, task.scores[rows], task.relevant[rows], escape_id(tag), depth
        )


def escape_id(name: object) -> str:
    """An id without white space, which separates columns: percent-encoded as in URLs, like the percent sign itself.

    >>> escape_id("two words")
    'two%20words'
    """
    return re.sub(
        r"[\s%\x00-\x1f]", lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8")), str(name)
    )


def _rank_documents(
    queries: np.ndarray, documents: np.ndarray, scores: np.ndarray, relevant: np.ndarray, tag: str, depth: int
) -> pa.Table:
    width = scores.shape[1]
    # First ids descending, as trec_eval orders ties, then a stable sort by score, which keeps that order within ties.
    by_name = np.broadcast_to(np.argsort(documents, axis=-1, kind="stable")[..., ::-1], scores.shape)
    by_score = np.argsort(-np.take_along_axis(scores, by_name, axis=1), axis=1, kind="stable")
    order = np.take_along_axis(by_name, by_score, axis=1)
    best = np.take_along_axis(relevant, order, axis=1).argmax(axis=1)  # position of the first relevant document
    scored = np.take_along_axis(scores, order, axis=1) != MISSING_SCORE
    query, position = np.nonzero(((np.arange(width) < depth) | (np.arange(width) == best[:, None])) & scored)
    column = order[query, position]
    return pa.table(
        {
            "query": _take_strings(queries, query),
            "Q0": _take_strings(["Q0"], np.zeros_like(query)),
            "document": _take_strings(documents.ravel(), column if documents.ndim == 1 else query * width + column),
            "rank": position + 1,
            "score": scores[query, column],
            "tag": _take_strings([tag], np.zeros_like(query)),
        }
    )


def _take_strings(names: np.ndarray | list[str], index: np.ndarray) -> pa.Array:
    return pa.array(names, type=pa.string()).take(pa.array(index))


def _gallery_task(
    similarity: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, selection: SettingSelection, direction: str
) -> RetrievalTask:
    texts, clips = captions.iloc[selection.captions], items.iloc[selection.items]
    scores = similarity[np.ix_(selection.captions, selection.items)]
    relevant = texts["video_id"].to_numpy()[:, None] == clips["item_id"].to_numpy()
    caption_ids, item_ids = _escape_ids(texts["caption_id"]), _escape_ids(clips["item_id"])
    if direction == "text_to_item":
        return RetrievalTask(caption_ids, item_ids, scores, relevant)
    has_caption = relevant.any(axis=0)  # an item without a caption is not a query
    return RetrievalTask(item_ids[has_caption], caption_ids, scores.T[has_caption], relevant.T[has_caption])


def _binary_task(
    similarity: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, selection: SettingSelection, direction: str
) -> RetrievalTask:
    row_pairs, column_pairs = binary_candidates(captions, items, selection.captions, direction)
    rows, own = row_pairs[:, 0], column_pairs[:, 0]
    caption_ids, item_ids = _escape_ids(captions["caption_id"]), _escape_ids(items["item_id"])
    relevant = np.broadcast_to([True, False], row_pairs.shape)
    scores = similarity[row_pairs, column_pairs]
    if direction == "text_to_item":
        return RetrievalTask(caption_ids[rows], item_ids[column_pairs], scores, relevant)
    names = [f"{item_ids[c]}/{caption_ids[r]}" for r, c in zip(rows, own, strict=True)]
    return RetrievalTask(np.array(names, dtype=str), caption_ids[row_pairs], scores, relevant)


def _escape_ids(names: pd.Series) -> np.ndarray:
    return np.array([escape_id(name) for name in names], dtype=str)


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
    shared = set(captions["caption_id"]) & set(items["item_id"])
    if shared:
        raise RewindError(
            f"{where}: {min(shared)!r} is both a caption and an item, and tools drop a document named like the query; "
            "give captions ids of their own."
        )


# ---- Files of a study ----------------------------------------------------------------------------------------------


def export_trec(
    folder: Path,
    dataset: str,
    settings: list[str],
    directions: list[str],
    similarity: dict[RunKey, str],
    target: Path,
    depth: int = RUN_DEPTH,
) -> list[Path]:
    """Write ``qrels_<setting>_<direction>.txt`` and ``run_<method>_seed<k>_<setting>_<direction>.txt`` into ``target``.

    Returns the files in the order in which they were written.
    """
    items, captions, _ = load_split(folder, dataset, "test")
    written: list[Path] = []
    qrels: dict[str, pa.Table] = {}
    for (method, seed), path in similarity.items():
        scores, rows, columns = _read_similarity(path, captions, items)
        queries, gallery = rows["caption_id"].to_numpy(), columns["item_id"].to_numpy()
        is_complete = len(gallery) >= len(items)
        reasons = {} if is_complete else not_evaluated(queries, gallery, captions, items, settings, path)
        evaluated = [setting for setting in settings if setting not in reasons]
        unscored = unscored_settings(scores, rows, columns, evaluated, directions)
        for setting in evaluated:
            for direction in (way for way in directions if not unscored_reason(unscored, setting, way)):
                task_setting = setting_without_twins(setting) if reasons else setting
                task, name = (
                    make_retrieval_task(scores, rows, columns, task_setting, direction, path),
                    f"{setting}_{direction}",
                )
                relevance = qrels_table(task)
                if name not in qrels:
                    qrels[name] = relevance
                    written.append(write_trec_tables(target / f"qrels_{name}.txt", [relevance]))
                elif not relevance.equals(qrels[name]):
                    raise RewindError(
                        f"{path}: its queries or their answers differ from those of {next(iter(similarity.values()))} "
                        f"({setting}, {direction}); evaluate both again."
                    )
                tag = f"{method}_seed{seed}"
                written.append(write_trec_tables(target / f"run_{tag}_{name}.txt", run_tables(task, tag, depth)))
    return written


def _read_similarity(
    path: str, captions: pd.DataFrame, items: pd.DataFrame
) -> tuple[np.ndarray, pd.DataFrame, pd.DataFrame]:
    """The matrix, and the captions and items of its rows and columns."""
    require_regular_file(path, missing_ok=True)
    if not Path(path).is_file():
        raise RewindError(f"{path}: no such file; evaluate this run first.")
    with reading_user_file(path, "npz", "evaluate this run again"), np.load(path, allow_pickle=False) as archive:
        scores, queries, gallery = archive["similarity"], archive["query_ids"], archive["item_ids"]
    scores = repeat_column(scores, len(gallery)) if scores.ndim == 2 else scores
    selected = []
    for table, column, names in ((captions, "caption_id", queries), (items, "item_id", gallery)):
        unknown = np.setdiff1d(names, table[column].to_numpy(dtype=str))
        if len(unknown):
            kind = column.removesuffix("_id")
            raise RewindError(
                f"{path}: the {kind} {str(unknown[0])!r} is not in the test split; evaluate this run again."
            )
        selected.append(table.set_index(column, drop=False).loc[names])
    return scores, *selected


def write_trec_tables(path: Path, tables: Iterable[pa.Table]) -> Path:
    """Write tables of equal columns one after the other, atomically: columns separated by a blank, no header."""
    options = csv.WriteOptions(include_header=False, delimiter=" ", quoting_style="none")
    tables = iter(tables)
    head = next(tables)
    with atomic_write(path) as temporary, csv.CSVWriter(temporary, head.schema, write_options=options) as writer:
        writer.write(head)
        for table in tables:
            writer.write(table)
    return path
