"""Gap: what a method loses when the time-reversed twins join the gallery."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from rewind.analyses.base import Analysis
from rewind.ranking_metrics import ACCURACY_METRIC, METRICS
from rewind.tables import notes
from rewind.tables.footnotes import confidence_percent, seed_caution, table_notes
from rewind.tables.results import Results, direction_groups, in_table_order, shown_directions
from rewind.tables.settings import metric_decimals
from rewind.tables.short_notes import join_short_notes
from rewind.tables.spec import TableInputs, TableSpec
from rewind.tables.table import MISSING, Cell, Column, Table, number_cell, slug


def gap_csv_rows(results: Results) -> pd.DataFrame:
    """``gaps.csv`` in the order of the tables, with the methods' names; empty without gaps."""
    if results.gaps.empty:
        return pd.DataFrame()
    return in_table_order(results.gaps, results.ordered(), results.labels)


def gap_metrics(results: Results) -> list[str]:
    """Metrics of the study's tables that have a gap, because they are means over queries; R@1 if there are none."""
    return [metric for metric in results.shown() if METRICS[metric].tested] or [ACCURACY_METRIC]


def gap_layout(inputs: TableInputs, setting: str = "") -> Table:
    """A row per method, a group per search direction; each gap with its interval."""
    results = inputs.results
    rows = gap_csv_rows(results)

    def lines(part: pd.DataFrame) -> Iterator[tuple[Cell, ...]]:
        cells = {(r.method, r.metric): r for r in part.itertuples()}
        yield from (_gap_row(results, method, cells) for method in dict.fromkeys(part["method"]))

    return Table(
        "Gap",
        ", ".join(part for part in (inputs.dataset, "Origin − Hard") if part),
        slug(inputs.dataset, "gap"),
        (Column("Method", number=False), *map(Column, gap_metrics(results))),
        direction_groups(results, rows, shown_directions(rows), lines),
    )


def _gap_row(results: Results, method: str, cells: dict[tuple[str, str], Any]) -> tuple[Cell, ...]:
    shown = (_gap_cell(cells.get((method, metric)), metric) for metric in gap_metrics(results))
    return (Cell(results.labels[method]), *shown)


def _gap_cell(row: Any, metric: str) -> Cell:
    if row is None:
        return Cell(MISSING)
    ends = {"low": row.low, "high": row.high} if row.high > row.low else {}  # chance has a gap without an interval
    return number_cell(row.gap, metric_decimals(metric), **ends, signed=True)


def gap_notes(inputs: TableInputs, setting: str = "") -> list[str]:
    """The sentences below the table."""
    results, facts = inputs.results, inputs.facts
    directions = shown_directions(results.gaps)
    return table_notes(
        [
            "Gap: the result of Origin’s queries in Origin’s gallery minus their result in the gallery with the "
            "time-reversed twins added, in the same runs",
            notes.direction_names_sentence(facts, directions) if len(directions) > 1 else "",
        ],
        [
            _gap_sign_sentence(gap_metrics(results)),
            f"In brackets {confidence_percent(results.confidence)} intervals",
        ],
        [_constant_gaps_sentence(results)],
        [seed_caution(results.seed_counts())],
    )


def _constant_gaps_sentence(results: Results) -> str:
    """Which methods have no intervals because all ties; chance has none anyway."""
    gaps = results.gaps
    constant = set(gaps["method"][(gaps["low"] == gaps["high"]) & (gaps["low"] == gaps["gap"])])
    names = [results.labels[m] for m in results.ordered() if m in constant and m not in results.baselines]
    return f"{notes.NO_INTERVAL_OF_CONSTANTS}: {', '.join(names)}" if names else ""


def _gap_sign_sentence(metrics: list[str]) -> str:
    """What the sign of a gap means."""
    higher_better, lower_better = (
        [m for m in metrics if METRICS[m].lower_is_better is lower] for lower in (False, True)
    )
    sentences = []
    if higher_better:
        units = notes.metric_units(higher_better)
        sentences.append(f"{units}, 0 means that twins cost nothing and above 0 that they do")
    if lower_better:
        zero = "" if higher_better else "0 means that twins cost nothing and "
        sentences.append(f"{notes.metric_units(lower_better)}, {zero}below 0 that they do")
    return "; ".join(sentences)


def short_note(inputs: TableInputs, setting: str) -> str:
    percent = confidence_percent(inputs.results.confidence)
    return join_short_notes(["the same queries and runs in both galleries", f"{percent} intervals"])


ANALYSIS = Analysis(
    tables=(
        TableSpec(
            "gap",
            place=80,
            file="table_gap",
            needs="results.gaps",
            layout=gap_layout,
            notes=gap_notes,
            data=lambda inputs, _: gap_csv_rows(inputs.results),
            short_note=short_note,
            summary=gap_layout,
        ),
    ),
)
