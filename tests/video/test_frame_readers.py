"""Every reader that is installed gives the painted frames of oddly coded clips, and all give the same pixels."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from messages import refusal
from painted_clips import CLIPS, encoders, make_clip
from rewind.errors import RewindError
from rewind.video import readers
from rewind.video.frames import open_frames
from rewind.video.readers import READER_VARIABLE, READERS, installed_readers, reader_version

# Largest difference of a colour value between the libswscale of FFmpeg 4, which is inside decord 0.6, and later ones:
# they interpolate colours in another way where the last row or column has half a colour sample, or samples more bits.
OLD_LIBSWSCALE = {"odd sides, 4:2:0": 110, "10 bits": 100}
AMONG_PREPARED = "prepared by Rewind"
# Frames that would be wrong are refused, and what a library cannot decode.
REFUSED = {
    "decord": {"MPEG stream"},
    "torchcodec": {"MPEG stream", "MPEG-4 in AVI", "cut, 431 of which 300 decode", "HEVC, cut"},
}


def needs(reader: str) -> None:
    if reader not in installed_readers():
        pytest.skip(f"{reader} is not installed")


@pytest.fixture(scope="module")
def clip_path(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A clip by its name; each is made once."""

    @functools.cache
    def path(name: str) -> Path:
        if CLIPS[name].encoder not in encoders():
            pytest.skip(f"this ffmpeg has no {CLIPS[name].encoder}")
        return make_clip(CLIPS[name], tmp_path_factory.mktemp("clip"))

    return path


@pytest.mark.parametrize("name", CLIPS)
@pytest.mark.parametrize("reader", READERS)
def test_frames_show_their_numbers_in_any_order(reader: str, name: str, clip_path, monkeypatch) -> None:
    needs(reader)
    monkeypatch.setenv(READER_VARIABLE, reader)
    clip, path = CLIPS[name], clip_path(name)
    if name in REFUSED.get(reader, ()) or (name == "AV1" and reader_version().startswith("decord 0.")):
        with pytest.raises(RewindError):
            video = open_frames(path)
            video.read(range(len(video)))
        return
    video, numbers = open_frames(path), clip.numbers()
    assert len(video) == len(numbers)
    if reader != "torchcodec" or "rate" not in name:  # it measures the rate
        assert video.fps == pytest.approx(16.133 if name == "variable rate" else 25, abs=0.001)
    last = len(numbers) - 1
    at_random = np.random.default_rng(0).integers(0, len(numbers), 12).tolist()
    for indices in (range(last + 1), [last, last, 0], [last // 2, last // 3, last // 2], at_random, [last]):
        frames = video.read(list(indices))
        assert frames.dtype == np.uint8
        assert sorted(frames.shape[1:3]) == sorted((clip.height, clip.width)) and frames.shape[3] == 3
        assert clip.shown(frames) == [numbers[index] for index in indices]


@pytest.mark.parametrize("name", CLIPS)
def test_all_readers_give_the_same_pixels(name: str, clip_path, monkeypatch) -> None:
    if len(installed_readers()) < 2:
        pytest.skip("one reader is installed; benchmarks/frame_readers.py compares those of several environments")
    path, found = clip_path(name), {}
    for reader in installed_readers():
        monkeypatch.setenv(READER_VARIABLE, reader)
        try:
            video = open_frames(path)
            found[reader_version()] = video.read(range(len(video))).astype(int)
        except RewindError:
            continue
    if len(found) < 2:
        pytest.skip("fewer than two of the installed readers read it")
    first, *others = found
    for other in others:
        limit = OLD_LIBSWSCALE.get(name, 0) if "decord 0.6.0" in (first, other) else 0
        assert found[first].shape == found[other].shape
        assert np.abs(found[first] - found[other]).max() <= limit, f"{first} and {other}"


@pytest.mark.parametrize("name", [AMONG_PREPARED, "HEVC", "header counts 201 of 70"])
@pytest.mark.parametrize("reader", READERS)
def test_bytes_of_a_shard_are_read_as_a_file_is(reader: str, name: str, clip_path) -> None:
    needs(reader)
    path = clip_path(name)
    alone, packed = READERS[reader](path), READERS[reader](Path("v.mp4"), path.read_bytes())
    indices = [len(alone) - 1, 3, 3, 0]
    assert (len(alone), alone.fps) == (len(packed), packed.fps)
    assert np.array_equal(alone.read(indices), packed.read(indices))


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_waits_for_frames_that_are_not_there(reader: str, clip_path) -> None:
    """decord by itself hangs on these indices, with Python's lock held: hence a process that can be ended."""
    needs(reader)
    code = (
        "import sys, numpy as np; from rewind.video.frames import open_frames; video = open_frames(sys.argv[1]);"
        "print(len(video), len(video.read(np.linspace(0, len(video) - 1, 32, dtype=int))))"
    )
    command = [sys.executable, "-c", code, str(clip_path("cut, 431 of which 300 decode"))]
    environment = os.environ | {READER_VARIABLE: reader}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    refused = reader in REFUSED and "cut, 431 of which 300 decode" in REFUSED[reader]
    assert "frames cannot be decoded" in done.stderr if refused else done.stdout == "300 32\n", done.stderr


@pytest.mark.parametrize("reader", READERS)
def test_damaged_files_are_refused_by_every_reader(reader: str, clip_path, tmp_path, monkeypatch) -> None:
    needs(reader)
    monkeypatch.setenv(READER_VARIABLE, reader)
    (tmp_path / "text.mp4").write_text("not a video")
    with pytest.raises(RewindError, match=r"text\.mp4: cannot be opened as a video; delete it and prepare"):
        open_frames(tmp_path / "text.mp4")
    for name in (AMONG_PREPARED, "B-frames"):
        content = bytearray(clip_path(name).read_bytes())
        start = content.index(b"mdat") + 4
        content[start + 8000 : start + 16000] = bytes(8000)
        (tmp_path / "damaged.mp4").write_bytes(content)
        with pytest.raises(RewindError, match=r"damaged\.mp4"):
            video = open_frames(tmp_path / "damaged.mp4")
            video.read(range(len(video)))


def test_which_reader_is_used_and_what_is_missing(monkeypatch) -> None:
    monkeypatch.delenv(READER_VARIABLE, raising=False)
    monkeypatch.setattr(readers, "_is_installed", lambda name: True)
    assert readers.reader_name() == "decord"
    monkeypatch.setattr(readers, "_is_installed", lambda name: name == "av")
    assert readers.reader_name() == "av"
    monkeypatch.setattr(readers, "_is_installed", lambda name: name == "torchcodec")  # only if it is asked for
    with refusal():
        readers.reader_name()
    monkeypatch.setenv(READER_VARIABLE, "torchcodec")
    assert readers.reader_name() == "torchcodec"
    for name in ("decord", "av", "opencv"):
        monkeypatch.setenv(READER_VARIABLE, name)
        with refusal(f"{READER_VARIABLE}={name}"):
            readers.reader_name()
