"""Time training steps of several methods."""

from typing import TYPE_CHECKING

from rewind.jobs.script import timed_jobs
from rewind.jobs.session import session
from rewind.jobs.step_time import measure_steps

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

params, resources = snakemake.params, snakemake.resources
with session(snakemake.log[0], params.threads, resources.gpu, resources.get("require_gpu")):
    measure_steps(timed_jobs(snakemake), params.baseline, params.rounds, snakemake.output[0])
