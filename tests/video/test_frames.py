"""Which frames are read, that a twin's are the exact mirror, and CLIP's geometry."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from golden_numbers import agree, load_json
from messages import refusal
from rewind.config import Video
from rewind.optional_packages import torchvision
from rewind.video import ffmpeg, frames
from rewind.video.frames import clip4clip_frame_indices, frame_indices, normalise_pixels, read_frames, sample_clip
from rewind.video.transcode import transcode_clip

SCHEMES = [(sampling, rate) for sampling in ("uniform", "ends", "head", "tail") for rate in (None, 1.0, 2.5)]


@pytest.mark.parametrize("sampling, rate", SCHEMES)
def test_a_twin_reads_the_exact_mirror(sampling: str, rate: float | None) -> None:
    """All lengths 1 to 200 by all limits 1 to 32."""
    for length in range(1, 201):
        for limit in range(1, 33):
            kept = frame_indices(length, limit, sampling, 3.0, rate)
            twin = frame_indices(length, limit, sampling, 3.0, rate, reversed=True)
            assert kept.dtype == twin.dtype == np.int64
            assert np.array_equal(twin, length - 1 - kept[::-1])
            assert kept[0] >= 0 and kept[-1] < length and (np.diff(kept) > 0).all()
            rated = length if rate is None else min(length, max(1, round(length * rate / 3)))
            assert len(kept) == min(limit, rated)


def test_uniform_frames_are_symmetric_in_time() -> None:
    """The twin then has the very same frame numbers; only an odd number of an even length cannot."""
    for length in range(1, 201):
        for limit in range(1, min(length, 32) + 1):
            kept = frame_indices(length, limit)
            mirror = frame_indices(length, limit, reversed=True)
            differ = (kept != mirror).sum()
            assert differ == (1 if limit % 2 and length % 2 == 0 else 0)
            assert np.abs(kept + 0.5 - (np.arange(limit) + 0.5) * length / limit).max() <= 1


def test_ends_are_in_and_all_is_symmetric_in_time() -> None:
    assert frame_indices(45, 12, "ends").tolist() == list(range(0, 45, 4))  # and uniform: 1, 5, ..., 43
    assert frame_indices(45, 12).tolist() == [1, 5, 9, 13, 16, 20, 24, 28, 31, 35, 39, 43]
    for length in range(1, 201):
        for limit in range(1, min(length, 32) + 1):
            kept = frame_indices(length, limit, "ends")
            mirror = frame_indices(length, limit, "ends", reversed=True)
            assert (kept != mirror).sum() == (1 if limit % 2 and length % 2 == 0 else 0)
            if limit > 1:
                assert kept[0] == 0 and kept[-1] == length - 1
                upstream = np.linspace(0, length - 1, limit, dtype=np.int64)
                assert np.abs(kept - upstream).max() <= 1


@given(
    st.integers(1, 5000),
    st.integers(1, 512),
    st.sampled_from(["uniform", "ends", "head", "tail"]),
    st.floats(0.1, 60),
    st.none() | st.floats(0.05, 70),
)
@settings(max_examples=200, deadline=None)
def test_any_clip_gets_ascending_frames_inside_it(length, limit, sampling, fps, rate) -> None:
    kept = frame_indices(length, limit, sampling, fps, rate)
    assert 1 <= len(kept) <= limit
    assert kept[0] >= 0 and kept[-1] < length and (np.diff(kept) > 0).all()


def test_the_schemes_keep_what_they_say() -> None:
    assert frame_indices(10, 3, "head").tolist() == [0, 1, 2]
    assert frame_indices(10, 3, "tail").tolist() == [7, 8, 9]
    assert frame_indices(12, 4).tolist() == [1, 4, 7, 10]
    assert frame_indices(2, 12).tolist() == [0, 1]
    assert frame_indices(30, 12, fps=3, rate=1).tolist() == [1, 4, 7, 10, 13, 16, 19, 22, 25, 28]
    assert frame_indices(30, 4, "head", fps=3, rate=1).tolist() == [1, 4, 7, 10]
    assert frame_indices(30, 4, "head", fps=3, rate=1, reversed=True).tolist() == [19, 22, 25, 28]


@pytest.mark.parametrize(
    "arguments, place",
    [
        ((0, 4), ""),
        ((4, 0), ""),
        ((4, 2, "middle"), "frames.sampling"),
        ((4, 2, "head", None, 1.0), ""),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(arguments: tuple, place: str) -> None:
    with refusal(place):
        frame_indices(*arguments)


@pytest.mark.golden
def test_upstream_indices_are_clip4clips() -> None:
    for case in load_json("clip4clip/metrics.json")["frame_indices"]["cases"]:
        count, fps = case["reported_frame_count"], case["reported_fps"]
        scheme = (case["feature_framerate"], case["max_frames"], case["slice_framepos"])
        used = clip4clip_frame_indices(count, fps, *scheme)
        agree("CLIP4Clip, frames", "picked", used[:: -1 if case["frame_order"] else 1], case["used"])


def test_upstream_indices_by_hand_and_their_asymmetry() -> None:
    assert clip4clip_frame_indices(100, 29.97, 1, 12, 2).tolist() == [0, 29, 58, 87]
    assert clip4clip_frame_indices(100, 25.0, 2, 5, 0).tolist() == [0, 12, 25, 37, 50]
    assert clip4clip_frame_indices(100, 25.0, 2, 5, 1).tolist() == [37, 50, 62, 75, 87]
    assert clip4clip_frame_indices(100, 25.0, 2, 5, 2).tolist() == [0, 12, 37, 62, 87]
    assert not np.array_equal(
        99 - clip4clip_frame_indices(100, 25.0, 2, 5, 2)[::-1], clip4clip_frame_indices(100, 25.0, 2, 5, 2)
    )
    with refusal():
        clip4clip_frame_indices(10, 0.5, 1, 4, 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Normalised clips ``a`` (square width 48, which decord pads) and ``b`` (wide), with their twins."""
    out = tmp_path_factory.mktemp("clips")
    for name, size in (("a", "60x108"), ("b", "150x80")):
        picture = ["-f", "lavfi", "-i", f"testsrc2=s={size}:r=25:d=3.4", "-c:v", "libx264", "-qp", "10"]
        ffmpeg.run_command([ffmpeg.executable(), *picture, str(out / "source.mkv"), "-y"])
        settings = Video(fps=3, short_side=48, qp=10)
        report = transcode_clip(out / "source.mkv", out / f"{name}.mp4", out / f"{name}_rev.mp4", settings)
        assert (report.status, report.frames) == ("ok", 10)
    return out


