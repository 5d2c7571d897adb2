"""Whether a Slurm can run studies as they are: asked before anything is submitted to it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

from rewind.errors import Faults
from rewind.study import Study

FIRST_CHECK = 40
"""Seconds after which the plugin first asks for the state of its jobs, where no option says otherwise."""


def cluster_faults(studies: Mapping[str, Study], status_command: str | None, first_check: int | None) -> str:
    """What would make a run on this cluster wait for ever, or fail job by job, in words; empty where nothing would.

    Args:
        studies: those that are to run.
        status_command: how the plugin is to learn the state of jobs, ``sacct`` or ``squeue``; None: as it chooses.
        first_check: seconds before it does so first; None: as it chooses.
    """
    return _status_fault(status_command or "sacct", first_check or FIRST_CHECK) or _gpu_faults(studies)


def _status_fault(status_command: str, first_check: int) -> str:
    """The plugin asks ``sacct``, and where that knows nothing, it waits for ever for the state of jobs."""
    done, said = _ask("sacct", "-X", "-n", "--starttime", "now-1hours", "--format", "JobID")
    if done or said is None:  # without the program itself the plugin takes squeue
        return ""
    if status_command != "squeue":
        return (
            f"sacct does not work on this cluster ({said}), and Snakemake would wait for ever to hear from it how jobs "
            "ended. Add `--slurm-status-command squeue` to the command, or `slurm-status-command: squeue` to "
            "profiles/slurm/config.yaml."
        )
    age = _kept_seconds()
    if age is not None and age < 3 * first_check:  # then the plugin takes sacct after all
        return (
            f"sacct does not work on this cluster ({said}), and squeue forgets jobs {age} s after their end "
            f"(MinJobAge), sooner than Snakemake's plugin allows. Add `--slurm-init-seconds-before-status-checks "
            f"{max(1, age // 3)}` to the command."
        )
    return ""


def _gpu_faults(studies: Mapping[str, Study]) -> str:
    """Studies whose jobs ask for more GPUs than any node has: a job is on one node."""
    _, said = _ask("sinfo", "-h", "-o", "%G")
    most = most_gpus(said or "")
    greedy = {name: study.resources.gpus for name, study in studies.items() if study.resources.gpus > most}
    if not most or not greedy:
        return ""
    lines = {
        f"config/studies/{name}.yaml": [
            f"resources.gpus: {count}, but no node of this cluster has more than {most}, and a run is on one node: "
            "lower the number"
        ]
        for name, count in greedy.items()
    }
    return str(Faults(lines))


def most_gpus(listed: str) -> int:
    """The largest number of GPUs of a node, of lines such as ``gpu:a100:4(S:0-1),gpu:v100:2``; 0 if none says any."""
    counts = [
        sum(int(count) for count in re.findall(r"(?:^|,)gpu(?::[^,():]+)?:(\d+)", line)) for line in listed.splitlines()
    ]
    return max(counts, default=0)


def _kept_seconds() -> int | None:
    """Seconds for which ``squeue`` knows a job that has ended."""
    _, said = _ask("scontrol", "show", "config")
    found = re.search(r"^MinJobAge\s*=\s*(\d+)", said or "", re.M)
    return int(found[1]) if found else None


def _ask(*command: str) -> tuple[bool, str | None]:
    """Whether a command worked, and what it printed; None if it is not there or does not answer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False, None
    return done.returncode == 0, (done.stdout if done.returncode == 0 else done.stderr or done.stdout).strip()
