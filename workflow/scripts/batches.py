"""Table and picture of what the batches of a study's runs were."""

from pathlib import Path
from typing import TYPE_CHECKING

from rewind.jobs.batches import report_batches
from rewind.jobs.session import session
from rewind.study import Study

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    runs = [(method, seed) for method, seed in snakemake.params.runs]
    histories = dict(zip(runs, snakemake.input, strict=True))
    table, picture = snakemake.output[0], Path(snakemake.output[1])
    report_batches(Study(**snakemake.params.study), histories, table, picture.with_suffix(""))
