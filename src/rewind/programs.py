"""Programs that Rewind runs."""

from __future__ import annotations

import functools
import shutil

from rewind.errors import RewindError


@functools.cache
def ffmpeg() -> str:
    """Path of ffmpeg: the one on PATH, else the one that the package imageio-ffmpeg carries.

    Raises:
        RewindError: if there is neither.
    """
    found = shutil.which("ffmpeg")
    if found:
        return found
    try:
        import imageio_ffmpeg

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError) as error:
        raise RewindError(
            "ffmpeg was not found: put ffmpeg (5.1 or newer, with libx264) on PATH, or install the Python "
            "package imageio-ffmpeg, which includes one."
        ) from error
