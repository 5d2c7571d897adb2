"""From ranks to intervals and tests."""

from __future__ import annotations

from rewind.files import write_csv
from rewind.jobs.ranks import Run, read_ranks
from rewind.statistics.comparisons import compare
from rewind.statistics.pairs import Random
from rewind.study.report import Statistics


def compute_statistics(
    runs: list[Run],
    ranks: str,
    pairs: list[tuple[str, str]],
    keys: Statistics,
    random: Random,
    intervals: str,
    differences: str,
    gaps: str,
) -> None:
    """Intervals of every method, comparisons of every declared pair, gaps between Origin and Hard."""
    found = compare(read_ranks(runs, ranks), pairs, keys, random)
    write_csv(intervals, found.intervals)
    write_csv(differences, found.pairs)
    write_csv(gaps, found.gaps)
