"""Ranks and metrics of every run."""

from pathlib import Path
from typing import TYPE_CHECKING

from rewind.jobs.metrics import compute_metrics
from rewind.jobs.session import session

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    runs = [(method, seed) for method, seed in snakemake.params.runs]
    compute_metrics(
        Path(snakemake.input.item_table).parent,
        snakemake.params.dataset,
        snakemake.params.settings,
        snakemake.params.directions,
        dict(zip(runs, snakemake.input.similarity, strict=True)),
        snakemake.output.ranks,
        snakemake.output.table,
    )
