"""Over-fit a tiny subset before real runs start."""

from typing import TYPE_CHECKING

from rewind.jobs.launch import on_all_gpus
from rewind.jobs.sanity import sanity_check
from rewind.jobs.script import training_job
from rewind.jobs.session import session
from rewind.study.model import Sanity

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads, snakemake.resources.gpu, snakemake.resources.get("require_gpu")):
    job, keys = training_job(snakemake), Sanity(**snakemake.params.settings)
    on_all_gpus(sanity_check, job, keys, snakemake.output[0], log=snakemake.log[0])
