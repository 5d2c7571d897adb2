"""Scores that a user brings: a matrix with its ids, or a TREC run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pandas as pd

from rewind.datasets.id_lists import id_fault, text_ids
from rewind.datasets.npz_files import need, npz
from rewind.datasets.trec_lines import LARGEST_SCORE, read_run
from rewind.datasets.vector_files import some
from rewind.errors import RewindError
from rewind.files import naming_file

ARRAYS = ("similarity", "query_ids", "item_ids")
NO_SCORE = np.finfo(np.float32).min
"""Stands in a run's matrix for a pair without a score: a number, and below all that a score can be."""


@dataclass(frozen=True)
class Scores:
    """A matrix with the ids of its rows and columns.

    Attributes:
        similarity: (Q, N) float32; -inf where a pair has no score.
        queries: (Q,) caption ids, each once.
        items: (N,) item ids, each once.
        where: the file, for messages.
    """

    similarity: np.ndarray
    queries: np.ndarray
    items: np.ndarray
    where: str


def read_scores(path: str | Path) -> Scores:
    """Read and check scores.

    - ``.npz``: ``similarity`` (Q, N), ``query_ids`` (Q,) and ``item_ids`` (N,), in any order, as in
      ``results/<study>/similarity``.
    - any other name: a TREC run, lines ``query Q0 document rank score tag``; of a line only query, document and score
      are read. Ids are written as ``results/<study>/trec`` has them, blanks as ``%20``. ``.gz`` is unpacked.

    Raises:
        RewindError: naming the file, and the row or id that is wrong.
    """
    path = Path(path)
    if not path.exists():
        raise RewindError(f"{path}: no such file; write the scores there, or correct the path.")
    with naming_file(path):
        found = _npz(path) if path.suffix == ".npz" else _trec(path)
    if not np.size(found.similarity):
        raise RewindError(f"{path}: there are no scores.")
    for what, ids in (("caption", found.queries), ("item", found.items)):
        names, times = np.unique(ids, return_counts=True)
        if (times > 1).any():
            raise RewindError(f"{path}: doubled {what}s: {some(names[times > 1].tolist())}; keep one of each.")
    return found


def _npz(path: Path) -> Scores:
    with npz(path) as archive:
        need(path, archive, ARRAYS)
        matrix, queries, items = (archive[name] for name in ARRAYS)
    queries, items = text_ids(queries, "query_ids", str(path)), text_ids(items, "item_ids", str(path))
    if matrix.dtype.kind != "f" or matrix.shape != (len(queries), len(items)):
        raise RewindError(
            f"{path}: similarity is {matrix.dtype} of shape {matrix.shape}; floating-point numbers of shape "
            f"{(len(queries), len(items))} fit the ids."
        )
    for row, scores in enumerate(matrix):  # a row at a time: a matrix may take gigabytes
        missing = np.isneginf(scores) | (scores == NO_SCORE)  # as users and as matrices of runs say it
        odd = ~((np.abs(scores) <= np.float64(LARGEST_SCORE)) | missing)  # NaN is not below anything
        if odd.any():
            column = int(odd.argmax())
            pair = f"the score of caption {str(queries[row])!r} and item {str(items[column])!r} is"
            if np.isfinite(scores[column]):
                raise RewindError(
                    f"{path}: {pair} {scores[column]:g}, beyond {LARGEST_SCORE:g}, the largest in single precision: "
                    "divide all scores by one number, which changes no rank."
                )
            raise RewindError(
                f"{path}: {pair} {scores[column]}, not a number (-inf stands for a pair without a score)."
            )
    matrix = matrix.astype(np.float32, copy=False)
    for scores in matrix:
        scores[scores == NO_SCORE] = -np.inf
    return Scores(matrix, queries, items, str(path))


def _trec(path: Path) -> Scores:
    numbers, queries, documents, scores = zip(*read_run(path), strict=True)
    rows, names = pd.factorize(np.array(queries, dtype=object))
    columns, items = pd.factorize(np.array(documents, dtype=object))
    twice = pd.Series(rows * len(items) + columns).duplicated().to_numpy()
    if twice.any():
        at = int(np.flatnonzero(twice)[0])
        raise RewindError(
            f"{path}: line {numbers[at]}: the pair of {queries[at]!r} and {documents[at]!r} is there twice; keep one."
        )
    for written, lines in ((names, queries), (items, documents)):
        for name in written:
            if fault := id_fault(unquote(name)):
                raise RewindError(f"{path}: line {numbers[lines.index(name)]}: {fault}.")
    matrix = np.full((len(names), len(items)), -np.inf, np.float32)
    matrix[rows, columns] = scores
    return Scores(matrix, *(np.array([unquote(name) for name in ids], dtype=str) for ids in (names, items)), str(path))
