"""From a rule to its job: the function that bears the rule's name, run in a session of its own."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from pathlib import Path

from rewind.errors import RewindError
from rewind.files import digest, write_json
from rewind.identity.stages import RULES, job_named
from rewind.jobs import seals
from rewind.jobs.drafts import forget_drafts
from rewind.jobs.given import Given
from rewind.jobs.session import session, told

RECORDS = Path(".snakemake/rewind/jobs")
"""Where what jobs were given is kept, beside Snakemake's own records: ``rewind job`` does one of them again."""


def run(given: Given) -> None:
    """Do a job of the workflow, and before that write down what it was given."""
    with contextlib.suppress(OSError):  # the job can do without
        write_json(record_path(given), given.content())
    do(given)


def do(given: Given) -> None:
    """Do a job: its log, its threads and the GPUs that its rule asks for are those of the session around it."""
    with told():
        act = function(given)
        forget_drafts(given)
    with session(given.log, *asked(given)):
        seals.check(given)
        seals.withdraw(given)
        try:
            act(given)
        except RewindError:
            raise
        except Exception as error:
            if said := seals.explained(given, error):
                raise said from error
            raise
        seals.seal(given)


def asked(given: Given) -> tuple[int, int | None, bool]:
    """Threads, GPUs and whether there must be one: see :func:`rewind.jobs.session.session`."""
    # A rule may hold more cores than torch is to take, so that nothing else runs beside it.
    threads = given.params.get("threads", given.threads)
    return threads, given.resources.get("gpu"), bool(given.resources.get("require_gpu"))


def function(given: Given) -> Callable[[Given], None]:
    """The function of a job: in the table of rules, the first root of the rule's code.

    Raises:
        RewindError: if there is none of this name.
    """
    module, _, name = RULES[job_of(given)].roots[0].partition(":")
    return getattr(importlib.import_module(module), name)


def job_of(given: Given) -> str:
    """Name of the job that a rule runs: that of the rule, without a module's prefix, unless it says ``act``.

    Raises:
        RewindError: if there is none of this name.
    """
    said = given.params.get("act") or given.rule
    if name := job_named(said):
        return name
    raise RewindError(
        f"rule {given.rule}: no job is called {said!r}. A rule whose name is not its job's must name the "
        f'job, for example `params: act="train"`; jobs: {", ".join(sorted(RULES))}.'
    )


def record_path(given: Given) -> Path:
    """The record of a job."""
    return RECORDS / f"{given.rule}-{digest(list(given.output))}.json"
