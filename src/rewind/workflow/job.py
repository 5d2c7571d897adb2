"""One job of the workflow: its files and parameters as plain values, and the process around it.

Every script of ``workflow/scripts`` does its work inside of :func:`start_job`, which makes a :class:`Job` of the object
that Snakemake hands to a script, writes the log, sets thread counts, leases GPUs, verifies checksums, and ends with a
readable message where the job fails. What it was given is recorded, so that the script can be run again by hand.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import gc
import os
import runpy
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from rewind import system_errors
from rewind.commands import snakemake_command
from rewind.errors import RewindError, printable
from rewind.hashing import stable_hash
from rewind.io.files import read_json, write_json
from rewind.job_values import Job
from rewind.packaged import workflow_home
from rewind.processes import exit_on_signals
from rewind.workflow import checksums
from rewind.workflow.temporary_files import remove_temporary_files

# ---- The frame of a script -----------------------------------------------------------------------------------------

JOB_RECORDS = Path(".snakemake/rewind/jobs")
"""Where inputs and parameters of jobs are recorded, next to Snakemake's own records, for users who run one by hand."""


PRINT_TABLES = "REWIND_PRINT_TABLES"
"""Environment variable: ``no`` where the command that runs the workflow prints its tables itself, last."""


@contextlib.contextmanager
def start_job(snakemake: Any) -> Iterator[Job]:
    """The process of a job: its log, its threads, the GPUs that its rule requests, and its checksums.

    Inputs are verified before outputs' checksums are removed, and checksums are written last: a job that is refused or
    killed never leaves checksums of files that it did not finish.

    Args:
        snakemake: the object of that name in a script; None where Snakemake did not start it. The command line then
            states which job is run again: ``python workflow/scripts/train.py --mock demo meanP 0``.
    """
    if snakemake is None:
        with exit_on_error():
            snakemake = _job_of_command(Path(sys.argv[0]).stem, sys.argv[1:])
    with exit_on_error():
        job = snakemake if isinstance(snakemake, Job) else Job.of(snakemake)
    if job.by_hand:  # messages go only to the console, and exceptions are for a debugger
        remove_temporary_files(job)
        _load_own_metrics(job)
        with exit_on_signals(), acquire_resources(*requested_resources(job)):
            yield job
        print("\n".join(job.output))
        return
    # A process of its own: what it has imported lives to its end. Python would search these objects for garbage again
    # and again, and at the exit once more, which takes half a second of CPU time where torch is among them.
    gc.freeze()
    with exit_on_error():
        with contextlib.suppress(OSError):  # only users who run it by hand need the record
            write_json(job_record_path(job.rule, job.output), job.content())
        remove_temporary_files(job)
    with job_session(job.log, *requested_resources(job)):
        checksums.verify_inputs(job)
        checksums.clear_checksums(job)
        _load_own_metrics(job)
        try:
            yield job
        except RewindError:
            raise
        except Exception as error:
            if explanation := checksums.explain_failure(job, error):
                raise explanation from error
            raise
        checksums.write_checksums(job)


def _load_own_metrics(job: Job) -> None:
    """Make the metrics known that a study brings itself; the keys of a study, where a job has them, say them too."""
    if paths := job.params.get("metrics"):
        from rewind.config.report import load_metrics

        load_metrics(paths)


def requested_resources(job: Job) -> tuple[int, int | None, bool, int | None]:
    """Threads, GPUs, whether a GPU is required, and memory of a shared one: see :func:`job_session`."""
    # A rule may reserve more cores than torch is to use, so that nothing else runs next to it.
    threads = job.params.get("threads", job.threads)
    execution = job.execution
    return threads, job.resources.get("gpu"), bool(execution.get("require_gpu")), execution.get("gpu_mem_mb")


def job_record_path(rule: str, outputs: Iterable[str]) -> Path:
    """The file that records a job; jobs of one rule differ in their outputs."""
    return JOB_RECORDS / f"{rule}-{stable_hash(list(outputs))}.json"


