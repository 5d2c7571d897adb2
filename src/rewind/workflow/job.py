"""One job of the workflow: its files and parameters as plain values, and the process around it.

:class:`Job` is made from the ``snakemake`` object of a script, or from a stored record of one. :func:`job_session` tees
output into the log, sets thread counts, leases GPUs and ends with a readable message where the job fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, overload

from rewind import system_errors
from rewind.errors import RewindError, printable
from rewind.workflow.torch_setup import set_deterministic

# ---- A job as plain values -----------------------------------------------------------------------------------------


class NamedList:
    """Values in order, of which some have a name: ``input[0]``, ``input.model``, ``input.get("store")``.

    A name stands for one value, or for a list of them where the rule gives a list.

    >>> values = NamedList(["a.csv", "b.npz"], {"model": "b.npz"})
    >>> values[0], values.model, values.get("store"), len(values)
    ('a.csv', 'b.npz', None, 2)
    """

    def __init__(self, values: Iterable[Any], names: Mapping[str, Any]) -> None:
        self._values, self._names = list(values), dict(names)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._names:
            raise AttributeError(f"{name!r} is not given; there are: {', '.join(self.__dict__.get('_names', ()))}")
        return self._names[name]

    def __getitem__(self, position: int) -> Any:
        return self._values[position]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def get(self, name: str, default: Any = None) -> Any:
        return self._names.get(name, default)

    def items(self) -> dict[str, Any]:
        """Names and what they stand for."""
        return dict(self._names)


class Outputs(NamedList):
    """Files that a job writes, each a path as ``str``; callers make a :class:`pathlib.Path` where one is needed."""

    if TYPE_CHECKING:  # the same methods with known types, so that mypy finds a str where a Path is needed

        def __getattr__(self, name: str) -> str: ...

        def __getitem__(self, place: int) -> str: ...

        def __iter__(self) -> Iterator[str]: ...

        @overload
        def get(self, name: str, default: str) -> str: ...

        @overload
        def get(self, name: str, default: None = None) -> str | None: ...

        def get(self, name: str, default: str | None = None) -> str | None: ...


@dataclass(frozen=True)
class Job:
    """One job of the workflow: what a rule's function gets as its only argument.

    Attributes:
        rule: name of its rule; in a workflow that uses this one as a module it may have a prefix.
        input: files; a name stands for one or for a list of them.
        output: files, each under its own name.
        params: parameters, plain values.
        wildcards: name → value.
        threads: cores that it was granted.
        resources: name → number or text; jobs that may use GPUs have ``gpu``.
        log: its log file.

    >>> output = Outputs(["results/demo/metrics.csv"], {"table": "results/demo/metrics.csv"})
    >>> job = Job("metrics", NamedList([], {}), output, NamedList([], {}), {"study": "demo"}, 1, {}, "logs/metrics.log")
    >>> job.below(Path("/tmp/again")).output.table
    '/tmp/again/results/demo/metrics.csv'
    >>> Job.read(job.content()).wildcards
    {'study': 'demo'}
    """

    rule: str
    input: NamedList
    output: Outputs
    params: NamedList
    wildcards: dict[str, str]
    threads: int
    resources: dict[str, Any]
    log: str

    @classmethod
    def of(cls, snakemake: Any) -> Job:
        """From the object that Snakemake hands to a script.

        It goes through JSON, as a record does, so that a job that is run again from its record gets the same values.
        """
        content = {
            "rule": snakemake.rule,
            "input": _file_values(snakemake.input),
            "output": _file_values(snakemake.output),
            "params": {"values": list(snakemake.params), "names": dict(snakemake.params.items())},
            "wildcards": {name: str(value) for name, value in snakemake.wildcards.items()},
            "threads": snakemake.threads,
            "resources": {name: _plain_value(value) for name, value in snakemake.resources.items()},
            "log": str(snakemake.log[0]),
        }
        return cls.read(json.loads(json.dumps(content)))

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Job:
        """From the result of :meth:`content`."""
        lists = {name: NamedList(**content[name]) for name in ("input", "params")}
        return cls(**{**content, **lists, "output": Outputs(**content["output"])})

    def content(self) -> dict[str, Any]:
        """The job as values that JSON can hold."""
        parts = {"input": self.input, "output": self.output, "params": self.params}
        lists = {name: {"values": list(part), "names": part.items()} for name, part in parts.items()}
        return {**vars(self), **lists}

    def below(self, folder: Path) -> Job:
        """The same job with everything that it writes (outputs, log, the state that it resumes from) below a folder."""
        output = self.output.items()
        moved = {name: _below_folder(value, folder) for name, value in output.items()}
        params = self.params.items()
        if "state" in params:
            params["state"] = _below_folder(params["state"], folder)
        resources = {name: value for name, value in self.resources.items() if name != "state_folder"}
        return replace(
            self,
            output=Outputs([_below_folder(path, folder) for path in self.output], moved),
            params=NamedList(list(self.params), params),
            resources=resources,
            log=_below_folder(self.log, folder),
        )


def _file_values(files: Any) -> dict[str, Any]:
    names = {
        name: [str(path) for path in value] if isinstance(value, list) else str(value) for name, value in files.items()
    }
    return {"values": [str(path) for path in files], "names": names}


def _plain_value(value: Any) -> int | float | str | None:
    return value if isinstance(value, int | float | None) else str(value)


def _below_folder(value: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return [_below_folder(path, folder) for path in value]
    path = Path(value)
    return str(folder / path.relative_to(path.anchor))


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
                self.log.flush()
            except OSError as error:  # a full disk must not hide the job's own error
                self.lost = True
                self.console.write(f"{self.log.name}: nothing more is logged ({error.strerror})\n")
        return self.console.write(text)

    def flush(self) -> None:
        self.console.flush()

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self.console.fileno()


@contextlib.contextmanager
def job_session(
    log: str | os.PathLike[str], threads: int = 1, gpus: int | None = None, require_gpu: bool = False
) -> Iterator[None]:
    """The process around a job: tee its output into ``log``, set thread counts, lease ``gpus``.

    A :class:`RewindError` or a fault of the machine ends the process with its message alone; anything else is a defect
    and shows its traceback.

    Args:
        log: log file; it begins with what earlier attempts wrote that did not finish.
        threads: CPU threads that the workflow gave this job. Torch uses exactly these: two busy threads more than
            cores make a training step many times slower.
        gpus: GPUs that the workflow granted; None for jobs that never use one.
        require_gpu: refuse to go on without one.
    """
    began = time.monotonic()
    # The inner exit_on_error writes into the log; the outer one catches a log that cannot be opened.
    with exit_on_error(), open_job_log(Path(log)) as stream, tee_output(stream):
        with exit_on_error(), acquire_resources(threads, gpus, require_gpu):
            yield
        print(f"finished in {time.monotonic() - began:.1f} s", file=stream)


@contextlib.contextmanager
def open_job_log(path: Path) -> Iterator[TextIO]:
    """A job's log, open for writing, beginning with the logs of earlier attempts that did not finish.

    Snakemake deletes a log before its job runs again. A second name of the file (a hard link), hidden beside it,
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
    return text if is_complete else "[lines before these were left out]\n" + text.partition("\n")[2]


