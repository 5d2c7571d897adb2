"""How much memory a job asks of a scheduler, in MB: from counts that are known when jobs are planned.

Those of annotations, and of what reads a matrix, are above what ``benchmarks/annotations.py`` and
``benchmarks/brought.py`` measured (docs/cluster.md). A job that needs more all the same is killed, and asks for as much
again at its next attempt, where a profile has ``retries``.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from rewind.jobs.places import annotation_files
from rewind.study import Dataset, Study

BASE = 1500
"""A process with Rewind's packages, and room for what is small."""

FLOOR = 2000  # test captions, and test items, of a data set that nobody has counted yet
_PACKED = 256  # most of a matrix that is held whole, see rewind.evaluation.matrix
_BLOCKS = 1000  # what is computed from a matrix at a time, for one that is not tiny
_MB = 2**20


def of_annotations(dataset: Dataset) -> int:
    """Of jobs that read annotations: their columns take about three times the files."""
    return BASE + 4 * sum(_size(path) for path in annotation_files(dataset)) // _MB


def of_matrix(dataset: Dataset, results: Path) -> int:
    """Of jobs that read one similarity matrix at a time, in blocks."""
    queries, items = test_counts(dataset, results)
    whole = 4 * queries * items / _MB
    return BASE + int(min(whole, _PACKED) + min(6 * whole, _BLOCKS))


def of_scoring(dataset: Dataset, study: Study, results: Path) -> int:
    """Of jobs that make a matrix: the study's own number, and the matrix with its copy."""
    queries, items = test_counts(dataset, results)
    return study.resources.mem_mb + int(8 * queries * items / _MB)


def of_ranks(dataset: Dataset, study: Study, results: Path) -> int:
    """Of jobs that read the rank tables of all runs, in every setting and direction."""
    queries, _ = test_counts(dataset, results)
    views = len(study.evaluation.settings) * len(study.evaluation.directions)
    return BASE + int(queries * views * len(study.runs()) * 600 / _MB)


def test_counts(dataset: Dataset, results: Path) -> tuple[int, int]:
    """Captions and items of the test split: rows of what is prepared, or else :data:`FLOOR` of each.

    Args:
        dataset: the data set.
        results: folder of all results.
    """
    folder = results / "data" / dataset.name
    captions = _rows(folder / "captions" / f"{dataset.name}_test.csv")
    # Items are part of a larger table; nearly every one that is tested has a caption, so there are hardly more of them.
    return (captions, captions) if captions else (FLOOR, FLOOR)


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _rows(path: Path) -> int:
    try:
        state = path.stat()
    except OSError:
        return 0
    return _counted(path, state.st_mtime_ns, state.st_size)


@lru_cache
def _counted(path: Path, changed: int, size: int) -> int:
    """Rows below the header; a file that is as it was is not read again."""
    with path.open("rb") as stream:
        return max(0, sum(block.count(b"\n") for block in iter(lambda: stream.read(2**20), b"")) - 1)
