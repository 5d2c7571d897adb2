"""Removes temporary files of :func:`rewind.io.files.atomic_write` that killed processes left behind.

One can be as large as a training state, and the next attempt's has another name, since it contains the process id. So
a job begins by removing those of its own files, which no other process writes at that time.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rewind.training.checkpoint_store import is_url, state_path

if TYPE_CHECKING:
    from rewind.job_values import Job

_TEMPORARY_NAME = re.compile(r"\..+\.\d+\.part(\.[^.]*)?")
_MAX_WRITE_SECONDS = 60
"""Seconds after which a temporary file of a small file is no longer being written by any process."""


def remove_temporary_files(job: Job) -> None:
    """Remove temporary files of a job's outputs and of what it resumes from, and all in folders that are its own."""
    for path in (*map(Path, job.output), *_resume_files(job)):
        stem, suffix = re.escape(path.stem), re.escape(path.suffix)
        # Either .<stem>.<pid>.part<suffix>, of atomic_write, or .<stem><suffix>.<pid>.part, of hard links to kept
        # shards.
        _remove_matching(path.parent, re.compile(rf"\.{stem}(?:{suffix})?\.\d+\.part(?:{suffix})?"))
    for folder in _private_folders(job):
        for subfolder, _, _ in os.walk(folder):
            _remove_matching(Path(subfolder), _TEMPORARY_NAME)


def remove_old_temporary_files(folder: Path) -> None:
    """Remove temporary files below a folder of small files that several processes write, once they are a minute old."""
    newest_stale = time.time() - _MAX_WRITE_SECONDS
    for path in folder.rglob(".*.part*"):
        with contextlib.suppress(OSError):  # another process removed it meanwhile, or the folder is read-only
            if _TEMPORARY_NAME.fullmatch(path.name) and path.stat().st_mtime < newest_stale:
                path.unlink()


def _resume_files(job: Job) -> Iterator[Path]:
    """Files besides outputs: the state of a training, and the packed clips that a shard is resumed from."""
    if state := job.params.get("state"):
        address = state_path(state, job.execution.get("state_folder"))
        if not is_url(address):
            yield Path(address).expanduser()
    if job.output.get("index") and (tar := job.output.get("clips")):
        packed = Path(tar).parents[1] / ".state" / "shards" / Path(tar).name
        yield from (packed, packed.with_suffix(".json"))


def _private_folders(job: Job) -> Iterator[Path]:
    """Folders with more than outputs that only this job writes while it runs."""
    if ready := job.output.get("ready"):  # source files: what reads them waits for this job
        yield Path(ready).parent
    if vectors := job.output.get("item_vectors"):  # vectors by name: shards that the job goes on from
        yield Path(vectors).parent / ".state"


def _remove_matching(folder: Path, pattern: re.Pattern[str]) -> None:
    with contextlib.suppress(OSError):  # no folder yet, or a read-only one, which the job itself reports
        for path in folder.iterdir():
            if pattern.fullmatch(path.name):
                path.unlink(missing_ok=True)
