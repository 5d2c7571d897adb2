"""Choose max_frames on validation."""

from typing import TYPE_CHECKING

from rewind.jobs.session import session
from rewind.jobs.sweep import choose_frames

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    choose_frames(list(snakemake.input), snakemake.params.default, snakemake.output.table, snakemake.output.best)
