"""Join the shards' reports and judge coverage."""

from typing import TYPE_CHECKING

from rewind.jobs.session import session
from rewind.jobs.videos import join_reports

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    params = snakemake.params
    join_reports(list(snakemake.input), params.max_missing, params.how_to_get, params.kind, snakemake.output[0])
