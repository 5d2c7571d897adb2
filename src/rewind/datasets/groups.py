"""Groups of test captions: what each is about, so that results can be shown group by group."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from rewind.datasets import earlier
from rewind.datasets.annotations import TWIN_SUFFIX, Annotations, format_module
from rewind.errors import RewindError
from rewind.files import require_regular_file
from rewind.reading.tables import Columns, header, read_table
from rewind.study.dataset import Dataset

NAMED, UNNAMED = ("auto", "none")
FILE = Columns(("group",), ("caption_id", "item_id"), ids=("caption_id", "item_id"))


def grouped(dataset: Dataset) -> bool:
    """Whether there are groups, as far as it can be known before anything is made.

    A format of the user's own is not asked: it would have to be imported. Its groups come with ``groups: FILE``.
    """
    if dataset.groups != NAMED:
        return dataset.groups != UNNAMED
    if dataset.vectors or "." in dataset.source.format:
        return False
    asked = getattr(format_module(dataset), "has_groups", None)
    return asked is not None and asked(dataset)


def group_file(dataset: Dataset) -> str | None:
    """The CSV of groups that the data set's file names."""
    return None if dataset.groups in (NAMED, UNNAMED) else dataset.groups


def groups_of(dataset: Dataset, annotations: Annotations) -> pd.DataFrame:
    """``caption_id, group`` of every test caption that has one, in the order of the annotations.

    Raises:
        RewindError: naming the file and row of a group that is empty or of an id that is unknown or there twice; or if
            a file names none of a test caption. Of a part of the data set (``only``) it may name others.
    """
    captions = annotations.captions
    path = group_file(dataset)
    found = _of_file(Path(path), annotations, dataset.only is None) if path else _of_annotations(dataset, captions)
    table = captions.assign(group=found)
    table = table[(table["split"] == "test") & (table["group"] != "")]
    if table.empty and path and dataset.only is None:
        raise RewindError(f"{path}: no test caption has a group; name some, or write `groups: none` in its data set.")
    return table[["caption_id", "group"]].reset_index(drop=True)


def _of_annotations(dataset: Dataset, captions: pd.DataFrame) -> pd.Series:
    """What annotations say, or of those that an earlier version made, what can be known."""
    if "group" in captions:
        return captions["group"]
    known = earlier.groups(dataset)
    told = zip(captions["video_id"].str.removesuffix(TWIN_SUFFIX), captions["caption"], strict=True)
    return pd.Series([known.get(pair, "") for pair in told], index=captions.index, dtype=captions["caption"].dtype)


def _of_file(path: Path, annotations: Annotations, whole: bool) -> pd.Series:
    """The group of each caption; that of an item is its captions', and its twin's where that has no row."""
    require_regular_file(path, missing_ok=True)
    if not path.is_file():
        raise RewindError(f"{path}: no such file (`groups`); put it there or correct the key.")
    name = _id_column(path)
    captions, known = annotations.captions, set(annotations.items["item_id"])
    ids = captions["caption_id"] if name == "caption_id" else captions["video_id"]
    known = known if name == "item_id" else set(ids)
    found: dict[str, str] = {}
    for row in read_table(path, FILE, "(`groups`)"):
        own, group = row.cells.get(name, ""), " ".join(row.cells["group"].split())
        where = f"{path}: row {row.number}"
        if own not in known:
            if not whole:
                continue
            raise RewindError(f"{where}: the {name} {own!r} is not in the annotations; correct it or delete the row.")
        if not group:
            raise RewindError(f"{where}: `group` is empty; name one or delete the row.")
        if own in found:
            raise RewindError(f"{where}: the {name} {own!r} is there twice; keep one row.")
        found[own] = group
    if name == "item_id":
        found |= {twin: found[item] for item in list(found) if (twin := item + TWIN_SUFFIX) in known - set(found)}
    return ids.map(found).fillna("")


def _id_column(path: Path) -> str:
    there = [name for name in ("caption_id", "item_id") if name in header(path)]
    if len(there) != 1:
        raise RewindError(f"{path}: row 1: one column of ids is needed beside `group`: caption_id or item_id.")
    return there[0]
