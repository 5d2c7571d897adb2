"""Damaged sources in every container that is read: refused, or used with a note; and intact ones that look odd."""

from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path

import pytest

from damaged_clips import DAMAGE, FORMATS, PAYLOAD, SETTINGS, UNNOTICED, outcomes
from drawn_clips import SMALL, call, make, rows, run
from messages import expect_message
from rewind.video.ffmpeg import executable
from rewind.video.prepare import prepare_report

# What ffmpeg's decoders take for another picture or another row of pictures: nothing in such a file tells.
UNCHECKED_PICTURES = {
    "MP4, H.264", "MP4, H.264 and sound", "MP4 in fragments", "MP4, HEVC", "MOV, MJPEG", "3GP, H.263",
    "Matroska, H.264", "WebM, VP8", "WebM, VP9 and sound", "AVI, MPEG-4", "AVI, MJPEG and sound", "AVI, HuffYUV",
    "FLV, FLV1", "FLV, H.264", "ASF, WMV2", "MPEG-TS, H.264", "M2TS, H.264", "IVF, VP8", "RealMedia, RV20", "DV",
    "raw H.264", "raw HEVC", "raw MPEG-2", "raw MPEG-4", "WebP",
}  # fmt: skip
UNCHECKED_ROWS = {
    "AVI, MPEG-4": ("wrong packet size",),  # one picture is lost, as one is that a recorder left out
    "AVI, MJPEG and sound": ("wrong packet size", "one byte missing"),
    "AVI, HuffYUV": ("wrong packet size", "one byte missing"),
    "RealMedia, RV20": ("one byte missing", "cut at 60%"),
    "DV": tuple(DAMAGE),
    "raw H.264": ("one byte missing", "cut at 60%"),
    "raw HEVC": ("one byte missing", "cut at 60%"),
    "raw MPEG-2": ("cut at 60%",),
    "raw MPEG-4": ("cut at 60%",),
    "MPEG-TS, H.264": ("cut at 60%",),  # between two packets
    "M2TS, H.264": ("cut at 60%",),
}
QUICK = ("MP4, H.264 and sound", "WebM, VP8", "IVF, VP8")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in FORMATS]
)
def test_damage_is_refused_or_noted(kind: str, tmp_path: Path) -> None:
    found = list(outcomes(tmp_path, kind))
    if not found:
        pytest.skip("this ffmpeg cannot write it")
    unnoticed = {damage for damage, outcome, _ in found if outcome == UNNOTICED}
    allowed = set(UNCHECKED_ROWS.get(kind, ())) | (set(PAYLOAD) if kind in UNCHECKED_PICTURES else set())
    assert unnoticed <= allowed, found
    assert all(reason and "@ 0x" not in reason for _, outcome, reason in found if outcome in ("refused", "noted"))


def with_wrong_sample_size(path: Path, source: Path) -> Path:
    data = bytearray(source.read_bytes())
    at = data.index(b"stsz")
    struct.pack_into(">I", data, at + 16 + 4 * 10, 2**31 - 1)
    path.write_bytes(data)
    return path


