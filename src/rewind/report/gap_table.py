"""The table of gaps: what a method loses when the time-reversed twins join the gallery."""

from __future__ import annotations

from typing import Any

import pandas as pd

from rewind.config.report import SEARCH_DIRECTIONS
from rewind.metrics import ACCURACY_METRIC, METRICS
from rewind.report.results import Results
from rewind.report.setting_table import metric_decimals
from rewind.report.sheet import MISSING, ColumnHead, RowGroup, Sheet, SheetCell, format_bounds, format_number, slug


def csv_rows(results: Results) -> pd.DataFrame:
    """The table's CSV: ``gaps.csv`` in the order of the tables, with the methods' names; empty without gaps."""
    if results.gaps.empty:
        return pd.DataFrame()
    order = {method: at for at, method in enumerate(results.ordered())}
    rows = results.gaps.sort_values("method", key=lambda m: m.map(order), kind="stable", ignore_index=True)
    rows.insert(0, "label", rows["method"].map(results.labels))
    return rows


def metrics(results: Results) -> list[str]:
    """Metrics of the study's tables that have a gap, because they are means over queries; R@1 if there are none."""
    return [metric for metric in results.shown() if METRICS[metric].tested] or [ACCURACY_METRIC]


def sheet(results: Results, dataset: str = "") -> Sheet:
    """A row per method, a part per search direction; each gap with its interval.

    Args:
        results: the study's numbers, with at least one gap.
        dataset: title of the data, for the caption.
    """
    rows = csv_rows(results)
    directions = [direction for direction in SEARCH_DIRECTIONS if direction in set(rows["direction"])]
    parts = []
    for direction in directions:
        cells = {(r.method, r.metric): r for r in rows[rows["direction"] == direction].itertuples()}
        methods = dict.fromkeys(method for method, _ in cells)
        lines = tuple(_line(results, method, cells) for method in methods)
        parts.append(RowGroup(results.short(direction) if len(directions) > 1 else "", lines))
    heads = (ColumnHead("Method", number=False), *map(ColumnHead, metrics(results)))
    title = ", ".join(part for part in (dataset, "Origin − Hard") if part)
    return Sheet("Gap", title, slug(dataset, "gap"), heads, tuple(parts))


def _line(results: Results, method: str, cells: dict[tuple[str, str], Any]) -> tuple[SheetCell, ...]:
    exact = method in results.baselines  # chance has a gap without an interval
    entries = (_entry(cells.get((method, metric)), metric, exact) for metric in metrics(results))
    return (SheetCell(results.labels[method]), *entries)


def _entry(row: Any, metric: str, exact: bool) -> SheetCell:
    if row is None:
        return SheetCell(MISSING)
    digits = metric_decimals(metric)
    ends = format_bounds(row.low, row.high, digits, signed=True) if row.high > row.low or not exact else None
    return SheetCell(format_number(row.gap, digits, signed=True), interval=ends)
