"""Write the study's page."""

from pathlib import Path
from typing import TYPE_CHECKING

from rewind.jobs.page import Made, make_page
from rewind.jobs.report import report_files, runs_of
from rewind.jobs.session import session
from rewind.study import Dataset, Study

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    given = snakemake.input
    pictures = [Path(path) for path in [*given.pictures, *given.get("gap_pictures", [])]]
    make_page(
        Study(**snakemake.params.study),
        Dataset(**snakemake.params.dataset),
        report_files(snakemake),
        Made(Path(given.tables), pictures, given.ranks, runs_of(snakemake, "similarity"), given.sweep),
        Path(given.item_table).parent,
        Path(snakemake.output[0]),
    )
