"""Normalise and reverse one shard of clips."""

from typing import TYPE_CHECKING

from rewind.jobs.session import session
from rewind.jobs.videos import make_shard
from rewind.study.dataset import Video

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    make_shard(
        snakemake.input[0],
        int(snakemake.wildcards.shard),
        Video(**snakemake.params.video),
        snakemake.params.clip_code,
        snakemake.threads,
        snakemake.output[0],
    )
