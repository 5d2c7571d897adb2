"""Any dataset as one CSV, one row per caption.

Columns, in any order: ``item_id``, ``caption`` and optionally ``path``, ``split``, ``cluster_id``,
``reverse_caption`` and ``group``. Without ``path`` a clip's file is named by its id, with any video suffix; without
``split`` all items belong to the test split.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from rewind.config.dataset import Dataset
from rewind.data.annotations import SPLITS, AnnotationBuilder, Annotations
from rewind.data.dummy import SplitSizes, draw_clip, draw_picture, make_dummy_items
from rewind.errors import RewindError
from rewind.io.schema import CAPTION, ID, OPTIONAL, Column, Schema, one_of
from rewind.io.strict import CsvRow, csv_header, read_user_csv
from rewind.registry import DUMMY_DATA, FORMATS

TABLE_COLUMNS = Schema(
    {
        "item_id": ID,
        "caption": CAPTION,
        "path": OPTIONAL,
        "split": Column(optional=True, choices=SPLITS),
        "cluster_id": Column(optional=True, is_id=True),
        "reverse_caption": Column(optional=True, prose=True),
        "group": OPTIONAL,
    }
)


@dataclass
class _TableItem:
    """What the rows of one item say."""

    where: str  # file and row of the first
    path: str
    split: str
    cluster_id: str
    forward: list[str] = field(default_factory=list)  # captions
    reverse: list[str] = field(default_factory=list)
    without_caption: list[str] = field(default_factory=list)  # file and row of rows without a caption
    forward_groups: list[str] = field(default_factory=list)
    reverse_groups: list[str] = field(default_factory=list)


def has_groups(dataset: Dataset) -> bool:
    """Whether the CSV's column ``group`` names one for a caption of the test split."""
    table = Path(dataset.source.table)
    cells = (row.cells for row in read_table_rows(table)) if "group" in csv_header(table) else ()
    return any(row["group"].strip() and row.get("split", "test") in ("test", "") for row in cells)


@FORMATS.register("table", has_groups=has_groups)
def read(dataset: Dataset, sources: str) -> Annotations:
    """Read the CSV named in ``source.table``; ``sources`` is not used.

    Rows of one item give its captions, in order; they agree on ``path``, ``split`` and ``cluster_id`` (the item's id
    where that is empty). An item whose only row has no caption is in the gallery, but there is no query for it. An
    item gets a reversed twin if ``dataset.reverse`` is true and one of its ``reverse_caption`` cells is not empty.
    White space inside a caption becomes one blank.

    Raises:
        RewindError: naming file and row for a missing column, an unknown split, an unsafe id, an empty caption among
            others of its item, white space around an id, a path that leaves the folder, or rows of one item that
            disagree.
    """
    table = Path(dataset.source.table)
    items: dict[str, _TableItem] = {}
    for row in read_table_rows(table, f"(`source.table`). {dataset.how_to_get}"):
        _add_row(items, row.cells, f"{table}: row {row.number}", dataset.clips)
    if not items:
        raise RewindError(f"{table}: no rows below the header; write one row per caption.")
    if not any(item.forward or item.reverse for item in items.values()):
        raise RewindError(f"{table}: no row has a caption; write one row per caption.")
    builder = AnnotationBuilder(files=dataset.clips)
    for item_id, item in items.items():
        if item.without_caption and (item.forward or len(item.without_caption) > 1):
            raise RewindError(
                f"{item.without_caption[-1]}: the caption of {item_id!r} is empty, and the item has other rows; write "
                "one or delete the row."
            )
        name = builder.original(item_id, item.path, item.split, item.cluster_id, item.where)
        builder.describe(name, item.forward, item.split, item.forward_groups)
        if dataset.reverse and item.reverse:
            twin = builder.twin(name, item.path, item.split, item.cluster_id)
            builder.describe(twin, item.reverse, item.split, item.reverse_groups)
    return builder.annotations({split: {"file": str(table)} for split in SPLITS})


def read_table_rows(table: Path, missing: str = "") -> Iterator[CsvRow]:
    """Rows of such a CSV; header and number of cells are checked, their content is not."""
    return read_user_csv(table, TABLE_COLUMNS, missing)


def _add_row(items: dict[str, _TableItem], row: dict[str, str], where: str, clips: bool) -> None:
    item_id, caption = row["item_id"], row["caption"]
    path, split = row.get("path", item_id if clips else ""), row.get("split", "test")
    split = split or ("" if clips else "test")  # without clips an empty cell is as good as no column
    if not split:
        raise RewindError(f"{where}: 'split' is empty; use {one_of(SPLITS)}.")
    if clips and (not path or ".." in PurePosixPath(path).parts or PurePosixPath(path).is_absolute()):
        raise RewindError(f"{where}: the path {path!r} must name a file inside `source.videos`, relative to it.")
    cluster = row.get("cluster_id") or item_id
    item = items.setdefault(item_id, _TableItem(where, path, split, cluster))
    for name, value, first in (
        ("path", path, item.path),
        ("split", split, item.split),
        ("cluster_id", cluster, item.cluster_id),
    ):
        if value != first:
            raise RewindError(
                f"{where}: {item_id!r} has the {name} {value!r} here but {first!r} in {item.where}; "
                "all rows of an item must agree."
            )
    if caption:
        item.forward.append(" ".join(caption.split()))
        item.forward_groups.append(row.get("group", ""))
    else:
        item.without_caption.append(where)
    if row.get("reverse_caption"):
        item.reverse.append(" ".join(row["reverse_caption"].split()))
        item.reverse_groups.append(row.get("group", ""))


@DUMMY_DATA.register("table")
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """Two captions in each direction; the column ``reverse_caption`` where items are videos."""
    is_video = dataset.items == "videos"
    draw, suffix = (draw_clip, "mp4") if is_video else (draw_picture, "png")
    columns = ["item_id", "path", "split", "caption", "cluster_id", "reverse_caption"]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "captions.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns[: 5 + is_video])
        for item in make_dummy_items(sizes, 2):
            path = f"{item.name}.{suffix}"
            draw(item, folder / "files" / path)
            for forward, backward in zip(item.entry.captions(False), item.entry.captions(True), strict=True):
                writer.writerow([item.name, path, item.split, forward, item.name, backward][: 5 + is_video])
    return {"table": str(folder / "captions.csv"), "videos": str(folder / "files")}
