"""InternVid: a CSV of captions and a clip per YouTube id; the reader draws the split itself."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from rewind.rehearsal.pictures import Sizes, draw_clip, invent


def stand_in(source: dict[str, Any], folder: Path, sizes: Sizes) -> dict[str, Any]:
    """As many rows as give the wanted training split: a tenth of them is validation, a tenth test."""
    rows = max(round(sizes.train / 0.8), 10 * max(sizes.valid, sizes.test))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "captions.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["YoutubeID", "Start_timestamp", "End_timestamp", "Caption"])
        for clip in invent(Sizes(rows, 0, 0), 1):
            draw_clip(clip, folder / "videos" / f"{clip.name}.mp4")
            writer.writerow([clip.name, "00:00:01.000", "00:00:10.000", clip.entry.captions(False)[0]])
    return {"captions": str(folder / "captions.csv"), "videos": str(folder / "videos")}
