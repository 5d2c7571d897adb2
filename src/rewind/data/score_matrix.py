"""Similarity matrices that may exceed memory: a small one is read as an array, a large one in parts from its file.

Shapes are (captions, items) throughout.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from rewind.data.readers import MISSING_SCORE, read_npy_header, stored_content
from rewind.io.files import ArrayParts, reading_user_file, write_npz, write_stored_npz

MAX_SCORES_IN_MEMORY = 2**26
"""Number of scores of single precision up to which a matrix is read as an array (256 MiB)."""

_BYTES_OF_SCORE = 4  # of single precision
_READ_BYTES = 2**26  # bytes read at a time
_ARRAY_NAME = "similarity"
_CUT_NAME = "captions_cut"


class LabelledScores(NamedTuple):
    """A run's scores: (n, m) float, the n captions' ids and the m items' ids."""

    scores: Any  # an array or a FileMatrix
    queries: np.ndarray
    gallery: np.ndarray


class CaptionsCut(NamedTuple):
    """How many captions a run's model read only the beginnings of."""

    cut: int  # number of captions longer than max_words
    captions: int
    max_words: int  # most tokens of a caption that it reads


def write_scores(
    path: str | Path,
    scores: np.ndarray,
    queries: np.ndarray,
    gallery: np.ndarray,
    whole: int = MAX_SCORES_IN_MEMORY,
    captions_cut: CaptionsCut | None = None,
) -> None:
    """Write ``similarity/<method>/seed<k>.npz``, atomically, with scores (n, m) in float32 or float64.

    A matrix of more than ``whole`` scores is stored as it is (:func:`write_score_rows`), a smaller one is compressed.
    ``captions_cut`` is given where it is known and nothing else states it.
    """
    if scores.nbytes > _BYTES_OF_SCORE * whole:
        write_score_rows(path, [scores], queries, gallery, captions_cut)
    else:
        write_npz(path, **{_ARRAY_NAME: scores}, query_ids=queries, item_ids=gallery, **_cut_array(captions_cut))


def _cut_array(captions_cut: CaptionsCut | None) -> dict[str, np.ndarray]:
    return {} if captions_cut is None else {_CUT_NAME: np.array(captions_cut)}


def read_captions_cut(path: str | Path) -> CaptionsCut | None:
    """What :func:`write_scores` was told of cut captions."""
    with reading_user_file(path, "matrix of scores", "compute it again"), np.load(path, allow_pickle=False) as archive:
        return CaptionsCut(*archive[_CUT_NAME].tolist()) if _CUT_NAME in archive.files else None


def write_score_rows(
    path: str | Path,
    parts: Iterable[np.ndarray],
    queries: np.ndarray,
    gallery: np.ndarray,
    captions_cut: CaptionsCut | None = None,
) -> None:
    """Write a matrix that need not fit into memory, in parts, atomically.

    It is not compressed, so that parts of it can be read from the archive itself: compressing scores saves some 7% of
    the file and takes minutes. Parts are float32 or float64 (r, m), the rows from top to bottom; or (r, 1) where every
    caption scores all items equally.

    >>> queries, gallery = np.array(["a#0", "a#1", "b#0"]), np.array(["a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "seed0.npz"
    ...     write_score_rows(path, [np.zeros((1, 2), np.float32)] * 3, queries, gallery)
    ...     open_scores(path).scores.shape
    (3, 2)
    """
    scores = ArrayParts(len(queries), iter(parts))
    write_stored_npz(path, **{_ARRAY_NAME: scores}, query_ids=queries, item_ids=gallery, **_cut_array(captions_cut))


