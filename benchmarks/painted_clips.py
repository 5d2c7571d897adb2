"""Clips whose frames show their own number, coded in the ways that readers of frames get wrong.

A number is painted as twelve blocks, black or white, in two rows along the top, most significant bit first; they
survive any compression. Below them colours move, so that no two frames are equal and a wrong conversion of colours
shows.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rewind.config import Video
from rewind.video import ffmpeg
from rewind.video.transcode import transcode_clip

BITS, ROWS = 12, 2


def painted_frames(count: int, width: int, height: int) -> np.ndarray:
    """uint8 RGB (count, height, width, 3), of which frame n shows the number n.

    >>> painted_numbers(painted_frames(70, 96, 64)) == list(range(70))
    True
    """
    x, y, time = np.arange(width), np.arange(height)[:, None], np.arange(count)[:, None, None]
    frames = np.empty((count, height, width, 3), np.uint8)
    frames[..., 0] = (3 * x + 5 * time) % 256
    frames[..., 1] = (4 * y + 7 * time) % 256
    frames[..., 2] = (2 * x + 2 * y + 3 * time) % 256
    for bit in range(BITS):
        values = np.where(np.arange(count) >> (BITS - 1 - bit) & 1, 255, 0)
        frames[(slice(None), *_block(bit, width, height))] = values[:, None, None, None]
    return frames


def painted_numbers(frames: np.ndarray) -> list[int]:
    """The numbers that upright frames, uint8 (n, height, width, 3), show."""
    height, width = frames.shape[1:3]
    white = [frames[(slice(None), *_block(bit, width, height))].mean((1, 2, 3)) > 127 for bit in range(BITS)]
    return [sum(1 << (BITS - 1 - bit) for bit in range(BITS) if white[bit][n]) for n in range(len(frames))]


def _block(bit: int, width: int, height: int) -> tuple[slice, slice]:
    side_x, side_y = width * ROWS // BITS, height // 4
    row, column = divmod(bit, BITS // ROWS)
    return slice(row * side_y, (row + 1) * side_y), slice(column * side_x, (column + 1) * side_x)


# ---- Ways of coding --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PaintedClip:
    """How a painted clip is coded.

    Attributes:
        encoder: ffmpeg's name of it.
        options: of the encoder and the output.
        frames, width, height: of what is painted; a width above the height.
        file: name of the file, whose suffix chooses the container.
        first: the number that the first frame shows, where the clip is cut.
        turned: quarter turns by which the header asks players to turn it, anticlockwise.
        prepared: what is coded is a source, which Rewind then prepares.
        cut: seconds at which the coded clip is cut, without coding it anew.
        counted: frames that the header counts too many.
    """

    encoder: str
    options: str = ""
    frames: int = 70
    width: int = 96
    height: int = 64
    file: str = "clip.mp4"
    first: int = 0
    turned: int = 0
    prepared: bool = False
    cut: float | None = None
    counted: int = 0

    def numbers(self) -> list[int]:
        """What the frames of the clip show, in order."""
        return list(range(self.first, self.frames))

    def shown(self, frames: np.ndarray) -> list[int]:
        """What frames of the clip show, uint8 (n, height, width, 3)."""
        return painted_numbers(np.rot90(frames, -self.turned, axes=(1, 2)))


_H264 = "-pix_fmt yuv420p -threads 1"
_HEVC = "-pix_fmt yuv420p -tag:v hvc1 -x265-params log-level=none"
_UNEVEN = "setpts='N*40+mod(N,3)*13+floor(N/20)*500'"  # milliseconds

CLIPS = {
    "prepared by Rewind": PaintedClip("libx264", _H264, prepared=True),
    "prepared, 16 wide": PaintedClip("libx264", _H264, width=16, height=16, prepared=True),
    "prepared, 24 wide": PaintedClip("libx264", _H264, width=24, height=16, prepared=True),
    "prepared, 48 wide": PaintedClip("libx264", _H264, width=48, height=32, prepared=True),
    "prepared, 72 wide": PaintedClip("libx264", _H264, width=72, height=48, prepared=True),
    "prepared, 398 wide": PaintedClip("libx264", _H264, width=398, height=224, frames=20, prepared=True),
    "prepared, one frame": PaintedClip("libx264", _H264, frames=1, prepared=True),
    "one frame": PaintedClip("libx264", _H264, frames=1),
    "two frames": PaintedClip("libx264", _H264, frames=2),
    "B-frames": PaintedClip("libx264", f"{_H264} -bf 3 -g 30"),
    "B-frames, open groups": PaintedClip("libx264", f"{_H264} -bf 3 -g 30 -x264-params open-gop=1:b-pyramid=normal"),
    "one key frame": PaintedClip("libx264", f"{_H264} -g 9999"),
    "late start": PaintedClip("libx264", f"{_H264} -output_ts_offset 3.3"),
    "HEVC": PaintedClip("libx265", f"{_HEVC}:keyint=20"),
    "HEVC, open groups": PaintedClip("libx265", f"{_HEVC}:keyint=20:min-keyint=20:open-gop=1:scenecut=0:bframes=3"),
    "VP8": PaintedClip("libvpx", "-b:v 400k -pix_fmt yuv420p", file="clip.webm"),
    "VP9": PaintedClip("libvpx-vp9", "-b:v 400k -pix_fmt yuv420p", file="clip.webm"),
    "AV1": PaintedClip("libsvtav1", "-preset 8 -crf 20 -pix_fmt yuv420p -svtav1-params lp=1"),
    "MPEG-4 in AVI": PaintedClip("mpeg4", "-q:v 3 -bf 2 -pix_fmt yuv420p", file="clip.avi"),
    "MPEG stream": PaintedClip("libx264", f"{_H264} -bf 3 -g 30", file="clip.ts"),
    "variable rate": PaintedClip(
        "libx264", f"{_H264} -bf 2 -fps_mode passthrough -enc_time_base 1/1000 -vf settb=1/1000,{_UNEVEN}"
    ),
    "variable rate, Matroska": PaintedClip(
        "libx264", f"{_H264} -bf 2 -fps_mode passthrough -vf settb=1/1000,{_UNEVEN}", file="clip.mkv"
    ),
    "odd sides, 4:4:4": PaintedClip("libx264", "-pix_fmt yuv444p -threads 1", width=101, height=77),
    "odd sides, 4:2:0": PaintedClip("libvpx-vp9", "-b:v 400k -pix_fmt yuv420p", width=101, height=77, file="clip.webm"),
    "10 bits": PaintedClip("libx264", "-pix_fmt yuv420p10le -threads 1"),
    "BT.709": PaintedClip("libx264", f"{_H264} -vf scale=out_color_matrix=bt709 -colorspace bt709"),
    "full range": PaintedClip("libx264", "-pix_fmt yuvj420p -threads 1"),
    "turned": PaintedClip("libx264", _H264, turned=1),
    "header counts 201 of 70": PaintedClip("libx264", f"{_H264} -bf 3 -g 30", counted=131),
    "cut, 431 of which 300 decode": PaintedClip("libx264", f"{_H264} -bf 3 -g 250", frames=431, first=131, cut=5.24),
    "HEVC, cut": PaintedClip(
        "libx265", f"{_HEVC}:keyint=20:min-keyint=20:open-gop=1:scenecut=0:bframes=3", first=23, cut=0.9
    ),
}
"""Name → how it is coded."""


def make_clip(clip: PaintedClip, folder: Path) -> Path:
    """Write a painted clip into a folder of its own.

    Raises:
        RuntimeError: if ffmpeg fails; its message says why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    raw, path = folder / "painted.rgb", folder / clip.file
    painted_frames(clip.frames, clip.width, clip.height).tofile(raw)
    picture = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{clip.width}x{clip.height}", "-r", "25", "-i", str(raw)]
    _run(*picture, "-c:v", clip.encoder, *(option.strip("'") for option in clip.options.split()), path=path)
    raw.unlink()
    if clip.prepared:
        source = path.rename(folder / "source.mp4")
        report = transcode_clip(source, path, None, Video(fps=25, short_side=clip.height))
        if report.status != "ok":
            raise RuntimeError(report.reason)
    if clip.cut is not None:
        whole = path.rename(folder / f"whole{path.suffix}")
        _run("-ss", str(clip.cut), "-i", str(whole), "-c", "copy", path=path)
    if clip.turned:
        whole = path.rename(folder / f"whole{path.suffix}")
        _run("-display_rotation", str(90 * clip.turned), "-i", str(whole), "-c", "copy", path=path)
    if clip.counted:
        path.write_bytes(_overcounted(path.read_bytes(), clip.counted))
    return path


def encoders() -> set[str]:
    """Names of the encoders that this machine's ffmpeg has."""
    listed = ffmpeg.run_command([ffmpeg.executable(), "-hide_banner", "-encoders"]).output
    return set(re.findall(r"^ V\S+ (\S+)", listed, re.MULTILINE))


def _run(*options: str, path: Path) -> None:
    outcome = ffmpeg.run_command([ffmpeg.executable(), "-y", "-loglevel", "level+error", *options, str(path)])
    if outcome.code:
        raise RuntimeError(outcome.fault())


def _overcounted(content: bytes, more: int) -> bytes:
    """An MP4 file whose table of times counts ``more`` frames than there are."""
    # stts: version and flags, number of entries, then of each entry the number of frames and the time of one.
    entry = content.index(b"stts") + 12
    (count,) = struct.unpack_from(">I", content, entry)
    return content[:entry] + struct.pack(">I", count + more) + content[entry + 4 :]
