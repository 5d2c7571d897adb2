"""The script of every rule: hands what Snakemake says to the job that bears the rule's name, in ``src/rewind/jobs``."""

from typing import TYPE_CHECKING

from rewind.jobs.given import Given
from rewind.jobs.runner import run

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

if __name__ == "__main__":  # a process of its own for each of several GPUs reads this file again
    run(Given.of(snakemake))
