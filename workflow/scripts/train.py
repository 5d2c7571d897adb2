"""Train one method with one seed."""

from typing import TYPE_CHECKING

from rewind.jobs.launch import on_all_gpus
from rewind.jobs.runs import train_run
from rewind.jobs.script import training_job
from rewind.jobs.session import session

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads, snakemake.resources.gpu, snakemake.resources.get("require_gpu")):
    job, output = training_job(snakemake), snakemake.output
    files = (output.model, output.history, output.record, output.get("metrics"))
    on_all_gpus(train_run, job, *files, log=snakemake.log[0])
