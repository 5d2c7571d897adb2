"""What every dataset format is read into, and how a format is found."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pandas as pd

from rewind.errors import RewindError
from rewind.reading.text import read_text
from rewind.study.dataset import Dataset

SPLITS = ("train", "valid", "test")
TWIN_SUFFIX = "_rev"


@dataclass(frozen=True)
class Annotations:
    """Items and captions of a dataset, before any video is looked at.

    Attributes:
        items: one row per video or image: ``item_id``, ``source`` (file of the original, relative to the folder of
            source clips and without suffix where the format does not give one), ``split``, ``cluster_id`` (what
            statistics resample together: a video with its twin), ``reversed`` (1 for a twin, else 0). A data set of
            vectors also says where pictures are: ``path``, relative to its results folder, empty for none.
        captions: one row per caption: ``video_id``, ``caption``, ``caption_id`` (unique, disjoint from item ids),
            ``split``. A column ``group`` is optional: what a caption is about, empty for nothing; results are then also
            shown group by group.
        notes: counts of what was found and of everything odd, JSON-able; nothing is dropped without a count here.
    """

    items: pd.DataFrame
    captions: pd.DataFrame
    notes: dict[str, Any] = field(default_factory=dict)


def twin_of(item_id: str) -> str:
    """Id of the time-reversed partner: ``abc123`` → ``abc123_rev``."""
    return item_id + TWIN_SUFFIX


def format_module(dataset: Dataset) -> ModuleType:
    """The module that reads the dataset's format: ``rewind.datasets.<format>`` or the user's own dotted path.

    Raises:
        RewindError: if it cannot be imported.
    """
    name = dataset.source.format
    path = name if "." in name else f"rewind.datasets.{name}"
    try:
        return importlib.import_module(path)
    except ImportError as error:
        raise RewindError(
            f"config/datasets/{dataset.name}.yaml: source.format: cannot import {path!r} ({error}); "
            "put the module on PYTHONPATH or correct the name."
        ) from error


def read_annotations(dataset: Dataset, sources: str) -> Annotations:
    """Read a dataset's annotations.

    Args:
        dataset: the validated dataset file.
        sources: folder of source files that the workflow made (shapes, emoji); other formats ignore it.

    Raises:
        RewindError: for what the format refuses, or where ``only`` names an item that is not there.
    """
    found = format_module(dataset).read(dataset, sources)
    return found if dataset.only is None else part(found, dataset.only)


def part(annotations: Annotations, path: str) -> Annotations:
    """The originals that the file ``path`` names, a line each, with their twins and captions.

    Raises:
        RewindError: if the file is missing, names nothing, or an id that is no original of the annotations.
    """
    known = set(annotations.items["item_id"])
    lines = [line.strip() for line in read_text(path, "(`only`); give one item id per line").splitlines()]
    named = (name for line in lines for name in ([line] if line in known else line.split()))  # an id may have blanks
    wanted = list(dict.fromkeys(named))
    items = annotations.items
    strange = sorted(set(wanted) - set(items["item_id"][items["reversed"] == 0]))
    if strange or not wanted:
        what = f"{strange[0]!r} is no original of the annotations" if strange else "no item id in it"
        raise RewindError(f"only: {path}: {what}; give one item id per line.")
    kept = items[
        items["item_id"].where(items["reversed"] == 0, items["item_id"].str.removesuffix(TWIN_SUFFIX)).isin(wanted)
    ]
    captions = annotations.captions[annotations.captions["video_id"].isin(kept["item_id"])]
    notes = annotations.notes | {
        "only": {"file": path, "originals": len(wanted), "of": int((items["reversed"] == 0).sum())}
    }
    return Annotations(kept.reset_index(drop=True), captions.reset_index(drop=True), notes)
