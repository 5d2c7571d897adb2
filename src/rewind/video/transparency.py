"""Clips with an alpha channel: whether anything in them is transparent, and the filters that put it on white.

A channel alone says little: every GIF is decoded with one. So it is looked at, and only what is transparent somewhere
takes another way than other clips.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import ffmpeg

NOTE = "transparent, shown on white"
"""What the report says of a clip or an image."""
_STREAM = re.compile(r"Video: (\w+)(?: \([^()]*\))*, (\w+)")
_CHANNEL = re.compile(r"yuva|rgba|bgra|argb|abgr|gbrap|ya8|ya16|pal8")
_LOWEST = re.compile(r"lavfi\.signalstats\.YMIN=(\d+)")
# ffmpeg's own decoders of these pass over the channel, which lies beside the pictures.
_DECODERS = {"vp8": "libvpx", "vp9": "libvpx-vp9"}
_OPAQUE = 255


@dataclass(frozen=True)
class Channel:
    """A source's alpha channel.

    Attributes:
        decoder: what decodes it, if it is not what ffmpeg chooses.
    """

    decoder: str = ""

    def options(self) -> dict[str, str]:
        """Options of the source as ffmpeg's input."""
        return {"c:v": self.decoder} if self.decoder else {}

    def unread(self) -> str:
        """What the report says where the decoder is lacking."""
        return f"transparent, shown as it is stored: this ffmpeg has no {self.decoder}, which reads transparency"


def channel(messages: tuple[str, ...]) -> Channel | None:
    """The alpha channel of the first video stream, from ffmpeg's log; None if it has none."""
    codec = ""
    for line in messages:
        if "Stream mapping:" in line or "Output #0" in line or (codec and "Stream #" in line):
            break
        if "Stream #" in line and "Video:" in line and "(attached pic)" not in line and (match := _STREAM.search(line)):
            codec, pixels = match.groups()
            if _CHANNEL.match(pixels):
                return Channel()
        if re.search(r"alpha_mode\s*: 1", line) and codec in _DECODERS:
            return Channel(_DECODERS[codec])
    return None


def lowest(clip: Any) -> Any:
    """The ffmpeg-python graph that prints the lowest alpha of every frame."""
    alpha = clip.filter("alphaextract").filter("format", "gray").filter("signalstats")
    alpha = alpha.filter("metadata", mode="print", key="lavfi.signalstats.YMIN", file="-")
    return ffmpeg.output(alpha, "-", f="null")


def transparent(output: str) -> bool:
    """Whether a clip is transparent somewhere, from what :func:`lowest` printed."""
    return any(int(value) < _OPAQUE for value in _LOWEST.findall(output))


def on_white(clip: Any) -> Any:
    """Filters that lay every frame on white."""
    ways = clip.filter("format", "rgba").filter_multi_output("split")
    white = ways[0].filter("lutrgb", r=255, g=255, b=255, a=255)
    return ffmpeg.filter([white, ways[1]], "overlay", format="rgb")
