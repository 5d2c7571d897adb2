"""Scores that a user brings: a matrix with its ids, or a TREC run."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pandas as pd

from rewind.datasets.vector_files import some
from rewind.errors import RewindError

ARRAYS = ("similarity", "query_ids", "item_ids")
_COLUMNS = ("query", "Q0", "document", "rank", "score", "tag")


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
    if not path.is_file():
        raise RewindError(f"{path}: no such file; write the scores there, or correct the path.")
    found = _npz(path) if path.suffix == ".npz" else _trec(path)
    for what, ids in (("caption", found.queries), ("item", found.items)):
        names, times = np.unique(ids, return_counts=True)
        if (times > 1).any():
            raise RewindError(f"{path}: doubled {what}s: {some(names[times > 1].tolist())}; keep one of each.")
    return found


def _npz(path: Path) -> Scores:
    try:
        with np.load(path, allow_pickle=False) as archive:
            if missing := [name for name in ARRAYS if name not in archive.files]:
                there = ", ".join(archive.files) or "nothing"
                raise RewindError(f"{path}: there is no array {missing[0]!r} ({there}); save {', '.join(ARRAYS)}.")
            matrix, queries, items = (archive[name] for name in ARRAYS)
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise RewindError(f"{path}: not a whole npz ({error}); write it again.") from error
    except ValueError as error:  # NumPy's word for an array of Python objects
        raise RewindError(
            f"{path}: it holds Python objects ({error}); save numbers, and ids with np.array(ids, dtype=str)."
        ) from error
    if matrix.dtype.kind != "f" or matrix.shape != (len(queries), len(items)):
        raise RewindError(
            f"{path}: similarity is {matrix.dtype} of shape {matrix.shape}; floating-point numbers of shape "
            f"{(len(queries), len(items))} fit the ids."
        )
    for row, scores in enumerate(matrix):  # a row at a time: a matrix may take gigabytes
        if np.isnan(scores).any() or np.isposinf(scores).any():
            column = int(np.flatnonzero(np.isnan(scores) | np.isposinf(scores))[0])
            raise RewindError(
                f"{path}: the score of caption {str(queries[row])!r} and item {str(items[column])!r} is not a number "
                "(-inf stands for a pair without a score)."
            )
    return Scores(matrix.astype(np.float32, copy=False), queries.astype(str), items.astype(str), str(path))


def _trec(path: Path) -> Scores:
    try:
        table = pd.read_csv(
            path,
            sep=r"\s+",
            header=None,
            names=_COLUMNS,
            dtype={"query": str, "document": str},
            usecols=["query", "document", "score"],
            keep_default_na=False,
            na_values={"score": ["", "nan", "NaN"]},
            compression="infer",
        )
        scores = table["score"].to_numpy(dtype=np.float64)
    except (ValueError, pd.errors.ParserError, UnicodeDecodeError, OSError) as error:
        raise RewindError(
            f"{path}: not a TREC run ({error}); lines are: query Q0 document rank score tag. A matrix is an .npz."
        ) from error
    if bad := np.flatnonzero(~np.isfinite(scores)).tolist():
        raise RewindError(f"{path}: line {bad[0] + 1}: the score is not a number.")
    twice = table.duplicated(["query", "document"]).to_numpy()
    if twice.any():
        line = int(np.flatnonzero(twice)[0])
        raise RewindError(
            f"{path}: line {line + 1}: the pair of {table['query'][line]!r} and {table['document'][line]!r} is there "
            "twice; keep one."
        )
    rows, queries = pd.factorize(table["query"])
    columns, items = pd.factorize(table["document"])
    matrix = np.full((len(queries), len(items)), -np.inf, np.float32)
    matrix[rows, columns] = scores
    return Scores(
        matrix, *(np.array([unquote(name) for name in ids], dtype=str) for ids in (queries, items)), str(path)
    )
