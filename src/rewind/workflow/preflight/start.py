"""What can only be refused once it is known which jobs run and where: just before the first of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rewind.config import Study
from rewind.video.shards import how_to_restore_shards, missing_shards
from rewind.workflow.preflight.cluster import cluster_faults
from rewind.workflow.preflight.files import gpu_faults


def lost_shards(datasets: Iterable[str]) -> list[str]:
    """Shards of clips that were made and are not there any more."""
    return [path for name in datasets for path in missing_shards(Path(f"results/data/{name}/videos"))]


def start_faults(
    studies: Mapping[str, Study],
    lost: Sequence[str],
    planned: Sequence[tuple[str, Sequence[str]]],
    here: bool,
    slurm: Any,
) -> str:
    """Why the planned jobs must not start, in words; empty if nothing is wrong.

    Args:
        studies: those that are to run.
        lost: see :func:`lost_shards`. They are made again by themselves or not at all, or all that follows would run.
        planned: rule and outputs of every job that is to run.
        here: whether jobs run on this machine, and not on nodes that may have more GPUs.
        slurm: settings of Snakemake's Slurm plugin; None where it is not used.
    """
    if here and (faults := gpu_faults(studies)):
        return faults
    outputs = {path for _, paths in planned for path in paths}
    if outputs.intersection(lost) and not all(rule.endswith("video_shard") for rule, _ in planned):
        return how_to_restore_shards(lost)
    if slurm is None:
        return ""
    return cluster_faults(studies, slurm.status_command, slurm.init_seconds_before_status_checks)