@pytest.mark.parametrize("name", ["a", "b"])
def test_frames_are_those_that_ffmpeg_decodes(folder: Path, name: str) -> None:
    path = folder / f"{name}.mp4"
    reader = frames.open_file_frames(path)
    assert (len(reader), reader.fps) == (10, 3.0)
    order = [7, 0, 9, 9, 3]
    read = reader.read(order)
    raw = ["-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", str(folder / "raw"), "-y"]
    assert ffmpeg.run_command([ffmpeg.executable(), *raw]).code == 0
    expected = np.fromfile(folder / "raw", np.uint8).reshape(10, *read.shape[1:])[order]
    assert np.abs(read.astype(int) - expected).mean() < 1  # colour conversion rounds differently
    assert len({frame.tobytes() for frame in expected}) == 4


@pytest.mark.parametrize("sampling, rate", SCHEMES)
def test_a_twins_pixels_are_the_originals_in_opposite_order(folder: Path, sampling: str, rate: float | None) -> None:
    forward, mask = sample_clip(folder / "b.mp4", 4, 32, sampling, rate)
    backward, twin_mask = sample_clip(folder / "b_rev.mp4", 4, 32, sampling, rate, reversed=True)
    n = mask.sum()
    assert n == (3 if rate == 1.0 else 4)
    assert np.array_equal(mask, twin_mask)
    assert np.array_equal(forward[:n], backward[:n][::-1])
    assert not np.array_equal(forward[:n], backward[:n])