def _time_and_host() -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M:%S')} on {socket.gethostname()}"


@contextlib.contextmanager
def exit_on_error() -> Iterator[None]:
    """End the process with exit code 1 where the block fails.

    An error for people and a fault of the machine are printed as one sentence; a defect of ours shows its traceback.
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
def acquire_resources(threads: int, gpus: int | None, require_gpu: bool) -> Iterator[None]:
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

    with lease_gpus(gpus) as devices:
        import torch  # late: jobs without GPUs need none, and CUDA must not start before CUDA_VISIBLE_DEVICES is set

        usable = torch.cuda.device_count() if devices else 0
        problem = _gpu_problem(devices, usable)
        if require_gpu and gpus and not usable:
            raise RewindError(
                f"resources.require_gpu is set, but {problem}. `rewind doctor` says what is missing; to train on the "
                "CPU anyway, set resources.require_gpu: false."
            )
        if devices and problem:
            print(f"{problem}: running on {'those that it sees' if usable else 'the CPU'}")
        set_deterministic(threads)
        yield


def _gpu_problem(devices: list[str], usable: int) -> str:
    """What is wrong with the granted GPUs, if anything."""
    if not devices:
        return "no GPU is visible here"
    count = f"{len(devices)} GPU{'s' * (len(devices) > 1)}"
    if not usable:
        return f"torch cannot use the {count} of this job (a CPU build of torch, or a driver that does not fit it)"
    return f"torch sees {usable} of the {count} of this job" if usable < len(devices) else ""
