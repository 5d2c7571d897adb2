"""Write source clips from raw pictures, for data sets that are made here."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from rewind import programs
from rewind.errors import RewindError
from rewind.files import atomic


class Pictures(NamedTuple):
    """A clip to be written.

    Attributes:
        target: the mp4 file.
        frames: all pictures, one after the other, height × width × 3 bytes each.
        size: width and height.
        rate: pictures per second, as ffmpeg writes it.
    """

    target: Path
    frames: bytes
    size: tuple[int, int]
    rate: str


def write_clip(target: Path, frames: bytes, size: tuple[int, int], rate: str, coding: str) -> None:
    """Encode RGB pictures as H.264: see :func:`write_clips`."""
    write_clips([Pictures(target, frames, size, rate)], coding)


def write_clips(clips: Sequence[Pictures], coding: str) -> None:
    """Encode RGB pictures as H.264, atomically; the same input gives the same bytes on the same ffmpeg.

    All clips go through one process, since of small ones its start takes longer than the coding; the bytes are those
    of a process for each.

    Args:
        clips: what to write.
        coding: options of the encoder and filters, separated by blanks.

    Raises:
        RewindError: if ffmpeg fails.
    """
    out = f"-c:v libx264 -preset veryfast {coding} -threads 1 -map_metadata -1 -fflags +bitexact -flags:v +bitexact"
    command = [programs.ffmpeg(), *["-nostdin", "-loglevel", "error", "-y"]]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rewind-")))
        for at, clip in enumerate(clips):
            (folder / str(at)).write_bytes(clip.frames)
            width, height = clip.size
            raw = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {clip.rate} -i"
            command += [*raw.split(), str(folder / str(at))]
        for at, clip in enumerate(clips):
            command += ["-map", f"{at}:v", *out.split(), str(stack.enter_context(atomic(clip.target)))]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            why = done.stderr.decode(errors="replace").strip()[-500:]
            first, last = clips[0].target, clips[-1].target
            where = f"{first}" if len(clips) == 1 else f"{first} to {last.name}"
            raise RewindError(f"{where}: ffmpeg failed with exit code {done.returncode}: {why or 'no message'}.")
