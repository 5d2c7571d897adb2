"""One source clip → a normalised clip and its exact mirror, or a reason why not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drawn_clips import SMALL, call, frames_of, make, run
from messages import expect_message, refusal
from rewind.config import Video
from rewind.video import ffmpeg, transcode
from rewind.video.frames import open_file_frames

SOURCES = {
    "plain": ((), {}),
    "odd sides": (("-pix_fmt", "yuv444p"), {"size": "101x77"}),
    "portrait": ((), {"size": "60x108"}),
    "29.97 fps": ((), {"rate": "30000/1001", "seconds": 2.3}),
    "12.5 fps with B frames": (("-preset", "medium", "-bf", "3"), {"rate": "25/2", "seconds": 3}),
    "variable rate": (("-vf", "select='lt(n,20)+not(mod(n,7))'", "-fps_mode", "vfr"), {"seconds": 3}),
    "late start": (("-output_ts_offset", "3.3"), {}),
    "full range": (("-pix_fmt", "yuvj420p"), {}),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("settings", [SMALL, Video(fps=3.7, short_side=33, qp=35)], ids=["5 fps", "3.7 fps"])
def test_the_twin_is_the_exact_mirror(kind: str, settings: Video, tmp_path: Path) -> None:
    options, picture = SOURCES[kind]
    report = run(make(tmp_path / "source.mp4", *options, **picture), tmp_path, settings)

    forward, backward = frames_of(tmp_path / "c.mp4"), frames_of(tmp_path / "c_rev.mp4")
    assert (report.status, report.reason, report.twin) == ("ok", "", "made")
    assert np.array_equal(forward, backward[::-1])
    assert not np.array_equal(forward, backward)  # the source moves, so a copy is no mirror
    assert forward.shape == (report.frames, report.height, report.width, 3)
    assert min(report.height, report.width) == settings.short_side + settings.short_side % 2
    assert report.height % 2 == report.width % 2 == 0
    assert report.bytes == sum((tmp_path / name).stat().st_size for name in ("c.mp4", "c_rev.mp4"))
    assert report.frames == pytest.approx(report.seconds * settings.fps, abs=1)


def test_lossless_and_extreme_shapes_mirror_too(tmp_path: Path) -> None:
    source = make(tmp_path / "wide.mkv", size="400x20")
    report = run(source, tmp_path, Video(fps=5, short_side=16, qp=0))
    forward, backward = frames_of(tmp_path / "c.mp4"), frames_of(tmp_path / "c_rev.mp4")
    assert np.array_equal(forward, backward[::-1])
    assert (report.width, report.height) == (320, 16)


def test_frames_are_the_sources_in_time(tmp_path: Path) -> None:
    """Brightness counts source frames: each kept frame shows its own moment, the twin counts down."""
    lavfi = "color=gray:s=64x48:r=25:d=2,geq=lum='60+3*N':cb=128:cr=128"
    source = call(tmp_path / "s.mp4", "-f", "lavfi", "-i", lavfi, "-c:v", "libx264", "-qp", "5")
    report = run(source, tmp_path)
    levels = frames_of(tmp_path / "c.mp4").mean(axis=(1, 2, 3)) * 219 / 255 + 16
    moments = (levels - 60) / 3 / 25
    assert report.frames == 10
    np.testing.assert_allclose(moments, (np.arange(10) + 0.5) / 5, atol=0.5 / 5)  # inside each frame's own fifth
    assert np.array_equal(frames_of(tmp_path / "c_rev.mp4"), frames_of(tmp_path / "c.mp4")[::-1])


def test_the_same_source_gives_the_same_bytes(tmp_path: Path) -> None:
    source = make(tmp_path / "source.mp4")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        run(source, tmp_path / name)
    for name in ("c.mp4", "c_rev.mp4"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_only_a_bare_video_stream_is_left(tmp_path: Path) -> None:
    sound = ("-f", "lavfi", "-i", "sine=d=1", "-c", "copy", "-c:a", "aac")
    marks = ("-metadata", "title=Secret", "-metadata", "location=+1+2/")
    source = call(tmp_path / "s.mp4", "-i", str(make(tmp_path / "plain.mp4")), *sound, *marks)
    run(source, tmp_path)
    for name in ("c.mp4", "c_rev.mp4"):
        log = ffmpeg.run_command([ffmpeg.executable(), "-i", str(tmp_path / name)]).messages
        streams = [line for line in log if "Stream #" in line]
        assert len(streams) == 1 and "Video: h264" in streams[0] and "yuv420p" in streams[0]
        assert "SAR 1:1" in streams[0]
        assert b"Secret" not in (tmp_path / name).read_bytes()


def test_rotation_and_pixel_shape_are_applied(tmp_path: Path) -> None:
    plain = make(tmp_path / "plain.mp4", size="96x48")
    try:
        turned = call(tmp_path / "turned.mp4", "-display_rotation", "90", "-i", str(plain), "-c", "copy")
    except AssertionError:
        pytest.skip("this ffmpeg cannot write a rotation mark (needs 6.0)")
    report = run(turned, tmp_path)
    assert (report.source_width, report.source_height) == (48, 96)
    assert (report.width, report.height) == (48, 96)
    upright = np.rot90(frames_of(tmp_path / "c.mp4").astype(int), axes=(1, 2), k=-1)
    run(plain, tmp_path)
    assert np.abs(upright - frames_of(tmp_path / "c.mp4")).mean() < 6

    squeezed = make(tmp_path / "squeezed.mp4", "-vf", "setsar=2", size="48x48")
    assert (run(squeezed, tmp_path).width, run(squeezed, tmp_path).height) == (96, 48)


@pytest.mark.parametrize("matrix", ["bt709", "smpte170m"])
def test_colours_do_not_depend_on_how_the_source_was_tagged(matrix: str, tmp_path: Path) -> None:
    red = f"color=red:s=64x48:r=25:d=1,format=gbrp,scale=out_color_matrix={matrix}:out_range=tv,format=yuv444p"
    tags = ("-colorspace", matrix, "-color_primaries", matrix, "-color_trc", matrix)
    source = call(tmp_path / "s.mp4", "-f", "lavfi", "-i", red, "-c:v", "libx264", "-qp", "1", *tags)
    run(source, tmp_path)
    np.testing.assert_allclose(frames_of(tmp_path / "c.mp4").mean(axis=(0, 1, 2)), [254, 0, 0], atol=4)


def test_a_clip_shorter_than_half_a_frame_keeps_one(tmp_path: Path) -> None:
    report = run(make(tmp_path / "one.mp4", "-frames:v", "1"), tmp_path)
    assert (report.status, report.frames) == ("ok", 1)
    assert len(frames_of(tmp_path / "c_rev.mp4")) == 1


def test_length_is_the_pictures_not_the_sounds(tmp_path: Path) -> None:
    """A header counts the longest stream; neither the report nor the limit should."""
    sound = ("-f", "lavfi", "-i", "sine=d=5", "-c:v", "copy", "-c:a", "aac")
    source = call(tmp_path / "s.mp4", "-i", str(make(tmp_path / "plain.mp4", seconds=1)), *sound)
    report = run(source, tmp_path, Video(fps=5, short_side=48, max_seconds=2))
    assert (report.status, report.frames, report.seconds) == ("ok", 5, 1.0)


def test_without_a_twin_only_the_clip_is_made(tmp_path: Path) -> None:
    source = make(tmp_path / "s.mp4")
    report = transcode.transcode_clip(source, tmp_path / "c.mp4", None, SMALL)
    assert (report.status, report.twin) == ("ok", "none")
    alone = (tmp_path / "c.mp4").read_bytes()
    assert not (tmp_path / "c_rev.mp4").exists()
    run(source, tmp_path)
    assert (tmp_path / "c.mp4").read_bytes() == alone


def damaged(path: Path, source: Path) -> Path:
    """Zeros over a stretch of the coded pictures."""
    data = bytearray(source.read_bytes())
    middle = data.index(b"mdat") + 4 + (len(data) - data.index(b"mdat")) // 2
    data[middle : middle + 200] = bytes(200)
    path.write_bytes(data)
    return path


def cut_short(path: Path, source: Path) -> Path:
    """Half a download: with its index at the front, it still opens and plays for a while."""
    whole = call(path.with_name("whole.mp4"), "-i", str(source), "-c", "copy", "-movflags", "+faststart")
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size * 6 // 10])
    return path


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def with_cover(path: Path) -> Path:
    cover = call(path.with_name("cover.png"), "-f", "lavfi", "-i", "color=red:s=32x32", "-frames:v", "1")
    inputs = ("-f", "lavfi", "-i", "sine=d=1", "-i", str(cover), "-map", "0:a", "-map", "1:v")
    return call(path, *inputs, "-c:v", "copy", "-disposition:v", "attached_pic")


BROKEN = {
    "no such file": (lambda p: p / "none.mp4", "missing", "no such file"),
    "a folder": (lambda p: p, "missing", "no such file"),
    "empty": (lambda p: written(p / "s.mp4", b""), "failed", "empty file"),
    "no video": (lambda p: written(p / "s.mp4", b"<html>404</html>"), "failed", "cannot be decoded: "),
    "audio only": (
        lambda p: call(p / "s.mp4", "-f", "lavfi", "-i", "sine=d=1"), "failed", "no video stream"),
    "audio with a cover picture": (lambda p: with_cover(p / "s.m4a"), "failed", "no video stream"),
    "no frames": (lambda p: make(p / "s.avi", "-frames:v", "0"), "failed", "no frames"),
    "cut short": (lambda p: cut_short(p / "s.mp4", make(p / "t.mp4")), "failed", "cannot be decoded: "),
    "damaged": (lambda p: damaged(p / "s.mp4", make(p / "t.mp4")), "failed", "cannot be decoded: "),
    "too long": (lambda p: make(p / "s.mp4", seconds=4), "failed", "4.0 s long, the limit is 2 s"),
    "too long, as a header cannot tell": (
        lambda p: make(p / "s.h264", seconds=4), "failed", "2.4 s long, the limit is 2 s"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_a_source_that_cannot_be_used_is_refused_with_a_reason(kind: str, tmp_path: Path) -> None:
    build, status, reason = BROKEN[kind]
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    for name in ("c.mp4", "c_rev.mp4"):
        (tmp_path / "out" / name).write_bytes(b"from an earlier call")
    report = run(build(tmp_path / "in"), tmp_path / "out", Video(fps=5, short_side=48, max_seconds=2))
    assert report.status == status
    assert report.reason.startswith(reason)
    assert report.reason != "cannot be decoded: "
    assert "0x" not in report.reason  # no addresses of ffmpeg's own
    assert list((tmp_path / "out").iterdir()) == []


def test_damage_that_ffmpeg_would_paper_over_is_refused(tmp_path: Path) -> None:
    """Left alone, ffmpeg ends with code 0 on this file and invents the missing pictures."""
    source = damaged(tmp_path / "s.mp4", make(tmp_path / "t.mp4"))
    patched = ffmpeg.run_command([ffmpeg.executable(), "-i", str(source), "-f", "null", "-"])
    assert patched.code == 0
    assert run(source, tmp_path).status == "failed"


def test_an_existing_reversed_clip_is_mapped_as_it_is(tmp_path: Path) -> None:
    source = make(tmp_path / "s.mp4", "-qp", "1")
    existing = call(tmp_path / "s-reverse.mp4", "-i", str(source), "-vf", "reverse,hflip", "-c:v", "libx264")
    report = run(source, tmp_path, reversed_source=existing)
    assert (report.status, report.twin, report.reason) == ("ok", "mapped", "")
    assert report.bytes == sum((tmp_path / name).stat().st_size for name in ("c.mp4", "c_rev.mp4"))
    run(existing, tmp_path / "alone")
    mapped = (tmp_path / "c_rev.mp4").read_bytes()
    assert mapped == (tmp_path / "alone" / "c.mp4").read_bytes()  # normalised forward, not reversed again


def test_an_existing_reversed_clip_of_another_length_is_kept_and_said(tmp_path: Path) -> None:
    existing = make(tmp_path / "r.mp4", seconds=2)
    report = run(make(tmp_path / "s.mp4", seconds=1), tmp_path, reversed_source=existing)
    assert report.status == "ok"
    expect_message(report.reason)
    assert len(frames_of(tmp_path / "c_rev.mp4")) == 10


def test_a_broken_existing_reversed_clip_fails_the_clip(tmp_path: Path) -> None:
    existing = written(tmp_path / "r.mp4", b"")
    report = run(make(tmp_path / "s.mp4"), tmp_path, reversed_source=existing)
    assert report.status == "failed" and "r.mp4: " in report.reason
    expect_message(report.reason)
    assert not (tmp_path / "c.mp4").exists()


def test_a_twin_of_another_length_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Shorter:
        def __init__(self, path: Path) -> None:
            self.reader, self.lost = open_file_frames(path), "_rev" in path.name
            self.read = self.reader.read

        def __len__(self) -> int:
            return len(self.reader) - self.lost

    monkeypatch.setattr(transcode, "open_file_frames", Shorter)
    report = run(make(tmp_path / "s.mp4"), tmp_path)
    assert report.status == "failed"
    expect_message(report.reason)
    assert not (tmp_path / "c.mp4").exists() and not (tmp_path / "c_rev.mp4").exists()


@pytest.mark.parametrize("name", ["a b'c.mp4", "http:x.mp4", "-y.mp4", "Ünï [1],x;%03d.mp4", "concat:a|b.mp4"])
def test_a_file_name_is_only_a_file_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "s.mp4").rename(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert run(Path(name), Path("out dir")).status == "ok"


HEADERS = {
    "ffmpeg 5.1": (
        "[info] Input #0, mov,mp4,m4a,3gp,3g2,mj2, from 'file:a.mp4':",
        "[info]   Duration: 00:01:02.50, start: 0.000000, bitrate: 89 kb/s",
        "[info]   Stream #0:0[0x1](und): Audio: aac (LC) (mp4a / 0x6134706D), 48000 Hz, stereo, fltp",
        "[info]   Stream #0:1[0x2](und): Video: h264 (High) (avc1 / 0x31637661), yuv420p(tv, bt709), "
        "1920x1080 [SAR 1:1 DAR 16:9], 81 kb/s, 29.97 fps, 29.97 tbr, 30k tbn (default)",
        "[info]       displaymatrix: rotation of -90.00 degrees",
        "[info] Stream mapping:",
        "[info]   Stream #0:0: Video: h264, yuv420p, 398x224, 3 fps",
        "[info]   Duration: 00:00:09.00",
    ),
    "no duration, thousands": (
        "[info]   Duration: N/A, bitrate: N/A",
        "[info]   Stream #0:0: Video: mjpeg, yuvj420p, 600x600 [SAR 72:72 DAR 1:1], 90k tbr (attached pic)",
        "[info]   Stream #0:1: Video: vp9 (Profile 0), yuv420p(tv), 640x360, 1k fps, 1k tbr, 1k tbn",
        "[info]   Stream #0:2: Video: vp9 (Profile 0), yuv420p(tv), 320x180, 25 fps",
    ),
    "no rate": ("[info]   Stream #0:0: Video: rawvideo, rgb24, 8x6",),
}


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("ffmpeg 5.1", transcode.SourceHeader(62.5, 1080, 1920, 29.97)),
        ("no duration, thousands", transcode.SourceHeader(0, 640, 360, 1000)),
        ("no rate", transcode.SourceHeader(0, 8, 6, 0)),
    ],
)
def test_the_header_is_read_from_the_log(kind: str, expected: transcode.SourceHeader) -> None:
    assert transcode.read_header(HEADERS[kind]) == expected


def test_the_reported_source_is_the_source(tmp_path: Path) -> None:
    report = run(make(tmp_path / "s.mp4", size="90x64", rate="30000/1001", seconds=2), tmp_path)
    assert (report.source_width, report.source_height, report.source_fps) == (90, 64, 29.97)
    assert report.seconds == pytest.approx(2, abs=0.05)
    assert report.item_id == "c"


def test_the_packaged_ffmpeg_goes_before_one_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's 5.1 decodes a clip with a wrong sample size to its end, and says nothing."""
    own = written(tmp_path / "ffmpeg", b"#!/bin/sh\necho 'ffmpeg version 99 Copyright (c) us'\n")
    own.chmod(0o755)
    for cached in (ffmpeg.executable, ffmpeg.ffmpeg_version):
        cached.cache_clear()
    try:
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        assert ffmpeg.executable() != str(own) and "99" not in ffmpeg.ffmpeg_version()
        for cached in (ffmpeg.executable, ffmpeg.ffmpeg_version):
            cached.cache_clear()
        monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(own))
        assert (ffmpeg.executable(), ffmpeg.ffmpeg_version()) == (str(own), "ffmpeg version 99")
        ffmpeg.executable.cache_clear()
        monkeypatch.setitem(__import__("sys").modules, "imageio_ffmpeg", None)
        assert ffmpeg.executable() == str(own)
        ffmpeg.executable.cache_clear()
        monkeypatch.setenv("PATH", "")
        with refusal():
            ffmpeg.executable()
    finally:
        ffmpeg.executable.cache_clear()
        ffmpeg.ffmpeg_version.cache_clear()


def test_faults_read_well() -> None:
    lines = (
        "[info] Input #0",
        "[mov @ 0x5c] [error] moov atom not found",
        "[error] Error opening input files: …",
    )
    for code, said in ((1, lines), (-9, ()), (3, ())):
        expect_message(ffmpeg.FfmpegResult(code, "", said).fault())
    with refusal("/nonexistent/ffmpeg"):
        ffmpeg.run_command(["/nonexistent/ffmpeg"])
