"""Animated emoji: npm's packages unpacked, animations named by code points, and emojibase's labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rewind.datasets import npm
from rewind.datasets.emoji import CLIPS, NAMES
from rewind.files import write_json
from rewind.rehearsal.formats import Published
from rewind.rehearsal.pictures import Sizes, draw_animation, invent

# 734 clips; about two captions more for each training clip that has tags. The split is by subject, so about by shares.
PUBLISHED = Published((294, 850), (73, 73), (367, 367), 734, "the packages' versions that the study names")
_FIRST = 0xF0000  # of a range without characters


def stand_in(source: dict[str, Any], folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Every animation is a subject of its own, so that the split by subject follows the source's shares."""
    train = 1 - source["test_share"] - source["valid_share"]
    count = max(round(sizes.train / train), round(sizes.valid / source["valid_share"]))
    package = folder / npm.name(CLIPS.format(source["packages"][0]))
    labels = []
    for number, item in enumerate(invent(Sizes(min(count, 4 * sizes.train), 0, 0), 1)):
        code = f"{_FIRST + number:x}"
        draw_animation(item, package / "assets" / f"{code}.webp")
        entry = item.entry
        labels.append(
            {
                "hexcode": code.upper(),
                "label": f"{entry.captions(False)[0].rstrip('.').lower()} {number}",
                "tags": [entry.scene.shape, entry.scene.colour],
            }
        )
    write_json(folder / npm.name(NAMES) / "en" / "data.json", labels)
    return {"folder": str(folder), "packages": source["packages"][:1]}
