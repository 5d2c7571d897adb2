"""Choose the frames of a clip that a model sees, read them, and make them square.

Frames are uint8 RGB, (n, 3, size, size). ``sample_clip`` does everything for one clip; ``frame_indices`` chooses
frames; ``open_frames`` opens a clip or an image from its shard or from a file of its own.

A twin's frames are the exact mirror of its original's: any difference that a model finds between the two is order,
not content.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from rewind.commands import prepare_command
from rewind.errors import RewindError
from rewind.io.files import reading_user_file
from rewind.video import shards
from rewind.video.readers import FrameReader, Indices, open_video

# ---- Which frames of a clip are read -------------------------------------------------------------------------------

Sampling = Literal["uniform", "ends", "head", "tail", "stride"]


def frame_indices(
    frames: int,
    max_frames: int,
    sampling: Sampling = "uniform",
    fps: float | None = None,
    rate: float | None = None,
    reversed: bool = False,
) -> np.ndarray:
    """Indices of the frames to read, int64, ascending, at most ``max_frames`` of them; only ``stride`` repeats any.

    Args:
        max_frames: most frames to keep; a clip with fewer keeps all (padding is left to the caller).
        sampling: what is kept of more: ``uniform`` (centres of equal segments), ``ends`` (evenly spaced from the
            first frame to the last), the ``head`` or the ``tail``. ``stride``, ViCLIP's ``frames[::frames // n][:n]``,
            always gives n = ``max_frames``, so a short clip's frames are repeated.
        rate: frames per second taken before ``sampling``, by ``fps``, at least one frame; None or above ``fps``: all.
        reversed: the clip is a twin. With ``idx`` the original's indices, the result is ``frames - 1 - idx[::-1]``:
            the same content in opposite order, with ``head`` and ``tail`` too.

    >>> frame_indices(12, 4)
    array([ 1,  4,  7, 10])
    >>> frame_indices(12, 4, "head"), frame_indices(12, 4, "head", reversed=True)
    (array([0, 1, 2, 3]), array([ 8,  9, 10, 11]))
    """
    if frames < 1 or max_frames < 1:
        raise RewindError(f"cannot choose {max_frames} of {frames} frames; both must be at least 1.")
    indices = np.arange(frames, dtype=np.int64)
    if rate is not None:
        indices = (_between_ends if sampling == "ends" else _spread)(frames, _count_at_rate(frames, fps, rate))
    if len(indices) > max_frames or sampling == "stride":
        indices = _take_frames(indices, max_frames, sampling)
    return frames - 1 - indices[::-1] if reversed else indices


def resampled_indices(frames: int, count: int) -> np.ndarray:
    """Indices that make exactly ``count`` frames of ``frames``, some left out or repeated, and mirrored for a twin.

    The only exception is the middle frame of an odd ``count`` if the clip has an even number of frames.

    >>> resampled_indices(8, 4), resampled_indices(2, 4)
    (array([1, 3, 4, 6]), array([0, 0, 1, 1]))
    """
    index = (2 * np.arange(count) + 1) * frames // (2 * count)  # the middles of `count` equal parts, rounded down
    half = count // 2
    index[count - half :] = frames - 1 - index[:half][::-1]  # the second half mirrors the first
    return index


def _count_at_rate(frames: int, fps: float | None, rate: float) -> int:
    if not fps or fps <= 0 or rate <= 0:
        raise RewindError(
            f"frames.rate = {rate} needs a positive rate and a clip whose frames per second are known (got {fps})."
        )
    return min(frames, max(1, round(frames * rate / fps)))


def _take_frames(indices: np.ndarray, max_frames: int, sampling: Sampling) -> np.ndarray:
    if sampling == "head":
        return indices[:max_frames]
    if sampling == "tail":
        return indices[-max_frames:]
    if sampling == "uniform":
        return indices[_spread(len(indices), max_frames)]
    if sampling == "ends":
        return indices[_between_ends(len(indices), max_frames)]
    if sampling == "stride":
        if len(indices) < max_frames:
            return indices[np.arange(max_frames) * len(indices) // max_frames]
        return indices[:: len(indices) // max_frames][:max_frames]
    raise RewindError(f"frames.sampling: {sampling!r} is unknown; use uniform, ends, head, tail or stride.")


def _spread(length: int, n: int) -> np.ndarray:
    """Centres of ``n`` ≤ ``length`` equal segments, symmetric in time.

    A centre between two frames takes the later one in the first half and the earlier one in the second; only
    the middle of an odd ``n`` over an even ``length`` has no symmetric position.
    """
    # Centre i is at (i + ½) length / n, in integers: no rounding of floats decides. The second half mirrors the first,
    # so a clip and its mirror show the same frames.
    centres = (2 * np.arange(n, dtype=np.int64) + 1) * length // (2 * n)
    half = n // 2
    centres[n - half :] = length - 1 - centres[:half][::-1]
    return centres


def _between_ends(length: int, n: int) -> np.ndarray:
    """``n`` ≤ ``length`` positions from 0 to ``length - 1``, evenly spaced and symmetric in time; of one, the middle.

    Only the middle of an odd ``n`` over an even ``length`` has no symmetric position.
    """
    if n == 1:
        return np.array([(length - 1) // 2], dtype=np.int64)
    # Position i is i (length - 1) / (n - 1), rounded to nearest; the second half mirrors the first.
    positions = (2 * np.arange(n, dtype=np.int64) * (length - 1) + n - 1) // (2 * (n - 1))
    half = n // 2
    positions[n - half :] = length - 1 - positions[:half][::-1]
    return positions


def clip4clip_frame_indices(frames: int, fps: float, rate: int, max_frames: int, position: int) -> np.ndarray:
    """CLIP4Clip's own choice of frames, int64: asymmetric in time, for comparison only; no study uses it.

    The clip's ``fps`` is cut to an integer F (29.97 becomes 29), and of every F frames the first ``rate`` multiples of
    ``max(F // rate, 1)`` are taken. Of more than ``max_frames``, ``position`` (upstream's ``slice_framepos``) keeps
    the head (0), the tail (1), or the floored ``linspace(0, n - 1, max_frames)`` (2). Source: ArrowLuo/CLIP4Clip,
    ``rawvideo_util.py`` and ``dataloader_msrvtt_retrieval.py``.

    Raises:
        RewindError: for a rate below one frame per second (upstream divides by zero).
    """
    frames_per_second = int(fps)
    if frames_per_second < 1 or rate < 1:
        raise RewindError(f"CLIP4Clip's sampling needs at least one frame per second (fps {fps}, rate {rate}).")
    offsets = np.arange(0, frames_per_second, max(frames_per_second // rate, 1), dtype=np.int64)[:rate]
    indices = (np.arange(0, frames, frames_per_second, dtype=np.int64)[:, None] + offsets).ravel()
    indices = indices[indices < frames]
    if len(indices) <= max_frames:
        return indices
    if position == 0:
        return indices[:max_frames]
    if position == 1:
        return indices[-max_frames:]
    return indices[np.linspace(0, len(indices) - 1, max_frames, dtype=np.int64)]


# ---- Whole frames made square, bit for bit as OpenCV's default ``resize`` of 8-bit images does (bilinear) ----------
# Upstream ViCLIP prepares its frames this way. Source: OpenCV, ``modules/imgproc/src/resize.cpp``: weights in 1/2048,
# the vertical pass in 16-bit steps; halving both sides exactly is a mean of four pixels.

_ONE = 2048  # a weight of 1 in fixed point


def stretch_square(frame: np.ndarray, size: int) -> np.ndarray:
    """uint8 (h, w, c) → (size, size, c); the aspect is not kept, and nothing is smoothed before it shrinks.

    >>> stretch_square(np.zeros((30, 40, 3), np.uint8), 16).shape
    (16, 16, 3)
    """
    height, width = frame.shape[:2]
    if (height, width) == (size, size):
        return frame
    pixels = frame.astype(np.int64)
    if (height, width) == (2 * size, 2 * size):  # OpenCV averages here, rounding halves up
        return ((pixels[::2, ::2] + pixels[1::2, ::2] + pixels[::2, 1::2] + pixels[1::2, 1::2] + 2) >> 2).astype(
            np.uint8
        )
    left, right, weight = _bilinear_weights(width, size)
    rows = pixels[:, left] * (_ONE - weight)[:, None] + pixels[:, right] * weight[:, None]
    top, bottom, weight = _bilinear_weights(height, size)
    # Twice times 2048 are 22 bits, of which the shifts drop 4 + 16 + 2: after the first pass, after weighing (each
    # product by itself, as OpenCV's vector code does), and at the end, where 2 rounds to nearest.
    upper, lower = (_ONE - weight)[:, None, None], weight[:, None, None]
    blended = ((upper * (rows[top] >> 4)) >> 16) + ((lower * (rows[bottom] >> 4)) >> 16)
    return ((blended + 2) >> 2).clip(0, 255).astype(np.uint8)


def _bilinear_weights(length: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every output pixel both neighbours and the second one's weight, int64 (size,), in 1/2048."""
    # Pixel centres are at half-integers. Single precision and rounding halves to even, as in OpenCV.
    centre = ((np.arange(size) + 0.5) * (length / size) - 0.5).astype(np.float32)
    first = np.floor(centre).astype(np.int64)
    fraction = np.where((first < 0) | (first >= length - 1), np.float32(0), centre - first.astype(np.float32))
    weight = np.rint(fraction * np.float32(_ONE)).astype(np.int64)
    first = first.clip(0, length - 1)
    return first, (first + 1).clip(0, length - 1), weight


# ---- Decode, crop and normalise frames -----------------------------------------------------------------------------

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)

