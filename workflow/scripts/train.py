"""Train one method with one seed."""

from typing import TYPE_CHECKING

from rewind.jobs.runs import train_run
from rewind.jobs.script import training_job
from rewind.jobs.session import session

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads, snakemake.resources.gpu):
    train_run(training_job(snakemake), snakemake.output.model, snakemake.output.history, snakemake.output.record)
