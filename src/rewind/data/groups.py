"""Groups of test captions (what each caption is about), for results group by group.

Groups come from the annotations or from a CSV file that the dataset's key ``groups`` names.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from rewind.config.dataset import Dataset, ShapesSource
from rewind.data.annotations import SPLITS, TWIN_SUFFIX, Annotations, dataset_format, read_annotations
from rewind.data.scenes import compose_splits
from rewind.errors import RewindError
from rewind.io.files import read_csv, require_regular_file, write_csv
from rewind.io.schema import FILLED, OF_OTHER_CLIPS, Column, RowChecks, Schema, tell_left_out
from rewind.io.strict import csv_header, read_user_csv

# ---- Groups from annotations or from a CSV -------------------------------------------------------------------------

AUTO_GROUPS, NO_GROUPS, SENSITIVITY_GROUPS = ("auto", "none", "time_sensitivity")  # values of the key `groups`
SENSITIVITY_NAMES = ("changes little when reversed", "changes some", "changes much when reversed")
_ONE_OF_THEM = Column(optional=True, filled=True, is_id=True)
GROUP_COLUMNS = Schema(
    {"group": FILLED, "caption_id": _ONE_OF_THEM, "item_id": _ONE_OF_THEM}, unique=(("caption_id",), ("item_id",))
)


def dataset_has_groups(dataset: Dataset) -> bool:
    """Whether the dataset has groups, as far as it can be known before anything is made.

    A format of the user's own would have to be imported for it, so its groups need ``groups: FILE``.
    """
    if dataset.groups != AUTO_GROUPS:
        return dataset.groups != NO_GROUPS
    if dataset.vectors or "." in dataset.source.format:
        return False
    has_groups = getattr(dataset_format(dataset), "has_groups", None)
    return has_groups is not None and has_groups(dataset)


def group_file(dataset: Dataset) -> str | None:
    """The CSV of groups that the dataset's file names; None for other values of the key."""
    return None if dataset.groups in (AUTO_GROUPS, NO_GROUPS, SENSITIVITY_GROUPS) else dataset.groups


def read_groups(dataset: Dataset, annotations: Annotations) -> pd.DataFrame:
    """``caption_id, group`` of every test caption that has one, in the order of the annotations.

    Raises:
        RewindError: naming the file and row of a group that is empty, or of an id that is unknown or listed twice; or
            if the file has a group of no test caption. For a part of a dataset (``only``) it may have further ids.
    """
    captions = annotations.captions
    path = group_file(dataset)
    groups = (
        _groups_in_file(Path(path), annotations, dataset.only is None)
        if path
        else _groups_in_annotations(dataset, captions)
    )
    table = captions.assign(group=groups)
    table = table[(table["split"] == "test") & (table["group"] != "")]
    if table.empty and path and dataset.only is None:
        raise RewindError(f"{path}: no test caption has a group; name some, or write `groups: none` in its data set.")
    return table[["caption_id", "group"]].reset_index(drop=True)


def sensitivity_groups(annotations: Annotations, traces: str) -> pd.DataFrame:
    """:func:`read_groups` by how far clips are from their own mirror: a third of the test clips with twins in each.

    ``traces`` is the table of :func:`rewind.video.traces.make_traces`. Captions of a twin are in the group of its clip;
    of equally sensitive clips the first in the table have the lower group.
    """
    clips = read_csv(traces, text=("item_id",))[["item_id", "time_sensitivity"]]
    items = annotations.items[annotations.items["split"] == "test"]
    twins = set(items.loc[items["reversed"] == 1, "item_id"].str.removesuffix(TWIN_SUFFIX))
    asked = clips[clips["item_id"].isin(twins)].sort_values("time_sensitivity", kind="stable")
    third = np.arange(len(asked)) * len(SENSITIVITY_NAMES) // max(1, len(asked))
    group = {item: SENSITIVITY_NAMES[at] for item, at in zip(asked["item_id"], third, strict=True)}
    test = annotations.captions[annotations.captions["split"] == "test"]
    groups = test["video_id"].str.removesuffix(TWIN_SUFFIX).map(group)
    return test.assign(group=groups).dropna(subset=["group"])[["caption_id", "group"]].reset_index(drop=True)


def _groups_in_annotations(dataset: Dataset, captions: pd.DataFrame) -> pd.Series:
    """Groups of the annotations; for annotations of an earlier version, those of :func:`legacy_groups`."""
    if "group" in captions:
        return captions["group"]
    group_of = legacy_groups(dataset)
    pairs = zip(captions["video_id"].str.removesuffix(TWIN_SUFFIX), captions["caption"], strict=True)
    return pd.Series([group_of.get(pair, "") for pair in pairs], index=captions.index, dtype=captions["caption"].dtype)


def _groups_in_file(path: Path, annotations: Annotations, complete: bool) -> pd.Series:
    """The group of each caption from a CSV; empty for none.

    A row of an item is for all its captions, and for its twin if that has no row of its own. ``complete``: the
    annotations are the whole dataset, so unknown ids are faults.
    """
    require_regular_file(path, missing_ok=True)
    if not path.is_file():
        raise RewindError(f"{path}: no such file (`groups`); put it there or correct the key.")
    column = _id_column(path)
    captions, known_ids = annotations.captions, set(annotations.items["item_id"])
    ids = captions["caption_id"] if column == "caption_id" else captions["video_id"]
    known_ids = known_ids if column == "item_id" else set(ids)
    groups: dict[str, str] = {}
    checks = RowChecks(GROUP_COLUMNS, {column: known_ids}, "the annotations", None if complete else [])
    for _, cells in read_user_csv(path, GROUP_COLUMNS, "(`groups`)", checks):
        groups[cells[column]] = " ".join(cells["group"].split())
    tell_left_out(path, {OF_OTHER_CLIPS: len(checks.left_out or ())})
    if column == "item_id":
        missing = known_ids - set(groups)
        groups |= {twin: groups[item] for item in list(groups) if (twin := item + TWIN_SUFFIX) in missing}
    return ids.map(groups).fillna("")


def _id_column(path: Path) -> str:
    columns = [name for name in ("caption_id", "item_id") if name in csv_header(path)]
    if len(columns) != 1:
        raise RewindError(f"{path}: row 1: one column of ids is needed in addition to `group`: caption_id or item_id.")
    return columns[0]


# ---- Groups of annotations that an earlier version of Rewind wrote and an upgrade kept-----------------------------


def legacy_groups(dataset: Dataset) -> dict[tuple[str, str], str]:
    """(original's id, caption) → group: the kind of motion for ``shapes``, nothing for other formats.

    Clips of ``shapes`` are drawn again from the seed (without rendering), which gives their captions and events.
    """
    source = dataset.source
    if not isinstance(source, ShapesSource):
        return {}
    counts = {str(split): count for split, count in source.clips.items()}
    splits = compose_splits(counts, source.paraphrases, source.seed)
    return {
        (f"{split}{number:04}", caption): entry.scene.event
        for split in SPLITS
        for number, entry in enumerate(splits[split])
        for reverse in (False, True)
        for caption in entry.captions(reverse)
    }


def make_groups(dataset: Dataset, path: str, sources: Path, traces: str | None = None) -> None:
    """Write the CSV table ``caption_id, group`` of all test captions; ``sources``: see ``read_annotations``."""
    annotations = read_annotations(dataset, str(sources))
    table = sensitivity_groups(annotations, traces) if traces else read_groups(dataset, annotations)
    print(f"{dataset.name}: {len(table):,} test captions in {table['group'].nunique():,} groups")
    write_csv(path, table)
