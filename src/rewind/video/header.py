"""What ffmpeg's log says of a source."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Header:
    """What ffmpeg's log says of a source: seconds, displayed size, frames per second; 0 where unknown."""

    seconds: float = 0.0
    width: int = 0
    height: int = 0
    fps: float = 0.0


_DURATION = re.compile(r"Duration: (\d+):(\d\d):(\d\d(?:\.\d+)?)")
_SIZE = re.compile(r", (\d+)x(\d+)[ ,\[]")
_FPS = re.compile(r"([\d.]+)(k?) fps")
_ROTATION = re.compile(r"rotation of (-?[\d.]+) degrees")


def read_header(messages: tuple[str, ...]) -> Header:
    """Read length, displayed size and rate of the first video stream from ffmpeg's log."""
    header, in_video = Header(), False
    for line in messages:
        if "Stream mapping:" in line or "Output #0" in line:
            break
        if match := _DURATION.search(line):
            hours, minutes, seconds = match.groups()
            header = replace(header, seconds=int(hours) * 3600 + int(minutes) * 60 + float(seconds))
        if "Stream #" in line:
            in_video = "Video:" in line and "(attached pic)" not in line and not header.width
        if in_video:
            header = _read_stream(header, line)
    return header


def _read_stream(header: Header, line: str) -> Header:
    size, fps, rotation = _SIZE.search(line + " "), _FPS.search(line), _ROTATION.search(line)
    if "Stream #" in line and size:
        header = replace(header, width=int(size[1]), height=int(size[2]))
    if "Stream #" in line and fps:
        header = replace(header, fps=float(fps[1]) * (1000 if fps[2] else 1))
    if rotation and round(abs(float(rotation[1]))) % 180 == 90:
        header = replace(header, width=header.height, height=header.width)
    return header