def without_middle_third(path: Path, source: Path) -> Path:
    data = source.read_bytes()
    path.write_bytes(data[: len(data) // 3] + data[2 * len(data) // 3 :])
    return path


def with_wrong_packet_size(path: Path, source: Path) -> Path:
    data = bytearray(source.read_bytes())
    at = 32
    while at < len(data) // 2:
        at += 12 + struct.unpack_from("<I", data, at)[0]
    struct.pack_into("<I", data, at, 2**31 - 1)
    path.write_bytes(data)
    return path


VP8 = ("-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8")


def with_sound(path: Path, seconds: float, sound: float) -> Path:
    drawn = make(path.with_name("silent.mkv"), seconds=seconds)
    return call(path, "-i", str(drawn), "-f", "lavfi", "-i", f"sine=d={sound}:r=44100", "-c:v", "copy")


@pytest.mark.parametrize("sound", [False, True])
def test_a_wrong_sample_size_in_an_mp4_is_refused(sound: bool, tmp_path: Path) -> None:
    path = tmp_path / "whole.mp4"
    whole = with_sound(path, 4, 4) if sound else make(path, seconds=4)
    report = run(with_wrong_sample_size(tmp_path / "s.mp4", whole), tmp_path / "out")
    assert report.status == "failed"
    expect_message(report.reason)


def test_a_webm_without_its_middle_third_is_refused(tmp_path: Path) -> None:
    whole = make(tmp_path / "whole.webm", *VP8, seconds=4)
    assert run(whole, tmp_path / "out").reason == ""
    report = run(without_middle_third(tmp_path / "s.webm", whole), tmp_path / "out")
    assert report.status == "failed" and report.reason.startswith("damaged: ")


def test_a_wrong_packet_size_is_the_files_fault_and_the_others_are_made(tmp_path: Path) -> None:
    """ffmpeg says of it: Cannot allocate memory."""
    whole = make(tmp_path / "0.ivf", *VP8, seconds=2)
    with_wrong_packet_size(tmp_path / "1.mp4", whole)
    whole.rename(tmp_path / "0.mp4")
    report = prepare_report(rows(tmp_path, "0", "1"), tmp_path / "out", SMALL, "code", workers=1)
    assert report["status"].tolist() == ["ok", "failed"]
    assert report["reason"][1].startswith("cannot be decoded: ")


def test_a_damaged_last_picture_is_named(tmp_path: Path) -> None:
    data = bytearray(make(tmp_path / "whole.avi", "-c:v", "mpeg4", seconds=2).read_bytes())
    at = data.rindex(b"idx1")
    data[at - 300 : at - 250] = b"\xff" * 50
    (tmp_path / "s.avi").write_bytes(data)
    report = run(tmp_path / "s.avi", tmp_path / "out")
    assert report.status == "failed"
    assert re.search(r"\(after picture 49, at 1\.9\d s\)$", report.reason), report.reason


ODD = {
    "slides": lambda p: call(p / "s.mkv", "-f", "lavfi", "-i", "testsrc2=s=64x48:r=0.5:d=8", "-c:v", "libx264"),
    "a slow GIF": lambda p: call(p / "s.gif", "-f", "lavfi", "-i", "testsrc2=s=64x48:r=0.5:d=8"),
    "pauses in MP4": lambda p: make(p / "s.mp4", "-vf", "select='lt(mod(t,3),0.4)'", "-fps_mode", "vfr", seconds=7),
    "left out pictures": lambda p: make(p / "s.mkv", "-vf", "select='mod(n,9)'", "-fps_mode", "vfr", seconds=3),
    "cut by an edit list": lambda p: call(
        p / "s.mp4", "-ss", "0.7", "-i", str(make(p / "t.mp4", "-g", "12", seconds=3)), "-c", "copy"
    ),
    "cut at an open group": lambda p: call(
        p / "s.mkv", "-ss", "1.3", "-i",
        str(make(p / "t.mp4", "-preset", "medium", "-x264-params", "open-gop=1:keyint=12:bframes=3", seconds=3)),
        "-c", "copy",
    ),
    "words of a fault in its title": lambda p: make(
        p / "s.mkv", "-metadata", "title=No space left on device", "-metadata", "artist=Duration: 99:00:00.00, start: 3"
    ),
    "a recording without an end": lambda p: piped(p / "s.avi"),
    "zeros behind its end": lambda p: padded(make(p / "s.mp4")),
    "sound a little longer": lambda p: with_sound(p / "s.flv", 2, 2.3),
}  # fmt: skip


def piped(path: Path) -> Path:
    """As a recorder writes that cannot go back to the header."""
    picture = ["-f", "lavfi", "-i", "testsrc2=s=64x48:r=10:d=2", "-c:v", "mpeg4", "-f", "avi", "pipe:1"]
    path.write_bytes(subprocess.run([executable(), "-nostdin", *picture], capture_output=True, check=True).stdout)
    return path


def padded(path: Path) -> Path:
    path.write_bytes(path.read_bytes() + bytes(512))
    return path


@pytest.mark.parametrize("kind", ODD)
def test_an_intact_clip_has_no_note(kind: str, tmp_path: Path) -> None:
    report = run(ODD[kind](tmp_path), tmp_path / "out", SETTINGS)
    assert (report.status, report.reason) == ("ok", "")


def test_a_gap_in_a_webm_is_noted(tmp_path: Path) -> None:
    """Its blocks do not say how long they last: a pause and a loss look the same."""
    source = make(tmp_path / "s.webm", "-vf", "select='lt(mod(t,3),0.4)'", "-fps_mode", "vfr", *VP8, seconds=7)
    report = run(source, tmp_path / "out")
    assert report.status == "ok"
    expect_message(report.reason)
