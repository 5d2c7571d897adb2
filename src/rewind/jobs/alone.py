"""``rewind job``: a job of the workflow done again, alone and in this process, so that a debugger can step in."""

from __future__ import annotations

import difflib
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from rewind.errors import RewindError
from rewind.files import read_json
from rewind.jobs import seals
from rewind.jobs.given import Given
from rewind.jobs.runner import RECORDS, asked, function
from rewind.jobs.session import machine


def again(target: str, out: Path | None = None) -> int:
    """Do the job that makes a file, with what it was given when Snakemake last started it.

    All that it writes goes below another folder, and what it says to the console alone: results, logs and Snakemake's
    records stay as they are. Exceptions are not caught. Of several GPUs it takes one, since more need more processes.

    Args:
        target: an output of the job, a file in one that is a folder, or the job's log.
        out: folder; a new temporary one if None.

    Raises:
        RewindError: where no such job was started here, or its inputs are not there.
    """
    path = _record(target)
    given = Given.read(read_json(path))
    lost = [name for name in given.input if not Path(name).exists()]
    if lost:
        raise RewindError(f"{lost[0]}: an input of this job is missing; run `snakemake --cores 1 {lost[0]}` first.")
    seals.check(given)
    folder = Path(out or tempfile.mkdtemp(prefix="rewind-job-"))
    given = given.below(folder)
    for name in given.output:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(path.stat().st_mtime))
    print(f"{given.rule}, as Snakemake started it on {began}; outputs go to {folder}", flush=True)
    if given.resources.get("gpu"):
        given = replace(given, resources={**given.resources, "gpu": 1})
    act = function(given)
    with machine(*asked(given)):
        act(given)
    for name in given.output:
        print(name)
    return 0


def _record(target: str) -> Path:
    """The latest record of a job that makes a file."""
    wanted = Path(os.path.relpath(target))
    known: dict[str, Path] = {}
    for path in sorted(RECORDS.glob("*.json"), key=lambda path: path.stat().st_mtime):
        content = read_json(path)
        known |= dict.fromkeys([*content["output"]["values"], content["log"]], path)
    for name in map(str, (wanted, *wanted.parents)):
        if name in known:
            return known[name]
    near = difflib.get_close_matches(str(wanted), known, n=1)
    raise RewindError(
        f"{target}: no job that makes this file was ever started here, so its inputs are not recorded. Run `snakemake "
        f"--cores 1 {wanted}` once (with --forcerun if the file exists already); it does not matter if that run fails."
        + (f" Did you mean {near[0]}?" if near else "")
    )
