"""Writes and reads ``items.csv`` and the caption tables of each split, which all later stages use.

:func:`write_captions` joins annotations with the outcome of the video stage; :func:`load_split` returns the usable
part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rewind.data.annotations import (
    CAPTION_BLOCK_ROWS,
    MAX_NOTE_EXAMPLES,
    QUERY_COLUMNS,
    SPLITS,
    TWIN_SUFFIX,
    Annotations,
    is_among,
)
from rewind.errors import RewindError
from rewind.hashing import sha256_hex
from rewind.io.files import read_csv, write_csv, write_csv_parts, write_json

# ---- Tables of items and captions ----------------------------------------------------------------------------------

ITEM_COLUMNS = ["item_id", "path", "split", "cluster_id", "reversed", "status"]
SAME_ITEM_COLUMN, SAME_TWIN_COLUMN = "same_item_id", "same_twin_id"
"""Of the video report: the first item of the split that is the same frame by frame as an original, and as its twin. In
``items.csv`` it is the first, where any test item has one."""
CAPTION_COLUMNS = ["video_id", "caption", "caption_id"]
ORIGIN_SPLIT = "test_origin"
USABLE_STATUS = "ok"


class SplitTables(NamedTuple):
    """The usable items and captions of a split."""

    items: pd.DataFrame  # rows of items.csv with a usable clip
    captions: pd.DataFrame  # their captions: video_id, caption, caption_id, and QUERY_COLUMNS of queries with a clip
    left_out: dict[str, int]  # numbers of items and captions that are left out because their clip is unusable


def write_captions(
    annotations: Annotations,
    report: pd.DataFrame,
    folder: Path,
    name: str,
    suffix: str = ".mp4",
    digest: str | None = None,
    sources: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Write ``captions/<name>_{train,valid,test,test_origin}.csv``, ``items.csv`` and ``captions/report.json``.

    Captions of unusable clips stay in the CSVs; whether a clip is usable is the ``status`` in ``items.csv``.
    ``test_origin`` has the captions of test items that are not reversed. Queries that show a clip have
    :data:`QUERY_COLUMNS` too, and are usable if that clip is. Paths are relative to ``folder``, the
    dataset's results folder; ``suffix`` is that of the normalised files, ``digest`` that of :func:`clips_digest`.

    The video report has one row per original: ``item_id``, ``status`` (``ok`` or not), ``reason`` and, if there,
    ``twin`` (``none`` where no reversed file was written).

    The result is the content of ``report.json``: digest, notes of the reader, ``sources`` (counts of what they are) if
    given, and for every split counts of originals, twins, captions and the usable ones of each, and the unusable clips
    with their reasons (the first 50).
    """
    folder = Path(folder)
    items = _with_status(annotations.items, report, suffix)
    originals = set(items["item_id"][items["reversed"] == 0])
    columns = [*CAPTION_COLUMNS, *(name for name in QUERY_COLUMNS if name in annotations.captions)]
    for split in (*SPLITS, ORIGIN_SPLIT):
        blocks = _caption_blocks(annotations.captions, split, originals)
        write_csv_parts(_captions_path(folder, name, split), (block[columns] for block in blocks))
    is_same = (items["split"] == "test") & (items[SAME_ITEM_COLUMN] != "")
    write_csv(folder / "items.csv", items[[*ITEM_COLUMNS, *([SAME_ITEM_COLUMN] if is_same.any() else [])]])
    usable = set(items["item_id"][items["status"] == USABLE_STATUS])
    content = {
        "dataset": name,
        "digest": digest,
        "splits": {
            split: _count_split(
                _rows_of_split(items, split), _caption_blocks(annotations.captions, split, originals), usable
            )
            for split in SPLITS
        },
        "annotations": annotations.notes,
    } | ({"sources": sources} if sources else {})
    write_json(folder / "captions" / "report.json", content)
    return content


