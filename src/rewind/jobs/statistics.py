"""From ranks to intervals and tests, and to the verdict's control: gaps between methods, and how much smaller they
are between their counterparts.
"""

from __future__ import annotations

from rewind.files import write_csv
from rewind.jobs.given import Given
from rewind.jobs.metrics import Run, folder_of, read_ranks, read_reasons
from rewind.jobs.unpack import pairs_of, runs_of
from rewind.statistics.comparisons import compare
from rewind.statistics.control import shrinkage
from rewind.statistics.pairs import Random
from rewind.study.report import Statistics
from rewind.study.verdict import Verdict


def statistics(given: Given) -> None:
    """Rule ``statistics``."""
    params, output = given.params, given.output
    compute_statistics(
        runs_of(given),
        folder_of(given.input.ranks),
        pairs_of(given),
        Statistics(**params.settings),
        Random.of(params.random),
        output.intervals,
        output.pairs,
        output.gaps,
        output.places,
        list(params.compared),
    )


def control(given: Given) -> None:
    """Rule ``control``."""
    params = given.params
    keys, folder = Verdict(**params.verdict), folder_of(given.input.ranks)
    compute_control(runs_of(given), folder, keys, params.setting, params.confidence, given.output[0])


def compute_statistics(
    runs: list[Run],
    ranks: str,
    pairs: list[tuple[str, str]],
    keys: Statistics,
    random: Random,
    intervals: str,
    differences: str,
    gaps: str,
    places: str,
    compared: list[str],
) -> None:
    """Intervals of every method, comparisons of every declared pair, gaps between Origin and Hard, ranks of methods."""
    found = compare(read_ranks(runs, ranks), pairs, keys, random, compared, read_reasons(runs, ranks))
    write_csv(intervals, found.intervals)
    write_csv(differences, found.pairs)
    write_csv(gaps, found.gaps)
    write_csv(places, found.ranks)


def compute_control(runs: list[Run], ranks: str, keys: Verdict, setting: str, confidence: float, result: str) -> None:
    """Write ``statistics/control.csv``; ``runs`` are those of the verdict's methods and of their counterparts."""
    tables = read_ranks(runs, ranks)
    write_csv(result, shrinkage(tables, keys.baseline, keys.methods, keys.control, setting, confidence))
