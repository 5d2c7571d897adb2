"""Draw how cosines of pairs and of non-pairs are distributed."""

from pathlib import Path
from typing import TYPE_CHECKING

from rewind.jobs.gap_figure import make_gap_figure
from rewind.jobs.report import gap_files
from rewind.jobs.session import session
from rewind.study import Study

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    make_gap_figure(Study(**snakemake.params.study), gap_files(snakemake.input), Path(snakemake.output[0]))
