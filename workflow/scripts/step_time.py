"""Time training steps of several methods."""

from typing import TYPE_CHECKING

from rewind.jobs.script import timed_jobs
from rewind.jobs.session import session
from rewind.jobs.step_time import measure_steps

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads, snakemake.resources.gpu, snakemake.resources.get("require_gpu")):
    params = snakemake.params
    measure_steps(timed_jobs(snakemake), params.baseline, params.steps, snakemake.output[0])
