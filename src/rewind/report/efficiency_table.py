"""The table of costs: model size in parameters and MB, and milliseconds per query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from rewind.io.files import write_csv, write_text
from rewind.report.published import MARKUPS
from rewind.report.sheet import ColumnHead, RowGroup, Sheet, SheetCell, format_number, slug

EFFICIENCY_COLUMNS = (
    "method", "label", "parameters", "mb", "device", "threads", "batch", "gallery", "forward_ms", "search_ms", "rounds"
)  # fmt: skip
"""Columns of ``efficiency.csv``; milliseconds are per query."""


def efficiency_sheet(rows: pd.DataFrame, dataset: str = "") -> Sheet:
    """A row per method, device and batch.

    Args:
        rows: with the columns :data:`EFFICIENCY_COLUMNS`.
        dataset: title of the data, for the caption.
    """
    heads = (
        ColumnHead("Method", number=False),
        ColumnHead("Parameters"),
        ColumnHead("MB"),
        ColumnHead("Device", number=False),
        ColumnHead("Queries at once"),
        ColumnHead("Forward", "↓", "ms/query"),
        ColumnHead("Search", "↓", "ms/query"),
    )
    title = ": ".join(part for part in (dataset, "what a query costs") if part)
    lines = tuple(_line(row) for row in rows.to_dict("records"))
    return Sheet("Efficiency", title, slug(dataset, "efficiency"), heads, (RowGroup("", lines),))


def efficiency_notes(rows: pd.DataFrame) -> list[str]:
    """What was measured."""
    gallery, rounds = int(rows["gallery"].iloc[0]), int(rows["rounds"].min())
    return [
        "Forward: from a prepared caption (tokens, or the vector of a frozen encoder) to its features; search: from "
        f"these features to the ten best of {gallery:,} items, whose features are precomputed.",
        f"Medians of at least {rounds} rounds after a warm-up, {_threads(rows)}; MB: parameters and buffers in memory.",
    ]


def _line(row: dict[str, Any]) -> tuple[SheetCell, ...]:
    return (
        SheetCell(str(row["label"])),
        SheetCell(f"{int(row['parameters']):,}"),
        SheetCell(format_number(float(row["mb"]), 1)),
        SheetCell(str(row["device"])),
        SheetCell(f"{int(row['batch']):,}"),
        SheetCell(format_number(float(row["forward_ms"]), 4)),
        SheetCell(format_number(float(row["search_ms"]), 4)),
    )


def _threads(rows: pd.DataFrame) -> str:
    count = int(rows["threads"].iloc[0])
    return f"{count} CPU {'thread' if count == 1 else 'threads'}"


def write_efficiency(costs: list[dict[str, Any]], dataset: str, folder: Path, prefix: str = "") -> None:
    """Write ``efficiency.csv`` and the table in every markup.

    Args:
        costs: rows with the columns :data:`EFFICIENCY_COLUMNS`.
        dataset: title of the data.
        folder: where the files go.
        prefix: put before the name of every table.
    """
    table = pd.DataFrame(costs, columns=list(EFFICIENCY_COLUMNS))
    write_csv(folder / "efficiency.csv", table)
    sheet, notes = efficiency_sheet(table, dataset), efficiency_notes(table)
    for suffix, render in MARKUPS.items():
        write_text(folder / f"{prefix}table_efficiency{suffix}", render(sheet, notes))
    print(table.to_string(index=False))
