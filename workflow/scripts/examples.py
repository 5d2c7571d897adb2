"""Draw what a few test captions found."""

from pathlib import Path
from typing import TYPE_CHECKING

from rewind.jobs.examples import make_examples
from rewind.jobs.session import session

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    make_examples(
        Path(snakemake.input.item_table).parent,
        snakemake.params.dataset,
        snakemake.input.similarity,
        snakemake.params.setting,
        snakemake.params.shown,
        snakemake.params.size,
        Path(snakemake.output[0]).with_suffix(""),
    )
