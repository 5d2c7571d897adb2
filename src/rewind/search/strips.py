"""What a found item looks like: an image, or a few frames of a clip side by side."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from rewind.video.clip_checks import clip_within
from rewind.video.frames import sample_clip

FRAMES, SIDE = 3, 160
QUALITY = 85
KEPT = 1000  # strips in memory, some 20 kB each
GAP = 4  # pixels between frames


class Strips:
    """Pictures of items by their row.

    Args:
        items: the gallery: path (relative to ``folder``), reversed.
        folder: the dataset's results folder.
        side: height of a strip and width of each frame in pixels; the centre square, as a model sees it.
        trust: also show files outside of ``results/data``.
    """

    def __init__(self, items: pd.DataFrame, folder: Path, side: int = SIDE, trust: bool = False) -> None:
        self.folder, self.trust = Path(folder), trust
        self.paths = [Path(folder) / path for path in items["path"]]
        self.reversed = (items["reversed"] == 1).tolist()
        self.side = side
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, row: int) -> None:
        """Refuse a file that must not be shown.

        Raises:
            RewindError: if it lies outside of ``results/data``, and the results are not trusted.
        """
        if not self.trust:
            clip_within(self.paths[row], self.folder)

    def read(self, row: int) -> np.ndarray:
        """At most :data:`FRAMES` frames spread over the clip, uint8 (t, side, side, 3); of an image the one.

        Raises:
            RewindError: if the file is gone, broken, or must not be shown.
        """
        self.check(row)
        pixels, mask = sample_clip(self.paths[row], FRAMES, self.side, reversed=self.reversed[row])
        return np.ascontiguousarray(pixels[mask.astype(bool)].transpose(0, 2, 3, 1))

    def jpeg(self, row: int) -> bytes:
        """The strip as a JPEG; the last ones asked for are kept in memory."""
        with self._lock:
            if row in self._kept:
                self._kept.move_to_end(row)
                return self._kept[row]
        stream = io.BytesIO()
        Image.fromarray(side_by_side(self.read(row))).save(stream, "JPEG", quality=QUALITY)
        with self._lock:
            self._kept[row] = stream.getvalue()
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return stream.getvalue()


def side_by_side(frames: np.ndarray) -> np.ndarray:
    """uint8 (t, h, w, 3) → (h, t·w + gaps, 3), with white between the frames."""
    gap = np.full((frames.shape[1], GAP, 3), 255, np.uint8)
    return np.concatenate([part for frame in frames for part in (gap, frame)][1:], axis=1)
