"""Run ffmpeg and read its exit code and messages."""

from __future__ import annotations

import functools
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import ffmpeg

from rewind.errors import RewindError
from rewind.platform import FFMPEG_REMEDY
from rewind.platform import ffmpeg_path as executable

# -nostdin: ffmpeg would read keys from the terminal, and swallow what is typed for the program around it.
# level+info: each message states its level, by which errors are told from warnings, and the header of the source is
# printed, from which its length and size are read. -xerror: the first decoding error ends the run; by default ffmpeg
# patches the picture and ends with code 0.
_STOP_AT_ERRORS = "-xerror"
GLOBAL_OPTIONS = ("-hide_banner", "-nostdin", "-nostats", "-loglevel", "level+info", _STOP_AT_ERRORS)
# One filter thread: the work is parallel over clips, and by default each ffmpeg would start a thread per core.
FILTER_THREADS = ("-filter_complex_threads", "1")

TIMEOUT_EXIT_CODE = 124  # as of `timeout`
TIMEOUT_PER_SECOND, MIN_TIMEOUT = 5.0, 120.0  # seconds for ffmpeg, per second that it reads and besides
_CRASH_SIGNALS = tuple(
    int(number) for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGBUS, signal.SIGILL)
)
# "[in#0/avi @ 0x55…] [h264 @ 0x55…] [error] message": the speaker, the level, and the message.
_LOG_LINE = re.compile(r"((?:\[[^\]]* @ 0x[0-9a-f]+\] )*)\[(\w+)\] (.*)", re.DOTALL)
_ERROR_LEVELS = ("error", "fatal", "panic")


class LogLine(NamedTuple):
    """A message of ffmpeg's: who speaks (empty: ffmpeg itself), its level, and what is said."""

    speaker: str
    level: str
    text: str

    @property
    def is_error(self) -> bool:
        return self.level in _ERROR_LEVELS


def read_log_line(line: str) -> LogLine | None:
    """The parts of a line of the log; None for one that goes on with another, such as a long title.

    >>> read_log_line("[vist#0:0/h264 @ 0x5] [dec:h264 @ 0x5] [error] no frame!")
    LogLine(speaker='vist#0:0/h264 dec:h264', level='error', text='no frame!')
    """
    match = _LOG_LINE.fullmatch(line)
    if match is None:
        return None
    return LogLine(" ".join(re.findall(r"\[([^\]]*) @ ", match[1])), match[2], match[3].strip())


@dataclass(frozen=True)
class FfmpegResult:
    """What a finished ffmpeg left: exit code (negative: a signal), stdout, and its messages line by line.

    >>> result = FfmpegResult(1, "", ("[info] Input #0", "[h264 @ 0x5] [error] no frame!"))
    >>> result.fault(), result.was_stopped
    ('no frame!', False)
    """

    code: int
    output: str
    messages: tuple[str, ...]

    def tail(self, lines: int = 20) -> str:
        """The last ``lines`` messages."""
        return "\n".join(self.messages[-lines:])

    @property
    def was_stopped(self) -> bool:
        """Whether a signal from outside ended it."""
        return self.code < 0 and not self.crashed

    @property
    def crashed(self) -> bool:
        """Whether it ended by a signal of its own, a segmentation fault or the like."""
        return -self.code in _CRASH_SIGNALS

    def errors(self) -> list[str]:
        """What is said as an error; names and titles of files, which may say anything, never are."""
        return [line.text for line in map(read_log_line, self.messages) if line and line.is_error]

    def fault(self) -> str:
        """The first error message without its prefix: later ones are mostly its consequences."""
        if self.code < 0:
            hint = " (out of memory?)" if self.code == -9 else ""  # SIGKILL, as Linux sends when memory runs out
            return f"ffmpeg was ended by signal {-self.code}{hint}"
        if errors := self.errors():
            return errors[0]
        return self.messages[-1].strip() if self.messages else f"ffmpeg ended with code {self.code}"


