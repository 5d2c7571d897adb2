"""Zero-shot accuracy of every run and method."""

from typing import TYPE_CHECKING

from rewind.jobs.session import session
from rewind.jobs.zero_shot_table import join_zero_shot
from rewind.study.zero_shot import ZeroShot

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    params, output = snakemake.params, snakemake.output
    runs = {(method, seed): path for (method, seed), path in zip(params.runs, snakemake.input, strict=True)}
    join_zero_shot(runs, ZeroShot(**params.settings), params.confidence, params.fixed, output.runs, output.intervals)
