"""What killed processes leave of :func:`rewind.files.atomic`'s drafts: one killed in the middle cannot remove its own.

A draft can be as large as a training state, and the next attempt's has another name. So a job begins with removing
those of its own files, which no other process writes now.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from rewind.jobs.given import Given
from rewind.training.places import is_url

_DRAFT = re.compile(r"\..+\.\d+\.part(\.[^.]*)?")
_HELD = 60
"""Seconds after which no draft of a small file is being written."""


def forget_drafts(given: Given) -> None:
    """Remove drafts of what a job writes: its outputs, what it resumes from, and all in folders that are its own."""
    for path in (*map(Path, given.output), *_resumed(given)):
        stem, suffix = re.escape(path.stem), re.escape(path.suffix)
        _forget(path.parent, re.compile(rf"\.{stem}(?:{suffix})?\.\d+\.part(?:{suffix})?"))
    for folder in _own_folders(given):
        for place, _, _ in os.walk(folder):
            _forget(Path(place), _DRAFT)


def forget_old_drafts(folder: Path) -> None:
    """Remove drafts below a folder of small files that several processes may write, once they are a minute old."""
    latest = time.time() - _HELD
    for path in folder.rglob(".*.part*"):
        with contextlib.suppress(OSError):  # it is gone meanwhile, or the folder is read-only
            if _DRAFT.fullmatch(path.name) and path.stat().st_mtime < latest:
                path.unlink()


def _resumed(given: Given) -> Iterator[Path]:
    """Files that are no outputs: the state of a training, and what a shard of clips is kept as."""
    if state := given.params.get("state"):
        # Imported late: jobs that train have it in memory anyway, others take seconds for it.
        from rewind.jobs.training_job import state_path

        address = state_path(state, given.resources.get("state_folder"))
        if not is_url(address):
            yield Path(address).expanduser()
    if given.output.get("index") and (tar := given.output.get("clips")):
        kept = Path(tar).parents[1] / ".state" / "shards" / Path(tar).name
        yield from (kept, kept.with_suffix(".json"))


def _own_folders(given: Given) -> Iterator[Path]:
    """Folders of more than outputs that a job alone writes while it is at work."""
    if ready := given.output.get("ready"):  # source files: what reads them waits for this job
        yield Path(ready).parent
    if vectors := given.output.get("item_vectors"):  # vectors by name: shards that the job goes on from
        yield Path(vectors).parent / ".state"


def _forget(folder: Path, drafts: re.Pattern[str]) -> None:
    with contextlib.suppress(OSError):  # none is there yet, or it is read-only: the job itself says so
        for path in folder.iterdir():
            if drafts.fullmatch(path.name):
                path.unlink(missing_ok=True)
