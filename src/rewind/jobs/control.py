"""The verdict's control: gaps between methods, and how much smaller they are between their counterparts."""

from __future__ import annotations

from rewind.files import write_csv
from rewind.jobs.ranks import Run, read_ranks
from rewind.statistics.control import shrinkage
from rewind.study.verdict import Verdict


def compute_control(runs: list[Run], ranks: str, keys: Verdict, setting: str, confidence: float, result: str) -> None:
    """Write ``statistics/control.csv``; ``runs`` are those of the verdict's methods and of their counterparts."""
    tables = read_ranks(runs, ranks)
    write_csv(result, shrinkage(tables, keys.baseline, keys.methods, keys.control, setting, confidence))