NORMALISED_IMAGE_SUFFIXES, NORMALISED_IMAGE_FORMATS = (".png", ".jpg"), ("PNG", "JPEG")  # no other decoder is tried

Fit = Literal["crop", "stretch"]


class ImageReader:
    """An image as a clip of one frame.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "image.png"
    >>> Image.new("RGB", (64, 48)).save(path)
    >>> reader = ImageReader(path)
    >>> len(reader), reader.read([0]).shape
    (1, (1, 48, 64, 3))
    """

    fps = 1.0

    def __init__(self, path: Path) -> None:
        with reading_user_file(path, "image", "delete it and prepare the images again"):
            try:
                with Image.open(path, formats=NORMALISED_IMAGE_FORMATS) as image:
                    self._frame = np.asarray(image.convert("RGB"))
            except (OSError, ValueError, SyntaxError) as error:
                raise RewindError(
                    f"{path}: cannot be opened as an image; delete it and prepare the images again."
                ) from error

    def __len__(self) -> int:
        return 1

    def read(self, indices: Indices) -> np.ndarray:
        return np.stack([self._frame for _ in indices])


class _PackedImage(ImageReader):
    """An image whose bytes come from a shard; ``path`` names it in messages."""

    def __init__(self, path: Path, content: bytes) -> None:
        try:
            with Image.open(io.BytesIO(content), formats=NORMALISED_IMAGE_FORMATS) as image:
                self._frame = np.asarray(image.convert("RGB"))
        except (OSError, ValueError, SyntaxError) as error:
            raise RewindError(f"{path}: cannot be opened as an image; prepare the images again.") from error


