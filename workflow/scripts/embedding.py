"""Vectors of test captions and items of the run that pictures show."""

from typing import TYPE_CHECKING

from rewind.jobs.embedding import compute_embedding
from rewind.jobs.script import data_folder
from rewind.jobs.session import session

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads, snakemake.resources.gpu, snakemake.resources.get("require_gpu")):
    compute_embedding(data_folder(snakemake), snakemake.input.model, snakemake.output[0])
