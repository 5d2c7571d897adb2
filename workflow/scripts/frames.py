"""Decode every clip once, into a frame store."""

from typing import TYPE_CHECKING

from rewind.jobs.frames import make_store
from rewind.jobs.session import session
from rewind.video.store import View

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    make_store(
        snakemake.input.item_table,
        snakemake.output[0],
        View(**snakemake.params.view),
        snakemake.params.frame_code,
        snakemake.threads,
    )
