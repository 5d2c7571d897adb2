"""Runs and relevance judgements as TREC files."""

from pathlib import Path
from typing import TYPE_CHECKING

from rewind.jobs.session import session
from rewind.jobs.trec import export

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    runs = [(method, seed) for method, seed in snakemake.params.runs]
    export(
        Path(snakemake.input.item_table).parent,
        snakemake.params.dataset,
        snakemake.params.settings,
        snakemake.params.directions,
        dict(zip(runs, snakemake.input.similarity, strict=True)),
        Path(snakemake.output.files),
    )
