"""Flickr8k (Hodosh, Young and Hockenmaier, 2013) and data in its format: rows of image and caption, a folder of images.

Rows are ``image_path<TAB>caption``, or the CSV ``image,caption`` of the original ``captions.txt``; a number after an
image's name (``a.jpg#2``, in ``Flickr8k.token.txt``) is dropped, and so is the name of the images' folder before all of
them (``Images/a.jpg``). The split is by image, so that no image is seen in training under one of its captions and asked
for under another.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from rewind.datasets.annotations import SPLITS, Annotations
from rewind.datasets.photos import IMAGE_SUFFIXES, annotate, gather, split_images
from rewind.datasets.rows import SHOWN
from rewind.errors import RewindError
from rewind.reading.objects import read_json
from rewind.reading.tables import records
from rewind.reading.text import lines, read_text
from rewind.study.dataset import Dataset, Flickr8kSource

KARPATHY = {"train": "train", "restval": "train", "val": "valid", "test": "test"}
_IMAGE_HEADS = frozenset({"image", "image_path", "image_name", "file_name", "filename", "path"})
_CAPTION_HEADS = frozenset({"caption", "captions", "text", "sentence"})
_NUMBER = re.compile(r"#\d+$")


def read(dataset: Dataset, sources: str) -> Annotations:
    """Read ``source.captions``; ``sources`` is not used.

    The notes count images that the split file lacks, images that only the split file names, and images with another
    number of captions than ``captions_per_image``.

    Raises:
        RewindError: naming file and row for another delimiter, a row without caption, or an image outside the folder;
            for a split file of another format or with too few of the images; if a split would be empty.
    """
    keys = dataset.source
    path, where = Path(keys.captions), f"config/datasets/{dataset.name}.yaml"
    entries, unusable = _entries(path)
    described = gather(path, _inside(entries, Path(keys.images)), unusable)
    splits, notes = _splits(described, keys, where)
    said = {"split_file": keys.split_file} if keys.split_file else {"seed": keys.seed}
    found = annotate(described, splits, path, Path(keys.images), said)
    odd = [name for name, texts in described.items() if len(texts) != keys.captions_per_image]
    notes |= _listed(f"images_without_{keys.captions_per_image}_captions", odd)
    return Annotations(found.items, found.captions, found.notes | notes)


def _entries(path: Path) -> tuple[dict[str, dict[str, str]], str]:
    """``{"row 2": {"file_name": …, "caption": …}}`` without heading and blank rows, and what to say of bad ones."""
    text = read_text(path, "(`source.captions`).")
    rows = [(number, line) for number, line in enumerate(lines(text), start=1) if line.strip()]
    number, first = rows[0]
    if "\t" in first:
        between, cells = "a tab", [(number, line.partition("\t")[::2]) for number, line in rows]
    elif "," in first and _is_name(first.partition(",")[0]):
        between, cells = "a comma", _comma_separated(path, text)
    else:
        raise RewindError(
            f"{path}: row {number}: neither `image_path<TAB>caption` nor `image,caption`: {first[:80]!r}. Separate "
            "image and caption by one tab, or by a comma."
        )
    if _heading(*cells[0][1]):
        cells = cells[1:]
    if not cells:
        raise RewindError(f"{path}: no rows below the header; write one per caption: image path, tab, caption.")
    entries = {f"row {n}": {"file_name": _NUMBER.sub("", name.strip()), "caption": said} for n, (name, said) in cells}
    return entries, f"rows cannot be used (each is an image path, {between} and its caption, as the first row is)"


def _inside(entries: dict[str, dict[str, str]], images: Path) -> dict[str, dict[str, str]]:
    """Entries with paths inside the folder of images: one that all of them repeat (``Images/a.jpg``) is left out.

    So SANW's own layout is written: its rows are relative to the folder above. Where there is such a folder inside,
    paths are what they say.
    """
    named = f"{images.name}/"
    if (images / images.name).is_dir() or not all(entry["file_name"].startswith(named) for entry in entries.values()):
        return entries
    return {row: entry | {"file_name": entry["file_name"].removeprefix(named)} for row, entry in entries.items()}


def _comma_separated(path: Path, text: str) -> list[tuple[int, tuple[str, str]]]:
    """Rows of a CSV of two columns: commas after the first belong to the caption, in quotes or not."""
    found = ((number, cells) for number, cells in records(text, path) if any(cell.strip() for cell in cells))
    return [(number, (cells[0], ",".join(cells[1:]))) for number, cells in found]


def _heading(name: str, caption: str) -> bool:
    return name.strip().lower() in _IMAGE_HEADS and caption.strip().lower() in _CAPTION_HEADS


def _is_name(cell: str) -> bool:
    """Whether a row's first cell is an image's name or a heading."""
    name = _NUMBER.sub("", cell.strip()).lower()
    return name in _IMAGE_HEADS or PurePosixPath(name).suffix in IMAGE_SUFFIXES


def _splits(described: dict[str, list[str]], keys: Flickr8kSource, where: str) -> tuple[dict[str, str], dict[str, Any]]:
    """The split of every image that has one, and notes of what the split file and the captions do not share."""
    if keys.split_file is None:
        return split_images(list(described), keys, where), {}
    path = Path(keys.split_file)
    given = _karpathy(path)
    splits, used = {}, set()
    for name in described:
        known = next((known for known in (name, PurePosixPath(name).name) if known in given), None)
        if known is not None:
            splits[name] = given[known]
            used.add(known)
    absent = [name for name in described if name not in splits]
    if len(absent) > keys.max_without_split * len(described):
        raise RewindError(
            f"{path}: {len(absent)} of {len(described)} captioned images are not in this split file, first "
            f"{absent[0]!r}; source.max_without_split allows {keys.max_without_split:.1%}. Is it the split file of "
            "this dataset? If not, remove source.split_file; or allow more."
        )
    counts = {split: sum(chosen == split for chosen in splits.values()) for split in SPLITS}
    if not all(counts.values()):
        shown = ", ".join(f"{count} {split}" for split, count in counts.items())
        raise RewindError(f"{path}: it leaves a split empty ({shown}); each needs at least one captioned image.")
    silent = [name for name in given if name not in used]
    return splits, _listed("images_not_in_split_file", absent) | _listed("images_in_split_file_alone", silent)


def _karpathy(path: Path) -> dict[str, str]:
    """The split of every file name in ``{"images": [{"filename": …, "split": "train" | "val" | "test"}, …]}``."""
    content = read_json(path, "(`source.split_file`).")
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, list):
        raise RewindError(f'{path}: Karpathy\'s format is needed: {{"images": [{{"filename": …, "split": …}}, …]}}.')
    given: dict[str, str] = {}
    for number, image in enumerate(images):
        name, split = (image.get("filename"), image.get("split")) if isinstance(image, dict) else (None, None)
        if not isinstance(name, str) or split not in KARPATHY:
            raise RewindError(
                f"{path}: images[{number}]: a filename and a split of {', '.join(KARPATHY)} are needed, not {name!r} "
                f"and {split!r}."
            )
        if given.setdefault(name, KARPATHY[split]) != KARPATHY[split]:
            raise RewindError(f"{path}: images[{number}]: {name!r} is in two splits; keep one.")
    return given


def _listed(name: str, images: list[str]) -> dict[str, Any]:
    return {name: len(images), f"{name}_shown": images[:SHOWN]}
