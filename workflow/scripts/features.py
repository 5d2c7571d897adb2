"""Compute the features of frozen towers once."""

from typing import TYPE_CHECKING

from rewind.jobs.features import compute_features
from rewind.jobs.script import data_folder
from rewind.jobs.session import session

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads, snakemake.resources.gpu, snakemake.resources.get("require_gpu")):
    compute_features(data_folder(snakemake), snakemake.output[0])
