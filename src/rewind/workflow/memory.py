"""How much memory (MB) a job requests from a scheduler, from counts that are known when jobs are planned.

The numbers for annotations, and for jobs that read a matrix, are above what ``benchmarks/annotations.py`` and
``benchmarks/brought.py`` measured (docs/cluster.md). A job that needs more nevertheless is killed, and requests as much
again on its next attempt, where a profile has ``retries``.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from rewind.config import Dataset, Study
from rewind.video.sources import annotation_files

BASE_MB = 1500
"""Memory of a process with Rewind's packages imported, and of small tables."""

DEFAULT_TEST_ROWS = 2000  # test captions, and test items, of a data set that has not been counted yet
_MAX_WHOLE_MATRIX_MB = 256  # larger matrices are read in blocks, see rewind.data.score_matrix
_MAX_BLOCKS_MB = 1000  # temporaries of one block; a small matrix needs about 6 times its size
_BYTES_PER_MB = 2**20
_TEST_CELL = b",test,"  # of items.csv, which has the items of all splits


def annotation_job_mb(dataset: Dataset) -> int:
    """Memory of jobs that read annotations: their columns take about three times the size of the files."""
    return BASE_MB + 4 * sum(_file_size(path) for path in annotation_files(dataset)) // _BYTES_PER_MB


def matrix_job_mb(dataset: Dataset, results: Path) -> int:
    """Memory of jobs that read one similarity matrix at a time, in blocks."""
    queries, items = count_test_split(dataset, results)
    whole = 4 * queries * items / _BYTES_PER_MB  # float32
    return BASE_MB + int(min(whole, _MAX_WHOLE_MATRIX_MB) + min(6 * whole, _MAX_BLOCKS_MB))


def scoring_job_mb(dataset: Dataset, study: Study, results: Path) -> int:
    """Memory of jobs that write a matrix, a large one in parts: the study's own ``mem_mb``, and these with a copy."""
    queries, items = count_test_split(dataset, results)
    return study.resources.mem_mb + int(min(8 * queries * items / _BYTES_PER_MB, _MAX_BLOCKS_MB))


def whole_matrix_job_mb(dataset: Dataset, study: Study, results: Path) -> int:
    """Memory of jobs that compute a matrix and keep it: the study's own ``mem_mb``, and the matrix with a copy."""
    queries, items = count_test_split(dataset, results)
    return study.resources.mem_mb + int(8 * queries * items / _BYTES_PER_MB)


def ranks_job_mb(dataset: Dataset, study: Study, results: Path) -> int:
    """Memory of jobs that read the rank tables of all runs, in every setting and direction: 600 bytes per row."""
    queries, _ = count_test_split(dataset, results)
    views = len(study.evaluation.settings) * len(study.evaluation.directions)
    return BASE_MB + int(queries * views * len(study.runs()) * 600 / _BYTES_PER_MB)


def count_test_split(dataset: Dataset, results: Path) -> tuple[int, int]:
    """Captions and items of the test split: rows of the prepared tables, or else :data:`DEFAULT_TEST_ROWS` of each."""
    folder = results / "data" / dataset.name
    captions = _count_rows(folder / "captions" / f"{dataset.name}_test.csv")
    items = _count_rows(folder / "items.csv", _TEST_CELL) if captions else 0
    return (captions, items) if captions and items else (DEFAULT_TEST_ROWS, DEFAULT_TEST_ROWS)


def _file_size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _count_rows(path: Path, cell: bytes = b"") -> int:
    """Rows of a table, or those with a cell."""
    try:
        state = path.stat()
    except OSError:
        return 0
    return _count_rows_cached(path, cell, state.st_mtime_ns, state.st_size)


@lru_cache
def _count_rows_cached(path: Path, cell: bytes, changed: int, size: int) -> int:
    """Lines below the header; an unchanged file is not read again."""
    with path.open("rb") as stream:
        if cell:
            return sum(cell in line for line in stream)
        return max(0, sum(block.count(b"\n") for block in iter(lambda: stream.read(2**20), b"")) - 1)
