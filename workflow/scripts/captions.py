"""Write items.csv and the captions of every split."""

from typing import TYPE_CHECKING

from rewind.jobs.session import session
from rewind.jobs.videos import make_captions
from rewind.study.dataset import Dataset

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    make_captions(Dataset(**snakemake.params.dataset), snakemake.input.report, snakemake.output.item_table)
