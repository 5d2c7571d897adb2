"""Drawn clips in every container that is read, damaged in every way that happens to files."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from rewind.config import Video
from rewind.video import ffmpeg
from rewind.video.transcode import transcode_clip

SETTINGS = Video(fps=6, short_side=48)
_PICTURE = "testsrc2=s=128x96:r=12:d=4,noise=alls=12:allf=t:all_seed=1"
_SOUND = ("-f", "lavfi", "-i", "sine=d=4")
_H264 = ("-c:v", "libx264", "-preset", "ultrafast", "-g", "12", "-threads", "1")
_HEVC = ("-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=error:keyint=12:pools=1")
_VPX = ("-deadline", "realtime", "-cpu-used", "8", "-g", "12", "-threads", "1")
_MPEG2, _MPEG4 = ("-c:v", "mpeg2video", "-r", "25"), ("-c:v", "mpeg4")

FORMATS: dict[str, tuple[str, tuple[str, ...]]] = {
    "MP4, H.264": (".mp4", (*_H264, "-movflags", "+faststart")),
    "MP4, H.264 and sound": (".mp4", (*_SOUND, *_H264)),
    "MP4 in fragments": (".mp4", (*_H264, "-movflags", "+frag_keyframe+empty_moov")),
    "MP4, HEVC": (".mp4", _HEVC),
    "MOV, MJPEG": (".mov", ("-c:v", "mjpeg")),
    "3GP, H.263": (".3gp", ("-c:v", "h263")),
    "Matroska, H.264": (".mkv", _H264),
    "Matroska, FFV1": (".mkv", ("-c:v", "ffv1")),
    "WebM, VP8": (".webm", ("-c:v", "libvpx", *_VPX)),
    "WebM, VP9 and sound": (".webm", (*_SOUND, "-c:v", "libvpx-vp9", *_VPX)),
    "AVI, MPEG-4": (".avi", _MPEG4),
    "AVI, MJPEG and sound": (".avi", (*_SOUND, "-c:v", "mjpeg")),
    "AVI, HuffYUV": (".avi", ("-c:v", "huffyuv")),
    "FLV, FLV1": (".flv", ("-c:v", "flv")),
    "FLV, H.264": (".flv", _H264),
    "ASF, WMV2": (".wmv", ("-c:v", "wmv2")),
    "MPEG-TS, H.264": (".ts", _H264),
    "MPEG-TS, MPEG-2 and sound": (".ts", (*_SOUND, *_MPEG2)),
    "M2TS, H.264": (".m2ts", _H264),
    "MPEG-PS, MPEG-1": (".mpg", ("-c:v", "mpeg1video", "-r", "25")),
    "VOB, MPEG-2": (".vob", _MPEG2),
    "MXF, MPEG-2": (".mxf", _MPEG2),
    "Ogg, Theora": (".ogv", ("-c:v", "libtheora")),
    "IVF, VP8": (".ivf", ("-c:v", "libvpx", *_VPX)),
    "NUT, MPEG-4": (".nut", _MPEG4),
    "DV": (".dv", ("-c:v", "dvvideo", "-s", "720x576", "-pix_fmt", "yuv420p", "-r", "25", "-t", "1")),
    "RealMedia, RV20": (".rm", ("-c:v", "rv20")),
    "WTV, MPEG-2": (".wtv", _MPEG2),
    "raw H.264": (".h264", _H264),
    "raw HEVC": (".hevc", _HEVC),
    "raw MPEG-2": (".m2v", _MPEG2),
    "raw MPEG-4": (".m4v", _MPEG4),
    "GIF": (".gif", ()),
    "APNG": (".apng", ()),
    "WebP": (".webp", ("-c:v", "libwebp_anim")),
}


def draw(folder: Path, kind: str) -> bytes | None:
    """A clip of a format; None if this ffmpeg cannot write it."""
    suffix, options = FORMATS[kind]
    path = folder / f"drawn{suffix}"
    # Before other inputs, such as sound, so that options of coding come after all.
    picture = ["-f", "lavfi", "-i", _PICTURE]
    command = [ffmpeg.executable(), "-y", "-loglevel", "level+error", *picture, *options, "-fflags", "+bitexact"]
    return None if ffmpeg.run_command([*command, str(path)]).code else path.read_bytes()


# ---- Damage --------------------------------------------------------------------------------------------------------


def _over(data: bytes, share: float, length: int = 200, zeros: bool = False) -> bytes:
    at = int(len(data) * share)
    length = min(length, len(data) - at)
    patch = bytes(length) if zeros else random.Random(1).randbytes(length)
    return data[:at] + patch + data[at + length :]


def _wrong_size(data: bytes, suffix: str) -> bytes:
    """The size of a packet in the middle made wrong where the container says it; else as it was."""
    changed = bytearray(data)
    if suffix in (".mp4", ".mov", ".3gp") and (at := data.find(b"stsz")) > 0:
        count = struct.unpack_from(">I", data, at + 12)[0]
        struct.pack_into(">I", changed, at + 16 + 4 * (count // 3), 2**31 - 1)
    elif suffix == ".ivf":
        at = 32
        while at < len(data) // 2:
            at += 12 + struct.unpack_from("<I", data, at)[0]
        struct.pack_into("<I", changed, at, 2**31 - 1)
    elif (name := {".avi": b"00dc", ".webp": b"ANMF"}.get(suffix)) is not None:
        struct.pack_into("<I", changed, data.index(name, len(data) // 2) + 4, 2**31 - 1)
    elif suffix == ".flv":
        at = 13
        while at < len(data) // 2:
            at += 15 + int.from_bytes(data[at + 1 : at + 4], "big")
        changed[at + 1 : at + 4] = b"\xff\xff\xff"
    return bytes(changed)


DAMAGE: dict[str, Callable[[bytes, str], bytes]] = {
    "first tenth missing": lambda data, _: data[len(data) // 10 :],
    "middle third missing": lambda data, _: data[: len(data) // 3] + data[2 * len(data) // 3 :],
    "cut at 60%": lambda data, _: data[: len(data) * 6 // 10],
    "second half zeros": lambda data, _: _over(data, 0.5, len(data), zeros=True),
    "one byte missing": lambda data, _: data[: len(data) // 2] + data[len(data) // 2 + 1 :],
    "wrong packet size": _wrong_size,
    "zeros at the start": lambda data, _: _over(data, 0.05, zeros=True),
    "noise in the middle": lambda data, _: _over(data, 0.5),
    "noise at the end": lambda data, _: _over(data, 0.95),
}
PAYLOAD = ("zeros at the start", "noise in the middle", "noise at the end")
"""Damage that may lie within one coded picture, where formats without checksums decode it to another picture."""

REFUSED, NOTED, INTACT, UNNOTICED = "refused", "noted", "intact", "unnoticed"


def outcomes(folder: Path, kind: str) -> Iterator[tuple[str, str, str]]:
    """Damage, outcome and reason for each damage of a clip of a format; nothing if it cannot be written here.

    Outcomes: refused; noted, and used; intact, if every picture is as in the undamaged file; else unnoticed.
    """
    suffix = FORMATS[kind][0]
    data = draw(folder, kind)
    if data is None:
        return
    whole = _transcode(folder, data, suffix)
    assert whole[:2] == ("ok", ""), (kind, whole[:2])
    for name, change in DAMAGE.items():
        damaged = change(data, suffix)
        if damaged == data:
            continue
        status, reason, content = _transcode(folder, damaged, suffix)
        known = REFUSED if status != "ok" else NOTED if reason else ""
        yield name, known or (INTACT if content == whole[2] else UNNOTICED), reason


def _transcode(folder: Path, data: bytes, suffix: str) -> tuple[str, str, bytes]:
    source, target = folder / f"source{suffix}", folder / "clip.mp4"
    source.write_bytes(data)
    report = transcode_clip(source, target, None, SETTINGS)
    return report.status, report.reason, target.read_bytes() if report.status == "ok" else b""
