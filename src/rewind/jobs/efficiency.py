"""Efficiency of finished runs: parameters, memory, and the time of a query."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch

from rewind.evaluation.efficiency import query_costs, sizes
from rewind.feeding.folder import DataFolder, trained_retriever
from rewind.files import write_csv, write_text
from rewind.jobs.given import Given
from rewind.jobs.model_data import data_folder
from rewind.reporting.efficiency_table import COLUMNS, notes, sheet
from rewind.reporting.markup import MARKUPS
from rewind.study import RunSpec

BATCHES = [1, 512]


class Measured(NamedTuple):
    """A run: its method and name in tables, its keys, its model."""

    method: str
    label: str
    spec: RunSpec
    model: str


def efficiency(given: Given) -> None:
    """Rule ``efficiency``."""
    params = given.params
    runs = [
        Measured(name, label, RunSpec(**spec), model)
        for (name, label, spec), model in zip(params.methods, given.input.models, strict=True)
    ]
    measure_runs(runs, data_folder(given), params.title, Path(given.output.files), params.prefix)


def measure_runs(runs: list[Measured], data: DataFolder, dataset: str, folder: Path, prefix: str = "") -> None:
    """Write ``efficiency.csv`` and the table in every markup.

    On the CPU, and on the GPU too where this job has one; one run after the other, so run nothing else beside it.

    Args:
        runs: which.
        data: of any of them: folder, data set, frames, cached features.
        dataset: title of the data.
        folder: where the files go.
        prefix: put before the name of every table.
    """
    rows = [row for run in runs for row in _measure(run, data)]
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    write_csv(folder / "efficiency.csv", table)
    printed, said = sheet(table, dataset), notes(table)
    for suffix, render in MARKUPS.items():
        write_text(folder / f"{prefix}table_efficiency{suffix}", render(printed, said))
    print(table.to_string(index=False))


def _measure(run: Measured, data: DataFolder) -> list[dict[str, Any]]:
    own = DataFolder(data.folder, data.dataset, run.spec, data.max_frames, data.cache)
    retriever = trained_retriever(own, run.model)
    split = own.split("test", retriever)
    parameters, megabytes = sizes(retriever)
    rows = []
    for device, name in _devices():
        for cost in query_costs(retriever, split.text, split.inputs, BATCHES, device, name, data.spec.frames.workers):
            timed = asdict(cost)
            timed |= {"forward_ms": timed.pop("forward"), "search_ms": timed.pop("search")}
            head = {"method": run.method, "label": run.label, "parameters": parameters, "mb": megabytes}
            rows.append(head | {"threads": torch.get_num_threads()} | timed)
    return rows


def _devices() -> list[tuple[torch.device, str]]:
    found = [(torch.device("cpu"), "CPU")]
    if torch.cuda.is_available():
        found.append((torch.device("cuda"), torch.cuda.get_device_name(0)))
    return found