def open_frames(path: str | Path) -> FrameReader:
    """Open a normalised clip, or a normalised image as a clip of one frame, from its shard or from a file of its own.

    ``path`` is ``<folder>/videos/<id>.mp4``, as ``items.csv`` names it, whether it is packed or not; or any video file.
    """
    path = Path(path)
    location = shards.find_clip(path)
    if location is None:
        return open_file_frames(path)
    content = shards.read_packed_clip(location)
    return _PackedImage(path, content) if path.suffix in NORMALISED_IMAGE_SUFFIXES else open_video(path, content)


def middle_frame(path: str | Path) -> np.ndarray:
    """The frame uint8 RGB (H, W, 3) in the middle of a normalised clip: of n, the n // 2-th counted from 0.

    Queries of composed retrieval show it, as in TARA's evals/covr.py (bpiyush/TARA@75357f1).
    """
    reader = open_frames(path)
    return reader.read(np.array([len(reader) // 2]))[0]


def open_file_frames(path: str | Path) -> FrameReader:
    """Open a file that is a normalised clip, or a normalised image as a clip of one frame."""
    path = Path(path)
    if not path.is_file():
        raise RewindError(f"{path}: no such clip; prepare the data first (`{prepare_command(path)}`).")
    return ImageReader(path) if path.suffix in NORMALISED_IMAGE_SUFFIXES else open_video(path)


def read_frames(
    path: str | Path, indices: Indices, size: int, frames: int | None = None, fit: Fit = "crop"
) -> np.ndarray:
    """uint8 RGB (n, 3, size, size) of a normalised clip's frames at ``indices``.

    Args:
        frames: the length that the report of the video stage states; a clip of another length is refused.
        fit: ``crop``, CLIP's geometry (:func:`crop_square`), or ``stretch``, the whole frame (:func:`stretch_square`).
    """
    return _read(open_frames(path), path, indices, size, frames, fit)


def _read(
    reader: FrameReader, path: str | Path, indices: Indices, size: int, frames: int | None, fit: Fit
) -> np.ndarray:
    _check_length(reader, path, frames)
    if len(indices) == 0:
        return np.zeros((0, 3, size, size), np.uint8)
    if min(indices) < 0 or max(indices) >= len(reader):
        bounds = f"{min(indices)} to {max(indices)}"
        raise RewindError(f"{path}: has frames 0 to {len(reader) - 1}, but {bounds} were requested.")
    make_square = stretch_square if fit == "stretch" else crop_square
    square = np.stack([make_square(frame, size) for frame in reader.read(indices)])
    return np.ascontiguousarray(square.transpose(0, 3, 1, 2))


def _check_length(reader: FrameReader, path: str | Path, frames: int | None) -> None:
    if frames is not None and len(reader) != frames:
        raise RewindError(
            f"{path}: has {len(reader)} frames, but the report of the video stage states {frames}; prepare the videos "
            "again."
        )


def crop_square(frame: np.ndarray, size: int) -> np.ndarray:
    """CLIP's geometry on one frame: uint8 (h, w, 3) → (size, size, 3).

    Resizes the short side to ``size`` (the long side rounded down), then crops the centre, as torchvision's
    ``Resize(size, BICUBIC)`` and ``CenterCrop(size)`` do on a Pillow image.

    >>> crop_square(np.zeros((30, 40, 3), np.uint8), 16).shape
    (16, 16, 3)
    """
    height, width = frame.shape[:2]
    if min(height, width) != size:
        short = min(height, width)
        width, height = size * width // short, size * height // short
        frame = np.asarray(Image.fromarray(frame).resize((width, height), Image.Resampling.BICUBIC))
    # Halves go to the even number, as in torchvision's CenterCrop.
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
    """What a model sees of one clip: the frames of :func:`frame_indices`, read by :func:`read_frames`.

    Returns:
        pixels uint8 (max_frames, 3, size, size), zero after the last frame; mask uint8 (max_frames,), 1 where
        there is a frame.
    """
    reader = open_frames(path)
    indices = frame_indices(len(reader), max_frames, sampling, reader.fps, rate, reversed)
    pixels = np.zeros((max_frames, 3, size, size), np.uint8)
    mask = np.zeros(max_frames, np.uint8)
    pixels[: len(indices)] = _read(reader, path, indices, size, frames, fit)
    mask[: len(indices)] = 1
    return pixels, mask


def normalise_pixels(pixels: Any) -> Any:
    """CLIP's normalisation of [..., 3, h, w] values 0 to 255: ``(x / 255 - mean) / std``.

    Takes a NumPy array (uint8 → float32) or a torch tensor on any device (uint8 → the default float type);
    returns the same kind.

    >>> normalise_pixels(np.zeros((2, 3, 8, 8), np.uint8)).dtype
    dtype('float32')
    """
    # A tensor is known by its method: torch need not be imported, and is not for arrays.
    # Of uint8 and a Python float NumPy would make float64.
    scaled = pixels / 255.0 if hasattr(pixels, "new_tensor") else pixels / np.float32(255)
    return (scaled - _channels(CLIP_MEAN, scaled)) / _channels(CLIP_STD, scaled)


def _channels(values: tuple[float, ...], like: Any) -> Any:
    """``values`` as (3, 1, 1) in the library, type and device of ``like``."""
    array = like.new_tensor(values) if hasattr(like, "new_tensor") else np.asarray(values, like.dtype)
    return array.reshape(3, 1, 1)
