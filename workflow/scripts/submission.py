"""Map the captions of a test npz and write the challenge's submission."""

from typing import TYPE_CHECKING

from rewind.jobs.script import data_folder
from rewind.jobs.session import session
from rewind.jobs.submission import write_submission

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads, snakemake.resources.gpu, snakemake.resources.get("require_gpu")):
    given = snakemake.input
    write_submission(data_folder(snakemake), given.model, given.npz, snakemake.output[0])
