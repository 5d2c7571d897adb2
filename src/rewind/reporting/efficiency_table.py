"""The table of what methods cost: their size, and the time of a query."""

from __future__ import annotations

from typing import Any

import pandas as pd

from rewind.reporting.sheet import Entry, Head, Part, Sheet, number, slug

COLUMNS = (
    "method", "label", "parameters", "mb", "device", "threads", "batch", "gallery", "forward_ms", "search_ms", "rounds"
)  # fmt: skip
"""Of ``efficiency.csv``; milliseconds are per query."""


def sheet(rows: pd.DataFrame, dataset: str = "") -> Sheet:
    """A row per method, device and batch.

    Args:
        rows: the columns :data:`COLUMNS`.
        dataset: title of the data, for the caption.
    """
    heads = (
        Head("Method", number=False), Head("Parameters"), Head("MB"), Head("Device", number=False),
        Head("Queries at once"), Head("Forward", "↓", "ms/query"), Head("Search", "↓", "ms/query"),
    )  # fmt: skip
    title = ": ".join(part for part in (dataset, "what a query costs") if part)
    lines = tuple(_line(row) for row in rows.to_dict("records"))
    return Sheet("Efficiency", title, slug(dataset, "efficiency"), heads, (Part("", lines),))


def notes(rows: pd.DataFrame) -> list[str]:
    """What was measured."""
    gallery, rounds = int(rows["gallery"].iloc[0]), int(rows["rounds"].min())
    return [
        "Forward: from a prepared caption (tokens, or the vector of a frozen encoder) to its features; search: from "
        f"these features to the ten best of {gallery:,} items, whose features are precomputed.",
        f"Medians of at least {rounds} rounds after a warm-up, {_threads(rows)}; MB: parameters and buffers in memory.",
    ]


def _line(row: dict[str, Any]) -> tuple[Entry, ...]:
    return (
        Entry(str(row["label"])),
        Entry(f"{int(row['parameters']):,}"),
        Entry(number(float(row["mb"]), 1)),
        Entry(str(row["device"])),
        Entry(f"{int(row['batch']):,}"),
        Entry(number(float(row["forward_ms"]), 4)),
        Entry(number(float(row["search_ms"]), 4)),
    )


def _threads(rows: pd.DataFrame) -> str:
    count = int(rows["threads"].iloc[0])
    return f"{count} CPU {'thread' if count == 1 else 'threads'}"
