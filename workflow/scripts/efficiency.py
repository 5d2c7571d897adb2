"""Measure what a query costs."""

from pathlib import Path
from typing import TYPE_CHECKING

from rewind.jobs.efficiency import Measured, measure_runs
from rewind.jobs.script import data_folder
from rewind.jobs.session import session
from rewind.study import RunSpec

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads, snakemake.resources.gpu):
    params = snakemake.params
    runs = [
        Measured(name, label, RunSpec(**spec), model)
        for (name, label, spec), model in zip(params.methods, snakemake.input.models, strict=True)
    ]
    measure_runs(runs, data_folder(snakemake), params.title, Path(snakemake.output.files), params.prefix)
