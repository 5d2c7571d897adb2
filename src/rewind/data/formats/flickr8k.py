"""Flickr8k (Hodosh, Young and Hockenmaier, 2013) and data in its format: captions by image, a folder of images.

Rows are ``image_path<TAB>caption``, or the CSV ``image,caption`` of the original ``captions.txt``. A number after
an image's name (``a.jpg#2``, in ``Flickr8k.token.txt``) is dropped, and so is the image folder's name if all rows
begin with it (``Images/a.jpg``). The split is by image, so that no image is used for training with one caption and
for testing with another.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from rewind.config.dataset import Dataset, Flickr8kSource
from rewind.data.annotations import MAX_NOTE_EXAMPLES, SPLITS, Annotations
from rewind.data.dummy import PublishedSizes, SplitSizes, draw_picture, make_dummy_images, make_dummy_items
from rewind.data.formats.photos import IMAGE_SUFFIXES, annotate_images, captions_by_file, split_images
from rewind.errors import RewindError
from rewind.io.files import write_json, write_text
from rewind.io.strict import csv_records, read_user_json, read_user_text, split_lines
from rewind.registry import DUMMY_DATA, FORMATS

# Karpathy's names of splits → ours.
KARPATHY_SPLITS = {"train": "train", "restval": "train", "val": "valid", "test": "test"}  # restval: of COCO, trained on
_IMAGE_HEADINGS = frozenset({"image", "image_path", "image_name", "file_name", "filename", "path"})
_CAPTION_HEADINGS = frozenset({"caption", "captions", "text", "sentence"})
_CAPTION_NUMBER = re.compile(r"#\d+$")


@FORMATS.register("flickr8k")
def read(dataset: Dataset, sources: str) -> Annotations:
    """Read ``source.captions``; ``sources`` is not used.

    The notes count images that are missing from the split file, images that only the split file names, and images with
    more or fewer captions than ``captions_per_image``.

    Raises:
        RewindError: naming file and row for another delimiter, a row without a caption, or an image outside the folder;
            for a split file of another format or with too few of the images; if a split would be empty.
    """
    keys = dataset.source
    path, where = Path(keys.captions), f"config/datasets/{dataset.name}.yaml"
    entries, unusable = _read_entries(path)
    described = captions_by_file(path, _strip_image_folder(entries, Path(keys.images)), unusable)
    splits, notes = _assign_splits(described, keys, where)
    origin = {"split_file": keys.split_file} if keys.split_file else {"seed": keys.seed}
    annotations = annotate_images(described, splits, path, Path(keys.images), origin)
    other_count = [name for name, texts in described.items() if len(texts) != keys.captions_per_image]
    notes |= _count_note(f"images_without_{keys.captions_per_image}_captions", other_count)
    return Annotations(annotations.items, annotations.captions, annotations.notes | notes)


def _read_entries(path: Path) -> tuple[dict[str, dict[str, str]], str]:
    """``{"row 2": {"file_name": …, "caption": …}}`` without heading and blank rows, and a message for unusable ones."""
    text = read_user_text(path, "(`source.captions`).")
    rows = [(number, line) for number, line in enumerate(split_lines(text), start=1) if line.strip()]
    number, first = rows[0]
    if "\t" in first:
        separator, cells = "a tab", [(number, line.partition("\t")[::2]) for number, line in rows]
    elif "," in first and _is_image_name(first.partition(",")[0]):
        separator, cells = "a comma", _comma_separated(path, text)
    else:
        raise RewindError(
            f"{path}: row {number}: neither `image_path<TAB>caption` nor `image,caption`: {first[:80]!r}. Separate "
            "image and caption by one tab, or by a comma."
        )
    if _is_heading(*cells[0][1]):
        cells = cells[1:]
    if not cells:
        raise RewindError(f"{path}: no rows below the header; write one per caption: image path, tab, caption.")
    entries = {
        f"row {n}": {"file_name": _CAPTION_NUMBER.sub("", name.strip()), "caption": caption}
        for n, (name, caption) in cells
    }
    return entries, f"rows cannot be used (each is an image path, {separator} and its caption, as the first row is)"


def _strip_image_folder(entries: dict[str, dict[str, str]], images: Path) -> dict[str, dict[str, str]]:
    """Entries with paths inside the folder of images: its name is removed where all of them begin with it.

    In SANW's own layout rows are relative to the folder above (``Images/a.jpg``). Where the folder of images contains a
    folder of the same name, paths stay as they are.
    """
    prefix = f"{images.name}/"
    if (images / images.name).is_dir() or not all(entry["file_name"].startswith(prefix) for entry in entries.values()):
        return entries
    return {row: entry | {"file_name": entry["file_name"].removeprefix(prefix)} for row, entry in entries.items()}


def _comma_separated(path: Path, text: str) -> list[tuple[int, tuple[str, str]]]:
    """Rows of a CSV of two columns: commas after the first belong to the caption, quoted or not."""
    records = ((number, cells) for number, cells in csv_records(text, path) if any(cell.strip() for cell in cells))
    return [(number, (cells[0], ",".join(cells[1:]))) for number, cells in records]


def _is_heading(name: str, caption: str) -> bool:
    return name.strip().lower() in _IMAGE_HEADINGS and caption.strip().lower() in _CAPTION_HEADINGS


def _is_image_name(cell: str) -> bool:
    name = _CAPTION_NUMBER.sub("", cell.strip()).lower()
    return name in _IMAGE_HEADINGS or PurePosixPath(name).suffix in IMAGE_SUFFIXES


def _assign_splits(
    described: dict[str, list[str]], keys: Flickr8kSource, where: str
) -> tuple[dict[str, str], dict[str, Any]]:
    """The split of every image that has one, and notes about images that only one of the two files names."""
    if keys.split_file is None:
        return split_images(list(described), keys, where), {}
    path = Path(keys.split_file)
    listed = _read_karpathy_split(path)
    splits, used = {}, set()
    for name in described:
        # The split file has base names; captions may have folders before them.
        key = next((key for key in (name, PurePosixPath(name).name) if key in listed), None)
        if key is not None:
            splits[name] = listed[key]
            used.add(key)
    absent = [name for name in described if name not in splits]
    if len(absent) > keys.max_without_split * len(described):
        raise RewindError(
            f"{path}: {len(absent)} of {len(described)} captioned images are not in this split file, first "
            f"{absent[0]!r}; source.max_without_split allows {keys.max_without_split:.1%}. Is it the split file of "
            "this dataset? If not, remove source.split_file; or allow more."
        )
    counts = {split: sum(assigned == split for assigned in splits.values()) for split in SPLITS}
    if not all(counts.values()):
        shown = ", ".join(f"{count} {split}" for split, count in counts.items())
        raise RewindError(f"{path}: it leaves a split empty ({shown}); each needs at least one captioned image.")
    without_caption = [name for name in listed if name not in used]
    notes = _count_note("images_not_in_split_file", absent)
    return splits, notes | _count_note("images_in_split_file_alone", without_caption)


def _read_karpathy_split(path: Path) -> dict[str, str]:
    """The split of every file name in ``{"images": [{"filename": …, "split": "train" | "val" | "test"}, …]}``."""
    content = read_user_json(path, "(`source.split_file`).")
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, list):
        raise RewindError(f'{path}: Karpathy\'s format is needed: {{"images": [{{"filename": …, "split": …}}, …]}}.')
    splits: dict[str, str] = {}
    for number, image in enumerate(images):
        name, split = (image.get("filename"), image.get("split")) if isinstance(image, dict) else (None, None)
        if not isinstance(name, str) or split not in KARPATHY_SPLITS:
            raise RewindError(
                f"{path}: images[{number}]: a filename and a split of {', '.join(KARPATHY_SPLITS)} are needed, not "
                f"{name!r} and {split!r}."
            )
        if splits.setdefault(name, KARPATHY_SPLITS[split]) != KARPATHY_SPLITS[split]:
            raise RewindError(f"{path}: images[{number}]: {name!r} is in two splits; keep one.")
    return splits


def _count_note(name: str, images: list[str]) -> dict[str, Any]:
    return {name: len(images), f"{name}_shown": images[:MAX_NOTE_EXAMPLES]}


# ---- Dummy data ----------------------------------------------------------------------------------------------------

PUBLISHED = PublishedSizes((6000, 30_000), (1000, 5000), (1000, 5000), 8000, "Flickr8k in Karpathy's split")


@DUMMY_DATA.register("flickr8k", published=PUBLISHED)
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """Five captions of each image; a split file where the dataset names one."""
    has_splits = dataset.source.split_file is not None
    items = make_dummy_items(sizes, 5) if has_splits else make_dummy_images(dataset.source, sizes, 5)
    rows = ["image,caption"]
    for item in items:
        draw_picture(item, folder / "Images" / f"{item.name}.jpg")
        rows += [f'{item.name}.jpg,"{caption}"' for caption in item.entry.captions(False)]
    write_text(folder / "captions.txt", "\n".join(rows) + "\n")
    keys = {"captions": str(folder / "captions.txt"), "images": str(folder / "Images")}
    if has_splits:
        karpathy = {"train": "train", "valid": "val", "test": "test"}
        images = [{"filename": f"{item.name}.jpg", "split": karpathy[item.split]} for item in items]
        write_json(folder / "dataset_flickr8k.json", {"images": images, "dataset": "flickr8k"})
        keys["split_file"] = str(folder / "dataset_flickr8k.json")
    return keys
