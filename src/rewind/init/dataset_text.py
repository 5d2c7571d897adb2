"""``config/datasets/<name>.yaml`` with comments."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rewind.init.items import Brought
from rewind.init.layout import Value, block, key, prose
from rewind.init.looking import Looked
from rewind.init.sizes import A_JOB, Sizes

UNSEEN = 0.02  # share of clips that may turn out to be broken where not all were decoded


def dataset_text(
    name: str, found: Brought, looked: Looked | None, sizes: Sizes, source: Mapping[str, Value], command: str
) -> str:
    """The file's text.

    Args:
        name: of the data set.
        found: items.
        looked: their files; None where no clips are here.
        sizes: for this machine.
        source: keys of ``source``.
        command: what was typed.
    """
    lines = [
        *prose(
            f"Written by `{command}`. Edit it as you like; every key is explained in config/README.md.",
            "What is changed here makes stale what was made of it, and nothing else; `rewind why` says what that is.",
        ),
        key("title", name.replace("_", " "), "name in tables"),
        *block("source", _source(source), "paths are from the folder in which snakemake runs"),
    ]
    if looked is None:
        lines += [key("clips", False, "no clip is here: pictures show no frames; true needs source.videos")]
        lines += [key("reverse", _twins(found) > 0, "whether captions of reversed clips (twins) are used")]
        return "\n".join(lines) + "\n"
    if looked.items == "images":
        lines += [key("reverse", False, "images have no reversed twin")]
        lines += _missing(found, looked)
        lines += block(
            "image",
            [
                key("short_side", 256, "pixels; larger images are scaled down", 1),
                key("format", "png", "png is lossless; jpeg takes a third of the space or less", 1),
                key("shards", sizes.shards, f"jobs that normalise images; about {A_JOB} images each", 1),
                key("workers", sizes.workers, "images at once in one job", 1),
            ],
        )
    else:
        made = f"{_twins(found):,} of {len(found.items):,} clips have one"
        lines += [key("reverse", True, f"a reversed twin of every clip that has a reverse caption ({made})")]
        lines += _missing(found, looked)
        lines += block(
            "video",
            [
                key("fps", sizes.fps, f"frames per second that are kept{_middle(looked)}", 1),
                key("short_side", 224, "pixels; what CLIP reads", 1),
                key("qp", 20, "H.264 quantiser; 0 is lossless, larger is smaller", 1),
                key("max_seconds", 600, "longer clips are refused: reversing holds all frames in memory", 1),
                key("shards", sizes.shards, f"jobs that normalise clips; about {A_JOB} clips each", 1),
                key("workers", sizes.workers, "ffmpeg processes in one job", 1),
            ],
        )
    lines += [
        key("licence", "", "of clips and captions, named in the report"),
        key("how_to_get", "", "printed when files are missing: where others get them"),
    ]
    return "\n".join(lines) + "\n"


SOURCE = {
    "format": "how captions are read; docs/add-a-dataset.md has the others",
    "table": "a row per caption",
    "annotations": "one JSON file per split; training uses captions and rewrites",
    "videos": "folder of the files that the captions name",
    "items": "videos, or images",
}


def _source(source: Mapping[str, Value]) -> list[str]:
    lines = []
    for name, value in source.items():
        if isinstance(value, Mapping):
            lines += [key(name, None, SOURCE[name], 1).replace("null", "    ", 1)]
            lines += [key(one, path, "", 2) for one, path in value.items()]
        else:
            lines += [key(name, value, SOURCE.get(name, ""), 1)]
    return lines


def _missing(found: Brought, looked: Looked) -> list[str]:
    lost = len(looked.missing) + len(looked.broken)
    share = math.ceil(100 * lost / len(found.items)) / 100
    noun = "images" if looked.items == "images" else "clips"
    why = f"{lost:,} of {len(found.items):,} are" if lost else f"all {noun} are there"
    if looked.decoded < len(looked.files):
        share = max(share, UNSEEN)
        why += f", of {looked.decoded:,} that were decoded" if looked.decoded else ", but none was decoded"
    return [key("max_missing", share, f"share of {noun} that may be missing or broken; {why}")]


def _middle(looked: Looked) -> str:
    ordered = sorted(looked.seconds)
    return f"; half of the clips last {ordered[len(ordered) // 2]:.1f} s or more" if ordered else ""


def _twins(found: Brought) -> int:
    return sum(1 for item in found.items.values() if item.reverse)
