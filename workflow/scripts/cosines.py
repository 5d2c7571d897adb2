"""Cosines of validation and test, for the cosine gap."""

from typing import TYPE_CHECKING

from rewind.jobs.cosines import compute_cosines
from rewind.jobs.script import data_folder
from rewind.jobs.session import session

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads, snakemake.resources.gpu, snakemake.resources.get("require_gpu")):
    compute_cosines(data_folder(snakemake), snakemake.input.model, snakemake.output[0])
