"""Take away the lock that a killed Snakemake left behind, unless a Snakemake is at work in this folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil


def running(folder: Path) -> int | None:
    """Process id of a Snakemake whose working directory is ``folder``."""
    for process in psutil.process_iter():
        try:
            named = any(Path(part).name == "snakemake" for part in process.cmdline()[:3])
            if named and Path(process.cwd()) == folder:
                return process.pid
        except (psutil.Error, OSError):  # it ended meanwhile, or belongs to another user
            continue
    return None


def main() -> None:
    """Unlock the current folder where it is locked for nothing."""
    folder = Path.cwd()
    locks = folder / ".snakemake" / "locks"
    if not locks.is_dir() or not any(locks.iterdir()):
        return
    if pid := running(folder):
        sys.exit(f"error: a Snakemake (process {pid}) is at work in this folder; wait for it, or end it first.")
    print("the last run here was killed: its lock is removed, and it resumes where it stopped")
    # A lock belongs to the folder: the workflow, which takes seconds to read, has no say in it.
    unlock = [sys.executable, "-m", "snakemake", "--unlock", "--quiet", "--snakefile", os.devnull]
    subprocess.run(unlock, check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