@functools.cache
def ffmpeg_version() -> str:
    """First line of ``ffmpeg -version``, for example ``ffmpeg version 7.0.2-static``."""
    lines = run_command([executable(), "-version"]).output.splitlines() or ["ffmpeg of unknown version"]
    return lines[0].split(" Copyright")[0]


ENCODER = "libx264"


@functools.cache
def _encoders(path: str) -> str:
    return run_command([path, "-hide_banner", "-encoders"]).output


def require_encoder() -> None:
    """Refuse an ffmpeg that cannot write clips."""
    # Between blanks: the name of another encoder, libx264rgb, begins with this one.
    if f" {ENCODER} " not in _encoders(executable()):
        raise RewindError(f"{executable()}: this ffmpeg has no {ENCODER}, which encodes clips; {FFMPEG_REMEDY}.")


@functools.cache
def _filters(path: str) -> frozenset[str]:
    # Lines such as " TS bwdif             V->V       Deinterlace the input image."
    listing = run_command([path, "-hide_banner", "-filters"]).output
    return frozenset(re.findall(r"^ [.A-Z]{2,3} (\w+) +\S+->\S+ ", listing, re.MULTILINE))


def available_filters() -> frozenset[str]:
    """Names of the filters that this ffmpeg has."""
    return _filters(executable())


# Demuxers of files that hold their own frames. Left out are lists of other files: concat, DASH, HLS, IMF, sdp, image2.
ALLOWED_DEMUXERS = (
    "mov,matroska,avi,flv,gif,asf,mpegts,mpeg,mpegvideo,m4v,h264,hevc,mjpeg,mxf,ogg,ivf,nut,dv,rm,wtv,apng,webp_anim"
)


def input_stream(source: Path, seconds: float, **options: str) -> Any:
    """The first video stream of a source, as an ffmpeg-python input, up to ``seconds``; options go before ``-i``."""
    # "file:" keeps a name such as "http:x" a file's name. The whitelists keep a playlist or manifest under a clip's
    # name from opening other files or addresses: ffmpeg goes by content, whatever the suffix is. One decoding thread:
    # the work is parallel over clips.
    clip = ffmpeg.input(
        f"file:{source}",
        protocol_whitelist="file",
        format_whitelist=ALLOWED_DEMUXERS,
        threads=1,
        t=f"{seconds:.6f}",
        **options,
    )
    return clip["V:0"]  # unlike "v", "V" leaves out cover pictures


def time_limit(seconds: float) -> float:
    """Seconds after which an ffmpeg that reads so many seconds of a clip is taken to hang."""
    return MIN_TIMEOUT + TIMEOUT_PER_SECOND * seconds


def run_ffmpeg(stream: Any, limit: float, stop_at_errors: bool = True) -> FfmpegResult:
    """Run a graph built with ffmpeg-python (an output or merged outputs), overwriting its files.

    A failing ffmpeg raises nothing: the caller reads ``code`` and ``messages``.

    Args:
        limit: seconds, as of :func:`run_command`.
        stop_at_errors: fail at the first decoding error instead of patching the picture.
    """
    options = [option for option in GLOBAL_OPTIONS if stop_at_errors or option != _STOP_AT_ERRORS]
    graph = stream.global_args(*options, *FILTER_THREADS)
    return run_command(graph.compile(cmd=executable(), overwrite_output=True), limit)


def run_command(command: list[str], limit: float | None = None) -> FfmpegResult:
    """Run a command line without a shell and without stdin.

    After ``limit`` seconds, by default ``MIN_TIMEOUT``, it is ended; the result's code is then ``TIMEOUT_EXIT_CODE``,
    and its one message states that.
    """
    limit = MIN_TIMEOUT if limit is None else limit
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return FfmpegResult(TIMEOUT_EXIT_CODE, "", (f"ffmpeg was still at work after {limit:,.0f} s, and was ended",))
    except OSError as error:
        raise RewindError(
            f"{command[0]}: cannot be started ({error}); check that it is an ffmpeg for this machine."
        ) from error
    messages = done.stderr.decode("utf-8", "replace").splitlines()  # titles of sources may be in any encoding
    return FfmpegResult(done.returncode, done.stdout.decode("utf-8", "replace"), tuple(messages))
