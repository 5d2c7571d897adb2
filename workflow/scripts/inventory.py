"""List the clips that the annotations name."""

from typing import TYPE_CHECKING

from rewind.jobs.session import session
from rewind.jobs.videos import make_inventory
from rewind.study.dataset import Dataset

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    make_inventory(Dataset(**snakemake.params.dataset), snakemake.output[0])
