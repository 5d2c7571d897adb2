"""Pairs: the differences between two methods, with interval, p, Holm's p, effect size and bootstrap interval."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd

from rewind.analyses.base import Analysis
from rewind.ranking_metrics import metric_of_column
from rewind.statistics.inference import significance_level
from rewind.tables import notes
from rewind.tables.footnotes import confidence_percent, pair_count, seed_caution, table_notes
from rewind.tables.results import Results, check_results, direction_groups, evaluated_directions, with_pair_labels
from rewind.tables.settings import metric_decimals, reduced_family_size, setting_title
from rewind.tables.short_notes import join_short_notes
from rewind.tables.spec import TableInputs, TableSpec
from rewind.tables.table import MISSING, Cell, Column, Table, number_cell, p_value_cell, slug


def pair_csv_rows(results: Results, setting: str) -> pd.DataFrame:
    """``pairs.csv`` in this setting, all metrics, with the names of both methods."""
    check_results(results, setting)
    if results.pairs.empty:
        return pd.DataFrame()
    return with_pair_labels(results.pairs[results.pairs["setting"] == setting], results.labels)


def pair_layout(inputs: TableInputs, setting: str) -> Table:
    """A row per pair, a group per search direction; only the deciding metric is printed."""
    results = inputs.results
    rows, metric = pair_csv_rows(results, setting), results.deciding(setting)
    directions, level = evaluated_directions(results, setting), significance_level(results.confidence)
    rows = rows[rows["metric"] == metric]

    def lines(part: pd.DataFrame) -> Iterator[tuple[Cell, ...]]:
        yield from (_pair_row(row, level, metric_decimals(metric)) for row in part.itertuples())

    what = "accuracy" if setting == "binary" else metric
    return Table(
        "Pairs",
        f"{setting_title(inputs.dataset, setting)}: differences in {what}",
        slug(inputs.dataset, setting, "pairs"),
        (
            Column("Pair", number=False),
            Column("Difference"),
            *(Column(title) for title in ("p", "Holm’s p", "Detectable", "Effect")),
            Column("these checkpoints", group="Bootstrap"),
        ),
        direction_groups(results, rows, directions, lines),
    )


def _pair_row(row: Any, level: float, decimals: int) -> tuple[Cell, ...]:
    significant = bool(row.p_holm < level)
    beyond = notes.is_beyond_possible(row.setting, row.metric, row.detectable)
    detectable = Cell(MISSING) if beyond else number_cell(row.detectable, decimals)
    bootstrap = number_cell(row.difference, decimals, low=row.boot_low, high=row.boot_high, signed=True)
    return (
        Cell(f"{row.first_label} − {row.second_label}"),
        number_cell(row.difference, decimals, low=row.low, high=row.high, signed=True, bold=significant),
        p_value_cell(row.p),
        p_value_cell(row.p_holm, bold=significant),
        detectable,
        number_cell(row.effect, 2, signed=True),
        replace(bootstrap, text="", value=None),  # the difference is in a column of its own
    )


def pair_notes(inputs: TableInputs, setting: str) -> list[str]:
    """The sentences below the table."""
    results, facts = inputs.results, inputs.facts
    directions, metric = tuple(evaluated_directions(results, setting)), results.deciding(setting)
    percent = metric_of_column(metric).percent
    unit = "accuracy in percent" if setting == "binary" else f"{metric} in percent" if percent else metric
    family_size = reduced_family_size(results, setting) or facts.family
    family = f" over {pair_count(family_size)}" if family_size else ""
    tested = bool(results.pairs.loc[results.pairs["setting"] == setting, "p"].notna().any())
    interval = confidence_percent(results.confidence)
    return table_notes(
        [
            notes.queries_sentence(facts, setting, directions),
            notes.direction_names_sentence(facts, directions) if len(directions) > 1 else "",
        ],
        [
            f"Difference: the first method minus the second, {unit}; in brackets its {interval} interval",
            "Effect: the share of queries on which the first method does better minus the share on which it does "
            "worse, −1 to 1",
            f"Bootstrap: {interval} interval, {facts.bootstrap}; it says nothing about other training seeds"
            if facts.bootstrap
            else "",
        ],
        [
            f"Holm’s p: adjusted{family}, separately for each search direction; bold: below "
            f"{1 - results.confidence:.3g}",
            "Detectable: the smallest true difference that this comparison would find significant in 80% of studies, "
            f"at the strictest level of Holm’s correction; {MISSING}: none that is possible",
        ]
        if tested
        else [],
        [seed_caution(results.seed_counts())],
    )


def short_note(inputs: TableInputs, setting: str) -> str:
    results, facts = inputs.results, inputs.facts
    family_size = reduced_family_size(results, setting) or facts.family
    tested = bool(results.pairs.loc[results.pairs["setting"] == setting, "p"].notna().any())
    family = f" over {pair_count(family_size)}" if family_size else ""
    return join_short_notes(
        [
            f"first minus second, {confidence_percent(results.confidence)} intervals",
            f"p after Holm’s correction{family}, bold below {1 - results.confidence:.3g}" if tested else "",
            "detectable: in 80% of studies" if tested else "",
        ]
    )


ANALYSIS = Analysis(
    tables=(
        TableSpec(
            "pairs",
            place=100,
            file="table_pairs_{setting}",
            needs="results.pairs",
            layout=pair_layout,
            notes=pair_notes,
            data=lambda inputs, setting: pair_csv_rows(inputs.results, setting),
            short_note=short_note,
        ),
    ),
)
