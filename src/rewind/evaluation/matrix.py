"""Similarity matrices that may be larger than memory: a small one is an array, a large one is read a part at a time."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rewind.datasets.score_files import NO_SCORE
from rewind.files import reading_user_file

WHOLE = 2**26
"""Scores up to which a matrix is read as an array (256 MiB)."""

_READ = 2**26  # bytes read at a time
_NAME = "similarity"


class Scored(NamedTuple):
    """A run's scores: (n, m) float, the n captions' ids and the m items' ids."""

    scores: Any
    queries: np.ndarray
    gallery: np.ndarray


def open_scored(path: str | Path, whole: int = WHOLE) -> Scored:
    """Read ``similarity/<method>/seed<k>.npz``.

    A matrix of more than ``whole`` scores is unpacked once into a file without a name beside the archive, which is gone
    when nobody reads it any more, however the process ends, and stands there as a :class:`FileMatrix`.
    """
    with reading_user_file(path, "matrix of scores", "make it again"):
        with np.load(path, allow_pickle=False) as archive:
            queries, gallery = archive["query_ids"], archive["item_ids"]
            if len(queries) * len(gallery) <= whole:
                return Scored(archive[_NAME], queries, gallery)
        with zipfile.ZipFile(path) as packed, packed.open(f"{_NAME}.npy") as stream:
            shape, by_columns, kind = _header(stream)
            if not by_columns:
                file = tempfile.TemporaryFile(dir=Path(path).parent)  # noqa: SIM115 the matrix closes it
                shutil.copyfileobj(stream, file, _READ)
                file.flush()
                return Scored(FileMatrix(file, shape, kind, Path(path).parent), queries, gallery)
        with np.load(path, allow_pickle=False) as archive:
            return Scored(archive[_NAME], queries, gallery)


def drawable(matrix: Any) -> Any:
    """The same scores for pictures and lists, where a pair without one has one just below the least of all others.

    ``NO_SCORE`` is so far below them that no difference between scores would be seen beside it.
    """
    missing, least = False, np.inf
    step = max(1, _READ // max(1, matrix.shape[1] * matrix.dtype.itemsize))
    for top in range(0, matrix.shape[0], step):
        block = matrix[top : top + step]
        known = block[block != NO_SCORE]
        missing, least = missing or known.size < block.size, min(least, known.min(initial=np.inf))
    if not missing:
        return matrix
    floor = np.float32(0 if np.isinf(least) else least)
    floor = min(floor - np.float32(1), np.nextafter(floor, np.float32(-np.inf)))
    if isinstance(matrix, FileMatrix):
        matrix.floor = floor
        return matrix
    return np.maximum(matrix, floor)


class FileMatrix:
    """A matrix in a file, row by row; a part of it is read as one would index an array.

    ``matrix[rows]``, ``matrix[:, columns]``, ``matrix[np.ix_(rows, columns)]`` and ``matrix[rows, columns]`` (whose
    shapes are broadcast) give arrays with the values that NumPy would give.

    Args:
        file: open for reading in binary; it is the matrix's from now on.
        shape: rows and columns.
        kind: type of the scores.
        folder: where a second file may stand.
    """

    def __init__(self, file: Any, shape: tuple[int, int], kind: np.dtype, folder: Path) -> None:
        self._file, self.shape, self.dtype, self._folder = file, shape, kind, folder
        self.size, self.ndim = shape[0] * shape[1], 2
        self._step = max(1, _READ // max(1, shape[1] * kind.itemsize))
        self._turned: FileMatrix | None = None
        self.floor: np.float32 | None = None
        """What smaller scores are read as."""

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> np.ndarray:
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        rows = np.arange(self.shape[0])[rows] if isinstance(rows, slice) else np.asarray(rows)
        if isinstance(columns, slice):
            return self._grid(rows, columns)
        columns = np.asarray(columns)
        if rows.ndim == columns.ndim == 2 and rows.shape[1] == columns.shape[0] == 1:
            return self._grid(rows[:, 0], columns[0])
        return self._single(*np.broadcast_arrays(rows, columns))

    def _grid(self, rows: np.ndarray, columns: Any) -> np.ndarray:
        width = len(np.arange(self.shape[1])[columns])
        if len(rows) > self._step and 2 * width < self.shape[1]:  # every row would be read for a few of its scores
            # Laid out as an array's part would be: what NumPy sums of it depends on that in the last digit.
            return np.ascontiguousarray(self._columns()._cut(np.arange(self.shape[1])[columns], rows).T)
        return self._cut(rows, columns)

    def _cut(self, rows: np.ndarray, columns: Any) -> np.ndarray:
        width = len(np.arange(self.shape[1])[columns])
        found = np.empty((len(rows), width), self.dtype)
        for top in range(0, len(rows), self._step):
            part = rows[top : top + self._step]
            first, last = int(part.min()), int(part.max()) + 1
            if last - first <= 2 * self._step:
                found[top : top + len(part)] = self._rows(first, last)[part - first][:, columns]
            else:
                for place, row in enumerate(part.tolist()):
                    found[top + place] = self._rows(row, row + 1)[0, columns]
        return found

    def _columns(self) -> FileMatrix:
        """The transposed matrix, written into a file of its own when it is first needed."""
        if self._turned is None:
            file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 the matrix closes it
            line = self.shape[0] * self.dtype.itemsize
            for top in range(0, self.shape[0], self._step):
                block = np.ascontiguousarray(self._rows(top, min(top + self._step, self.shape[0])).T)
                for column, part in enumerate(block):
                    _write(file, part, column * line + top * self.dtype.itemsize)
            self._turned = FileMatrix(file, self.shape[::-1], self.dtype, self._folder)
        return self._turned

    def _single(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        found, order = np.empty(rows.size, self.dtype), np.argsort(rows, axis=None, kind="stable")
        wanted, across = rows.reshape(-1)[order], columns.reshape(-1)[order]
        for top in range(0, self.shape[0], self._step):
            begin, end = np.searchsorted(wanted, (top, top + self._step))
            if begin < end:
                block = self._rows(top, min(top + self._step, self.shape[0]))
                found[order[begin:end]] = block[wanted[begin:end] - top, across[begin:end]]
        return found.reshape(rows.shape)

    def _rows(self, first: int, last: int) -> np.ndarray:
        line = self.shape[1] * self.dtype.itemsize
        content = np.empty((last - first, self.shape[1]), self.dtype)
        view, place = memoryview(content).cast("B"), 0
        while place < len(view):  # a call reads 2 GiB at most, and may read less
            count = os.preadv(self._file.fileno(), [view[place:]], first * line + place)
            if not count:
                raise EOFError(f"the unpacked similarities end in row {first + place // line}")
            place += count
        return content if self.floor is None else np.maximum(content, self.floor)


def _write(file: Any, values: np.ndarray, place: int) -> None:
    view = memoryview(values).cast("B")
    while len(view):
        count = os.pwrite(file.fileno(), view, place)
        view, place = view[count:], place + count


def _header(stream: Any) -> tuple[tuple[int, int], bool, np.dtype]:
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    return read[np.lib.format.read_magic(stream)](stream)
