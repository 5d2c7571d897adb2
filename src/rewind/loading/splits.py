"""Checks that a prepared data set has the splits and twins that a run needs, before the run begins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from rewind.config import RunSpec
from rewind.config.dataset import Split
from rewind.config.evaluation import TWIN_SETTINGS
from rewind.data.captions import USABLE_STATUS
from rewind.errors import ConfigErrors
from rewind.io.files import read_csv


def check_splits(folder: Path, spec: RunSpec, name: str) -> None:
    """Refuse a run whose data set lacks a split, or twins where a setting is about them, naming all that is missing.

    This is known once captions are written, so it is checked before anything is trained, and not in the job that
    would first read the split.
    """
    path = Path(folder) / "items.csv"
    items = read_csv(path)
    if faults := list(_missing_splits(items, spec, name)):
        raise ConfigErrors({str(path): faults})


def _missing_splits(items: pd.DataFrame, spec: RunSpec, name: str) -> Iterator[str]:
    usable = {split: part for split, part in items[items["status"] == USABLE_STATUS].groupby("split")}
    for split, reason in spec.needed_splits(name).items():
        if split not in usable:
            listed = (items["split"] == split).sum()
            note = f" (the annotations list {listed:,}; captions/report.json states why none is)" if listed else ""
            yield f"the split {split!r} has no usable item{note}, but {reason}: add some, or remove the method"
    twin_settings: dict[Split, list[str]] = {"test": [s for s in spec.evaluation.settings if s in TWIN_SETTINGS]}
    if not spec.method.baseline and spec.method.training.select_setting in TWIN_SETTINGS:
        twin_settings["valid"] = [spec.method.training.select_setting]
    for split, settings in twin_settings.items():
        if settings and split in usable and not (usable[split]["reversed"] == 1).any():
            key = "evaluation.settings" if split == "test" else "training.select_setting"
            yield (
                f"the split {split!r} has no time-reversed twin, but {key} names {', '.join(settings)}: twins need "
                "reverse captions; without them use test"
            )
