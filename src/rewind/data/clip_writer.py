"""Writes source clips from raw RGB frames with ffmpeg, for datasets that Rewind generates."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from rewind import platform
from rewind.errors import RewindError
from rewind.io.files import atomic_write


class RawClip(NamedTuple):
    """A clip to be written."""

    target: Path  # the mp4 file
    frames: bytes  # RGB of all frames one after the other, height × width × 3 bytes each
    size: tuple[int, int]  # width and height in pixels
    rate: str  # frames per second as ffmpeg takes it: 8, 25/2, 30000/1001


def write_clip(target: Path, frames: bytes, size: tuple[int, int], rate: str, coding: str) -> None:
    """Encode the frames of one clip as H.264; see :func:`write_clips`."""
    write_clips([RawClip(target, frames, size, rate)], coding)


def write_clips(clips: Sequence[RawClip], coding: str) -> None:
    """Encode RGB frames as H.264, atomically; the same input gives the same bytes with the same ffmpeg.

    All clips go through one ffmpeg process, because for small clips its start takes longer than the encoding; the bytes
    are those of a process for each. Temporary files become the targets when ffmpeg has succeeded for all clips.
    ``coding`` are options of the encoder and filters, separated by blanks.
    """
    # One thread, no metadata and "bitexact": otherwise the bytes would depend on the number of cores, and name the
    # version of the encoder.
    out = f"-c:v libx264 -preset veryfast {coding} -threads 1 -map_metadata -1 -fflags +bitexact -flags:v +bitexact"
    # -nostdin: ffmpeg would otherwise read keys from the job's terminal; -y: overwrite without asking.
    command = [platform.ffmpeg_path(), *["-nostdin", "-loglevel", "error", "-y"]]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rewind-")))
        for number, clip in enumerate(clips):
            (folder / str(number)).write_bytes(clip.frames)
            width, height = clip.size
            # Raw video has no header: size, pixel format and rate must come before its input.
            raw = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {clip.rate} -i"
            command += [*raw.split(), str(folder / str(number))]
        for number, clip in enumerate(clips):  # -map: output n takes the video of input n
            command += ["-map", f"{number}:v", *out.split(), str(stack.enter_context(atomic_write(clip.target)))]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            why = done.stderr.decode(errors="replace").strip()[-500:]
            first, last = clips[0].target, clips[-1].target
            where = f"{first}" if len(clips) == 1 else f"{first} to {last.name}"
            raise RewindError(f"{where}: ffmpeg failed with exit code {done.returncode}: {why or 'no message'}.")
