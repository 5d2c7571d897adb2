"""A table of runs against themselves: what each of several controls costs every method, or adds to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from rewind.statistics.inference import significance_level
from rewind.tables.results import Results
from rewind.tables.settings import better_arrow, metric_decimals, setting_title
from rewind.tables.spec import TableInputs
from rewind.tables.table import MISSING, Cell, Column, RowGroup, Table, number_cell, slug


def control_table(
    inputs: TableInputs,
    rows: pd.DataFrame,
    label: str,
    what: str,
    name: str,
    titles: Mapping[str, str],
    key: str,
    sign: int = 1,
) -> Table:
    """A row per method: its value in the deciding metric, and the difference under each control.

    Args:
        rows: in the form of :func:`rewind.statistics.controls.compare_with_controls`.
        what: words of the title behind the metric.
        titles: control → title, in the order of columns.
        key: what stands below it in a terminal.
        sign: 1 where a loss is shown, -1 where a gain is.
    """
    results, where = inputs.results, rows["setting"].iloc[0]
    metric = results.deciding(where)
    shown = rows[rows["metric"] == metric]
    controls = [control for control in titles if control in set(shown["control"])]
    lines = []
    for method in dict.fromkeys(shown["method"]):
        cells = {row.control: row for row in shown[shown["method"] == method].itertuples()}
        value = number_cell(next(iter(cells.values())).estimate, metric_decimals(metric))
        changes = (_control_cell(cells.get(control), results, metric, sign) for control in controls)
        lines.append((Cell(results.labels[method]), value, *changes))
    return Table(
        label,
        f"{setting_title(inputs.dataset, where)}: {metric} {what}",
        slug(inputs.dataset, where, name),
        (
            Column("Method", number=False),
            Column(f"{metric}, as is", better_arrow(metric)),
            *(Column(titles[control]) for control in controls),
        ),
        (RowGroup("", tuple(lines)),),
        key,
    )


def _control_cell(row: Any, results: Results, metric: str, sign: int) -> Cell:
    if row is None:
        return Cell(MISSING)
    low, high = sorted((sign * row.low, sign * row.high))
    ends = {} if row.identical else {"low": low, "high": high}
    significant = bool(row.p_holm < significance_level(results.confidence))
    return number_cell(sign * row.loss, metric_decimals(metric), **ends, signed=True, bold=significant)
