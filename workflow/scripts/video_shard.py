"""Normalise one shard of clips or images."""

from typing import TYPE_CHECKING

from rewind.jobs.session import session
from rewind.jobs.videos import make_shard
from rewind.study.dataset import Image, Video

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    make_shard(
        snakemake.input[0],
        int(snakemake.wildcards.shard),
        (Image if snakemake.params.kind == "images" else Video)(**snakemake.params.media),
        snakemake.params.clip_code,
        snakemake.threads,
        snakemake.output[0],
    )
