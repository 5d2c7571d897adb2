"""Runs the function of a rule in a job session (:func:`run_job`), or runs a recorded job again (``rewind job``)."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rewind.errors import RewindError
from rewind.io.files import read_json, stable_hash, write_json
from rewind.workflow import checksums
from rewind.workflow.job import Job, acquire_resources, exit_on_error, job_session
from rewind.workflow.stages import RULES, strip_rule_prefix
from rewind.workflow.temporary_files import remove_temporary_files

# ---- From a rule to its function -----------------------------------------------------------------------------------

JOB_RECORDS = Path(".snakemake/rewind/jobs")
"""Where inputs and parameters of jobs are recorded, beside Snakemake's own records: ``rewind job`` reads them."""


def run_job(job: Job) -> None:
    """Run a job of the workflow, after recording its inputs and parameters."""
    with contextlib.suppress(OSError):  # only `rewind job` needs the record
        write_json(job_record_path(job), job.content())
    execute_job(job)


def execute_job(job: Job) -> None:
    """Run a job in a session with its log, its threads and the GPUs that its rule requests.

    Inputs are verified before outputs' checksums are removed, and checksums are written last: a job that is refused or
    killed never leaves checksums of files that it did not finish.
    """
    with exit_on_error():
        function = job_function(job)
        remove_temporary_files(job)
    with job_session(job.log, *requested_resources(job)):
        checksums.verify_inputs(job)
        checksums.clear_checksums(job)
        try:
            function(job)
        except RewindError:
            raise
        except Exception as error:
            if explanation := checksums.explain_failure(job, error):
                raise explanation from error
            raise
        checksums.write_checksums(job)


def requested_resources(job: Job) -> tuple[int, int | None, bool]:
    """Threads, GPUs, and whether a GPU is required: see :func:`rewind.workflow.job.job_session`."""
    # A rule may reserve more cores than torch is to use, so that nothing else runs beside it.
    threads = job.params.get("threads", job.threads)
    return threads, job.resources.get("gpu"), bool(job.resources.get("require_gpu"))


def job_function(job: Job) -> Callable[[Job], None]:
    """The function of a job: the first root of its stage in :data:`rewind.workflow.stages.RULES`.

    Raises:
        RewindError: if there is none of this name.
    """
    module, _, name = RULES[resolve_job_name(job)].roots[0].partition(":")
    return getattr(importlib.import_module(module), name)


def resolve_job_name(job: Job) -> str:
    """Name of the job that a rule runs: the rule's own, without a module's prefix, or its parameter ``act``.

    Raises:
        RewindError: if there is none of this name.
    """
    name = job.params.get("act") or job.rule
    if rule := strip_rule_prefix(name):
        return rule
    raise RewindError(
        f"rule {job.rule}: no job is called {name!r}. A rule whose name is not its job's must name the "
        f'job, for example `params: act="train"`; jobs: {", ".join(sorted(RULES))}.'
    )


def job_record_path(job: Job) -> Path:
    """The file that records a job; jobs of one rule differ in their outputs."""
    return JOB_RECORDS / f"{job.rule}-{stable_hash(list(job.output))}.json"


# ---- ``rewind job`` ------------------------------------------------------------------------------------------------
# The job runs alone and in this process, so that a debugger can step in. It writes below another folder.


def rerun_job(target: str, out: Path | None = None) -> int:
    """Run the job that makes a file again, with the inputs and parameters of when Snakemake last started it.

    Its files are written below another folder, and its messages to the console alone: results, logs and Snakemake's
    records stay as they are. Exceptions are not caught. Of several GPUs it takes one, since more need more processes.

    Args:
        target: an output of the job, a file in one that is a folder, or the job's log.
        out: folder; a new temporary one if None.

    Raises:
        RewindError: where no such job was started here, or an input is missing.
    """
    path = _find_record(target)
    job = Job.read(read_json(path))
    missing = [name for name in job.input if not Path(name).exists()]
    if missing:
        raise RewindError(
            f"{missing[0]}: an input of this job is missing; run `snakemake --cores 1 {missing[0]}` first."
        )
    checksums.verify_inputs(job)
    folder = Path(out or tempfile.mkdtemp(prefix="rewind-job-"))
    job = job.below(folder)
    for name in job.output:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(path.stat().st_mtime))
    print(f"{job.rule}, as Snakemake started it on {began}; outputs go to {folder}", flush=True)
    if job.resources.get("gpu"):
        job = replace(job, resources={**job.resources, "gpu": 1})
    function = job_function(job)
    with acquire_resources(*requested_resources(job)):
        function(job)
    for name in job.output:
        print(name)
    return 0


def _find_record(target: str) -> Path:
    """The latest record of a job that makes a file."""
    target_path = Path(os.path.relpath(target))
    records: dict[str, Path] = {}
    for path in sorted(JOB_RECORDS.glob("*.json"), key=lambda path: path.stat().st_mtime):
        content = read_json(path)
        records |= dict.fromkeys([*content["output"]["values"], content["log"]], path)
    for name in map(str, (target_path, *target_path.parents)):
        if name in records:
            return records[name]
    near = difflib.get_close_matches(str(target_path), records, n=1)
    raise RewindError(
        f"{target}: no job that makes this file was ever started here, so its inputs are not recorded. Run `snakemake "
        f"--cores 1 {target_path}` once (with --forcerun if the file exists already); it does not matter if that run "
        "fails." + (f" Did you mean {near[0]}?" if near else "")
    )
