"""Numbers of papers and of people, quoted beside those that were measured: neither tested nor ranked."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from rewind.analyses.base import Analysis
from rewind.config import Study
from rewind.config.report import QuotedNumber
from rewind.ranking_metrics import METRICS
from rewind.tables.footnotes import table_notes
from rewind.tables.settings import SETTING_TITLES, accuracy_name, better_arrow, metric_decimals
from rewind.tables.spec import TableInputs, TableSpec
from rewind.tables.table import MISSING, Cell, Column, RowGroup, Table, number_cell, slug

MOST_RANKS = 10**9
"""Largest gallery that a quoted rank may be from."""


def faults(study: Study) -> Iterator[str]:
    """Numbers of a setting or direction that the study does not evaluate, and one that is quoted twice."""
    seen: dict[tuple[str, ...], int] = {}
    for at, number in enumerate(study.tables.quoted):
        where, evaluation = f"tables.quoted[{at}]", study.evaluation
        if number.setting not in evaluation.settings:
            yield f"{where}.setting: {number.setting} is not among evaluation.settings, so nothing stands beside it"
        if number.direction not in evaluation.directions:
            yield f"{where}.direction: {number.direction} is not among evaluation.directions"
        metric = METRICS[number.metric]
        low, high = metric.range(MOST_RANKS)
        if not low <= number.value <= high:
            said = f"{number.metric} is {metric.unit.said}, from {low:g} to {high:g}"
            yield f"{where}.value: {number.value:g} cannot be: {said}"
        key = number.method, number.setting, number.direction, number.metric
        if key in seen:
            yield f"{where}: {number.method}’s {number.metric} is quoted in tables.quoted[{seen[key]}] too; keep one"
        seen.setdefault(key, at)


def layout(inputs: TableInputs, setting: str = "") -> Table:
    """A group of rows per setting, a row per method; a column per metric beside what is to be cited."""
    results, numbers = inputs.results, inputs.quoted
    several = len({number.direction for number in numbers}) > 1
    columns = dict.fromkeys((n.direction, n.metric) for n in sorted(numbers, key=_column_place))
    marks = {note: str(place) for place, note in enumerate(_differences(numbers), start=1)}
    groups = []
    for name in (name for name in SETTING_TITLES if any(number.setting == name for number in numbers)):
        here = [number for number in numbers if number.setting == name]
        rows = []
        for method, source in dict.fromkeys((number.method, number.source) for number in here):
            own = {(n.direction, n.metric): n for n in here if (n.method, n.source) == (method, source)}
            rows.append((Cell(method), Cell(source), *(_cell(own.get(column), marks) for column in columns)))
        groups.append(RowGroup(SETTING_TITLES[name], tuple(rows)))
    heads = [
        Column(_metric_title(metric, numbers), better_arrow(metric), results.short(direction) if several else "")
        for direction, metric in columns
    ]
    title = ", ".join(part for part in (inputs.dataset, "quoted and not measured here") if part)
    sides = Column("Method", number=False), Column("Source", number=False)
    return Table("Quoted", title, slug(inputs.dataset, "quoted"), (*sides, *heads), tuple(groups))


def _cell(number: QuotedNumber | None, marks: dict[str, str]) -> Cell:
    if number is None:
        return Cell(MISSING)
    return number_cell(number.value, metric_decimals(number.metric), marks=marks.get(number.differs, ""))


def _column_place(number: QuotedNumber) -> tuple[int, int]:
    return int(number.direction != "text_to_item"), list(METRICS).index(number.metric)


def _metric_title(metric: str, numbers: list[QuotedNumber]) -> str:
    """Its name; R@1 is accuracy in rows of Binary."""
    names = {accuracy_name(number.setting, metric) for number in numbers if number.metric == metric}
    return " or ".join(sorted(names, reverse=True))


def _differences(numbers: list[QuotedNumber]) -> list[str]:
    return list(dict.fromkeys(number.differs for number in numbers if number.differs))


def notes_below(inputs: TableInputs, setting: str = "") -> list[str]:
    """What the numbers are, and how the protocols behind them differ from the study's."""
    differences = [f"{place}: {note}" for place, note in enumerate(_differences(inputs.quoted), start=1)]
    return table_notes(
        ["As their sources print them: not measured here, not tested against any method and not ranked"],
        [f"Measured in another way than here: {'; '.join(differences)}" if differences else ""],
    )


def table_data(inputs: TableInputs, setting: str = "") -> pd.DataFrame:
    """``method, setting, direction, metric, value, source, differs``: a row per number, as the study has them."""
    return pd.DataFrame([number.model_dump() for number in inputs.quoted])


ANALYSIS = Analysis(
    faults=faults,
    tables=(
        TableSpec(
            "quoted",
            place=5,
            file="table_quoted",
            needs=lambda inputs: bool(inputs.quoted),
            layout=layout,
            notes=notes_below,
            data=table_data,
            summary=layout,
        ),
    ),
)
