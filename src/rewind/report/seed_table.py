"""The appendix table: every metric of every run."""

from __future__ import annotations

from typing import Any

import pandas as pd

from rewind.config.report import RANK_COLUMN
from rewind.metrics import METRICS, STRICT_ACCURACY_COLUMN
from rewind.report.results import Results, check_results, evaluated_directions, methods_in_order
from rewind.report.setting_table import better_arrow, binary_columns, metric_decimals, setting_title
from rewind.report.sheet import ColumnHead, RowGroup, Sheet, SheetCell, format_number, slug


def csv_rows(results: Results, setting: str) -> pd.DataFrame:
    """The table's CSV: ``metrics.csv`` in this setting, methods in the order of the tables, with their names.

    Raises:
        RewindError: from :func:`rewind.report.results.check_results`.
    """
    check_results(results, setting)
    rows = results.metrics[results.metrics["setting"] == setting]
    order = {method: at for at, method in enumerate(methods_in_order(results, setting))}
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
    rows, directions = csv_rows(results, setting), evaluated_directions(results, setting)
    titles = columns(results, setting)
    parts = []
    for direction in directions:
        runs = rows[rows["direction"] == direction].to_dict("records")
        lines = tuple(_line(row, list(titles.values())) for row in runs)
        parts.append(RowGroup(results.short(direction) if len(directions) > 1 else "", lines))
    heads = (
        ColumnHead("Method", number=False),
        ColumnHead("Seed"),
        *(ColumnHead(title, better_arrow(metric)) for title, metric in titles.items()),
    )
    return Sheet(
        "Seeds", f"{setting_title(dataset, setting)}: every run", slug(dataset, setting, "seeds"), heads, tuple(parts)
    )


def columns(results: Results, setting: str) -> dict[str, str]:
    """Title → metric: the usual ones, others in the study's tables, and strict R@1; in Binary both accuracies."""
    if setting == "binary":
        binary = binary_columns(results, ["text_to_item"])
        return {column.title: column.metric for column in binary if column.metric != RANK_COLUMN}
    metrics = [m for m in results.evaluated() if METRICS[m].usual or m in results.shown()]
    return {metric: metric for metric in metrics} | {"R@1 strict": STRICT_ACCURACY_COLUMN}


def _line(row: dict[str, Any], metrics: list[str]) -> tuple[SheetCell, ...]:
    cells = (SheetCell(format_number(float(row[metric]), metric_decimals(metric))) for metric in metrics)
    return (SheetCell(row["label"]), SheetCell(str(row["seed"])), *cells)
