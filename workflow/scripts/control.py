"""Whether gaps between methods are smaller in the control."""

from typing import TYPE_CHECKING

from rewind.jobs.control import compute_control
from rewind.jobs.session import session
from rewind.study.verdict import Verdict

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with session(snakemake.log[0], snakemake.threads):
    params = snakemake.params
    runs = [(method, seed) for method, seed in params.runs]
    keys = Verdict(**params.verdict)
    compute_control(runs, snakemake.input.ranks, keys, params.setting, params.confidence, snakemake.output[0])
