"""Intervals, tests and gaps between methods from rank tables."""

from __future__ import annotations

from rewind.config.report import Statistics
from rewind.config.study import RunKey
from rewind.io.files import write_csv
from rewind.statistics.comparisons import compare_methods
from rewind.statistics.pairs import RandomFactors
from rewind.statistics.rank_files import read_not_evaluated, read_ranks


def compute_statistics(
    runs: list[RunKey],
    ranks: str,
    pairs: list[tuple[str, str]],
    keys: Statistics,
    random: RandomFactors,
    intervals: str,
    differences: str,
    gaps: str,
    places: str,
    chance: str,
    compared: list[str],
) -> None:
    """Write intervals, comparisons of declared pairs, gaps between Origin and Hard, ranks, and tests against chance."""
    results = compare_methods(read_ranks(runs, ranks), pairs, keys, random, compared, read_not_evaluated(runs, ranks))
    write_csv(intervals, results.intervals)
    write_csv(differences, results.pairs)
    write_csv(gaps, results.gaps)
    write_csv(places, results.ranks)
    write_csv(chance, results.chance)
