"""Classify labelled images by prompts."""

from typing import TYPE_CHECKING

from rewind.jobs.launch import on_all_gpus
from rewind.jobs.script import data_folder
from rewind.jobs.session import session
from rewind.jobs.zero_shot import compute_zero_shot

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads, snakemake.resources.gpu, snakemake.resources.get("require_gpu")):
    data, model, result = data_folder(snakemake), snakemake.input.model, snakemake.output[0]
    on_all_gpus(compute_zero_shot, data, model, result, log=snakemake.log[0])
