"""Score every test caption against every test clip."""

from typing import TYPE_CHECKING

from rewind.jobs.script import data_folder
from rewind.jobs.session import session
from rewind.jobs.similarity import compute_similarity

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads, snakemake.resources.gpu):
    compute_similarity(data_folder(snakemake), snakemake.input.model, snakemake.output[0])