# ---- A job again, by hand ------------------------------------------------------------------------------------------
# The job runs alone and in this process, so that a debugger can step in. It writes below another folder: results, logs
# and Snakemake's records stay as they are.


def rerun_job(target: str, out: Path | None = None) -> int:
    """Run the job that makes a file again, with the inputs and parameters of when Snakemake last started it.

    Messages only go to the console, and exceptions are not caught. It takes one of several GPUs, since more need more
    processes.

    Args:
        target: an output of the job, a file in one that is a folder, or the job's log.
        out: folder of its files; a new temporary one if None.

    Raises:
        RewindError: where no such job was started here, or an input is missing.
    """
    run_script(_job_by_hand(_record_of_file(target), out))
    return 0


def run_script(job: Job) -> None:
    """Run the script of a job's rule in this process."""
    script = workflow_home() / "workflow/scripts" / f"{_script_name(job)}.py"
    runpy.run_path(str(script), init_globals={"snakemake": job}, run_name="__main__")


def _script_name(job: Job) -> str:
    """The script of a rule, whose name may have the prefix of a Snakemake module."""
    if job.params.get("analyses"):  # of one of the study's own
        return "analysis"
    from rewind.workflow.stages import RULES, strip_rule_prefix  # it reads all analyses, which few jobs need

    rule = strip_rule_prefix(str(job.params.get("act") or job.rule))
    if not rule:
        raise RewindError(
            f"rule {job.rule}: Rewind has no rule of this name; a rule that uses one under another name states which "
            'by `params: act="train"`.'
        )
    return RULES[rule].script or rule


def _job_of_command(script: str, arguments: Sequence[str]) -> Job:
    """The job that ``--mock STUDY [METHOD [SEED …]]`` names, of a rule that runs this script."""
    parser = argparse.ArgumentParser(prog=f"{script}.py", description="Run a job again that Snakemake once started.")
    parser.add_argument("--mock", nargs="+", required=True, metavar="WILDCARD", help="for example demo meanP 0")
    parser.add_argument("--out", type=Path, help="folder of its outputs; a new temporary one by default")
    options = parser.parse_args(arguments)
    started: dict[str, Path] = {}  # wildcards as they are typed → the latest record
    for path in _records():
        job = Job.read(read_json(path))
        with contextlib.suppress(RewindError):  # a rule of the user's own
            if _script_name(job) == script:
                started[" ".join(_typed_wildcards(job))] = path
    if record := started.get(" ".join(options.mock)):
        return _job_by_hand(record, options.out)
    known = ", ".join(sorted(started)) or "none"
    raise RewindError(
        f"no job of {script}.py with {' '.join(options.mock)} was ever started here, so its inputs are not recorded; "
        f"started were: {known}."
    )


def _typed_wildcards(job: Job) -> list[str]:
    """Values of a job's wildcards: its study or data set, its method, then the others."""
    order = ("study", "dataset", "method", "seed")
    names = sorted(job.wildcards, key=lambda name: order.index(name) if name in order else len(order))
    return [value.strip("/") for name in names if (value := job.wildcards[name])]


def _job_by_hand(record: Path, out: Path | None) -> Job:
    """A recorded job with everything that it writes below another folder."""
    job = Job.read(read_json(record))
    missing = [name for name in job.input if not Path(name).exists()]
    if missing:
        raise RewindError(
            f"{missing[0]}: an input of this job is missing; run `{snakemake_command(missing[0])}` first."
        )
    checksums.verify_inputs(job)
    folder = Path(out or tempfile.mkdtemp(prefix="rewind-job-"))
    job = job.below(folder)
    for name in job.output:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.stat().st_mtime))
    print(f"{job.rule}, as Snakemake started it on {began}; outputs go to {folder}", flush=True)
    resources = {**job.resources, "gpu": 1} if job.resources.get("gpu") else job.resources
    return replace(job, resources=resources, by_hand=True)


