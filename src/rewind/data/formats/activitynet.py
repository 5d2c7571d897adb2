"""ActivityNet Captions (Krishna et al., ICCV 2017) as paragraph retrieval, in the files of CLIP4Clip.

``train.json`` and ``val_1.json`` are objects ``v_<id>`` → ``sentences`` (``duration`` and ``timestamps`` are not
read); ``train_ids.json`` and ``val_ids.json`` are lists of ``v_<id>``. The sentences of a video are one caption. A
video's file is named ``<id>``, without ``v_``, unless ``source.prefixed_files`` is true.

Results are published on ``val_1``, which is the test split here. CLIP4Clip also chooses its checkpoint on it; here
``source.valid_clips`` training videos are held out for that.
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
    hold_out,
    how_to_get,
    unique_names,
)
from rewind.errors import RewindError
from rewind.io.files import write_json
from rewind.io.schema import TEXTS, RowChecks, Schema, object_of, texts_of
from rewind.io.strict import read_user_json
from rewind.registry import DUMMY_DATA, FORMATS

PREFIX = "v_"
ENTRY = Schema({"sentences": TEXTS})
FILES = {"train": ("train.json", "train_ids.json"), "test": ("val_1.json", "val_ids.json")}
PUBLISHED_CLIPS = {"train": Published(10_009, 10_009), "test": Published(4917, 4917)}
HELD_OUT_RULE = "held out of training: the first by the SHA-256 of their names"


@FORMATS.register("activitynet")
def read(dataset: Dataset, sources: str) -> Annotations:
    """Read the files in ``source.folder``; ``sources`` is not used. Videos come in the order of the lists of ids.

    Item ids keep the ``v_``. Listed videos without sentences are left out, as in CLIP4Clip, and counted.

    Raises:
        RewindError: naming file and id for another structure, an id without ``v_``, or numbers that differ from the
            published ones.
    """
    clips, notes = {}, {}
    for split in FILES:
        clips[split], notes[split] = _read_split(dataset, split)
    train, valid = hold_out(clips["train"], dataset.source.valid_clips, notes["train"]["file"])
    notes["train"]["held_out_for_validation"] = len(valid)
    notes["valid"] = {"file": notes["train"]["file"], "rule": HELD_OUT_RULE}
    return annotate_clips(dataset, {"train": train, "valid": valid, "test": clips["test"]}, notes)


def _read_split(dataset: Dataset, split: str) -> tuple[list[ListedClip], dict[str, Any]]:
    path, ids_path = (file_of(dataset.source, name) for name in FILES[split])
    described = object_of(read_user_json(path, how_to_get(dataset)), str(path))
    ids, repeated = unique_names(texts_of(read_user_json(ids_path, how_to_get(dataset)), str(ids_path)))
    clips, without, checks = [], [], RowChecks(ENTRY, noun="entry")
    for name in ids:
        where = f"{path}: {name!r}"
        if not name.startswith(PREFIX):
            raise RewindError(f"{ids_path}: {name!r} does not begin with {PREFIX!r}, as all ids there do.")
        if name not in described:
            without.append(name)
            continue
        entry = object_of(described[name], where)
        checks.take(where, entry)
        file = name if dataset.source.prefixed_files else name.removeprefix(PREFIX)
        clips.append(ListedClip(name, file, [" ".join(entry["sentences"])], where))
    counts = check_counts(dataset, ids_path, clips, PUBLISHED_CLIPS[split], f"ActivityNet's {split} split")
    notes = {
        "file": str(path),
        "list": str(ids_path),
        "listed_twice": repeated,
        "listed_without_caption": len(without),
        "listed_without_caption_shown": without[:MAX_NOTE_EXAMPLES],
    }
    return clips, notes | counts


# ---- Dummy data ------------------------------------------------------------------------------------------------------

PUBLISHED = PublishedSizes((9509, 9509), (500, 500), (4917, 4917), 14_926, "ActivityNet Captions as paragraphs, val_1")


@DUMMY_DATA.register("activitynet", published=PUBLISHED)
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """Two sentences of each video; those to validate on are among the training videos."""
    clips = draw_dummy_clips(folder, sizes, 2)
    for split, (file, ids_file) in FILES.items():
        own = [clip for clip in clips if (clip.split == "test") == (split == "test")]
        entries = {
            f"{PREFIX}{clip.name}": {
                "duration": 9.0,
                "timestamps": [[0, 4], [4, 9]],
                "sentences": clip.entry.captions(False),
            }
            for clip in own
        }
        write_json(folder / file, entries)
        write_json(folder / ids_file, list(entries))
    return dummy_keys(folder) | {"valid_clips": sizes.valid, "prefixed_files": False}
