"""Flickr8k: rows of image and caption, a folder of images, and Karpathy's split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rewind.files import write_json, write_text
from rewind.rehearsal.formats import Published
from rewind.rehearsal.formats.photos import total
from rewind.rehearsal.pictures import Sizes, draw_picture, invent

PUBLISHED = Published((6000, 30_000), (1000, 5000), (1000, 5000), 8000, "Flickr8k in Karpathy's split")
_SPLITS = {"train": "train", "valid": "val", "test": "test"}


def stand_in(source: dict[str, Any], folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Five captions of each image; a split file where the data set names one."""
    asked = sizes if source.get("split_file") else Sizes(total(source, sizes), 0, 0)
    items, rows = invent(asked, 5), []
    for item in items:
        draw_picture(item, folder / "Images" / f"{item.name}.jpg")
        rows += [f'{item.name}.jpg,"{caption}"' for caption in item.entry.captions(False)]
    write_text(folder / "captions.txt", "\n".join(["image,caption", *rows]) + "\n")
    keys: dict[str, Any] = {"captions": str(folder / "captions.txt"), "images": str(folder / "Images")}
    if source.get("split_file"):
        images = [{"filename": f"{item.name}.jpg", "split": _SPLITS[item.split]} for item in items]
        write_json(folder / "dataset_flickr8k.json", {"images": images, "dataset": "flickr8k"})
        keys["split_file"] = str(folder / "dataset_flickr8k.json")
    return keys
