"""Programs that a command starts end with it: after a signal and Ctrl-C too, and where nobody reads its output."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ENDING_SIGNALS = [
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name)
]  # SIGINT is KeyboardInterrupt already
POLL_SECONDS = 0.2
GRACE_SECONDS = 10.0  # from SIGTERM, after which Snakemake removes its lock, to SIGKILL


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """Let signals end the block by an exception, as Ctrl-C does: children are ended then, and drafts of files removed.

    Signals that somebody ignores or handles, such as SIGHUP after ``nohup``, are left alone.
    """

    def end(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    replaced = []
    if threading.current_thread() is threading.main_thread():  # Python allows no other
        replaced = [number for number in ENDING_SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
        for number in replaced:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, signal.SIG_DFL)


def run_program(command: Sequence[str], while_running: Callable[[], None] = lambda: None, **options: Any) -> int:
    """Run a program and return its exit code; it ends with this process, and so do programs that it started.

    They are a process group of their own, so that none is missed, and Ctrl-C in a terminal reaches them only through
    this process. ``while_running`` is called every :data:`POLL_SECONDS`, ``options`` are for ``subprocess.Popen``.

    Raises:
        BrokenPipeError: if nobody reads what this process prints any more.
    """
    process = subprocess.Popen(command, process_group=0, **options)
    try:
        while True:
            try:
                return process.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                while_running()
                _require_reader()
    except BaseException:
        _end_group(process)
        raise


def run_snakemake(
    arguments: Sequence[str], folder: str | Path = ".", while_running: Callable[[], None] = lambda: None, **options: Any
) -> int:
    """Run Snakemake in a folder, like :func:`run_program`; one that had to be ended leaves no lock behind."""
    locks = Path(folder) / ".snakemake/locks"
    others = set(locks.glob("*"))
    try:
        return run_program([sys.executable, "-m", "snakemake", *arguments], while_running, cwd=folder, **options)
    except BaseException:
        for lock in set(locks.glob("*")) - others:
            lock.unlink(missing_ok=True)
        raise


def _require_reader() -> None:
    """Notice a closed pipe or a terminal that is gone before the next line is printed, which may be hours away."""
    if not hasattr(select, "poll"):
        return
    streams = select.poll()
    for number in (1, 2):
        streams.register(number, 0)
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in streams.poll(0)):
        raise BrokenPipeError


def _end_group(process: subprocess.Popen[Any]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        # A second Ctrl-C, or a second signal, does not wait.
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt, SystemExit):
            process.wait(GRACE_SECONDS)
