"""Captioned images: a JSON list ``[{"file_name": …, "caption": …}]``, one entry per caption, and a folder of images.

The split is by image and that of MiniCLIP: file names in the order in which they first appear are shuffled by Python's
generator under the seed and cut into training, validation and test.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any

from PIL import Image

from rewind.datasets.annotations import SPLITS, TWIN_SUFFIX, Annotations
from rewind.datasets.rows import SHOWN, Rows
from rewind.errors import RewindError, listed
from rewind.files import digest
from rewind.reading.objects import read_json
from rewind.study.dataset import Dataset, ImageSplit

_PICTURES = "avif bmp gif heic heif jfif jp2 jpe jpeg jpg pgm png ppm tga tif tiff webp"
# By content, whatever the suffix is. Others that Pillow knows are left out: of PostScript it would run a program.
_KINDS = ("AVIF", "BMP", "GIF", "HEIF", "JPEG", "JPEG2000", "PNG", "PPM", "QOI", "TGA", "TIFF", "WEBP")
IMAGE_SUFFIXES = frozenset("." + name for name in _PICTURES.split())
_LONGEST = 100  # characters kept of a file name that cannot be an id as it is


def open_picture(source: str | Path | IO[bytes]) -> Image.Image:
    """An image file, by its content, as ``PIL.Image.open`` has it; only kinds that hold their own pixels."""
    Image.init()
    return Image.open(source, formats=[kind for kind in _KINDS if kind in Image.OPEN])


def read(dataset: Dataset, sources: str) -> Annotations:
    """Read ``source.captions``; ``sources`` is not used. See :func:`read_photos`."""
    source = dataset.source
    return read_photos(Path(source.captions), Path(source.images), source, f"config/datasets/{dataset.name}.yaml")


def read_photos(captions: Path, images: Path, keys: ImageSplit, where: str) -> Annotations:
    """Items and captions of a JSON list; each image is a cluster of its own.

    Args:
        captions: the JSON file.
        images: folder of the images. It is only listed, to count those without a caption; which are missing or broken
            is found when they are normalised.
        keys: seed and shares of the split.
        where: names the configuration file in messages.

    Raises:
        RewindError: naming file and entry for anything but a list of objects with a ``file_name`` inside the folder
            and a ``caption`` that is not empty, for two names with one id, or if a split would be empty.
    """
    described = _described(captions)
    splits = split_images(list(described), keys, where)
    return annotate(described, splits, captions, images, {"seed": keys.seed})


def annotate(
    described: dict[str, list[str]], splits: dict[str, str], captions: Path, images: Path, notes: dict[str, Any]
) -> Annotations:
    """Items and captions of images by file name; each image is a cluster of its own.

    Args:
        described: captions by file name, in order.
        splits: the split of each file name; images without one are left out.
        captions: the file that the captions are from, for messages and notes.
        images: folder of the images, listed to count those without a caption.
        notes: what the notes say of every split.

    Raises:
        RewindError: for two names with one id.
    """
    rows, owner = Rows(), {}
    for name, texts in described.items():
        if name not in splits:
            continue
        item = item_id(name)
        if item in owner:
            raise RewindError(
                f"{captions}: {owner[item]!r} and {name!r} would both get the id {item!r}; rename one of the files."
            )
        owner[item] = name
        rows.original(item, name, splits[name], item, f"{captions}: {name!r}")
        rows.describe(item, texts, splits[name])
    found = rows.annotations({split: {"file": str(captions), **notes} for split in SPLITS})
    silent = _without_caption(images, set(described))
    extra = {"images_without_caption": len(silent), "images_without_caption_shown": silent[:SHOWN]}
    return Annotations(found.items, found.captions, found.notes | extra)


def split_images(names: list[str], keys: ImageSplit, where: str) -> dict[str, str]:
    """The split of every file name: shuffled, then ``int(share · n)`` each for train and valid, the rest for test.

    Raises:
        RewindError: if a split would be empty.
    """
    shuffled = list(names)
    random.Random(keys.seed).shuffle(shuffled)
    train, valid = int(keys.train_share * len(names)), int(keys.valid_share * len(names))
    test = len(names) - train - valid
    if min(train, valid, test) < 1:
        raise RewindError(
            f"{where}: source: {len(names)} images leave a split empty ({train} train, {valid} valid, {test} test); "
            "more images are needed, or other shares."
        )
    return dict(zip(shuffled, ["train"] * train + ["valid"] * valid + ["test"] * test, strict=True))


def item_id(name: str) -> str:
    """An id from a file name: ``photo_1.jpg`` → ``photo_1``; ``trip/café 1.jpg`` → ``trip_caf_1-1f0c9b7e``.

    A name that is no safe id as it is gets a part of its hash, so that different names stay apart.
    """
    stem = name.removesuffix(PurePosixPath(name).suffix)
    plain = re.sub(r"\.{2,}", ".", re.sub(r"[^A-Za-z0-9_.\-]+", "_", stem)).lstrip(".-")[:_LONGEST]
    if plain == stem and plain and not plain.endswith(TWIN_SUFFIX):
        return plain
    return f"{plain.rstrip('_.-') or 'image'}-{digest(name)[:8]}"


def _described(path: Path) -> dict[str, list[str]]:
    entries = read_json(path, "(`source.captions`).")
    if not isinstance(entries, list):
        raise RewindError(f'{path}: a JSON list [{{"file_name": …, "caption": …}}] is needed, one entry per caption.')
    named = {f"entry {number}": entry for number, entry in enumerate(entries)}
    return gather(path, named, "entries cannot be used (they count from 0)")


def gather(path: Path, entries: Mapping[str, object], unusable: str) -> dict[str, list[str]]:
    """Captions by file name, both in the order of the file; white space inside a caption becomes one blank.

    Args:
        path: the file, for messages.
        entries: objects with ``file_name`` and ``caption`` by their place in the file, for example ``row 3``.
        unusable: what a message says of entries that are none.

    Raises:
        RewindError: naming the entries that cannot be used, with the reason.
    """
    described: dict[str, list[str]] = {}
    faults = []
    for place, entry in entries.items():
        if fault := _fault(entry):
            faults.append(f"  {place}: {fault}")
            continue
        caption = " ".join(unicodedata.normalize("NFC", entry["caption"]).split())
        described.setdefault(str(PurePosixPath(entry["file_name"])), []).append(caption)
    if faults:
        raise RewindError(
            f"{path}: {len(faults)} of {len(entries)} {unusable}:\n{listed(faults)}\nCorrect or delete them."
        )
    return described


def _fault(entry: object) -> str:
    """What is wrong with an entry, or nothing."""
    if not isinstance(entry, dict):
        return "no object with file_name and caption"
    for key in ("file_name", "caption"):
        if not isinstance(entry.get(key), str):
            return f"{key} is missing or no text"
    path = PurePosixPath(entry["file_name"])
    if not path.name or path.is_absolute() or ".." in path.parts or "\\" in entry["file_name"]:
        return f"file_name {entry['file_name']!r} must name a file inside the folder of images, with / between folders"
    return "" if entry["caption"].strip() else f"the caption of {entry['file_name']!r} is empty"


def _without_caption(folder: Path, described: set[str]) -> list[str]:
    """Images in the folder that no caption names, sorted; no folder, no images."""
    files = (path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())
    return sorted({path.relative_to(folder).as_posix() for path in files} - described)
