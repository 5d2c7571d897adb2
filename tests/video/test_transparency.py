"""What is transparent becomes white, in clips as in images, and the report says so; what is opaque keeps its bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from drawn_clips import call, frames_of
from messages import expect_message
from rewind.config import Video
from rewind.config.dataset import Image as ImageKeys
from rewind.video import ffmpeg, transcode
from rewind.video.images import normalise_image
from rewind.video.transcode import _ALPHA_DECODERS

BLUE = (10, 40, 200)
SETTINGS = Video(fps=5, short_side=48, qp=4)
# Blue in the middle, nothing around it; and the same with a green ground.
HOLLOW = "color=red@0.0:s=64x48:r=10:d=1,format=rgba,drawbox=x=16:y=12:w=32:h=24:color=0x0A28C8@1.0:t=fill:replace=1"
FULL = HOLLOW.replace("red@0.0", "green@1.0")
WAYS = {
    "VP8": ("webm", "-c:v", "libvpx", "-auto-alt-ref", "0", "-pix_fmt", "yuva420p", "-b:v", "2M"),
    "VP9": ("webm", "-c:v", "libvpx-vp9", "-pix_fmt", "yuva420p", "-b:v", "2M"),
    "ProRes 4444": ("mov", "-c:v", "prores_ks", "-profile:v", "4444", "-pix_fmt", "yuva444p10le"),
    "QuickTime Animation": ("mov", "-c:v", "qtrle"),
    "PNG in MOV": ("mov", "-c:v", "png"),
    "FFV1": ("mkv", "-c:v", "ffv1"),
    "APNG": ("apng", "-f", "apng", "-plays", "0"),
}


def source(folder: Path, way: str, graph: str) -> Path:
    suffix, *options = WAYS[way]
    return call(folder / f"source.{suffix}", "-f", "lavfi", "-i", graph, *options)


def animation(path: Path, ground: tuple[int, ...]) -> Path:
    """A GIF or an animated WebP."""
    frames = []
    for left in (8, 12, 16):
        frame = Image.new("RGBA", (64, 48), ground)
        frame.paste((*BLUE, 255), (left, 12, left + 32, 36))
        frames.append(frame)
    more = {"disposal": 2} if path.suffix == ".gif" else {"lossless": True}
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=200, loop=0, **more)
    return path


def run(path: Path) -> transcode.ClipReport:
    out = path.parent
    return transcode.transcode_clip(path, out / "c.mp4", out / "c_rev.mp4", SETTINGS)


def corner_and_middle(path: Path) -> tuple[np.ndarray, np.ndarray]:
    frames = frames_of(path).astype(int)
    return frames[:, 3, 3], frames[:, 24, 32]


@pytest.mark.parametrize("way", WAYS)
def test_transparent_parts_of_clips_become_white(tmp_path: Path, way: str) -> None:
    report = run(source(tmp_path, way, HOLLOW))
    assert report.status == "ok"
    expect_message(report.reason)
    for name in ("c.mp4", "c_rev.mp4"):
        corner, middle = corner_and_middle(tmp_path / name)
        assert np.abs(corner - 255).max() <= 2 and np.abs(middle - BLUE).max() <= 12
    assert np.array_equal(frames_of(tmp_path / "c.mp4"), frames_of(tmp_path / "c_rev.mp4")[::-1])


@pytest.mark.parametrize("suffix", [".gif", ".webp"])
def test_an_animation_is_white_where_it_is_transparent_in_every_frame(tmp_path: Path, suffix: str) -> None:
    report = run(animation(tmp_path / f"a{suffix}", (0, 0, 0, 0)))
    if suffix == ".webp" and report.status == "failed":
        pytest.skip("this ffmpeg reads no animated WebP")
    corner, middle = corner_and_middle(tmp_path / "c.mp4")
    assert "white" in report.reason and len(corner) == report.frames > 1
    assert np.abs(corner - 255).max() <= 2 and np.abs(middle - BLUE).max() <= 12


def test_half_transparent_parts_of_a_clip_are_half_white(tmp_path: Path) -> None:
    report = run(source(tmp_path, "PNG in MOV", HOLLOW.replace("0x0A28C8@1.0", "0x0A28C8@0.5")))
    _, middle = corner_and_middle(tmp_path / "c.mp4")
    assert report.reason and np.abs(middle - (np.array(BLUE) + 255) / 2).max() <= 6


@pytest.mark.parametrize("way", [*WAYS, "GIF"])
def test_opaque_clips_with_an_alpha_channel_keep_their_bits(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = animation(tmp_path / "a.gif", (10, 200, 40, 255)) if way == "GIF" else source(tmp_path, way, FULL)
    report = run(path)
    found = [(tmp_path / name).read_bytes() for name in ("c.mp4", "c_rev.mp4")]
    assert (report.status, report.reason) == ("ok", "")
    # As if nobody had looked for a channel.
    monkeypatch.setattr(transcode, "alpha_channel", lambda messages: None)
    run(path)
    assert found == [(tmp_path / name).read_bytes() for name in ("c.mp4", "c_rev.mp4")]
    corner, _ = corner_and_middle(tmp_path / "c.mp4")
    assert np.abs(corner - 255).max() > 100


def test_clips_without_a_channel_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(transcode, "run_ffmpeg", lambda *given: calls.append(given) or ffmpeg.run_ffmpeg(*given))
    path = call(tmp_path / "a.mp4", "-f", "lavfi", "-i", "testsrc2=s=64x48:d=1", "-c:v", "libx264")
    assert run(path).reason == "" and len(calls) == 1


def test_transparency_that_ffmpeg_cannot_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_ALPHA_DECODERS, "vp9", "libvpx-vp99")
    report = run(source(tmp_path, "VP9", HOLLOW))
    assert report.status == "ok"
    expect_message(report.reason)


def test_a_transparent_reversed_clip_is_said_too(tmp_path: Path) -> None:
    plain = call(tmp_path / "a.mp4", "-f", "lavfi", "-i", "testsrc2=s=64x48:r=10:d=1", "-c:v", "libx264")
    mapped = source(tmp_path, "PNG in MOV", HOLLOW)
    report = transcode.transcode_clip(plain, tmp_path / "c.mp4", tmp_path / "c_rev.mp4", SETTINGS, mapped)
    expect_message(report.reason)
    assert np.abs(corner_and_middle(tmp_path / "c_rev.mp4")[0] - 255).max() <= 2


@pytest.mark.parametrize("suffix", [".png", ".webp", ".gif"])
def test_an_image_is_treated_alike(tmp_path: Path, suffix: str) -> None:
    for name, ground in (("hollow", (0, 0, 0, 0)), ("full", (10, 200, 40, 255))):
        image = Image.new("RGBA", (64, 48), ground)
        image.paste((*BLUE, 255), (16, 12, 48, 36))
        image.save(tmp_path / f"{name}{suffix}", **({"lossless": True} if suffix == ".webp" else {}))
        report = normalise_image(tmp_path / f"{name}{suffix}", tmp_path / f"{name}_out.png", ImageKeys())
        pixels = np.asarray(Image.open(tmp_path / f"{name}_out.png")).astype(int)
        assert bool(report.reason) == (name == "hollow") and (not report.reason or "white" in report.reason)
        wanted = (255, 255, 255) if name == "hollow" else ground[:3]
        assert np.abs(pixels[3, 3] - wanted).max() <= 2 and np.abs(pixels[24, 32] - BLUE).max() <= 2
