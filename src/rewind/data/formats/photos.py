"""Captioned images: a JSON list ``[{"file_name": …, "caption": …}]`` with an entry per caption, and a folder.

The split is by image and equals MiniCLIP's: file names in the order of their first appearance are shuffled by
Python's generator with the seed and cut into training, validation and test.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any

from PIL import Image

from rewind.config.dataset import Dataset, ImageSplitConfig
from rewind.data.annotations import MAX_NOTE_EXAMPLES, SPLITS, TWIN_SUFFIX, AnnotationBuilder, Annotations
from rewind.data.dummy import SplitSizes, draw_picture, make_dummy_images
from rewind.errors import RewindError, first_lines
from rewind.hashing import stable_hash
from rewind.io.files import write_json
from rewind.io.schema import FILLED, Column, RowChecks, Schema, json_type_name
from rewind.io.strict import read_user_json
from rewind.registry import DUMMY_DATA, FORMATS

_IMAGE_EXTENSIONS = "avif bmp gif heic heif jfif jp2 jpe jpeg jpg pgm png ppm tga tif tiff webp"
# Recognised by content, whatever the suffix is. Pillow's other formats are left out; for PostScript it would run a
# program (Ghostscript) on the user's file.
_PILLOW_FORMATS = ("AVIF", "BMP", "GIF", "HEIF", "JPEG", "JPEG2000", "PNG", "PPM", "QOI", "TGA", "TIFF", "WEBP")
IMAGE_SUFFIXES = frozenset("." + name for name in _IMAGE_EXTENSIONS.split())
ENTRY = Schema({"file_name": Column(filled=True, within="the folder of images"), "caption": FILLED})
_MAX_STEM_CHARACTERS = 100  # that an id keeps of a file name


def open_image(source: str | Path | IO[bytes]) -> Image.Image:
    """Open an image with ``PIL.Image.open``, recognised by its content; only formats that contain pixels themselves."""
    Image.init()  # loads all of Pillow's formats, which Image.OPEN then lists
    return Image.open(source, formats=[kind for kind in _PILLOW_FORMATS if kind in Image.OPEN])


@FORMATS.register("photos")
def read(dataset: Dataset, sources: str) -> Annotations:
    """Read ``source.captions``; ``sources`` is not used. See :func:`read_photos`."""
    source = dataset.source
    return read_photos(Path(source.captions), Path(source.images), source, f"config/datasets/{dataset.name}.yaml")


def read_photos(captions: Path, images: Path, keys: ImageSplitConfig, where: str) -> Annotations:
    """Items and captions of a JSON list; each image is a cluster of its own.

    The folder of images is only listed, to count those without a caption; missing and broken images are found when
    they are normalised.

    Raises:
        RewindError: naming file and entry for anything but a list of objects with a ``file_name`` inside the folder
            and a ``caption`` that is not empty, for two names with one id, or if a split would be empty.
    """
    described = _read_captions(captions)
    splits = split_images(list(described), keys, where)
    return annotate_images(described, splits, captions, images, {"seed": keys.seed})


def annotate_images(
    described: dict[str, list[str]], splits: dict[str, str], captions: Path, images: Path, notes: dict[str, Any]
) -> Annotations:
    """Items and captions of images by file name; each image is a cluster of its own.

    Images without a split are left out. The folder of images is listed to count those without a caption. ``captions``
    is the file that the captions are from, for messages and notes; ``notes`` are added to those of every split.
    """
    builder = AnnotationBuilder()
    owner: dict[str, str] = {}  # item id → file name
    for name, texts in described.items():
        if name not in splits:
            continue
        item = item_id_from_file(name)
        if item in owner:
            raise RewindError(
                f"{captions}: {owner[item]!r} and {name!r} would both get the id {item!r}; rename one of the files."
            )
        owner[item] = name
        builder.original(item, name, splits[name], item, f"{captions}: {name!r}")
        builder.describe(item, texts, splits[name])
    annotations = builder.annotations({split: {"file": str(captions), **notes} for split in SPLITS})
    uncaptioned = _images_without_caption(images, set(described))
    extra = {
        "images_without_caption": len(uncaptioned),
        "images_without_caption_shown": uncaptioned[:MAX_NOTE_EXAMPLES],
    }
    return Annotations(annotations.items, annotations.captions, annotations.notes | extra)


def split_images(names: list[str], keys: ImageSplitConfig, where: str) -> dict[str, str]:
    """The split of every file name: shuffled, then ``int(share · n)`` each for train and valid, the rest for test."""
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


def item_id_from_file(name: str) -> str:
    """An id from a file name, without its suffix.

    A name that is not a safe id gets a part of its hash, so that different names have different ids.

    >>> item_id_from_file("photo_1.jpg"), item_id_from_file("trip/café 1.jpg")
    ('photo_1', 'trip_caf_1-10e166d9')
    """
    stem = name.removesuffix(PurePosixPath(name).suffix)
    plain = re.sub(r"\.{2,}", ".", re.sub(r"[^A-Za-z0-9_.\-]+", "_", stem)).lstrip(".-")[:_MAX_STEM_CHARACTERS]
    if plain == stem and plain and not plain.endswith(TWIN_SUFFIX):  # AnnotationBuilder refuses ids like those of twins
        return plain
    return f"{plain.rstrip('_.-') or 'image'}-{stable_hash(name)[:8]}"


def _read_captions(path: Path) -> dict[str, list[str]]:
    entries = read_user_json(path, "(`source.captions`).")
    if not isinstance(entries, list):
        raise RewindError(f'{path}: a JSON list [{{"file_name": …, "caption": …}}] is needed, one entry per caption.')
    by_position = {f"entry {number}": entry for number, entry in enumerate(entries)}
    return captions_by_file(path, by_position, "entries cannot be used (they count from 0)")


def captions_by_file(path: Path, entries: Mapping[str, Any], unusable: str) -> dict[str, list[str]]:
    """Captions by file name, both in the order of the file; white space inside a caption becomes one blank.

    Captions are normalised to Unicode's NFC form, so that equal texts compare equal however they were typed.

    ``entries`` are objects with ``file_name`` and ``caption`` by their position in the file, for example ``row 3``;
    ``unusable`` is what a message tells about those that cannot be used, after their number.

    Raises:
        RewindError: naming the entries that cannot be used, with the reason.
    """
    described: dict[str, list[str]] = {}
    faults, checks = [], RowChecks(ENTRY, noun="row" if next(iter(entries), "").startswith("row") else "entry")
    for position, entry in entries.items():
        if fault := _entry_fault(entry, checks):
            faults.append(f"  {position}: {fault}")
            continue
        caption = " ".join(unicodedata.normalize("NFC", entry["caption"]).split())
        described.setdefault(str(PurePosixPath(entry["file_name"])), []).append(caption)
    if faults:
        raise RewindError(
            f"{path}: {len(faults)} of {len(entries)} {unusable}:\n{first_lines(faults)}\nCorrect or delete them."
        )
    return described


def _entry_fault(entry: object, checks: RowChecks) -> str:
    if not isinstance(entry, dict):
        return f"an object is needed, not {json_type_name(entry)}"
    if fault := checks.fault(entry):
        return fault
    name = entry["file_name"]
    return f"'file_name' is {name!r}; write / between folders" if "\\" in name else ""


def _images_without_caption(folder: Path, described: set[str]) -> list[str]:
    """Images in the folder that no caption names, sorted; none if there is no folder."""
    files = (path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())
    return sorted({path.relative_to(folder).as_posix() for path in files} - described)


@DUMMY_DATA.register("photos")
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """Two captions of each image."""
    entries = []
    for item in make_dummy_images(dataset.source, sizes, 2):
        draw_picture(item, folder / "images" / f"{item.name}.jpg")
        entries += [{"file_name": f"{item.name}.jpg", "caption": caption} for caption in item.entry.captions(False)]
    write_json(folder / "captions.json", entries)
    return {"captions": str(folder / "captions.json"), "images": str(folder / "images")}