def open_scores(path: str | Path, whole: int = MAX_SCORES_IN_MEMORY) -> LabelledScores:
    """Read ``similarity/<method>/seed<k>.npz``.

    A matrix of more bytes than ``whole`` scores of single precision is returned as a :class:`FileMatrix`, which reads
    parts of the archive. If the archive is compressed, it is unpacked once into a file without a name next to it. The
    system deletes such a file with its last reader, however the process ends. A single column stands for a matrix of
    equal columns.
    """
    with reading_user_file(path, "matrix of scores", "compute it again"):
        with np.load(path, allow_pickle=False) as archive:
            queries, gallery = archive["query_ids"].astype(str), archive["item_ids"].astype(str)
        with zipfile.ZipFile(path) as packed:
            member = packed.getinfo(f"{_ARRAY_NAME}.npy")
            with packed.open(member) as stream:
                header, fortran_order, dtype = read_npy_header(stream)
                shape = cast("tuple[int, int]", header)
                header_bytes = stream.tell()
                if queries.size * gallery.size * dtype.itemsize <= _BYTES_OF_SCORE * whole:
                    with np.load(path, allow_pickle=False) as archive:
                        return LabelledScores(archive[_ARRAY_NAME], queries, gallery)
                if header_bytes + shape[0] * shape[1] * dtype.itemsize != member.file_size:
                    raise ValueError(f"{shape[0]} x {shape[1]} scores do not fit {member.file_size} bytes")
                if shape == (len(queries), 1):  # all items score the same, see write_score_rows
                    column = np.frombuffer(stream.read(), dtype).reshape(shape)
                    return LabelledScores(repeat_column(column, len(gallery)), queries, gallery)
                if not fortran_order and member.compress_type == zipfile.ZIP_STORED:
                    archive_file = open(path, "rb")  # noqa: SIM115 the matrix closes it
                    start = stored_content(archive_file, member) + header_bytes
                    scores = FileMatrix(archive_file, shape, dtype, Path(path).parent, start)
                    return LabelledScores(scores, queries, gallery)
                if not fortran_order:
                    file = tempfile.TemporaryFile(dir=Path(path).parent)  # noqa: SIM115 the matrix closes it
                    shutil.copyfileobj(stream, file, _READ_BYTES)
                    file.flush()  # FileMatrix reads by the descriptor, past Python's buffer
                    return LabelledScores(FileMatrix(file, shape, dtype, Path(path).parent), queries, gallery)
        # Stored column by column, which no part of Rewind writes: read as an array after all.
        with np.load(path, allow_pickle=False) as archive:
            return LabelledScores(archive[_ARRAY_NAME], queries, gallery)


def repeat_column(scores: np.ndarray, items: int) -> np.ndarray:
    """A matrix of ``items`` columns: the one that :func:`write_score_rows` wrote for all, or the matrix itself.

    >>> repeat_column(np.zeros((2, 1)), 3).shape, repeat_column(np.zeros((2, 4)), 3).shape
    ((2, 3), (2, 4))
    """
    return np.broadcast_to(scores, (len(scores), items)) if scores.shape[1] == 1 else scores