def _records() -> list[Path]:
    """Records of jobs, the latest last."""
    return sorted(JOB_RECORDS.glob("*.json"), key=lambda path: path.stat().st_mtime)


def _record_of_file(target: str) -> Path:
    """The latest record of a job that makes a file."""
    target_path = Path(os.path.relpath(target))
    records: dict[str, Path] = {}
    for path in _records():
        content = read_json(path)
        records |= dict.fromkeys([*content["output"]["values"], content["log"]], path)
    for name in map(str, (target_path, *target_path.parents)):
        if name in records:
            return records[name]
    near = difflib.get_close_matches(str(target_path), records, n=1)
    raise RewindError(
        f"{target}: no job that makes this file was ever started here, so its inputs are not recorded. Run "
        f"`{snakemake_command(target_path, force=target_path.exists())}` once; it does not matter if that run fails."
        + (f" Did you mean {near[0]}?" if near else "")
    )


# ---- Log, resources and error messages of a job --------------------------------------------------------------------

MAX_EARLIER_LOG_BYTES = 100_000
"""Bytes that a log keeps of earlier attempts."""


class _Tee:
    """Writes text to the console and to the log file, without control characters."""

    def __init__(self, console: TextIO, log: TextIO) -> None:
        self.console, self.log = console, log
        self.lost = False  # whether the log can no longer be written

    def write(self, text: str) -> int:
        text = printable(text)
        if not self.lost:
            try:
                self.log.write(text)
                self.log.flush()  # at once: the log of a killed job has all that was said
            except OSError as error:  # a full disk must not hide the job's own error
                self.lost = True
                self.console.write(f"{self.log.name}: nothing more is logged ({error.strerror})\n")
        return self.console.write(text)

    def flush(self) -> None:
        self.console.flush()

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self.console.fileno()  # what a child process writes there is not in the log


@contextlib.contextmanager
def job_session(
    log: str | os.PathLike[str],
    threads: int = 1,
    gpus: int | None = None,
    require_gpu: bool = False,
    gpu_mem_mb: int | None = None,
) -> Iterator[None]:
    """The process around a job: tee its output into ``log``, set thread counts, lease ``gpus``.

    A :class:`RewindError` or a fault of the machine ends the process with only its message; anything else is a bug
    and shows its traceback.

    Args:
        log: log file; it begins with what earlier attempts wrote that did not finish.
        threads: CPU threads that the workflow gave this job. Torch uses exactly these: two busy threads more than
            cores make a training step many times slower.
        gpus: GPUs that the workflow granted; None for jobs that never use one.
        gpu_mem_mb: memory for tensors on its one GPU, which it then shares with others; None if it shares none.
    """
    began = time.monotonic()
    # The inner exit_on_error writes into the log; the outer one catches a log that cannot be opened.
    with exit_on_error(), open_job_log(Path(log)) as stream, tee_output(stream):
        with exit_on_error(), acquire_resources(threads, gpus, require_gpu, gpu_mem_mb):
            yield
        print(f"finished in {time.monotonic() - began:.1f} s", file=stream)