def load_split(folder: Path, name: str, split: str) -> SplitTables:
    """Usable items and captions of ``train``, ``valid``, ``test`` or ``test_origin``, in the order of their files."""
    folder = Path(folder)
    path = _captions_path(folder, name, split)
    all_items = read_csv(folder / "items.csv")
    items, captions = _rows_of_split(all_items, split), read_csv(path)
    unknown = captions.index[~is_among(captions["video_id"], items["item_id"])]
    if len(unknown):
        row, video = unknown[0], captions["video_id"][unknown[0]]
        raise RewindError(
            f"{path}: row {row + 2}: {video!r} is not a {split} item of {folder / 'items.csv'}; write both files again."
        )
    usable = items[items["status"] == USABLE_STATUS]
    usable_captions = captions[is_among(captions["video_id"], usable["item_id"])]
    if QUERY_COLUMNS[0] in captions:
        shown = all_items["item_id"][all_items["status"] == USABLE_STATUS]
        usable_captions = usable_captions[is_among(usable_captions[QUERY_COLUMNS[0]], shown)]
    left_out = {"items": len(items) - len(usable), "captions": len(captions) - len(usable_captions)}
    return SplitTables(usable.reset_index(drop=True), usable_captions.reset_index(drop=True), left_out)


class Query(NamedTuple):
    """What a query of composed retrieval says, and the prepared clip of which it shows the middle frame."""

    text: str
    clip: Path


def read_queries(folder: Path, captions: pd.DataFrame) -> list[Query]:
    """The queries of a split's captions, in their order; none where they show no clip."""
    if QUERY_COLUMNS[0] not in captions:
        return []
    paths = read_csv(folder / "items.csv").set_index("item_id")["path"]
    shown, texts = (captions[name] for name in QUERY_COLUMNS)
    return [Query(text, folder / paths[item]) for item, text in zip(shown, texts, strict=True)]


def _captions_path(folder: Path, name: str, split: str) -> Path:
    return folder / "captions" / f"{name}_{split}.csv"


def _rows_of_split(table: pd.DataFrame, split: str) -> pd.DataFrame:
    """Rows of a split; both tables have the columns ``split`` and ``reversed``."""
    if split == ORIGIN_SPLIT:
        return table[(table["split"] == "test") & (table["reversed"] == 0)]
    return table[table["split"] == split]


def _with_status(items: pd.DataFrame, report: pd.DataFrame, suffix: str) -> pd.DataFrame:
    """Items with ``path``, ``status`` and ``reason``; a twin is made from its original's file and shares its status."""
    _check_report(items, report)
    original_ids = items["item_id"].where(items["reversed"] == 0, items["item_id"].str.removesuffix(TWIN_SUFFIX))
    rows = report.set_index("item_id").reindex(original_ids).reset_index(drop=True)  # one row per item, in its order
    table = items.reset_index(drop=True)
    # Datasets of vectors state where their pictures are, if there are any.
    path = table["path"] if "path" in table else "videos/" + table["item_id"] + suffix
    table = table.assign(
        path=path,
        **{SAME_ITEM_COLUMN: _same_items(rows, table["reversed"] == 1)},
        status=rows["status"].fillna("missing"),
        reason=rows["reason"].fillna("").where(rows["status"].notna(), "not in the video report"),
    )
    if "twin" in rows:
        twinless = (table["reversed"] == 1) & (table["status"] == USABLE_STATUS) & (rows["twin"] == "none")
        table.loc[twinless, ["status", "reason"]] = ["missing", "no reversed clip was made"]
    return table


def _same_items(report: pd.DataFrame, reversed_items: pd.Series) -> pd.Series:
    """What :func:`rewind.video.dataset.mark_same_items` found: none in an earlier version's report, or of vectors."""
    if SAME_TWIN_COLUMN not in report:
        return pd.Series("", index=report.index)
    return report[SAME_TWIN_COLUMN].where(reversed_items, report[SAME_ITEM_COLUMN]).fillna("")


