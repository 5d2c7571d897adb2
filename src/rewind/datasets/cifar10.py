"""CIFAR-10's test images (Krizhevsky, 2009) from its binary version, which is bytes alone.

A record of ``test_batch.bin`` is a byte, the class, and 3 × 32 × 32 bytes, the image plane by plane: red, green, blue.
The version for Python is a pickle, which can run code when it is opened; it is not read.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rewind.errors import RewindError
from rewind.files import reading_user_file, require_regular_file

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FILE = "test_batch.bin"
SIDE = 32
RECORD = 1 + 3 * SIDE * SIDE
PUBLISHED = 10_000  # test images
HOW = (
    "Fetch cifar-10-binary.tar.gz (https://www.cs.toronto.edu/~kriz/cifar.html), unpack it, and name the folder that "
    f"holds {FILE}."
)


@dataclass(frozen=True)
class LabelledImages:
    """Images with one class each.

    Attributes:
        images: uint8 RGB (n, height, width, 3).
        labels: int64 (n,), places in ``classes``.
        classes: their names.
        sha256: of the file.
    """

    images: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]
    sha256: str

    def first(self, count: int | None) -> LabelledImages:
        """About ``count`` images, as many of each class as there can be, the first in the file; none: all."""
        if count is None or count >= len(self.labels):
            return self
        each = -(-count // len(self.classes))
        kept = np.sort(np.concatenate([np.flatnonzero(self.labels == k)[:each] for k in range(len(self.classes))]))
        return LabelledImages(self.images[kept], self.labels[kept], self.classes, self.sha256)


def find_cifar10(folder: str | Path, where: str = "evaluation.zero_shot.folder") -> Path:
    """The file in ``folder`` or in the folder that the archive unpacks to.

    Raises:
        RewindError: led by the key ``where``, if it is not there, or only the pickles are.
    """
    folder = Path(folder)
    for path in (folder / FILE, folder / "cifar-10-batches-bin" / FILE):
        require_regular_file(path, missing_ok=True)
        if path.is_file():
            return path
    pickles = next((p for p in (folder, folder / "cifar-10-batches-py") if (p / "test_batch").is_file()), None)
    if pickles is not None:
        raise RewindError(
            f"{where}: {pickles} is the Python version: pickles, which can run code and are not opened. {HOW}"
        )
    raise RewindError(f"{where}: {folder}: no {FILE} there. {HOW}")


def read_cifar10(folder: str | Path, sha256: str | None = None) -> LabelledImages:
    """All records of the file in ``folder``.

    Args:
        folder: see :func:`find_cifar10`.
        sha256: hex digest that the file must have; none: any, and the digest is kept with the result.

    Raises:
        RewindError: naming the file, for another digest, a torn file, or a class above 9.
    """
    path = find_cifar10(folder)
    with reading_user_file(path, "CIFAR-10 file"):
        content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if sha256 is not None and found != sha256.lower():
        raise RewindError(
            f"{path}: its SHA-256 is {found}, evaluation.zero_shot.sha256 says {sha256}; fetch the file again, or "
            "correct the key."
        )
    if not content or len(content) % RECORD:
        raise RewindError(
            f"{path}: {len(content):,} bytes are not a whole number of records of {RECORD:,} bytes ({PUBLISHED:,} "
            f"records in the published file); it is incomplete, or another file. {HOW}"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    labels = records[:, 0].astype(np.int64)
    if labels.max() >= len(CLASSES):
        bad = int(np.flatnonzero(labels >= len(CLASSES))[0])
        raise RewindError(f"{path}: record {bad + 1}: class {labels[bad]}, but CIFAR-10 has 0 to 9. {HOW}")
    images = records[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return LabelledImages(np.ascontiguousarray(images), labels, CLASSES, found)
