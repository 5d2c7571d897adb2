"""CIFAR-10's test images (Krizhevsky, 2009) from the binary version, for zero-shot classification.

A record of ``test_batch.bin`` is one byte for the class and 3 × 32 × 32 bytes for the image, plane by plane: red,
green, blue. The Python version is a pickle, which can run code when it is opened; it is not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rewind.errors import RewindError
from rewind.hashing import sha256_hex
from rewind.io.files import reading_user_file, require_regular_file

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TEST_BATCH_FILE = "test_batch.bin"
IMAGE_SIDE = 32  # pixels
RECORD_BYTES = 1 + 3 * IMAGE_SIDE * IMAGE_SIDE
PUBLISHED_IMAGES = 10_000  # of the test batch
HOW_TO_GET = (
    "Fetch cifar-10-binary.tar.gz (https://www.cs.toronto.edu/~kriz/cifar.html), unpack it, and name the folder that "
    f"holds {TEST_BATCH_FILE}."
)


@dataclass(frozen=True)
class LabelledImages:
    """Images with one class each.

    >>> images = LabelledImages(np.zeros((4, 32, 32, 3), np.uint8), np.array([0, 0, 1, 1]), ("cat", "dog"), "")
    >>> images.first(2).labels.tolist()
    [0, 1]
    """

    images: np.ndarray  # uint8 RGB (n, height, width, 3)
    labels: np.ndarray  # int64 (n,), indices into classes
    classes: tuple[str, ...]
    sha256: str  # of the file, 64 hex digits

    def first(self, count: int | None) -> LabelledImages:
        """The first images of each class in the file, about ``count`` in all, equally many per class; None: all."""
        if count is None or count >= len(self.labels):
            return self
        each = -(-count // len(self.classes))  # rounded up
        rows = np.sort(np.concatenate([np.flatnonzero(self.labels == k)[:each] for k in range(len(self.classes))]))
        return LabelledImages(self.images[rows], self.labels[rows], self.classes, self.sha256)


def find_cifar10(folder: str | Path, where: str = "evaluation.zero_shot.folder") -> Path:
    """The file ``test_batch.bin`` in ``folder``, or in the folder that the archive unpacks to inside it."""
    folder = Path(folder)
    for path in (folder / TEST_BATCH_FILE, folder / "cifar-10-batches-bin" / TEST_BATCH_FILE):
        require_regular_file(path, missing_ok=True)
        if path.is_file():
            return path
    pickles = next((p for p in (folder, folder / "cifar-10-batches-py") if (p / "test_batch").is_file()), None)
    if pickles is not None:
        raise RewindError(
            f"{where}: {pickles} is the Python version: pickles, which can run code and are not opened. {HOW_TO_GET}"
        )
    raise RewindError(f"{where}: {folder}: no {TEST_BATCH_FILE} there. {HOW_TO_GET}")


def read_cifar10(folder: str | Path, sha256: str | None = None) -> LabelledImages:
    """All records of the file in ``folder`` (:func:`find_cifar10`); ``sha256`` in hex must be its digest, None: any.

    Raises:
        RewindError: naming the file, for another digest, an incomplete file, or a class above 9.
    """
    path = find_cifar10(folder)
    with reading_user_file(path, "CIFAR-10 file"):
        content = path.read_bytes()
    digest = sha256_hex(content)
    if sha256 is not None and digest != sha256.lower():
        raise RewindError(
            f"{path}: its SHA-256 is {digest}, but evaluation.zero_shot.sha256 is {sha256}; fetch the file again, or "
            "correct the key."
        )
    if not content or len(content) % RECORD_BYTES:
        raise RewindError(
            f"{path}: {len(content):,} bytes are not a whole number of records of {RECORD_BYTES:,} bytes "
            f"({PUBLISHED_IMAGES:,} records in the published file); it is incomplete, or another file. {HOW_TO_GET}"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD_BYTES)
    labels = records[:, 0].astype(np.int64)
    if labels.max() >= len(CIFAR10_CLASSES):
        bad = int(np.flatnonzero(labels >= len(CIFAR10_CLASSES))[0])
        raise RewindError(f"{path}: record {bad + 1}: class {labels[bad]}, but CIFAR-10 has 0 to 9. {HOW_TO_GET}")
    images = records[:, 1:].reshape(-1, 3, IMAGE_SIDE, IMAGE_SIDE).transpose(0, 2, 3, 1)  # planes last
    return LabelledImages(np.ascontiguousarray(images), labels, CIFAR10_CLASSES, digest)


def write_cifar10(folder: Path, labels: np.ndarray, images: np.ndarray) -> None:
    """Write classes (n,) and RGB images (n, 32, 32, 3) as the binary version's file in ``folder``."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(labels), -1)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TEST_BATCH_FILE).write_bytes(np.concatenate([labels[:, None], planes], axis=1).astype(np.uint8).tobytes())


def make_dummy_cifar10(folder: Path, count: int) -> None:
    """Write noise as images, of all classes in turn: dummy data for a rehearsal (see :mod:`rewind.data.dummy`)."""
    noise = np.random.default_rng(0).integers(0, 256, (count, IMAGE_SIDE, IMAGE_SIDE, 3))
    write_cifar10(folder, np.arange(count) % len(CIFAR10_CLASSES), noise)
