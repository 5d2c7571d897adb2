"""The script of every rule: hands what Snakemake says to the job that bears the rule's name, in ``src/rewind/jobs``."""

from typing import TYPE_CHECKING

from rewind.workflow.job import Job
from rewind.workflow.runner import run_job

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

if __name__ == "__main__":  # a process of its own for each of several GPUs reads this file again
    run_job(Job.of(snakemake))
