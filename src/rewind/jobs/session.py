"""The frame of every job: its log file, its threads, its GPUs, and errors that read well."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from rewind import trouble
from rewind.console import printable
from rewind.errors import RewindError
from rewind.jobs.numerics import settle

EARLIER = 100_000
"""Bytes that a log keeps of attempts before."""


class _Tee:
    """Writes to the console and to the log file, what is printable."""

    def __init__(self, console: TextIO, log: TextIO) -> None:
        self.console, self.log = console, log
        self.lost = False  # the log can no longer be written

    def write(self, text: str) -> int:
        text = printable(text)
        if not self.lost:
            try:
                self.log.write(text)
                self.log.flush()
            except OSError as error:  # the job's own fault, if there is one, must still be said
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
def session(
    log: str | os.PathLike[str], threads: int = 1, gpus: int | None = None, require_gpu: bool = False
) -> Iterator[None]:
    """Run a job: tee its output into ``log``, set thread counts, lease ``gpus``.

    A :class:`RewindError` or a fault of the machine ends the job with its message alone; anything else is a defect and
    shows its traceback.

    Args:
        log: log file, begun with what attempts wrote that did not come to their end.
        threads: CPU threads that the workflow gave this job. Torch takes exactly these: two busy threads more than
            cores make a training step many times slower.
        gpus: GPUs that the workflow granted; None for jobs that never use one.
        require_gpu: refuse to go on without one.
    """
    began = time.monotonic()
    with told(), log_of_attempts(Path(log)) as stream, redirected(stream):
        with told(), machine(threads, gpus, require_gpu):
            yield
        print(f"finished in {time.monotonic() - began:.1f} s", file=stream)


@contextlib.contextmanager
def log_of_attempts(path: Path) -> Iterator[TextIO]:
    """A job's log, open for writing; before a job runs again Snakemake deletes the file, and so would end its story.

    A second name of the file, hidden beside it, outlives that, and goes when the block ends well. Of earlier attempts
    the last ``EARLIER`` bytes are kept.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    kept, draft = path.with_name(f".{path.name}.attempts"), path.with_name(f".{path.name}.draft")
    earlier = _end_of(kept)
    for old in (path, draft):
        old.unlink(missing_ok=True)  # not emptied: the other name is of the same file
    with _opened(path) as stream:
        if earlier:
            stream.write(f"{earlier.rstrip()}\n\n--- this attempt did not come to its end; the next: {_here()} ---\n\n")
            stream.flush()
        with contextlib.suppress(OSError):  # a file system without second names keeps one attempt
            os.link(path, draft)
            draft.replace(kept)
        yield stream
    kept.unlink(missing_ok=True)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """A log, open for writing; that its last words found no space was said when they were written."""
    stream = path.open("w", encoding="utf-8")
    try:
        yield stream
    finally:
        with contextlib.suppress(OSError):
            stream.close()


def _end_of(path: Path) -> str:
    """Text of a file, but for the lines that are too many; empty if there is none."""
    if not path.is_file():
        return ""
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - EARLIER))
        whole, text = stream.tell() == 0, stream.read().decode("utf-8", errors="replace")
    return text if whole else "[lines before these were left out]\n" + text.partition("\n")[2]


def _here() -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M:%S')} on {socket.gethostname()}"


@contextlib.contextmanager
def told() -> Iterator[None]:
    """End the process with exit code 1 where the block fails.

    An error for people and a fault of the machine are told in their sentence; a defect of ours shows its traceback.
    """
    try:
        yield
    except Exception as error:
        if sentence := trouble.told(error):
            print(f"\nerror: {sentence}\n", file=sys.stderr)
        else:
            traceback.print_exc()
        raise SystemExit(1) from None


@contextlib.contextmanager
def redirected(stream: TextIO) -> Iterator[None]:
    """Write all output to ``stream`` too."""
    with contextlib.redirect_stdout(_Tee(sys.stdout, stream)), contextlib.redirect_stderr(_Tee(sys.stderr, stream)):
        yield


@contextlib.contextmanager
def machine(threads: int, gpus: int | None, require_gpu: bool) -> Iterator[None]:
    """What a job may use: threads, and GPUs where it may need some; see :func:`session`."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS repeats its bits; read when CUDA starts
    if gpus is None:
        yield
        return
    from rewind.devices import lease

    with lease(gpus) as devices:
        import torch

        usable = torch.cuda.device_count() if devices else 0
        lacking = _lacking(devices, usable)
        if require_gpu and gpus and not usable:
            raise RewindError(
                f"resources.require_gpu is set, but {lacking}. `rewind doctor` says what is missing; to train on the "
                "CPU anyway, set resources.require_gpu: false."
            )
        if devices and lacking:
            print(f"{lacking}: running on {'those that it sees' if usable else 'the CPU'}")
        settle(threads)
        yield


def _lacking(devices: list[str], usable: int) -> str:
    """What is wrong with the granted GPUs, if anything."""
    if not devices:
        return "no GPU is visible here"
    count = f"{len(devices)} GPU{'s' * (len(devices) > 1)}"
    if not usable:
        return f"torch cannot use the {count} of this job (a CPU build of torch, or a driver that does not fit it)"
    return f"torch sees {usable} of the {count} of this job" if usable < len(devices) else ""
