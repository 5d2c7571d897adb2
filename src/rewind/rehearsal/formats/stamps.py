"""Stamps of Tux Paint: the unpacked tree of Debian's package, a text file beside each picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rewind.datasets.stamps import INSIDE
from rewind.files import write_text
from rewind.rehearsal.formats import Published
from rewind.rehearsal.formats.photos import total
from rewind.rehearsal.pictures import Sizes, draw_picture, invent

PUBLISHED = Published((348, 348), (74, 74), (76, 76), 498, "the package as it is in Debian 12")


def stand_in(source: dict[str, Any], folder: Path, sizes: Sizes) -> dict[str, Any]:
    """One caption, and a translation below it."""
    for item in invent(Sizes(total(source, sizes), 0, 0), 1):
        path = folder / INSIDE / "shapes" / f"{item.name}.png"
        draw_picture(item, path)
        write_text(path.with_suffix(".txt"), f"{item.entry.captions(False)[0]}\nde.utf8=Eine Form.\n")
    return {"folder": str(folder)}
