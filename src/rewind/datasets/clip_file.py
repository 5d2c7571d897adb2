"""Write a source clip from raw pictures, for data sets that are made here."""

from __future__ import annotations

import subprocess
from pathlib import Path

from rewind import programs
from rewind.errors import RewindError
from rewind.files import atomic


def write_clip(target: Path, frames: bytes, size: tuple[int, int], rate: str, coding: str) -> None:
    """Encode RGB pictures as H.264, atomically; the same input gives the same bytes on the same ffmpeg.

    Args:
        target: the mp4 file.
        frames: all pictures, one after the other, height × width × 3 bytes each.
        size: width and height.
        rate: pictures per second, as ffmpeg writes it.
        coding: options of the encoder and filters, separated by blanks.

    Raises:
        RewindError: if ffmpeg fails.
    """
    width, height = size
    options = (
        f"-nostdin -loglevel error -y -f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {rate} -i pipe:0 "
        f"-c:v libx264 -preset veryfast {coding} -threads 1 -map_metadata -1 -fflags +bitexact -flags:v +bitexact"
    )
    with atomic(target) as draft:
        command = [programs.ffmpeg(), *options.split(), str(draft)]
        done = subprocess.run(command, input=frames, capture_output=True, check=False)
        if done.returncode:
            why = done.stderr.decode(errors="replace").strip()[-500:]
            raise RewindError(f"{target}: ffmpeg failed with exit code {done.returncode}: {why or 'no message'}.")
