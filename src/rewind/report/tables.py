"""All tables of a study, in reading order; each kind stands with its analysis (:mod:`rewind.analyses`)."""

from __future__ import annotations

from collections.abc import Iterator

from rewind.analyses import all_analyses
from rewind.tables import notes
from rewind.tables.render import render_text
from rewind.tables.spec import TableInputs, TableSpec
from rewind.tables.table import Table


def table_specs() -> tuple[TableSpec, ...]:
    """Every kind of table, in reading order."""
    specs = (spec for analysis in all_analyses().values() for spec in analysis.tables)
    return tuple(sorted(specs, key=lambda spec: spec.place))


def planned_tables(inputs: TableInputs) -> list[tuple[TableSpec, str]]:
    """(kind, setting) of every table that a study has, in reading order; the setting is empty for a table of none."""
    return [
        (spec, setting)
        for spec in table_specs()
        for setting in (inputs.settings if spec.per_setting else [""])
        if inputs.has(spec.needs, setting)
    ]


def build_tables(inputs: TableInputs) -> Iterator[Table]:
    """Every table of a study, in reading order.

    Numbers that cannot be in one table are refused (see :func:`rewind.tables.results.check_results`).
    """
    for spec, setting in planned_tables(inputs):
        yield spec.build(inputs, setting)


def summary_text(inputs: TableInputs) -> str:
    """Settings, verdict, zero-shot accuracy and gaps as aligned text for the end of a run, and notes of all tables."""
    shown = [(spec.summary, setting) for spec, setting in planned_tables(inputs) if spec.summary]
    tables = [summary(inputs, setting).with_condition(inputs.results.given) for summary, setting in shown]
    counts = {count for setting in inputs.settings for count in inputs.setting_results(setting).seeds}
    footnotes = notes.study_notes(inputs.facts, sorted(counts))
    return "\n".join(text for text in (*map(render_text, tables), footnotes) if text)
