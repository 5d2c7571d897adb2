"""Clips of models that see single pictures: the mean over frames, the same to the last bit in either order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch
from PIL import Image

T = TypeVar("T")

AVERAGED = "frames are encoded one by one and their unit vectors averaged, which is blind to their order"


def mean_of_frames(
    clips: Sequence[np.ndarray], encode: Callable[[list[np.ndarray]], np.ndarray], size: int
) -> np.ndarray:
    """The mean of the unit vectors of each clip's frames, float32 (n, D).

    A picture that several clips share is encoded once, and the mean is taken in an order of the values alone. So a clip
    and a twin with its pictures have one vector, and a model blind to order ties them exactly: the rounding of a batch
    cannot tell them apart.

    Args:
        clips: each uint8 (T, H, W, 3).
        encode: pictures uint8 (H, W, 3) → features (n, D).
        size: pictures encoded at once.
    """
    rows: dict[bytes, int] = {}
    pictures: list[np.ndarray] = []
    places = []
    for clip in clips:
        place = []
        for picture in clip:
            mark = hashlib.sha256(repr(picture.shape).encode() + picture.tobytes()).digest()
            if mark not in rows:
                rows[mark] = len(pictures)
                pictures.append(picture)
            place.append(rows[mark])
        places.append(place)
    features = np.concatenate([unit(encode(batch)) for batch in batches(pictures, size)])
    return np.stack([_mean(features[place]) for place in places]).astype(np.float32)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors (n, D) of length 1, float64; those without a length stay, for the job to refuse."""
    vectors = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def _mean(rows: np.ndarray) -> np.ndarray:
    """The mean of (T, D) over rows: each column is added from its smallest value on, whatever the order of rows."""
    return np.sort(rows, axis=0).sum(axis=0) / len(rows)


def symmetric(clip: np.ndarray, count: int) -> np.ndarray:
    """A clip with exactly ``count`` frames: some dropped or repeated, a mirrored clip's as the mirror image.

    Only the middle one of an odd ``count`` has no such place where the clip has an even number of frames.
    """
    places = (2 * np.arange(count) + 1) * len(clip) // (2 * count)
    half = count // 2
    places[count - half :] = len(clip) - 1 - places[:half][::-1]
    return clip[places]


def batches(values: Sequence[T], size: int) -> Iterator[list[T]]:
    """Consecutive values, ``size`` at once."""
    for at in range(0, len(values), size):
        yield list(values[at : at + size])


def pictures(frames: Iterable[np.ndarray]) -> list[Image.Image]:
    """Frames uint8 (H, W, 3) as Pillow's images."""
    return [Image.fromarray(np.ascontiguousarray(frame)) for frame in frames]


def in_threads(act: Callable[[T], torch.Tensor], values: Sequence[T]) -> torch.Tensor:
    """Results of all values, stacked; Pillow and torch let go of the interpreter while they resize."""
    threads = torch.get_num_threads()
    if threads == 1 or len(values) == 1:
        return torch.stack([act(value) for value in values])
    with ThreadPoolExecutor(threads) as pool:
        return torch.stack(list(pool.map(act, values)))


def device() -> torch.device:
    """The device that this job was granted."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def dtype(precision: str) -> torch.dtype:
    """torch's type of ``precision``."""
    return {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]


def numbers(features: torch.Tensor) -> np.ndarray:
    """Features in main memory, float32."""
    return features.detach().float().cpu().numpy()
