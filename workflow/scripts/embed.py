"""Encode a prepared data set with frozen networks."""

from pathlib import Path
from typing import TYPE_CHECKING

from rewind.jobs.embed import make_vectors
from rewind.jobs.session import session
from rewind.study.embeddings import MadeFrom

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads, snakemake.resources.gpu):
    make_vectors(
        MadeFrom(**snakemake.params.made_from),
        Path(snakemake.input.item_table).parent,
        Path(snakemake.output.vectors).parent,
        workers=snakemake.threads - 1,  # the job itself encodes
    )
