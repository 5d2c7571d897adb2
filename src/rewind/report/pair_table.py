"""The table of pairwise differences: interval, p, Holm's p, effect size and the bootstrap interval."""

from __future__ import annotations

from typing import Any

import pandas as pd

from rewind.metrics import metric_of_column
from rewind.report.results import Results, check_results, evaluated_directions
from rewind.report.setting_table import metric_decimals, setting_title
from rewind.report.sheet import (
    ColumnHead,
    RowGroup,
    Sheet,
    SheetCell,
    format_bounds,
    format_number,
    format_p_value,
    slug,
)
from rewind.statistics.inference import significance_level


def csv_rows(results: Results, setting: str) -> pd.DataFrame:
    """The table's CSV: ``pairs.csv`` in this setting, all metrics, with the names of both methods.

    Raises:
        RewindError: from :func:`rewind.report.results.check_results`.
    """
    check_results(results, setting)
    if results.pairs.empty:
        return pd.DataFrame()
    rows = results.pairs[results.pairs["setting"] == setting].reset_index(drop=True)
    for column in ("second", "first"):
        rows.insert(0, f"{column}_label", rows[column].map(results.labels))
    return rows


def sheet(results: Results, setting: str, dataset: str = "") -> Sheet:
    """A row per pair, a part per search direction; only the deciding metric is printed.

    Args:
        results: the study's numbers; at least one pair was compared in this setting.
        setting: which.
        dataset: title of the data, for the caption.
    """
    rows = csv_rows(results, setting)
    directions, metric = evaluated_directions(results, setting), results.deciding(setting)
    digits = metric_decimals(metric)
    level = significance_level(results.confidence)
    parts = []
    for direction in directions:
        rows_of_direction = rows[(rows["direction"] == direction) & (rows["metric"] == metric)]
        if len(rows_of_direction):
            lines = tuple(_line(row, level, digits) for row in rows_of_direction.itertuples())
            parts.append(RowGroup(results.short(direction) if len(directions) > 1 else "", lines))
    what = "accuracy" if setting == "binary" else metric
    heads = (
        ColumnHead("Pair", number=False),
        ColumnHead("Difference"),
        *(ColumnHead(title) for title in ("p", "Holm’s p", "Detectable", "Effect")),
        ColumnHead("these checkpoints", group="Bootstrap"),
    )
    title = f"{setting_title(dataset, setting)}: differences in {what}"
    return Sheet("Pairs", title, slug(dataset, setting, "pairs"), heads, tuple(parts))


def _line(row: Any, level: float, digits: int) -> tuple[SheetCell, ...]:
    significant = bool(row.p_holm < level)
    bootstrap = format_bounds(row.boot_low, row.boot_high, digits, signed=True)
    return (
        SheetCell(f"{row.first_label} − {row.second_label}"),
        SheetCell(
            format_number(row.difference, digits, signed=True),
            "",
            format_bounds(row.low, row.high, digits, signed=True),
            bold=significant,
        ),
        SheetCell(format_p_value(row.p)),
        SheetCell(format_p_value(row.p_holm), bold=significant),
        SheetCell(
            "> 100"
            if metric_of_column(row.metric).percent and row.detectable > 100
            else format_number(row.detectable, digits)
        ),
        SheetCell(format_number(row.effect, 2, signed=True)),
        SheetCell("", interval=bootstrap),
    )
