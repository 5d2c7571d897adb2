"""Put on PYTHONPATH, it writes down which functions of the library a job ran: ``$REWIND_RAN/<stage>.<pid>.json``.

``$REWIND_NEVER`` names what never counts for a result, and what only that calls is left out.

Python imports a module of this name at its start, so jobs are those of a user, script, process and all.
"""

import atexit
import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

_SEEN: dict[int, CodeType] = {}  # by identity: the hash of a code object looks at all of its bytes each time
_COUNTS: dict[int, tuple[bool, CodeType]] = {}
_NEVER = set(filter(None, os.environ.get("REWIND_NEVER", "").split(",")))
_STARTS = {"rewind.workflow.job", "rewind.workflow.launch"}
_FUNCTION = 0x1  # CO_OPTIMIZED: bodies of modules and classes have it not


def _note(frame: FrameType, event: str, argument: object) -> None:
    if event == "call" and id(frame.f_code) not in _SEEN and not _beneath_what_never_counts(frame):
        _SEEN[id(frame.f_code)] = frame.f_code


def _beneath_what_never_counts(frame: FrameType | None) -> bool:
    """Whether only a record or a refusal asked for this call; what starts jobs has the whole job beneath it."""
    while frame is not None:
        if _never_counts(frame.f_code):
            return True
        frame = frame.f_back
    return False


def _never_counts(code: CodeType) -> bool:
    if id(code) not in _COUNTS:
        module, name = _place(code)
        never = module not in _STARTS and not _NEVER.isdisjoint(
            {module, f"{module}:{name.split('.')[0]}", f"{module}:{name}"}
        )
        _COUNTS[id(code)] = never, code  # kept, so that no other code gets its identity
    return _COUNTS[id(code)][0]


def _place(code: CodeType) -> tuple[str, str]:
    """Module and name of a function of the library; nothing of any other."""
    _, inside, path = code.co_filename.rpartition("/src/rewind/")
    if not inside or not code.co_flags & _FUNCTION:
        return "", ""
    return ".".join(["rewind", *path.removesuffix(".py").split("/")]).removesuffix(".__init__"), code.co_qualname


def _write(jobs: list[Any], folder: str) -> None:
    sys.setprofile(None)  # before the import, which reads all analyses
    from rewind.workflow.stages import strip_rule_prefix

    (job,) = jobs
    stage = strip_rule_prefix(job.params.get("act") or job.rule)
    found = {":".join(place) for code in list(_SEEN.values()) if (place := _place(code))[0]}
    with open(os.path.join(folder, f"{stage}.{os.getpid()}.json"), "w") as stream:
        json.dump(sorted(found), stream)


def _watch(folder: str) -> None:
    """Begin where the job's session does: its imports before are many, and compute nothing."""
    from rewind.workflow import job

    begin, start = job.job_session, job.start_job
    jobs = []

    @contextlib.contextmanager
    def named(snakemake: object) -> Iterator[object]:
        with start(snakemake) as given:
            jobs.append(given)
            yield given

    @contextlib.contextmanager
    def watched(*arguments: object) -> Iterator[None]:
        with begin(*arguments):
            threading.setprofile(_note)
            sys.setprofile(_note)
            yield

    job.job_session, job.start_job = watched, named
    atexit.register(_write, jobs, folder)


if (folder := os.environ.get("REWIND_RAN")) and any("/.snakemake/scripts/tmp" in part for part in sys.orig_argv):
    _watch(folder)
