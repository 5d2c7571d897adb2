"""Draw what one run found, its similarities and its space."""

from pathlib import Path
from typing import TYPE_CHECKING

from rewind.jobs.examples import Run, make_pictures
from rewind.jobs.session import session
from rewind.study.report import Figures

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    make_pictures(
        Path(snakemake.input.item_table).parent,
        snakemake.params.dataset,
        Run(snakemake.params.run, snakemake.input.similarity, snakemake.input.embedding),
        snakemake.params.setting,
        Figures(**snakemake.params.figures),
        snakemake.params.size,
        Path(snakemake.output[0]).parent,
    )