def test_a_short_clip_is_padded_and_masked(folder: Path) -> None:
    pixels, mask = sample_clip(folder / "a.mp4", 12, 40)
    assert pixels.shape == (12, 3, 40, 40) and pixels.dtype == mask.dtype == np.uint8
    assert mask.tolist() == [1] * 10 + [0] * 2
    assert not pixels[10:].any()
    assert np.array_equal(pixels[:10], read_frames(folder / "a.mp4", range(10), 40, frames=10))


@pytest.mark.parametrize("shape", [(48, 86), (86, 48), (48, 48), (47, 90), (31, 33), (33, 200)])
@pytest.mark.parametrize("size", [32, 48])
def test_the_geometry_is_clips(shape: tuple[int, int], size: int) -> None:
    """Against torchvision's own transforms, as CLIP's preprocessing composes them."""
    transforms = torchvision("transforms")
    frame = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    bicubic = transforms.InterpolationMode.BICUBIC
    compose = transforms.Compose([transforms.Resize(size, bicubic), transforms.CenterCrop(size)])
    assert np.array_equal(frames.crop_square(frame, size), np.asarray(compose(Image.fromarray(frame))))


def test_a_clip_of_the_right_size_is_only_cropped(folder: Path) -> None:
    whole = frames.open_file_frames(folder / "b.mp4").read([2])[0]
    read = read_frames(folder / "b.mp4", [2], 48)[0]
    left = round((whole.shape[1] - 48) / 2)
    assert np.array_equal(read, whole[:, left : left + 48].transpose(2, 0, 1))


def test_normalise_is_the_same_in_numpy_and_torch() -> None:
    torch = pytest.importorskip("torch")
    pixels = np.random.default_rng(1).integers(0, 256, (2, 5, 3, 4, 6), dtype=np.uint8)
    ours = normalise_pixels(pixels)
    theirs = normalise_pixels(torch.from_numpy(pixels))
    assert ours.dtype == np.float32 and theirs.dtype == torch.float32
    np.testing.assert_allclose(theirs.numpy(), ours, rtol=1e-6, atol=1e-6)
    for channel, (mean, std) in enumerate(zip(frames.CLIP_MEAN, frames.CLIP_STD, strict=True)):
        expected = (pixels[:, :, channel].astype(float) / 255 - mean) / std
        np.testing.assert_allclose(ours[:, :, channel], expected, atol=1e-5)


def test_what_cannot_be_read_is_named(folder: Path, tmp_path: Path) -> None:
    path = folder / "a.mp4"
    with refusal("a.mp4"):
        read_frames(path, [0], 32, frames=11)
    with refusal("a.mp4"):
        sample_clip(path, 4, 32, frames=9)
    with refusal("a.mp4"):
        read_frames(path, [3, 10], 32)
    with refusal("a.mp4"):
        read_frames(path, [3, -1], 32)
    with refusal("none.mp4"):
        read_frames(tmp_path / "none.mp4", [0], 32)
    (tmp_path / "text.mp4").write_text("not a video")
    with refusal("text.mp4"):
        read_frames(tmp_path / "text.mp4", [0], 32)
    assert read_frames(path, [], 32).shape == (0, 3, 32, 32)


def test_many_opens_leak_nothing(folder: Path) -> None:
    """Open file handles and memory stay where they were (the whole check, 5,000 opens, is run by hand)."""
    handles = Path("/proc/self/fd")
    if not handles.is_dir():
        pytest.skip("needs /proc")

    def held() -> tuple[int, int]:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return len(list(handles.iterdir())), pages * 4096

    for _ in range(50):
        sample_clip(folder / "a.mp4", 4, 32)
    files, memory = held()
    for _ in range(200):
        sample_clip(folder / "a.mp4", 4, 32)
    assert held()[0] <= files
    assert held()[1] - memory < 20e6
