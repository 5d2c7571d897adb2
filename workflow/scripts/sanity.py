"""Over-fit a tiny subset before real runs start."""

from typing import TYPE_CHECKING

from rewind.jobs.runs import sanity_check
from rewind.jobs.script import training_job
from rewind.jobs.session import session
from rewind.study.model import Sanity

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads, snakemake.resources.gpu):
    sanity_check(training_job(snakemake), Sanity(**snakemake.params.settings), snakemake.output[0])
