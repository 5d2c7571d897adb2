"""Draw the study's figures."""

from pathlib import Path
from typing import TYPE_CHECKING

from rewind.jobs.figures import make_figures
from rewind.jobs.report import report_files, runs_of
from rewind.jobs.session import session
from rewind.study import Dataset, Study

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    make_figures(
        Study(**snakemake.params.study),
        Dataset(**snakemake.params.dataset),
        report_files(snakemake),
        runs_of(snakemake, "histories"),
        snakemake.input.ranks,
        Path(snakemake.output[0]).parent,
    )
