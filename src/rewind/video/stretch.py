"""A whole frame made square, bit for bit as OpenCV's default ``resize`` of 8-bit pictures does (bilinear).

Upstream ViCLIP prepares its frames this way. Source: OpenCV, ``modules/imgproc/src/resize.cpp``: weights in 1/2048,
the vertical pass in 16-bit steps; halving both sides exactly is a mean of four pixels.
"""

from __future__ import annotations

import numpy as np

_ONE = 2048  # of the fixed-point weights


def stretch_square(frame: np.ndarray, size: int) -> np.ndarray:
    """uint8 (h, w, c) → (size, size, c); the aspect is not kept, and nothing is smoothed before it shrinks."""
    height, width = frame.shape[:2]
    if (height, width) == (size, size):
        return frame
    whole = frame.astype(np.int64)
    if (height, width) == (2 * size, 2 * size):
        return ((whole[::2, ::2] + whole[1::2, ::2] + whole[::2, 1::2] + whole[1::2, 1::2] + 2) >> 2).astype(np.uint8)
    left, right, weight = _places(width, size)
    rows = whole[:, left] * (_ONE - weight)[:, None] + whole[:, right] * weight[:, None]
    top, bottom, weight = _places(height, size)
    upper, lower = (_ONE - weight)[:, None, None], weight[:, None, None]
    mixed = ((upper * (rows[top] >> 4)) >> 16) + ((lower * (rows[bottom] >> 4)) >> 16)
    return ((mixed + 2) >> 2).clip(0, 255).astype(np.uint8)


def _places(length: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every output pixel both neighbours and the second one's weight, int64 (size,), in 1/2048."""
    centre = ((np.arange(size) + 0.5) * (length / size) - 0.5).astype(np.float32)
    first = np.floor(centre).astype(np.int64)
    part = np.where((first < 0) | (first >= length - 1), np.float32(0), centre - first.astype(np.float32))
    weight = np.rint(part * np.float32(_ONE)).astype(np.int64)
    first = first.clip(0, length - 1)
    return first, (first + 1).clip(0, length - 1), weight
