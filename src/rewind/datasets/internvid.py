"""Clips and captions as InternVid's lists have them: a CSV ``YoutubeID,Caption`` and one ``<YoutubeID>.mp4`` each.

The split is that of the ViCLIP cosine-gap notebook: scikit-learn's ``train_test_split`` twice with ``random_state``,
80% of the rows for training and half of the rest each for validation and test.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rewind.datasets.annotations import SPLITS, Annotations
from rewind.datasets.photos import item_id
from rewind.datasets.rows import SHOWN, Rows
from rewind.errors import RewindError, listed
from rewind.reading.tables import Columns, read_table
from rewind.study.dataset import Dataset

# The published lists also have times and scores.
COLUMNS = Columns(("YoutubeID", "Caption"), others=True, ids=("YoutubeID",))


def read(dataset: Dataset, sources: str) -> Annotations:
    """Read ``source.captions``; ``sources`` is not used. A video with several rows is one item with several captions.

    Where its rows fall into different splits, all go to that of its first row, and it is counted
    (``rows_moved_to_their_videos_split``): the original lets it stand in training and test at once.

    Raises:
        RewindError: naming file and row for anything but both columns filled, or if a split would be empty.
    """
    path, seed = Path(dataset.source.captions), dataset.source.seed
    table = _rows(path, dataset.how_to_get)
    split_of_row = split_rows(len(table), seed, str(path))
    rows, first, moved = Rows(), {}, []
    texts: dict[str, list[str]] = {}
    for (number, video, caption), split in zip(table, split_of_row, strict=True):
        if video not in first:
            name = rows.original(item_id(f"{video}.mp4"), f"{video}.mp4", split, video, f"{path}: row {number}")
            first[video] = (name, split)
        elif first[video][1] != split:
            moved.append(video)
        texts.setdefault(video, []).append(caption)
    for video, captions in texts.items():
        rows.describe(first[video][0], captions, first[video][1])
    found = rows.annotations({split: {"file": str(path), "seed": seed} for split in SPLITS})
    extra = {"rows_moved_to_their_videos_split": len(moved), "videos_moved_shown": sorted(set(moved))[:SHOWN]}
    return Annotations(found.items, found.captions, found.notes | extra)


def split_rows(count: int, seed: int, where: str = "") -> list[str]:
    """The split of each of ``count`` rows, as ``train_test_split(test_size=0.2)``, then ``test_size=0.5`` of the rest.

    Raises:
        RewindError: if a split would be empty.
    """
    train, rest = _halves(np.arange(count), 0.2, seed)
    valid, test = _halves(rest, 0.5, seed)
    if min(len(train), len(valid), len(test)) < 1:
        raise RewindError(
            f"{where}: {count} rows leave a split empty ({len(train)} train, {len(valid)} valid, {len(test)} test); at "
            "least 6 are needed."
        )
    split = np.full(count, "train", dtype=object)
    split[valid], split[test] = "valid", "test"
    return split.tolist()


def _halves(rows: np.ndarray, test_share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Kept and held-out rows, as scikit-learn's shuffled split takes them."""
    held = int(np.ceil(test_share * len(rows)))
    order = np.random.RandomState(seed).permutation(len(rows))
    return rows[order[held:]], rows[order[:held]]


def _rows(path: Path, how_to_get: str) -> list[tuple[int, str, str]]:
    """Row number, YouTube id and caption of every row; white space inside a caption becomes one blank."""
    rows = read_table(path, COLUMNS, f"(`source.captions`). {how_to_get}")
    lines = [(row.number, row.cells["YoutubeID"], " ".join(row.cells["Caption"].split())) for row in rows]
    _check(path, lines)
    return lines


def _check(path: Path, lines: Sequence[tuple[int, str, str]]) -> None:
    faults = [f"  row {number}: {fault}" for number, video, caption in lines if (fault := _fault(video, caption))]
    if faults:
        raise RewindError(f"{path}: {len(faults)} of {len(lines)} rows cannot be used:\n{listed(faults)}")
    if not lines:
        raise RewindError(f"{path}: no rows below the header; write one row per caption.")


def _fault(video: str, caption: str) -> str:
    """What is wrong with a row, or nothing."""
    if not video:
        return "YoutubeID is empty"
    if "/" in video or "\\" in video or video.startswith("."):
        return f"YoutubeID {video!r} is no file name; `<YoutubeID>.mp4` must lie in `source.videos`"
    return "" if caption else f"the caption of {video!r} is empty"