def fill_missing_scores(matrix: Any) -> Any:
    """The same scores for figures and lists, with a value just below all others for pairs without a score.

    ``MISSING_SCORE`` is so far below them that no difference between scores could be seen beside it.

    >>> fill_missing_scores(np.array([[2.0, MISSING_SCORE, 5.0]], np.float32)).tolist()
    [[2.0, 1.0, 5.0]]
    """
    missing, least = False, np.inf
    step = max(1, _READ_BYTES // max(1, matrix.shape[1] * matrix.dtype.itemsize))
    for top in range(0, matrix.shape[0], step):
        block = matrix[top : top + step]
        scored = block[block != MISSING_SCORE]
        missing, least = missing or scored.size < block.size, min(least, scored.min(initial=np.inf))
    if not missing:
        return matrix
    kind = matrix.dtype.type
    floor = kind(0 if np.isinf(least) else least)
    # One less, or the next smaller number where this precision has no number so close.
    floor = min(floor - kind(1), np.nextafter(floor, kind(-np.inf)))
    if isinstance(matrix, FileMatrix):
        matrix.floor = floor
        return matrix
    return np.maximum(matrix, floor)


class FileMatrix:
    """A matrix in a file, stored row by row, of which parts are read by indexing, as from an array.

    ``matrix[rows]``, ``matrix[:, first:last]``, ``matrix[np.ix_(rows, columns)]`` and ``matrix[rows, columns]`` (two
    arrays, whose shapes are broadcast) give arrays with the values that NumPy would give.

    ``file``, open for reading in binary, belongs to the matrix from now on; its first score is at byte ``start``. A
    second, temporary file may be written into ``folder``.

    >>> file = tempfile.TemporaryFile()
    >>> _ = file.write(np.arange(6, dtype=np.float32).tobytes()), file.flush()
    >>> matrix = FileMatrix(file, (2, 3), np.dtype(np.float32), Path(tempfile.gettempdir()))
    >>> matrix[:, 1:].tolist(), matrix[np.array([0, 1]), np.array([1, 1])].tolist()
    ([[1.0, 2.0], [4.0, 5.0]], [1.0, 4.0])
    """

    def __init__(self, file: Any, shape: tuple[int, int], dtype: np.dtype, folder: Path, start: int = 0) -> None:
        self._file, self.shape, self.dtype, self._folder, self._start = file, shape, dtype, folder, start
        self.size, self.ndim = shape[0] * shape[1], 2
        self._step = max(1, _READ_BYTES // max(1, shape[1] * dtype.itemsize))  # rows read at a time
        self._transposed: FileMatrix | None = None
        self.floor: np.floating[Any] | None = None  # smaller scores are read as this

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> np.ndarray:
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        rows = np.arange(self.shape[0])[rows] if isinstance(rows, slice) else np.asarray(rows)
        if isinstance(columns, slice):
            return self._read_grid(rows, columns)
        columns = np.asarray(columns)
        if rows.ndim == columns.ndim == 2 and rows.shape[1] == columns.shape[0] == 1:  # made by np.ix_
            return self._read_grid(rows[:, 0], columns[0])
        return self._read_single_scores(*np.broadcast_arrays(rows, columns))

    def _read_grid(self, rows: np.ndarray, columns: Any) -> np.ndarray:
        """Every one of ``rows`` at every one of ``columns``."""
        width = len(np.arange(self.shape[1])[columns])
        # Few columns of many rows: whole rows would be read for a few of their scores.
        if len(rows) > self._step and 2 * width < self.shape[1]:
            transposed = self._transpose()._read_rows_at(np.arange(self.shape[1])[columns], rows)
            # In memory row by row, as a part of an array would be: the last digit of NumPy's sums depends on that.
            return np.ascontiguousarray(transposed.T)
        return self._read_rows_at(rows, columns)

    def _read_rows_at(self, rows: np.ndarray, columns: Any) -> np.ndarray:
        width = len(np.arange(self.shape[1])[columns])
        scores = np.empty((len(rows), width), self.dtype)
        for top in range(0, len(rows), self._step):
            part = rows[top : top + self._step]
            first, last = int(part.min()), int(part.max()) + 1
            if last - first <= 2 * self._step:  # near one another: all rows between them in one read
                scores[top : top + len(part)] = self._read_rows(first, last)[part - first][:, columns]
            else:
                for offset, row in enumerate(part.tolist()):
                    scores[top + offset] = self._read_rows(row, row + 1)[0, columns]
        return scores

    def _transpose(self) -> FileMatrix:
        """The transposed matrix, written into a file of its own when it is first needed."""
        if self._transposed is None:
            file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 the matrix closes it
            row_bytes = self.shape[0] * self.dtype.itemsize
            for top in range(0, self.shape[0], self._step):
                block = np.ascontiguousarray(self._read_rows(top, min(top + self._step, self.shape[0])).T)
                for column, part in enumerate(block):
                    _write_at(file, part, column * row_bytes + top * self.dtype.itemsize)
            self._transposed = FileMatrix(file, self.shape[::-1], self.dtype, self._folder)
        return self._transposed

    def _read_single_scores(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Scores at (rows, columns), two arrays of one shape; the file is read once from top to bottom."""
        scores, order = np.empty(rows.size, self.dtype), np.argsort(rows, axis=None, kind="stable")
        sorted_rows, sorted_columns = rows.reshape(-1)[order], columns.reshape(-1)[order]
        for top in range(0, self.shape[0], self._step):
            begin, end = np.searchsorted(sorted_rows, (top, top + self._step))
            if begin < end:
                block = self._read_rows(top, min(top + self._step, self.shape[0]))
                scores[order[begin:end]] = block[sorted_rows[begin:end] - top, sorted_columns[begin:end]]
        return scores.reshape(rows.shape)

    def _read_rows(self, first: int, last: int) -> np.ndarray:
        row_bytes = self.shape[1] * self.dtype.itemsize
        content = np.empty((last - first, self.shape[1]), self.dtype)
        view, done = content.data.cast("B"), 0
        while done < len(view):  # a call reads 2 GiB at most, and may read less
            count = os.preadv(self._file.fileno(), [view[done:]], self._start + first * row_bytes + done)
            if not count:
                raise EOFError(f"the similarities end in row {first + done // row_bytes}")
            done += count
        return content if self.floor is None else np.maximum(content, self.floor)


def _write_at(file: Any, values: np.ndarray, offset: int) -> None:
    view = values.data.cast("B")
    while len(view):  # a call may write less
        count = os.pwrite(file.fileno(), view, offset)
        view, offset = view[count:], offset + count