@contextlib.contextmanager
def open_job_log(path: Path) -> Iterator[TextIO]:
    """A job's log, open for writing, beginning with the logs of earlier attempts that did not finish.

    Snakemake deletes a log before its job runs again. A second name of the file (a hard link), hidden next to it,
    survives that, and is removed when the block ends without an error. Of earlier attempts the last
    :data:`MAX_EARLIER_LOG_BYTES` are kept.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    attempts, link = path.with_name(f".{path.name}.attempts"), path.with_name(f".{path.name}.draft")
    earlier = _log_tail(attempts)
    for old in (path, link):
        old.unlink(missing_ok=True)  # not truncated: the hidden name is of the same file
    with _open_log(path) as stream:
        if earlier:
            stream.write(
                f"{earlier.rstrip()}\n\n--- this attempt did not come to its end; the next: {_time_and_host()} ---\n\n"
            )
            stream.flush()
        with contextlib.suppress(OSError):  # a file system without hard links keeps one attempt
            os.link(path, link)
            link.replace(attempts)
        yield stream
    attempts.unlink(missing_ok=True)


@contextlib.contextmanager
def _open_log(path: Path) -> Iterator[TextIO]:
    """A log, open for writing; an error on closing is ignored, since a full disk was reported on writing."""
    stream = path.open("w", encoding="utf-8")
    try:
        yield stream
    finally:
        with contextlib.suppress(OSError):
            stream.close()


def _log_tail(path: Path) -> str:
    """The last lines of a file within :data:`MAX_EARLIER_LOG_BYTES`; empty if there is no file."""
    if not path.is_file():
        return ""
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - MAX_EARLIER_LOG_BYTES))
        is_complete, text = stream.tell() == 0, stream.read().decode("utf-8", errors="replace")
    # Where it was cut the first line is not whole.
    return text if is_complete else "[lines before these were left out]\n" + text.partition("\n")[2]


def _time_and_host() -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M:%S')} on {socket.gethostname()}"


@contextlib.contextmanager
def exit_on_error() -> Iterator[None]:
    """End the process with exit code 1 where the block fails.

    An error for people and a fault of the machine are printed as one sentence; a bug in Rewind shows its traceback.
    """
    try:
        yield
    except Exception as error:
        if sentence := system_errors.user_message(error):
            print(f"\nerror: {sentence}\n", file=sys.stderr)
        else:
            traceback.print_exc()
        raise SystemExit(1) from None


@contextlib.contextmanager
def tee_output(stream: TextIO) -> Iterator[None]:
    """Write standard output and standard error to ``stream`` too."""
    with contextlib.redirect_stdout(_Tee(sys.stdout, stream)), contextlib.redirect_stderr(_Tee(sys.stderr, stream)):
        yield


@contextlib.contextmanager
def acquire_resources(
    threads: int, gpus: int | None, require_gpu: bool, gpu_mem_mb: int | None = None
) -> Iterator[None]:
    """Set thread counts and lease GPUs for the block; see :func:`job_session`."""
    # For libraries that are loaded later and for processes that the job starts; torch's own count is set below.
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    # A fixed workspace makes cuBLAS deterministic; it is read when CUDA starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if gpus is None:
        yield
        return
    from rewind.gpu import lease_gpus
    from rewind.torch_setup import limit_gpu_memory, set_deterministic

    with lease_gpus(gpus, share_mb=gpu_mem_mb) as devices:
        import torch  # late: jobs without GPUs need none, and CUDA must not start before CUDA_VISIBLE_DEVICES is set

        usable = torch.cuda.device_count() if devices else 0
        problem = _gpu_problem(devices, usable)
        if require_gpu and gpus and not usable:
            raise RewindError(
                f"resources.require_gpu is set, but {problem}. `rewind doctor` lists what is missing; to train on the "
                "CPU anyway, set resources.require_gpu: false."
            )
        if devices and problem:
            print(f"{problem}: running on {'those that it sees' if usable else 'the CPU'}")
        set_deterministic(threads)
        if usable and gpu_mem_mb:
            limit_gpu_memory(gpu_mem_mb)
        yield


def _gpu_problem(devices: list[str], usable: int) -> str:
    """What is wrong with the granted GPUs, if anything."""
    if not devices:
        return "no GPU is visible here"
    count = f"{len(devices)} GPU{'s' * (len(devices) > 1)}"
    if not usable:
        return f"torch cannot use the {count} of this job (a CPU build of torch, or a driver that does not fit it)"
    return f"torch sees {usable} of the {count} of this job" if usable < len(devices) else ""
