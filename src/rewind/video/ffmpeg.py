"""Find and run ffmpeg (5.1 or newer)."""

from __future__ import annotations

import functools
import re
import signal
import subprocess
from dataclasses import dataclass
from typing import Any

from rewind.errors import RewindError
from rewind.programs import ffmpeg as executable

# Quiet apart from the header and messages with their level; nothing is asked; the first decoding error ends
# the run; one filter thread, because parallelism is over clips.
GLOBAL_OPTIONS = ("-hide_banner", "-nostdin", "-nostats", "-loglevel", "level+info", "-xerror")
FILTER_THREADS = ("-filter_complex_threads", "1")

LATE = 124  # as of `timeout`
_CRASHES = tuple(int(one) for one in (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGBUS, signal.SIGILL))
# Of the machine, not of the file, in ffmpeg's own words and those of the system.
_MACHINE = (
    *("No space left on device", "Disk quota exceeded", "Read-only file system", "Cannot allocate memory"),
    *("Too many open files", "Stale file handle", "Transport endpoint is not connected", "Permission denied"),
    *("Unknown encoder", "Resource temporarily unavailable"),
)

_CONTEXT = re.compile(r"^(\[[^\]]* @ 0x[0-9a-f]+\] )*\[(error|fatal|panic)\] ")


@dataclass(frozen=True)
class Outcome:
    """What a finished ffmpeg left: exit code (negative: a signal), stdout, and its messages line by line."""

    code: int
    output: str
    messages: tuple[str, ...]

    def tail(self, lines: int = 20) -> str:
        """The last ``lines`` messages."""
        return "\n".join(self.messages[-lines:])

    def machines(self) -> str:
        """What the machine did to it, in plain words; empty where the file is at fault, or nothing.

        A decoder that crashes (a segmentation fault and the like) does so because of the file.
        """
        if self.code < 0 and -self.code not in _CRASHES:
            return self.fault()
        found = (what for line in self.messages for what in _MACHINE if what in line)
        return next(found, "") if self.code else ""

    def fault(self) -> str:
        """The first error message in plain words: what follows it is mostly its consequences."""
        if self.code < 0:
            hint = " (out of memory?)" if self.code == -9 else ""
            return f"ffmpeg was ended by signal {-self.code}{hint}"
        for line in self.messages:
            if _CONTEXT.match(line):
                return _CONTEXT.sub("", line).strip()
        return self.messages[-1].strip() if self.messages else f"ffmpeg ended with code {self.code}"


@functools.cache
def version() -> str:
    """First line of ``ffmpeg -version``, for example ``ffmpeg version 7.0.2-static``."""
    outcome = execute([executable(), "-version"])
    lines = outcome.output.splitlines() or ["ffmpeg of unknown version"]
    return lines[0].split(" Copyright")[0]


def run(stream: Any, limit: float | None = None) -> Outcome:
    """Run a graph built with ffmpeg-python (an output or merged outputs), overwriting its files.

    A failing ffmpeg is not an exception: the caller reads ``code`` and ``messages``. ``limit``: see :func:`execute`.
    """
    graph = stream.global_args(*GLOBAL_OPTIONS, *FILTER_THREADS)
    return execute(graph.compile(cmd=executable(), overwrite_output=True), limit)


def execute(command: list[str], limit: float | None = None) -> Outcome:
    """Run a command line without a shell and without stdin.

    Args:
        command: program and arguments.
        limit: seconds after which it is ended: the outcome's code is ``LATE``, and its one message says so.

    Raises:
        RewindError: if the program cannot be started.
    """
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return Outcome(LATE, "", (f"ffmpeg was still at work after {limit:,.0f} s, and was ended",))
    except OSError as error:
        raise RewindError(
            f"{command[0]}: cannot be started ({error}); check that it is an ffmpeg for this machine."
        ) from error
    messages = done.stderr.decode("utf-8", "replace").splitlines()
    return Outcome(done.returncode, done.stdout.decode("utf-8", "replace"), tuple(messages))
