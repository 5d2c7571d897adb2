"""Write the study's tables."""

from pathlib import Path
from typing import TYPE_CHECKING

from rewind.jobs.report import report_files
from rewind.jobs.session import session
from rewind.jobs.tables import make_tables
from rewind.study import Dataset, Study

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    folder = Path(snakemake.output.tables)
    make_tables(
        Study(**snakemake.params.study),
        Dataset(**snakemake.params.dataset),
        report_files(snakemake),
        folder,
        folder / "summary.txt",
    )