def _check_report(items: pd.DataFrame, report: pd.DataFrame) -> None:
    duplicates = report["item_id"][report["item_id"].duplicated()]
    if len(duplicates):
        raise RewindError(f"the video report names {duplicates.iloc[0]!r} twice; write it again.")
    originals = items["item_id"][items["reversed"] == 0]
    unknown = report["item_id"][~is_among(report["item_id"], originals)]
    if len(unknown):
        raise RewindError(
            f"the video report names {unknown.iloc[0]!r}, which is not in the annotations; write the report again."
        )


def _caption_blocks(captions: pd.DataFrame, split: str, originals: set[str]) -> Iterator[pd.DataFrame]:
    """The captions of a split, one block at a time, as there may be millions; at least one block, perhaps empty."""
    for start in range(0, max(1, len(captions)), CAPTION_BLOCK_ROWS):
        block = captions.iloc[start : start + CAPTION_BLOCK_ROWS]
        in_split = block["split"] == ("test" if split == ORIGIN_SPLIT else split)
        yield block[in_split & is_among(block["video_id"], originals)] if split == ORIGIN_SPLIT else block[in_split]


def _count_split(items: pd.DataFrame, captions: Iterator[pd.DataFrame], usable_ids: set[str]) -> dict[str, Any]:
    usable = items[items["status"] == USABLE_STATUS]
    unusable = items[items["status"] != USABLE_STATUS]
    clips = ["video_id", QUERY_COLUMNS[0]]  # of a caption; both must be usable
    counts = [
        (len(block), int(np.logical_and.reduce([is_among(block[c], usable_ids) for c in clips if c in block]).sum()))
        for block in captions
    ]
    return {
        "originals": int((items["reversed"] == 0).sum()),
        "originals_usable": int((usable["reversed"] == 0).sum()),
        "twins": int((items["reversed"] == 1).sum()),
        "twins_usable": int((usable["reversed"] == 1).sum()),
        "captions": sum(count for count, _ in counts),
        "captions_usable": sum(count for _, count in counts),
        "unusable": len(unusable),
        **_count_same(usable),
        "unusable_shown": unusable[["item_id", "status", "reason"]].head(MAX_NOTE_EXAMPLES).to_dict("records"),
    }


def _count_same(items: pd.DataFrame) -> dict[str, Any]:
    """Twins that are their clip, and other items that are another one, frame by frame; nothing where there are none."""
    same = items[items[SAME_ITEM_COLUMN] != ""]
    contents = items[SAME_ITEM_COLUMN].where(items[SAME_ITEM_COLUMN] != "", items["item_id"]).set_axis(items["item_id"])
    own = contents.reindex(same["item_id"].str.removesuffix(TWIN_SUFFIX)).to_numpy() == same[SAME_ITEM_COLUMN]
    own &= same["reversed"] == 1
    counts = {"own_reverse": int(own.sum()), "same_as_another": int((~own).sum())}
    shown = same[["item_id", SAME_ITEM_COLUMN]].head(MAX_NOTE_EXAMPLES).to_dict("records")
    return {name: count for name, count in counts.items() if count} | ({"same_shown": shown} if shown else {})


# ---- A hash of the dataset's content: of its normalised clips or images, or of its embeddings ----------------------


def clips_digest(report: pd.DataFrame) -> str | None:
    """SHA-256 (hex) of ids and hashes of usable clips or images, in the order of ids; None where a hash is missing."""
    usable = report[report["status"] == USABLE_STATUS]
    hashes = usable.get("sha256", pd.Series("", index=usable.index)).fillna("").astype(str)
    if (hashes == "").any():
        return None
    return _hash_pairs(sorted(zip(usable["item_id"], hashes, strict=True)))


def embeddings_digest(hashes: Mapping[str, str]) -> str:
    """The digest of a dataset of vectors, from the hashes in its index (``embeddings.json``)."""
    return _hash_pairs(sorted(hashes.items()))


def _hash_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    return sha256_hex(*(f"{name}\0{value}\n".encode() for name, value in pairs))
