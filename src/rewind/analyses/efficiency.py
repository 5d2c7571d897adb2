"""The table of costs: model size in parameters and MB, and milliseconds per query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from rewind.analyses.base import Analysis
from rewind.io.files import write_csv
from rewind.tables.render import write_markups
from rewind.tables.spec import TableSpec
from rewind.tables.table import Cell, Column, RowGroup, Table, count_cell, number_cell, slug

EFFICIENCY_COLUMNS = (
    "method", "label", "parameters", "mb", "device", "threads", "batch", "gallery", "forward_ms", "search_ms", "rounds"
)  # fmt: skip
"""Columns of ``efficiency.csv``; milliseconds are per query."""


def efficiency_table(costs: pd.DataFrame, dataset: str = "") -> Table:
    """A row per method, device and batch; ``costs`` has the columns :data:`EFFICIENCY_COLUMNS`."""
    return Table(
        "Efficiency",
        ": ".join(part for part in (dataset, "what a query costs") if part),
        slug(dataset, "efficiency"),
        (
            Column("Method", number=False),
            Column("Parameters"),
            Column("MB"),
            Column("Device", number=False),
            Column("Queries at once"),
            Column("Forward", "↓", "ms/query"),
            Column("Search", "↓", "ms/query"),
        ),
        (RowGroup("", tuple(_row(row) for row in costs.to_dict("records"))),),
        notes=tuple(efficiency_notes(costs)),
    )


def _row(row: dict[str, Any]) -> tuple[Cell, ...]:
    return (
        Cell(str(row["label"])),
        count_cell(row["parameters"]),
        number_cell(float(row["mb"])),
        Cell(str(row["device"])),
        count_cell(row["batch"]),
        number_cell(float(row["forward_ms"]), 4),
        number_cell(float(row["search_ms"]), 4),
    )


def efficiency_notes(costs: pd.DataFrame) -> list[str]:
    """What was measured."""
    gallery, rounds, threads = int(costs["gallery"].iloc[0]), int(costs["rounds"].min()), int(costs["threads"].iloc[0])
    processor = f"{threads} CPU {'thread' if threads == 1 else 'threads'}"
    return [
        "Forward: from a prepared caption (tokens, or the vector of a frozen encoder) to its features; search: from "
        f"these features to the ten best of {gallery:,} items, whose features are precomputed.",
        f"Medians of at least {rounds} rounds after a warm-up, {processor}; MB: parameters and buffers in memory.",
    ]


def write_efficiency(costs: list[dict[str, Any]], dataset: str, folder: Path, prefix: str = "") -> None:
    """Write ``efficiency.csv`` and the table in every markup, from rows with the columns :data:`EFFICIENCY_COLUMNS`.

    ``prefix`` is put before the name of every table.
    """
    rows = pd.DataFrame(costs, columns=list(EFFICIENCY_COLUMNS))
    write_csv(folder / "efficiency.csv", rows)
    write_markups(folder / f"{prefix}table_efficiency", efficiency_table(rows, dataset))
    print(rows.to_string(index=False))


# Only `python tools/publish` has these numbers next to the others: a rule of its own writes the table, on request.
ANALYSIS = Analysis(
    tables=(
        TableSpec(
            "efficiency",
            place=150,
            file="table_efficiency",
            needs="costs",
            layout=lambda inputs, _: efficiency_table(inputs.costs, inputs.dataset),
            notes=lambda inputs, _: efficiency_notes(inputs.costs),
            data=lambda inputs, _: inputs.costs,
        ),
    ),
)
