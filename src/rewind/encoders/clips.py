"""Clips as encoders are given them: frames at the places where all methods look, a clip together with its twin."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rewind.feeding.inputs import ahead
from rewind.study.encoding import Encoding
from rewind.video.frames import open_clip
from rewind.video.packed import extract
from rewind.video.sampling import frame_indices
from rewind.video.store import Clip


def read_clip(clip: Clip, keys: Encoding) -> np.ndarray:
    """Frames uint8 RGB (T, H, W, 3) of a clip at its own size.

    Raises:
        RewindError: naming the file if it cannot be read.
    """
    reader = open_clip(clip.path)
    most, sampling = keys.max_frames or len(reader), keys.sampling or "uniform"
    return reader.read(frame_indices(len(reader), most, sampling, reader.fps, keys.rate, clip.reversed))


def read_ahead(families: Iterable[list[Clip]], keys: Encoding, threads: int) -> Iterator[list[Any]]:
    """Frames of each family, some ahead of the caller; with ``frames: model`` the paths of its files."""
    if keys.frames == "model":
        with tempfile.TemporaryDirectory() as folder:  # models open files by themselves
            for family in families:
                yield [extract(clip.path, Path(folder) / Path(clip.path).name) for clip in family]
        return
    yield from ahead(partial(_read, keys=keys), families, max(1, threads))


def grouped(families: Iterable[list[Any]], size: int) -> Iterator[list[list[Any]]]:
    """Families together, up to ``size`` clips at once; a family is never parted, since its clips share pictures."""
    group: list[list[Any]] = []
    for family in families:
        if group and sum(map(len, group)) + len(family) > size:
            yield group
            group = []
        group.append(family)
    if group:
        yield group


def mirrored(family: list[np.ndarray]) -> int:
    """How many clips of a family show exactly the first one's pictures in opposite order."""
    return sum(np.array_equal(family[0], other[::-1]) for other in family[1:])


def _read(family: list[Clip], keys: Encoding) -> list[np.ndarray]:
    return [read_clip(clip, keys) for clip in family]
