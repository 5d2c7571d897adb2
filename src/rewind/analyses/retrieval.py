"""Retrieval: the main table of each setting, a row per method, and every run for the appendix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd

from rewind.analyses.base import Analysis
from rewind.config.report import RANK_COLUMN
from rewind.ranking_metrics import METRICS, STRICT_ACCURACY_COLUMN
from rewind.tables import notes, short_notes
from rewind.tables.footnotes import table_notes
from rewind.tables.results import (
    Results,
    check_results,
    direction_groups,
    evaluated_directions,
    methods_in_order,
    with_labels,
)
from rewind.tables.settings import (
    SettingResults,
    better_arrow,
    binary_columns,
    format_setting_table,
    metric_decimals,
    setting_csv_rows,
    setting_title,
)
from rewind.tables.spec import TableInputs, TableSpec
from rewind.tables.table import Cell, Column, Table, count_cell, number_cell, slug

# ---- The table of a setting ----------------------------------------------------------------------------------------


def setting_layout(inputs: TableInputs, setting: str) -> Table:
    """The main table of a setting: a row per method, see :mod:`rewind.tables.settings`."""
    table = inputs.setting_results(setting)
    formatted = format_setting_table(table, task_description(table, inputs.facts.items))
    return replace(formatted, key=notes.table_key(inputs.facts, table))


def setting_summary(inputs: TableInputs, setting: str) -> Table:
    """As :func:`setting_layout`, with a key that also says what the notes would."""
    key = notes.summary_table_key(inputs.facts, inputs.setting_results(setting))
    return replace(setting_layout(inputs, setting), key=key)


def _setting_line(inputs: TableInputs, setting: str) -> str:
    table = inputs.setting_results(setting)
    # Undetectable differences matter only if letters are missing, or bold could be read as "equally good".
    blind = notes.detectable_range(table) if table.blind and (table.few is not None or table.marked) else ""
    return short_notes.setting_line(inputs.facts, table, blind)


def task_description(table: SettingResults, items: str) -> str:
    """``text→video retrieval``, or the task of Binary."""
    item = items.removesuffix("s")
    if table.setting == "binary":
        return f"telling a {item} from its time-reversed twin"
    names = {"text_to_item": f"text→{item}", "item_to_text": f"{item}→text"}
    return f"{' and '.join(names[direction] for direction in table.directions)} retrieval"


# ---- Every run, in the appendix ------------------------------------------------------------------------------------


def seed_csv_rows(results: Results, setting: str) -> pd.DataFrame:
    """``metrics.csv`` in this setting, methods in the order of the tables, with their names."""
    check_results(results, setting)
    rows = results.metrics[results.metrics["setting"] == setting]
    order = {method: at for at, method in enumerate(methods_in_order(results, setting))}
    rows = rows.assign(order=rows["method"].map(order)).sort_values(["order", "seed"], kind="stable")
    return with_labels(rows.drop(columns="order").reset_index(drop=True), results.labels)


def seed_columns(results: Results, setting: str) -> dict[str, str]:
    """Title → metric: the usual ones, others in the study's tables, and strict R@1; in Binary both accuracies."""
    if setting == "binary":
        binary = binary_columns(results, ["text_to_item"])
        return {column.title: column.metric for column in binary if column.metric != RANK_COLUMN}
    metrics = [m for m in results.evaluated() if METRICS[m].usual or m in results.shown()]
    return {metric: metric for metric in metrics} | {"R@1 strict": STRICT_ACCURACY_COLUMN}


def seed_layout(inputs: TableInputs, setting: str) -> Table:
    """A row per run, a group per search direction."""
    results = inputs.results
    rows, directions = seed_csv_rows(results, setting), evaluated_directions(results, setting)
    titles = seed_columns(results, setting)

    def lines(part: pd.DataFrame) -> Iterator[tuple[Cell, ...]]:
        yield from (_seed_row(row, list(titles.values())) for row in part.to_dict("records"))

    return Table(
        "Seeds",
        f"{setting_title(inputs.dataset, setting)}: every run",
        slug(inputs.dataset, setting, "seeds"),
        (
            Column("Method", number=False),
            Column("Seed"),
            *(Column(title, better_arrow(metric)) for title, metric in titles.items()),
        ),
        direction_groups(results, rows, directions, lines),
    )


def _seed_row(row: dict[str, Any], metrics: list[str]) -> tuple[Cell, ...]:
    cells = (number_cell(float(row[metric]), metric_decimals(metric)) for metric in metrics)
    return (Cell(row["label"]), count_cell(row["seed"], separator=""), *cells)


def seed_notes(inputs: TableInputs, setting: str) -> list[str]:
    """The sentences below the table."""
    results, facts = inputs.results, inputs.facts
    reading = (
        "In percent; a tie counts one half in accuracy and as wrong in strict accuracy"
        if setting == "binary"
        else f"{notes.metric_units(seed_columns(results, setting).values())}; strict counts every tie as a miss"
    )
    directions = tuple(evaluated_directions(results, setting))
    return table_notes(
        [
            notes.queries_sentence(facts, setting, directions),
            notes.direction_names_sentence(facts, directions) if len(directions) > 1 else "",
        ],
        [reading],
    )


ANALYSIS = Analysis(
    tables=(
        TableSpec(
            "setting",
            place=0,
            file="table_{letter}{setting}",
            needs="results",
            layout=setting_layout,
            notes=lambda inputs, setting: notes.setting_notes(inputs.facts, inputs.setting_results(setting)),
            data=lambda inputs, setting: setting_csv_rows(inputs.results, setting),
            short_note=_setting_line,
            summary=setting_summary,
        ),
        TableSpec(
            "seeds",
            place=110,
            file="table_seeds_{setting}",
            needs="results",
            layout=seed_layout,
            notes=seed_notes,
            data=lambda inputs, setting: seed_csv_rows(inputs.results, setting),
            appendix=True,
        ),
    ),
)
