"""Joins annotations with what became of the videos; writes and reads the tables that later stages use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rewind.datasets.annotations import SPLITS, TWIN_SUFFIX, Annotations
from rewind.datasets.rows import BLOCK, SHOWN
from rewind.errors import RewindError
from rewind.files import read_csv, write_csv, write_csv_parts, write_json

ITEM_COLUMNS = ["item_id", "path", "split", "cluster_id", "reversed", "status"]
CAPTION_COLUMNS = ["video_id", "caption", "caption_id"]
ORIGIN = "test_origin"
USABLE = "ok"


class Split(NamedTuple):
    """What a stage may use of a split, and how much of it is left out because a clip is unusable.

    ``items``: the columns of ``items.csv``; ``captions``: ``video_id, caption, caption_id``; ``left_out``:
    numbers of
    ``items`` and ``captions``.
    """

    items: pd.DataFrame
    captions: pd.DataFrame
    left_out: dict[str, int]


def write_captions(
    annotations: Annotations,
    report: pd.DataFrame,
    folder: Path,
    name: str,
    suffix: str = ".mp4",
    digest: str | None = None,
) -> dict[str, Any]:
    """Write ``items.csv`` and ``captions/<name>_{train,valid,test,test_origin}.csv`` and
    ``captions/report.json``.

    Captions of unusable clips stay in the CSVs; the ``status`` in ``items.csv`` tells. ``test_origin`` holds
    the captions of test items that are not reversed.

    Args:
        annotations: items and captions of the dataset.
        report: the video report: one row per original, with ``item_id``, ``status`` (``ok`` or not),
            ``reason`` and, if there, ``twin`` (``none`` where no reversed file was made).
        folder: the dataset's results folder; paths in ``items.csv`` are relative to it.
        name: name of the dataset.
        suffix: of the normalised files.
        digest: hash of what the items hold, if known.

    Returns:
        The content of ``report.json``: that hash, the notes of the reader, and for every split counts of originals,
        twins, captions and the usable ones of each, and the unusable clips with their reasons (the first 50).

    Raises:
        RewindError: if the report names an original twice, or an original that the annotations lack.
    """
    folder = Path(folder)
    items = _with_status(annotations.items, report, suffix)
    original = set(items["item_id"][items["reversed"] == 0])
    for split in (*SPLITS, ORIGIN):
        parts = _captions(annotations.captions, split, original)
        write_csv_parts(_path(folder, name, split), (part[CAPTION_COLUMNS] for part in parts))
    write_csv(folder / "items.csv", items[ITEM_COLUMNS])
    content = {
        "dataset": name,
        "digest": digest,
        "splits": {
            split: _counts(_of(items, split), _captions(annotations.captions, split, original)) for split in SPLITS
        },
        "annotations": annotations.notes,
    }
    write_json(folder / "captions" / "report.json", content)
    return content


def load_split(folder: Path, name: str, split: str) -> Split:
    """The usable items and captions of ``train``, ``valid``, ``test`` or ``test_origin``.

    Items keep the order of ``items.csv``, captions that of their CSV.

    Raises:
        RewindError: if a file is missing, or a caption belongs to no item of the split.
    """
    folder = Path(folder)
    path = _path(folder, name, split)
    items = _of(read_csv(folder / "items.csv"), split)
    captions = read_csv(path)
    strangers = captions.index[~captions["video_id"].isin(items["item_id"])]
    if len(strangers):
        row, video = strangers[0], captions["video_id"][strangers[0]]
        raise RewindError(
            f"{path}: row {row + 2}: {video!r} is not a {split} item of {folder / 'items.csv'}; make both files again."
        )
    good = items[items["status"] == USABLE]
    kept = captions[captions["video_id"].isin(good["item_id"])]
    left_out = {"items": len(items) - len(good), "captions": len(captions) - len(kept)}
    return Split(good.reset_index(drop=True), kept.reset_index(drop=True), left_out)


def _path(folder: Path, name: str, split: str) -> Path:
    return folder / "captions" / f"{name}_{split}.csv"


def _of(table: pd.DataFrame, split: str) -> pd.DataFrame:
    """Rows of a split; both tables have the columns ``split`` and ``reversed``."""
    if split == ORIGIN:
        return table[(table["split"] == "test") & (table["reversed"] == 0)]
    return table[table["split"] == split]


def _with_status(items: pd.DataFrame, report: pd.DataFrame, suffix: str) -> pd.DataFrame:
    """Items with ``path``, ``status`` and ``reason``; a twin shares its original's file, so also its fate."""
    _check_report(items, report)
    original = items["item_id"].where(items["reversed"] == 0, items["item_id"].str.removesuffix(TWIN_SUFFIX))
    rows = report.set_index("item_id").reindex(original).reset_index(drop=True)
    table = items.reset_index(drop=True)
    own = table["path"] if "path" in table else "videos/" + table["item_id"] + suffix  # vectors may have no picture
    table = table.assign(
        path=own,
        status=rows["status"].fillna("missing"),
        reason=rows["reason"].fillna("").where(rows["status"].notna(), "not in the video report"),
    )
    if "twin" in rows:
        lost = (table["reversed"] == 1) & (table["status"] == USABLE) & (rows["twin"] == "none")
        table.loc[lost, ["status", "reason"]] = ["missing", "no reversed clip was made"]
    return table


def _check_report(items: pd.DataFrame, report: pd.DataFrame) -> None:
    twice = report["item_id"][report["item_id"].duplicated()]
    if len(twice):
        raise RewindError(f"the video report names {twice.iloc[0]!r} twice; make it again.")
    originals = items["item_id"][items["reversed"] == 0]
    strangers = report["item_id"][~report["item_id"].isin(originals)]
    if len(strangers):
        raise RewindError(
            f"the video report names {strangers.iloc[0]!r}, which is not in the annotations; make the report again."
        )


def _captions(captions: pd.DataFrame, split: str, original: set[str]) -> Iterator[pd.DataFrame]:
    """Those of a split, a block at a time: there may be millions."""
    for top in range(0, max(1, len(captions)), BLOCK):
        part = captions.iloc[top : top + BLOCK]
        kept = part["split"] == ("test" if split == ORIGIN else split)
        yield part[kept & _among(part["video_id"], original)] if split == ORIGIN else part[kept]


def _among(ids: pd.Series, chosen: set[str]) -> np.ndarray:
    """(n,) whether each id is chosen; ``isin`` would hash all the chosen ones again at every block."""
    return np.fromiter((name in chosen for name in ids.tolist()), bool, len(ids))


def _counts(items: pd.DataFrame, captions: Iterator[pd.DataFrame]) -> dict[str, Any]:
    usable = items[items["status"] == USABLE]
    bad = items[items["status"] != USABLE]
    good = set(usable["item_id"])
    counted = [(len(part), int(_among(part["video_id"], good).sum())) for part in captions]
    return {
        "originals": int((items["reversed"] == 0).sum()),
        "originals_usable": int((usable["reversed"] == 0).sum()),
        "twins": int((items["reversed"] == 1).sum()),
        "twins_usable": int((usable["reversed"] == 1).sum()),
        "captions": sum(count for count, _ in counted),
        "captions_usable": sum(count for _, count in counted),
        "unusable": len(bad),
        "unusable_shown": bad[["item_id", "status", "reason"]].head(SHOWN).to_dict("records"),
    }
