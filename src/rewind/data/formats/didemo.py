"""DiDeMo (Hendricks et al., ICCV 2017) as paragraph retrieval, in its own files and the lists of Collaborative Experts.

``{train,val,test}_data.json`` are lists of descriptions (``video``, ``description``; ``times`` is not read), and
``{train,val,test}_list.txt`` have a clip per line. Ids keep the suffix of the clip's file. The descriptions of a clip,
in the order of the file, are one caption, as in CLIP4Clip.

CLIP4Clip uses the first 31 seconds of a clip, since longer clips were cut to 30 seconds when they were described. Here
clips are used whole: cut them before, if yours are longer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rewind.config.dataset import Dataset
from rewind.data.annotations import MAX_NOTE_EXAMPLES, Annotations
from rewind.data.dummy import PublishedSizes, SplitSizes
from rewind.data.formats.published import (
    ListedClip,
    Published,
    annotate_clips,
    check_counts,
    draw_dummy_clips,
    dummy_keys,
    file_of,
    how_to_get,
    read_names,
)
from rewind.io.files import write_json, write_text
from rewind.io.schema import CAPTION, FILLED, Schema, checked_objects
from rewind.io.strict import read_user_json
from rewind.registry import DUMMY_DATA, FORMATS

FILE_SPLITS = {"train": "train", "valid": "val", "test": "test"}
"""Our splits → their names in files."""
ENTRY = Schema({"video": FILLED, "description": CAPTION})
PUBLISHED_CLIPS = {"train": Published(8392, 8392), "valid": Published(1065, 1065), "test": Published(1004, 1004)}


@FORMATS.register("didemo")
def read(dataset: Dataset, sources: str) -> Annotations:
    """Read the files in ``source.folder``; ``sources`` is not used.

    Clips come in the order of their first description. Listed clips without one are left out, as in CLIP4Clip, and
    counted; so are descriptions of clips that are not listed.

    Raises:
        RewindError: naming file and entry for another structure, or numbers that differ from the published ones.
    """
    splits: dict[str, list[ListedClip]] = {}
    notes: dict[str, dict[str, Any]] = {}
    for split, name in FILE_SPLITS.items():
        path, lines = (file_of(dataset.source, f"{name}_{kind}") for kind in ("data.json", "list.txt"))
        names, repeated = read_names(lines, how_to_get(dataset))
        listed, descriptions, others = set(names), dict[str, list[str]](), set()
        for _, entry in checked_objects(read_user_json(path, how_to_get(dataset)), str(path), ENTRY):
            clip, text = entry["video"], entry["description"]
            if clip in listed:
                descriptions.setdefault(clip, []).append(text)
            else:
                others.add(clip)
        splits[split] = [
            ListedClip(clip, clip, [" ".join(texts)], f"{path}: {clip!r}") for clip, texts in descriptions.items()
        ]
        without = [clip for clip in names if clip not in descriptions]
        counts = check_counts(dataset, lines, splits[split], PUBLISHED_CLIPS[split], f"DiDeMo's {split} split")
        notes[split] = {
            "file": str(path),
            "list": str(lines),
            "listed_twice": repeated,
            "listed_without_caption": len(without),
            "listed_without_caption_shown": without[:MAX_NOTE_EXAMPLES],
            "described_and_not_listed": len(others),
        } | counts
    return annotate_clips(dataset, splits, notes)


# ---- Dummy data ------------------------------------------------------------------------------------------------------

PUBLISHED = PublishedSizes((8392, 8392), (1065, 1065), (1004, 1004), 10_461, "DiDeMo as paragraphs")


@DUMMY_DATA.register("didemo", published=PUBLISHED)
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """Two descriptions of each clip."""
    clips = draw_dummy_clips(folder, sizes, 2)
    for split, name in FILE_SPLITS.items():
        own = [clip for clip in clips if clip.split == split]
        entries = [
            {"video": f"{clip.name}.mp4", "description": text, "times": [[0, 0]] * 4}
            for clip in own
            for text in clip.entry.captions(False)
        ]
        write_json(folder / f"{name}_data.json", entries)
        write_text(folder / f"{name}_list.txt", "".join(f"{clip.name}.mp4\n" for clip in own))
    return dummy_keys(folder)
