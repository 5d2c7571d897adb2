"""Captioned images: a JSON list and a folder; the reader draws the split itself."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rewind.files import write_json
from rewind.rehearsal.pictures import Sizes, draw_picture, invent


def stand_in(source: dict[str, Any], folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Two captions of each image."""
    entries = []
    for item in invent(Sizes(total(source, sizes), 0, 0), 2):
        draw_picture(item, folder / "images" / f"{item.name}.jpg")
        entries += [{"file_name": f"{item.name}.jpg", "caption": caption} for caption in item.entry.captions(False)]
    write_json(folder / "captions.json", entries)
    return {"captions": str(folder / "captions.json"), "images": str(folder / "images")}


def total(source: dict[str, Any], sizes: Sizes) -> int:
    """Images of which the source's shares give each split about what ``sizes`` asks for, and none is empty."""
    valid = source["valid_share"]
    test = 1 - source["train_share"] - valid
    return math.ceil(max(sizes.valid / valid, sizes.test / test)) + 2
