"""RTime: a JSON file per split and a folder of clips."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rewind.datasets.annotations import SPLITS
from rewind.datasets.shapes import annotation
from rewind.files import write_json
from rewind.rehearsal.formats import Published
from rewind.rehearsal.pictures import Sizes, draw_clip, invent

# 21,537 videos, originals and reversed ones, with 210,000 captions; 500 and 1,000 originals of valid and test have one
# human caption in each direction.
PUBLISHED = Published((18_537, 180_000), (1000, 1000), (2000, 2000), 21_537, "RTime as published")


def stand_in(source: dict[str, Any], folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Ten captions a direction, as in RTime; one training entry has no reverse, as some have there."""
    clips = invent(sizes, 10)
    for clip in clips:
        draw_clip(clip, folder / "videos" / f"{clip.name}.mp4")
    for split in SPLITS:
        entries = {clip.name: annotation(clip.entry) for clip in clips if clip.split == split}
        if split == "train":
            next(iter(entries.values()))["reverse"] = False
        write_json(folder / f"{split}.json", entries)
    annotations = {split: str(folder / f"{split}.json") for split in SPLITS}
    return {"annotations": annotations, "videos": str(folder / "videos"), "reversed_videos": None}
