"""Frames as upstream ViCLIP takes them: which, and how they become squares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from golden_numbers import agree, load, load_json
from rewind.config import Frames, Video
from rewind.loading.frame_source import ClipFrames, NoiseFrames
from rewind.models.towers import IMAGENET_MEAN, IMAGENET_STD
from rewind.video import ffmpeg
from rewind.video.frames import frame_indices, sample_clip, stretch_square
from rewind.video.transcode import transcode_clip


@pytest.mark.parametrize("case", load_json("viclip_frame_pick.json"), ids=str)
def test_stride_picks_upstreams_frames(case: dict) -> None:
    picked = frame_indices(case["n_frames"], case["fnum"], "stride")
    assert picked.tolist() == case["picked"]
    mirrored = frame_indices(case["n_frames"], case["fnum"], "stride", reversed=True)
    assert mirrored.tolist() == [case["n_frames"] - 1 - i for i in reversed(case["picked"])]


@pytest.mark.parametrize("length", range(1, 8))
def test_a_clip_of_fewer_frames_repeats_some(length: int) -> None:
    picked = frame_indices(length, 8, "stride")
    assert len(picked) == 8 and set(picked) == set(range(length)) and (np.diff(picked) >= 0).all()


@pytest.mark.golden
def test_a_stretched_frame_is_opencvs_bit_for_bit() -> None:
    golden = load("viclip_preprocess.npz")
    raw = golden["in/raw_bgr"][frame_indices(11, int(golden["in/fnum"]), "stride")][..., ::-1]
    square = np.stack([stretch_square(np.ascontiguousarray(frame), 32) for frame in raw])
    found = (square / 255 - np.array(IMAGENET_MEAN)) / np.array(IMAGENET_STD)
    found = found.transpose(0, 3, 1, 2)[None].astype(np.float32)  # as the original's tensor
    agree("ViCLIP", "preprocessing", found, golden["out/tensor"], atol=1e-6)


def test_stretching_keeps_what_is_square_and_halves_by_means() -> None:
    rng = np.random.default_rng(0)
    frame = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
    assert stretch_square(frame, 16) is frame
    mean = frame.reshape(8, 2, 8, 2, 3).mean(axis=(1, 3))
    assert np.abs(stretch_square(frame, 8) - mean).max() <= 0.5
    assert (stretch_square(np.full((20, 33, 3), 200, np.uint8), 24) == 200).all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A wide clip of 3 frames, one in grey and one with an alpha channel."""
    folder = tmp_path_factory.mktemp("clips")
    for name, pixels, suffix, codec in (
        ("short", "yuv420p", "mp4", "libx264"),
        ("grey", "gray", "mkv", "ffv1"),
        ("alpha", "yuva420p", "mkv", "ffv1"),
    ):
        source = folder / f"source_{name}.{suffix}"
        drawing = ["-f", "lavfi", "-i", "testsrc2=s=64x32:r=4:d=0.75", "-pix_fmt", pixels, "-c:v", codec]
        assert ffmpeg.run_command([ffmpeg.executable(), *drawing, str(source), "-y"]).code == 0
        assert transcode_clip(source, folder / f"{name}.mp4", None, Video(fps=4, short_side=32)).status == "ok"
    return folder


@pytest.mark.parametrize("name", ["short", "grey", "alpha"])
def test_short_grey_and_transparent_clips_give_rgb_frames(folder: Path, name: str) -> None:
    pixels, mask = sample_clip(folder / f"{name}.mp4", 8, 24, "stride", fit="stretch")
    assert pixels.shape == (8, 3, 24, 24) and mask.all()
    assert np.array_equal(pixels[0], pixels[1]) and not np.array_equal(pixels[0], pixels[7])
    if name == "grey":
        assert np.abs(pixels[:, 0].astype(int) - pixels[:, 2]).max() <= 2


def test_stretch_sees_the_sides_that_crop_cuts_off(folder: Path) -> None:
    items = pd.DataFrame({"item_id": ["a"], "path": ["short.mp4"], "reversed": [0]})
    both = [ClipFrames(items, folder, Frames(size=32, fit=fit), 3).read(0)[0] for fit in ("crop", "stretch")]
    assert both[0].shape == both[1].shape and not np.array_equal(*both)


def test_noise_is_the_items_own_and_reads_no_clip() -> None:
    items = pd.DataFrame({"item_id": ["a", "b"], "path": ["none.mp4", "none.mp4"], "reversed": [0, 0]})
    noise = NoiseFrames(items, Frames(size=16), 4)
    batch, again = (
        noise.batch(np.array([1, 0, 1])),
        NoiseFrames(items[::-1], Frames(size=16), 4).batch(np.array([0, 1, 0])),
    )
    assert batch["pixels"].shape == (3, 4, 3, 16, 16) and batch["mask"].all()
    assert (batch["pixels"] == again["pixels"]).all(), "the item decides, not its row"
    assert not (batch["pixels"][0] == batch["pixels"][1]).all() and (batch["pixels"][0] == batch["pixels"][2]).all()
    assert abs(batch["pixels"].float().mean() - 127.5) < 3
