"""Make or fetch a data set's source clips."""

from typing import TYPE_CHECKING

from rewind.jobs.session import session
from rewind.jobs.videos import make_sources
from rewind.study.dataset import Dataset

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    workers = {"workers": snakemake.params.workers}
    make_sources(
        Dataset(**snakemake.params.dataset, video=workers, image=workers),
        snakemake.params.code,
        snakemake.output.ready,
    )
