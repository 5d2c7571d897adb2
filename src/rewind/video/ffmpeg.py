"""Run ffmpeg (5.1 or newer) and read its exit code and messages."""

from __future__ import annotations

import functools
import re
import signal
import subprocess
from dataclasses import dataclass
from typing import Any

from rewind.errors import RewindError
from rewind.platform import ffmpeg_path as executable

# -nostdin: ffmpeg would read keys from the terminal, and swallow what is typed for the program around it.
# level+info: each message says its level, by which errors are told from warnings, and the header of the source is
# printed, from which its length and size are read. -xerror: the first decoding error ends the run; by default ffmpeg
# patches the picture and ends with code 0.
GLOBAL_OPTIONS = ("-hide_banner", "-nostdin", "-nostats", "-loglevel", "level+info", "-xerror")
# One filter thread: the work is parallel over clips, and by default each ffmpeg would start a thread per core.
FILTER_THREADS = ("-filter_complex_threads", "1")

TIMEOUT_EXIT_CODE = 124  # as of `timeout`
_CRASH_SIGNALS = tuple(
    int(number) for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGBUS, signal.SIGILL)
)
# Faults of the machine and not of the file, in the words of ffmpeg and of the C library.
_SYSTEM_ERROR_TEXTS = (
    *("No space left on device", "Disk quota exceeded", "Read-only file system", "Cannot allocate memory"),
    *("Too many open files", "Stale file handle", "Transport endpoint is not connected", "Permission denied"),
    *("Unknown encoder", "Resource temporarily unavailable"),
)

# "[h264 @ 0x55…] [error] message" → "message".
_LOG_PREFIX = re.compile(r"^(\[[^\]]* @ 0x[0-9a-f]+\] )*\[(error|fatal|panic)\] ")


@dataclass(frozen=True)
class FfmpegResult:
    """What a finished ffmpeg left: exit code (negative: a signal), stdout, and its messages line by line.

    >>> result = FfmpegResult(1, "", ("[info] Input #0", "[h264 @ 0x5] [error] no frame!"))
    >>> result.fault(), result.machine_fault()
    ('no frame!', '')
    """

    code: int
    output: str
    messages: tuple[str, ...]

    def tail(self, lines: int = 20) -> str:
        """The last ``lines`` messages."""
        return "\n".join(self.messages[-lines:])

    def machine_fault(self) -> str:
        """What went wrong with the machine, in plain words; empty if the file is at fault, or nothing is.

        A crash of the decoder (a segmentation fault and the like) is put down to the file, so it does not count.
        """
        if self.code < 0 and -self.code not in _CRASH_SIGNALS:
            return self.fault()
        texts = (text for line in self.messages for text in _SYSTEM_ERROR_TEXTS if text in line)
        return next(texts, "") if self.code else ""

    def fault(self) -> str:
        """The first error message without its prefix: later ones are mostly its consequences."""
        if self.code < 0:
            hint = " (out of memory?)" if self.code == -9 else ""  # SIGKILL, as Linux sends when memory runs out
            return f"ffmpeg was ended by signal {-self.code}{hint}"
        for line in self.messages:
            if _LOG_PREFIX.match(line):
                return _LOG_PREFIX.sub("", line).strip()
        return self.messages[-1].strip() if self.messages else f"ffmpeg ended with code {self.code}"


@functools.cache
def ffmpeg_version() -> str:
    """First line of ``ffmpeg -version``, for example ``ffmpeg version 7.0.2-static``."""
    lines = run_command([executable(), "-version"]).output.splitlines() or ["ffmpeg of unknown version"]
    return lines[0].split(" Copyright")[0]


def run_ffmpeg(stream: Any, limit: float | None = None) -> FfmpegResult:
    """Run a graph built with ffmpeg-python (an output or merged outputs), overwriting its files.

    A failing ffmpeg raises nothing: the caller reads ``code`` and ``messages``.

    Args:
        stream: the graph.
        limit: seconds, see :func:`run_command`.
    """
    graph = stream.global_args(*GLOBAL_OPTIONS, *FILTER_THREADS)
    return run_command(graph.compile(cmd=executable(), overwrite_output=True), limit)


def run_command(command: list[str], limit: float | None = None) -> FfmpegResult:
    """Run a command line without a shell and without stdin.

    Args:
        command: program and arguments.
        limit: seconds after which it is ended; the result's code is then ``TIMEOUT_EXIT_CODE``, and its one message
            says so.

    Raises:
        RewindError: if the program cannot be started.
    """
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return FfmpegResult(TIMEOUT_EXIT_CODE, "", (f"ffmpeg was still at work after {limit:,.0f} s, and was ended",))
    except OSError as error:
        raise RewindError(
            f"{command[0]}: cannot be started ({error}); check that it is an ffmpeg for this machine."
        ) from error
    messages = done.stderr.decode("utf-8", "replace").splitlines()
    return FfmpegResult(done.returncode, done.stdout.decode("utf-8", "replace"), tuple(messages))
