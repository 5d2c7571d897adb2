"""Whether a prepared data set has what a run needs of every split, before the run begins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from rewind.datasets.captions import USABLE
from rewind.errors import Faults
from rewind.files import read_csv
from rewind.study import RunSpec
from rewind.study.together import TWINS, needs


def check_splits(folder: Path, spec: RunSpec, name: str) -> None:
    """Refuse a run whose data set lacks a split, or twins where a setting is about them.

    What annotation files hold is known once captions are made: here, before anything is trained, and not in the job
    that would first read the split.

    Args:
        folder: ``results/data/<dataset>``.
        spec: the run's keys.
        name: of the run.

    Raises:
        Faults: everything that is missing, with who needs it.
    """
    path = Path(folder) / "items.csv"
    items = read_csv(path)
    if found := list(_lacking(items, spec, name)):
        raise Faults({str(path): found})


def _lacking(items: pd.DataFrame, spec: RunSpec, name: str) -> Iterator[str]:
    there = {split: part for split, part in items[items["status"] == USABLE].groupby("split")}
    for split, who in needs(spec, name).items():
        if split not in there:
            named = (items["split"] == split).sum()
            lost = f" (the annotations list {named:,}; captions/report.json says why none is usable)" if named else ""
            yield f"the split {split!r} has no usable item{lost}, but {who}: add some, or remove the method"
    wanted = {"test": [s for s in spec.evaluation.settings if s in TWINS]}
    if not spec.method.baseline and spec.method.training.select_setting in TWINS:
        wanted["valid"] = [spec.method.training.select_setting]
    for split, settings in wanted.items():
        if settings and split in there and not (there[split]["reversed"] == 1).any():
            key = "evaluation.settings" if split == "test" else "training.select_setting"
            yield (
                f"the split {split!r} has no time-reversed twin, but {key} names {', '.join(settings)}: twins need "
                "reverse captions; without them use test"
            )
