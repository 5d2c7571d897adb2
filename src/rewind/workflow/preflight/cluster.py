"""What a Slurm cluster can do, before anything is submitted to it."""

from __future__ import annotations

import re
import subprocess

FIRST_STATUS_CHECK_SECONDS = 40
"""Seconds after which Snakemake's Slurm plugin first asks for the state of its jobs, by default."""


def status_fault(status_command: str | None, first_check: int | None) -> str:
    """Why Snakemake would wait for ever for the end of jobs, in words; empty if nothing is wrong.

    By default the plugin asks ``sacct``; where that has no accounting data, it would wait for ever.

    Args:
        status_command: how the plugin learns the state of jobs, ``sacct`` or ``squeue``; None: the plugin's default.
        first_check: seconds before it does so first; None: the plugin's default.
    """
    # -X: without the steps of jobs; -n: without a header.
    works, message = _run_command("sacct", "-X", "-n", "--starttime", "now-1hours", "--format", "JobID")
    if works or message is None:  # without the program sacct the plugin takes squeue by itself
        return ""
    if status_command != "squeue":
        return (
            f"sacct does not work on this cluster ({message}), and Snakemake would wait for ever to hear from it how "
            "jobs ended. Add `--slurm-status-command squeue` to the command, or `slurm-status-command: squeue` to "
            "profiles/slurm/config.yaml."
        )
    age = _min_job_age()
    # Where squeue forgets jobs so soon after their end, the plugin takes sacct in spite of the option.
    if age is not None and age < 3 * (first_check or FIRST_STATUS_CHECK_SECONDS):
        return (
            f"sacct does not work on this cluster ({message}), and squeue forgets jobs {age} s after their end "
            f"(MinJobAge), sooner than Snakemake's plugin allows. Add `--slurm-init-seconds-before-status-checks "
            f"{max(1, age // 3)}` to the command."
        )
    return ""


def gpus_of_largest_node() -> int:
    """GPUs of the node that has most of them; 0 if no node has any, or Slurm does not tell."""
    _, gres = _run_command("sinfo", "-h", "-o", "%G")  # -h: no header; %G: devices of each type of node
    return max_gpus_per_node(gres or "")


def max_gpus_per_node(listed: str) -> int:
    """The largest number of GPUs of one node, of node types as ``sinfo -o %G`` prints them, one per line.

    >>> max_gpus_per_node("gpu:a100:4(S:0-1),gpu:v100:2")
    6
    """
    # gpu:<type>:<number>(<sockets>), of which type and sockets may be missing.
    counts = [
        sum(int(count) for count in re.findall(r"(?:^|,)gpu(?::[^,():]+)?:(\d+)", line)) for line in listed.splitlines()
    ]
    return max(counts, default=0)


def _min_job_age() -> int | None:
    """Seconds for which ``squeue`` still lists a job that has ended; None if unknown."""
    _, settings = _run_command("scontrol", "show", "config")
    match = re.search(r"^MinJobAge\s*=\s*(\d+)", settings or "", re.M)
    return int(match[1]) if match else None


def _run_command(*command: str) -> tuple[bool, str | None]:
    """Whether a command succeeded, and its output; None instead of the output if it is missing or does not answer."""
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False, None
    return process.returncode == 0, (
        process.stdout if process.returncode == 0 else process.stderr or process.stdout
    ).strip()
