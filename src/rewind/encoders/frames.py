"""Frames for encoders: reading clips, batching them, and averaging the features of single-image models over frames.

Clips are uint8 RGB (T, H, W, 3). A clip and its time-reversed twin (a family) are always read and encoded together. The
mean over frames is taken in an order that depends only on the values, so that a clip and its twin get bit-identical
vectors.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image

from rewind.config.encoders import Encoding
from rewind.hashing import content_key
from rewind.loading.frame_source import prefetch
from rewind.video.frame_store import ClipToStore
from rewind.video.frames import frame_indices, open_frames
from rewind.video.shards import extract_clip

# ---- Features of single-image models, averaged over frames ---------------------------------------------------------

T = TypeVar("T")

FRAMES_AVERAGED_NOTE = "frames are encoded one by one and their unit vectors averaged, which is blind to their order"


def mean_frame_features(
    clips: Sequence[np.ndarray], encode: Callable[[list[np.ndarray]], np.ndarray], size: int
) -> np.ndarray:
    """The mean of the unit vectors of each clip's frames, float32 (n, D).

    A picture that several clips share is encoded once, and the mean is taken in an order that depends only on the
    values. So a clip and a twin with the same pictures have one vector, and a model blind to order ties them exactly:
    the rounding of a batch cannot tell them apart.

    Args:
        clips: each uint8 (T, H, W, 3).
        encode: pictures uint8 (H, W, 3) → features (n, D).
        size: pictures encoded at once.

    >>> clip = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 3), dtype=np.uint8)
    >>> def encode(pictures):
    ...     return np.stack([picture.reshape(-1).astype(np.float32) for picture in pictures])
    >>> vectors = mean_frame_features([clip, clip[::-1]], encode, size=2)
    >>> vectors.shape, bool((vectors[0] == vectors[1]).all())
    ((2, 48), True)
    """
    row_of_content: dict[bytes, int] = {}  # a picture's content → its row of `pictures`
    pictures: list[np.ndarray] = []
    rows_of_clips = []
    for clip in clips:
        rows = []
        for picture in clip:
            # With the shape, because the same bytes can be pictures of different sizes.
            key = content_key(repr(picture.shape).encode(), picture.tobytes())
            if key not in row_of_content:
                row_of_content[key] = len(pictures)
                pictures.append(picture)
            rows.append(row_of_content[key])
        rows_of_clips.append(rows)
    features = np.concatenate([l2_normalise(encode(batch)) for batch in batched(pictures, size)])
    return np.stack([_order_independent_mean(features[rows]) for rows in rows_of_clips]).astype(np.float32)


def l2_normalise(vectors: np.ndarray) -> np.ndarray:
    """Vectors (n, D) of length 1, float64; zero vectors stay zero, and the job that gets them refuses them.

    >>> l2_normalise(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    vectors = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def _order_independent_mean(rows: np.ndarray) -> np.ndarray:
    """Mean of (T, D) over rows, each column summed from its smallest value up: float sums depend on the order."""
    return np.sort(rows, axis=0).sum(axis=0) / len(rows)


def batched(values: Sequence[T], size: int) -> Iterator[list[T]]:
    """Consecutive values, ``size`` at once.

    >>> list(batched("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    for at in range(0, len(values), size):
        yield list(values[at : at + size])


def to_pil_images(frames: Iterable[np.ndarray]) -> list[Image.Image]:
    """Frames uint8 (H, W, 3) as Pillow images."""
    return [Image.fromarray(np.ascontiguousarray(frame)) for frame in frames]


def stack_in_threads(act: Callable[[T], torch.Tensor], values: Sequence[T]) -> torch.Tensor:
    """Results of all values, stacked; threads help because Pillow and torch release Python's lock while they resize."""
    threads = torch.get_num_threads()
    if threads == 1 or len(values) == 1:
        return torch.stack([act(value) for value in values])
    with ThreadPoolExecutor(threads) as pool:
        return torch.stack(list(pool.map(act, values)))


def default_device() -> torch.device:
    """The GPU if this job was granted one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def torch_dtype(precision: str) -> torch.dtype:
    """The torch dtype of a study's key ``precision``."""
    return {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]


def to_numpy(features: torch.Tensor) -> np.ndarray:
    """Features as a float32 array in main memory."""
    return features.detach().float().cpu().numpy()


# ---- Reading clips, each together with its twin --------------------------------------------------------------------
# Frames are sampled at the same positions for all methods.


def read_clip(clip: ClipToStore, keys: Encoding) -> np.ndarray:
    """Frames uint8 RGB (T, H, W, 3) of a clip at its own size."""
    reader = open_frames(clip.path)
    max_frames, sampling = keys.max_frames or len(reader), keys.sampling or "uniform"
    return reader.read(frame_indices(len(reader), max_frames, sampling, reader.fps, keys.rate, clip.reversed))


def read_families_ahead(families: Iterable[list[ClipToStore]], keys: Encoding, threads: int) -> Iterator[list[Any]]:
    """Frames of each family, some read ahead of the caller; with ``frames: model`` the paths of its files."""
    if keys.frames == "model":
        # The model opens files itself, so a clip inside a shard becomes a file first.
        with tempfile.TemporaryDirectory() as folder:
            for family in families:
                yield [extract_clip(clip.path, Path(folder) / Path(clip.path).name) for clip in family]
        return
    yield from prefetch(partial(_read_family, keys=keys), families, max(1, threads))


def group_families(families: Iterable[list[Any]], size: int) -> Iterator[list[list[Any]]]:
    """Groups of families with up to ``size`` clips; a family is never split, since its clips share pictures.

    >>> list(group_families([["a", "a reversed"], ["b"], ["c", "c reversed"]], 3))
    [[['a', 'a reversed'], ['b']], [['c', 'c reversed']]]
    """
    group: list[list[Any]] = []
    for family in families:
        if group and sum(map(len, group)) + len(family) > size:
            yield group
            group = []
        group.append(family)
    if group:
        yield group


def count_mirrored_clips(family: list[np.ndarray]) -> int:
    """How many clips of a family show exactly the pictures of the first one in opposite order."""
    return sum(np.array_equal(family[0], other[::-1]) for other in family[1:])


def mirror_notes(twins: int, mirrored: int) -> list[str]:
    """What readers of a table must know if a model saw twins that are not exact mirror images of their originals.

    >>> mirror_notes(3, 3), mirror_notes(3, 2)
    ([], ["1 of 3 twins do not show exactly their originals' pictures in reverse"])
    """
    if mirrored == twins:
        return []
    return [f"{twins - mirrored} of {twins} twins do not show exactly their originals' pictures in reverse"]


def _read_family(family: list[ClipToStore], keys: Encoding) -> list[np.ndarray]:
    return [read_clip(clip, keys) for clip in family]
