"""Report the vectors of a data set as usable items."""

from typing import TYPE_CHECKING

from rewind.jobs.session import session
from rewind.jobs.videos import report_vectors
from rewind.study.dataset import Dataset

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    report_vectors(Dataset(**snakemake.params.dataset), snakemake.output[0])
