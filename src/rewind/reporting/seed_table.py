"""The appendix: every metric of every run."""

from __future__ import annotations

from typing import Any

import pandas as pd

from rewind.metrics import METRICS, STRICT
from rewind.reporting.cells import binary_columns
from rewind.reporting.order import ordered
from rewind.reporting.results import Results, check, directions
from rewind.reporting.setting_table import arrow, decimals, place
from rewind.reporting.sheet import Entry, Head, Part, Sheet, number, slug
from rewind.study.report import RANK


def numbers(results: Results, setting: str) -> pd.DataFrame:
    """The table's CSV: ``metrics.csv`` in this setting, methods in the order of the tables, with their names.

    Raises:
        RewindError: from :func:`rewind.reporting.results.check`.
    """
    check(results, setting)
    rows = results.metrics[results.metrics["setting"] == setting]
    order = {method: at for at, method in enumerate(ordered(results, setting))}
    rows = rows.assign(order=rows["method"].map(order)).sort_values(["order", "seed"], kind="stable")
    rows = rows.drop(columns="order").reset_index(drop=True)
    rows.insert(0, "label", rows["method"].map(results.labels))
    return rows


def sheet(results: Results, setting: str, dataset: str = "") -> Sheet:
    """A row per run, a part per search direction.

    Args:
        results: the study's numbers.
        setting: which.
        dataset: title of the data, for the caption.
    """
    rows, ways = numbers(results, setting), directions(results, setting)
    titles = columns(results, setting)
    parts = []
    for way in ways:
        chosen = rows[rows["direction"] == way].to_dict("records")
        lines = tuple(_line(row, list(titles.values())) for row in chosen)
        parts.append(Part(results.short(way) if len(ways) > 1 else "", lines))
    heads = (
        Head("Method", number=False),
        Head("Seed"),
        *(Head(title, arrow(metric)) for title, metric in titles.items()),
    )
    return Sheet("Seeds", f"{place(dataset, setting)}: every run", slug(dataset, setting, "seeds"), heads, tuple(parts))


def columns(results: Results, setting: str) -> dict[str, str]:
    """Title → metric: the usual ones, others with an interval that the study's tables show, and strict R@1."""
    if setting == "binary":
        found = binary_columns(results, ["text_to_item"])
        return {column.title: column.metric for column in found if column.metric != RANK}
    shown = [m for m in results.evaluated() if METRICS[m].usual or m in results.shown()]
    return {metric: metric for metric in shown} | {"R@1 strict": STRICT}


def _line(row: dict[str, Any], metrics: list[str]) -> tuple[Entry, ...]:
    cells = (Entry(number(float(row[metric]), decimals(metric))) for metric in metrics)
    return (Entry(row["label"]), Entry(str(row["seed"])), *cells)
