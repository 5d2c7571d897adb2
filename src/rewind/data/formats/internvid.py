"""InternVid's lists: a CSV ``YoutubeID,Caption`` and a file ``<YoutubeID>.mp4`` for each clip.

The split is that of the ViCLIP cosine-gap notebook: scikit-learn's ``train_test_split`` twice with
``random_state``, 80% of the rows for training and half of the rest each for validation and test.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from rewind.config.dataset import Dataset
from rewind.data.annotations import MAX_NOTE_EXAMPLES, SPLITS, AnnotationBuilder, Annotations
from rewind.data.dummy import SplitSizes, draw_clip, make_dummy_items
from rewind.data.formats.photos import item_id_from_file
from rewind.errors import RewindError
from rewind.io.schema import FILLED, ID, Schema
from rewind.io.strict import read_user_csv
from rewind.registry import DUMMY_DATA, FORMATS

# The published lists have further columns (times and scores), which are not read.
INTERNVID_COLUMNS = Schema({"YoutubeID": ID, "Caption": FILLED}, others=True)


@FORMATS.register("internvid")
def read(dataset: Dataset, sources: str) -> Annotations:
    """Read ``source.captions``; ``sources`` is not used. A video with several rows is one item with several captions.

    The notebook splits rows, so a video may be in training and test at once. Here all rows of a video go to the split
    of its first row; rows that move are counted (``rows_moved_to_their_videos_split``).

    Raises:
        RewindError: naming file and row for anything but both columns filled, or if a split would be empty.
    """
    path, seed = Path(dataset.source.captions), dataset.source.seed
    table = _read_rows(path, dataset.how_to_get)
    split_of_row = split_rows(len(table), seed, str(path))
    builder, first, moved = AnnotationBuilder(), {}, []  # first: video → (item id, split) of its first row
    texts: dict[str, list[str]] = {}
    for (number, video, caption), split in zip(table, split_of_row, strict=True):
        if video not in first:
            name = builder.original(
                item_id_from_file(f"{video}.mp4"), f"{video}.mp4", split, video, f"{path}: row {number}"
            )
            first[video] = (name, split)
        elif first[video][1] != split:
            moved.append(video)
        texts.setdefault(video, []).append(caption)
    for video, captions in texts.items():
        builder.describe(first[video][0], captions, first[video][1])
    annotations = builder.annotations({split: {"file": str(path), "seed": seed} for split in SPLITS})
    notes = {
        "rows_moved_to_their_videos_split": len(moved),
        "videos_moved_shown": sorted(set(moved))[:MAX_NOTE_EXAMPLES],
    }
    return Annotations(annotations.items, annotations.captions, annotations.notes | notes)


def split_rows(count: int, seed: int, where: str = "") -> list[str]:
    """The split of each of ``count`` rows: ``train_test_split(test_size=0.2)``, then ``test_size=0.5`` of the rest.

    >>> [split_rows(20, seed=42).count(split) for split in SPLITS]
    [16, 2, 2]
    """
    train, rest = _train_test_split(np.arange(count), 0.2, seed)
    valid, test = _train_test_split(rest, 0.5, seed)
    if min(len(train), len(valid), len(test)) < 1:
        raise RewindError(
            f"{where}: {count} rows leave a split empty ({len(train)} train, {len(valid)} valid, {len(test)} test); at "
            "least 6 are needed."
        )
    split = np.full(count, "train", dtype=object)
    split[valid], split[test] = "valid", "test"
    return split.tolist()


def _train_test_split(rows: np.ndarray, test_share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Training and held-out rows as in scikit-learn's ``ShuffleSplit``, which holds out the first of a permutation."""
    held_out = int(np.ceil(test_share * len(rows)))
    order = np.random.RandomState(seed).permutation(len(rows))  # the legacy generator, which scikit-learn uses
    return rows[order[held_out:]], rows[order[:held_out]]


def _read_rows(path: Path, how_to_get: str) -> list[tuple[int, str, str]]:
    """Row number, YouTube id and caption of every row; white space inside a caption becomes one blank."""
    rows = read_user_csv(path, INTERNVID_COLUMNS, f"(`source.captions`). {how_to_get}")
    lines = [(row.number, row.cells["YoutubeID"], " ".join(row.cells["Caption"].split())) for row in rows]
    if not lines:
        raise RewindError(f"{path}: no rows below the header; write one row per caption.")
    for number, video, _ in lines:
        if "/" in video or "\\" in video or video.startswith("."):
            raise RewindError(
                f"{path}: row {number}: YoutubeID {video!r} is not a file name; `<YoutubeID>.mp4` must be in "
                "`source.videos`."
            )
    return lines


@DUMMY_DATA.register("internvid")
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """As many rows as give the training split that is asked for: a tenth of them is validation, a tenth test."""
    rows = max(round(sizes.train / 0.8), 10 * max(sizes.valid, sizes.test))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "captions.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["YoutubeID", "Start_timestamp", "End_timestamp", "Caption"])
        for clip in make_dummy_items(SplitSizes(rows, 0, 0), 1):
            draw_clip(clip, folder / "videos" / f"{clip.name}.mp4")
            writer.writerow([clip.name, "00:00:01.000", "00:00:10.000", clip.entry.captions(False)[0]])
    return {"captions": str(folder / "captions.csv"), "videos": str(folder / "videos")}
