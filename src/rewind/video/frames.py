"""Which frames of a clip a model sees, and reading them.

A twin's frames are the exact mirror of its original's: any difference a model finds between the two is order,
not content.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from PIL import Image

from rewind.errors import RewindError
from rewind.files import raise_machine_fault, reading_user_file
from rewind.video import packed
from rewind.video.sampling import Sampling, frame_indices
from rewind.video.stretch import stretch_square

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)

IMAGE_SUFFIXES = (".png", ".jpg")  # of normalised images

Fit = Literal["crop", "stretch"]
Indices = Sequence[int] | np.ndarray


class FrameReader(Protocol):
    """What any decoder must offer; :func:`open_clip` is the one place that chooses it."""

    fps: float

    def __len__(self) -> int:
        """Number of frames."""

    def read(self, indices: Indices) -> np.ndarray:
        """uint8 RGB (n, height, width, 3) of the frames at ``indices``."""


class DecordReader:
    """Frames through decord, on one CPU thread (data loaders run many readers at once)."""

    def __init__(self, path: Path) -> None:
        import decord

        decord.logging.set_level(decord.logging.QUIET)
        self.path = path
        try:
            self._video = decord.VideoReader(str(path), ctx=decord.cpu(0), num_threads=1)
            self.fps = round(float(self._video.get_avg_fps()), 3)
        except Exception as error:  # decord raises its own type, RuntimeError or ValueError
            raise_machine_fault(error, path)
            raise RewindError(
                f"{path}: cannot be opened as a video; delete it and prepare the videos again."
            ) from error

    def __len__(self) -> int:
        return len(self._video)

    def read(self, indices: Indices) -> np.ndarray:
        try:
            return np.stack([_unpadded(self._video[int(i)].asnumpy()) for i in indices])
        except Exception as error:
            raise_machine_fault(error, self.path)
            raise RewindError(
                f"{self.path}: frames cannot be decoded; delete it and prepare the videos again."
            ) from error


def _unpadded(frame: np.ndarray) -> np.ndarray:
    """Cut what decord 0.6 leaves at the end of each row where a padded row is a multiple of the width.

    It takes a row of 192 bytes at width 48 for four channels (also widths 16, 24, 72), and its ``get_batch``
    fails there.
    """
    height, width, channels = frame.shape
    return frame if channels == 3 else frame.reshape(height, -1)[:, : 3 * width].reshape(height, width, 3)


WRITTEN = ("PNG", "JPEG")  # what normalised images are


class ImageReader:
    """An image as a clip of one frame."""

    fps = 1.0

    def __init__(self, path: Path) -> None:
        with reading_user_file(path, "image", "delete it and prepare the images again"):
            try:
                with Image.open(path, formats=WRITTEN) as image:
                    self._frame = np.asarray(image.convert("RGB"))
            except (OSError, ValueError, SyntaxError) as error:
                raise RewindError(
                    f"{path}: cannot be opened as an image; delete it and prepare the images again."
                ) from error

    def __len__(self) -> int:
        return 1

    def read(self, indices: Indices) -> np.ndarray:
        return np.stack([self._frame for _ in indices])


class _PackedVideo(DecordReader):
    """The same out of a shard."""

    def __init__(self, path: Path, content: bytes) -> None:
        import decord

        decord.logging.set_level(decord.logging.QUIET)
        self.path = path
        try:
            self._video = decord.VideoReader(io.BytesIO(content), ctx=decord.cpu(0), num_threads=1)
            self.fps = round(float(self._video.get_avg_fps()), 3)
        except Exception as error:  # as above
            raise_machine_fault(error, path)
            raise RewindError(f"{path}: cannot be opened as a video; prepare the videos again.") from error


class _PackedImage(ImageReader):
    """The same out of a shard."""

    def __init__(self, path: Path, content: bytes) -> None:
        try:
            with Image.open(io.BytesIO(content), formats=WRITTEN) as image:
                self._frame = np.asarray(image.convert("RGB"))
        except (OSError, ValueError, SyntaxError) as error:
            raise RewindError(f"{path}: cannot be opened as an image; prepare the images again.") from error


def open_clip(path: str | Path) -> FrameReader:
    """Open a normalised clip, or a normalised image as a clip of one frame, out of its shard or as a file of its own.

    Args:
        path: ``<folder>/videos/<id>.mp4``, as ``items.csv`` names it, whether it is packed or not; or any video file.

    Raises:
        RewindError: naming the file if it is missing, damaged or cannot be opened.
    """
    path = Path(path)
    place = packed.find(path)
    if place is None:
        return open_reader(path)
    content = packed.read(place)
    return _PackedImage(path, content) if path.suffix in IMAGE_SUFFIXES else _PackedVideo(path, content)


def open_reader(path: str | Path) -> FrameReader:
    """Open a file that is a normalised clip, or a normalised image as a clip of one frame.

    Raises:
        RewindError: naming the file if it is missing or cannot be opened.
    """
    path = Path(path)
    if not path.is_file():
        raise RewindError(f"{path}: no such clip; prepare the data first (`snakemake --cores all prepared`).")
    return ImageReader(path) if path.suffix in IMAGE_SUFFIXES else DecordReader(path)


def read_frames(
    path: str | Path, indices: Indices, size: int, frames: int | None = None, fit: Fit = "crop"
) -> np.ndarray:
    """uint8 RGB (n, 3, size, size) of the frames at ``indices``.

    Args:
        path: a normalised clip.
        indices: frames to read, each below the clip's length.
        size: side of the square result.
        frames: the length that the report of the video stage gives; a clip of another length is refused.
        fit: ``crop``, CLIP's geometry (:func:`clip_square`), or ``stretch``, the whole frame (``video/stretch.py``).

    Raises:
        RewindError: naming the file if it cannot be opened or decoded, or its length differs.
    """
    return _read(open_clip(path), path, indices, size, frames, fit)


def _read(
    reader: FrameReader, path: str | Path, indices: Indices, size: int, frames: int | None, fit: Fit
) -> np.ndarray:
    _check_length(reader, path, frames)
    if len(indices) == 0:
        return np.zeros((0, 3, size, size), np.uint8)
    if min(indices) < 0 or max(indices) >= len(reader):
        asked = f"{min(indices)} to {max(indices)}"
        raise RewindError(f"{path}: has frames 0 to {len(reader) - 1}, asked for {asked}.")
    shape = stretch_square if fit == "stretch" else clip_square
    square = np.stack([shape(frame, size) for frame in reader.read(indices)])
    return np.ascontiguousarray(square.transpose(0, 3, 1, 2))


def _check_length(reader: FrameReader, path: str | Path, frames: int | None) -> None:
    if frames is not None and len(reader) != frames:
        raise RewindError(
            f"{path}: has {len(reader)} frames, but the report of the video stage says {frames}; prepare the videos "
            "again."
        )


def clip_square(frame: np.ndarray, size: int) -> np.ndarray:
    """CLIP's geometry on one frame: uint8 (h, w, 3) → (size, size, 3).

    Resizes the short side to ``size`` (the long side rounded down), then crops the centre, as torchvision's
    ``Resize(size, BICUBIC)`` and ``CenterCrop(size)`` do on a Pillow image.
    """
    height, width = frame.shape[:2]
    if min(height, width) != size:
        short = min(height, width)
        width, height = size * width // short, size * height // short
        frame = np.asarray(Image.fromarray(frame).resize((width, height), Image.Resampling.BICUBIC))
    top, left = round((height - size) / 2.0), round((width - size) / 2.0)
    return frame[top : top + size, left : left + size]


def sample_clip(
    path: str | Path,
    max_frames: int,
    size: int,
    sampling: Sampling = "uniform",
    rate: float | None = None,
    reversed: bool = False,
    frames: int | None = None,
    fit: Fit = "crop",
) -> tuple[np.ndarray, np.ndarray]:
    """The model's view of one clip: :func:`rewind.video.sampling.frame_indices` read by :func:`read_frames`.

    Returns:
        pixels uint8 (max_frames, 3, size, size), zero after the last frame; mask uint8 (max_frames,), 1 where
        there is a frame.

    Raises:
        RewindError: as those two.
    """
    reader = open_clip(path)
    indices = frame_indices(len(reader), max_frames, sampling, reader.fps, rate, reversed)
    pixels = np.zeros((max_frames, 3, size, size), np.uint8)
    mask = np.zeros(max_frames, np.uint8)
    pixels[: len(indices)] = _read(reader, path, indices, size, frames, fit)
    mask[: len(indices)] = 1
    return pixels, mask


def normalise(pixels: Any) -> Any:
    """CLIP's normalisation of [..., 3, h, w] values 0 to 255: ``(x / 255 - mean) / std``.

    Takes a NumPy array (uint8 → float32) or a torch tensor on any device (uint8 → the default float type);
    returns the same kind.
    """
    scaled = pixels / 255.0 if hasattr(pixels, "new_tensor") else pixels / np.float32(255)
    return (scaled - _channels(CLIP_MEAN, scaled)) / _channels(CLIP_STD, scaled)


def _channels(values: tuple[float, ...], like: Any) -> Any:
    """``values`` as (3, 1, 1) in the library, type and device of ``like``; torch is not imported for it."""
    made = like.new_tensor(values) if hasattr(like, "new_tensor") else np.asarray(values, like.dtype)
    return made.reshape(3, 1, 1)
