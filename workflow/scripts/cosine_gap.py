"""Cosine gaps of every run, with intervals and tests."""

from pathlib import Path
from typing import TYPE_CHECKING

from rewind.jobs.cosine_gap import compute_cosine_gap
from rewind.jobs.session import session
from rewind.statistics.pairs import Random
from rewind.study.model import Statistics

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    runs = [(method, seed) for method, seed in snakemake.params.runs]
    output = snakemake.output
    compute_cosine_gap(
        Path(snakemake.input.item_table).parent,
        snakemake.params.dataset,
        dict(zip(runs, snakemake.input.cosines, strict=True)),
        [(first, second) for first, second in snakemake.params.pairs],
        Statistics(**snakemake.params.settings),
        Random.of(snakemake.params.random),
        output.table,
        output.intervals,
        output.pairs,
        output.counts,
    )
