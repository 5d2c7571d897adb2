"""One CSV and a folder of clips or images."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from rewind.rehearsal.pictures import Sizes, draw_clip, draw_picture, invent


def stand_in(source: dict[str, Any], folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Two captions of each direction; the column ``reverse_caption`` where items are videos."""
    images = source.get("items") == "images"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "captions.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["item_id", "path", "split", "caption", "cluster_id"] + ["reverse_caption"] * (not images))
        for item in invent(sizes, 2):
            path = f"{item.name}.{'png' if images else 'mp4'}"
            (draw_picture if images else draw_clip)(item, folder / "files" / path)
            for there, back in zip(item.entry.captions(False), item.entry.captions(True), strict=True):
                writer.writerow([item.name, path, item.split, there, item.name] + [back] * (not images))
    return {"table": str(folder / "captions.csv"), "videos": str(folder / "files")}
