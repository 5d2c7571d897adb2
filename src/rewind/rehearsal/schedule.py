"""When jobs would end on so many cores and GPUs."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple


class Planned(NamedTuple):
    """A job to come: its level (see :mod:`rewind.rehearsal.stages`), seconds, cores and GPUs."""

    level: int
    seconds: float
    threads: int
    gpus: int


def wall_time(jobs: Iterable[Planned], cores: int, gpus: int) -> float:
    """Seconds until the last job ends: level after level, in each the longest job first wherever it fits.

    A job that asks for more cores than there are takes all, as Snakemake has it; without GPUs none is waited for.
    """
    total = 0.0
    for _, level in groupby(sorted(jobs, key=lambda job: (job.level, -job.seconds)), key=lambda job: job.level):
        total += _level(list(level), cores, gpus)
    return total


def _level(waiting: list[Planned], cores: int, gpus: int) -> float:
    now, free, devices = 0.0, cores, gpus
    running: list[tuple[float, int, int]] = []
    while waiting or running:
        for job in list(waiting):
            threads, wanted = min(job.threads, cores), min(job.gpus, gpus)
            if threads <= free and wanted <= devices:
                waiting.remove(job)
                heapq.heappush(running, (now + job.seconds, threads, wanted))
                free, devices = free - threads, devices - wanted
        now, threads, wanted = heapq.heappop(running)
        free, devices = free + threads, devices + wanted
    return now
