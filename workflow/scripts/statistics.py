"""Intervals, paired comparisons, gaps between Origin and Hard."""

from typing import TYPE_CHECKING

from rewind.jobs.session import session
from rewind.jobs.statistics import compute_statistics
from rewind.statistics.pairs import Random
from rewind.study.model import Statistics

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    compute_statistics(
        [(method, seed) for method, seed in snakemake.params.runs],
        snakemake.input.ranks,
        [(first, second) for first, second in snakemake.params.pairs],
        Statistics(**snakemake.params.settings),
        Random.of(snakemake.params.random),
        snakemake.output.intervals,
        snakemake.output.pairs,
        snakemake.output.gaps,
    )
