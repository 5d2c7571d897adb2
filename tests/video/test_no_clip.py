"""Sources that are no clips, and machines that fail: which of the two is at fault, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from drawn_clips import SMALL, call, make, rows, run
from messages import expect_message, refusal
from rewind.config import Video
from rewind.video import ffmpeg
from rewind.video.prepare import prepare_report
from rewind.video.repair import inspect_source


def test_a_list_of_other_files_under_a_clips_name_is_not_opened(tmp_path: Path) -> None:
    """ffmpeg goes by content: a manifest named .mp4 would bring any clip of this machine into the results."""
    secret = make(tmp_path / "secret.mp4")
    (tmp_path / "concat.mp4").write_text("ffconcat version 1.0\nfile secret.mp4\n")
    call(tmp_path / "man.mpd", "-i", str(secret), "-c", "copy", "-f", "dash")
    (tmp_path / "man.mpd").rename(tmp_path / "dash.mp4")
    (tmp_path / "hls.mp4").write_text("#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\nsecret.mp4\n#EXT-X-ENDLIST\n")
    for kind in ("concat", "dash", "hls"):
        report = run(tmp_path / f"{kind}.mp4", tmp_path / f"out_{kind}")
        assert report.status == "failed", kind
        if kind != "hls":
            expect_message(report.reason)
        assert not list((tmp_path / f"out_{kind}").glob("*.mp4"))
    assert run(secret, tmp_path / "out").status == "ok"


CODECS = {
    "libx264": ("ts", "mkv", "mov"),
    "mpeg4": ("avi", "3gp"),
    "wmv2": ("wmv",),
    "mpeg1video": ("mpg",),
    "flv": ("flv",),
    "gif": ("gif",),
    "mpeg2video": ("mxf", "vob"),
}


@pytest.mark.parametrize(
    ("suffix", "codec"),
    [(suffix, codec) for codec, suffixes in CODECS.items() for suffix in suffixes],
)
def test_the_containers_that_are_looked_for_can_be_read(suffix: str, codec: str, tmp_path: Path) -> None:
    assert run(make(tmp_path / f"c.{suffix}", "-c:v", codec), tmp_path / "out").status == "ok"


@pytest.mark.parametrize(
    ("suffix", "codec"),
    [("mkv", "libx264"), ("webm", "libvpx"), ("avi", "mpeg4"), ("gif", "gif")],
)
def test_half_a_file_is_no_clip(suffix: str, codec: str, tmp_path: Path) -> None:
    """ffmpeg ends with code 0 on half of some of them."""
    whole = make(tmp_path / f"whole.{suffix}", "-c:v", codec, size="160x120", seconds=3).read_bytes()
    (tmp_path / f"half.{suffix}").write_bytes(whole[: len(whole) // 2])
    report = run(tmp_path / f"half.{suffix}", tmp_path / "out", Video(fps=5, short_side=48, max_seconds=9))
    assert report.status == "failed" and not list((tmp_path / "out").glob("*"))


def test_a_decoder_that_hangs_is_ended_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, stand_in = make(tmp_path / "s.mp4"), tmp_path / "bin/ffmpeg"
    stand_in.parent.mkdir()
    stand_in.write_text("#!/bin/sh\nexec sleep 60\n")
    stand_in.chmod(0o755)
    monkeypatch.setattr(ffmpeg, "executable", lambda: str(stand_in))
    monkeypatch.setattr(ffmpeg, "MIN_TIMEOUT", 0.2)
    monkeypatch.setattr(ffmpeg, "TIMEOUT_PER_SECOND", 0)
    report = run(source, tmp_path / "out")
    assert report.status == "failed"
    expect_message(report.reason)
    with refusal("s.mp4"):  # of a source whose traces are measured
        inspect_source(source, Video(fps=5, short_side=48))


FULL = "[out#0/mp4 @ 0x5] [error] Error writing trailer: No space left on device"
MACHINES = {
    "killed": ffmpeg.FfmpegResult(-9, "", ()),
    "full": ffmpeg.FfmpegResult(228, "", (FULL,)),
    "no encoder": ffmpeg.FfmpegResult(8, "", ("[error] Unknown encoder 'libx264'",)),
}


@pytest.mark.parametrize("kind", MACHINES)
def test_a_fault_of_the_machine_fails_the_job_and_no_clip(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk or a killed ffmpeg must not brand a good clip for ever."""
    make(tmp_path / "0.mp4")
    monkeypatch.setattr("rewind.video.transcode.run_ffmpeg", lambda *given: MACHINES[kind])
    with refusal("0.mp4"):
        prepare_report(rows(tmp_path, "0"), tmp_path / "out", SMALL, "code", workers=1)
    monkeypatch.undo()
    assert prepare_report(rows(tmp_path, "0"), tmp_path / "out", SMALL, "code", workers=1)["status"].tolist() == ["ok"]


def test_a_decoder_that_crashes_does_so_because_of_the_clip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "0.mp4")
    monkeypatch.setattr("rewind.video.transcode.run_ffmpeg", lambda *given: ffmpeg.FfmpegResult(-11, "", ()))
    report = prepare_report(rows(tmp_path, "0"), tmp_path / "out", SMALL, "code", workers=1)
    assert report["status"].tolist() == ["failed"]
    expect_message(report["reason"][0])
    monkeypatch.undo()
    assert prepare_report(rows(tmp_path, "0"), tmp_path / "out", SMALL, "code", workers=1)["status"].tolist() == ["ok"]
