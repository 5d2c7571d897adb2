"""A setting's table as it is printed: method, training data, metrics."""

from __future__ import annotations

from rewind.metrics import known
from rewind.reporting.cells import LETTERS, TITLES, Cell, Column, Row, Table, letter_names
from rewind.reporting.sheet import Entry, Head, Part, Sheet, bounds, number, slug
from rewind.study.report import RANK


def sheet(table: Table, searched: str) -> Sheet:
    """The table in no markup.

    Args:
        table: its cells.
        searched: plain words for the caption, for example ``text→video retrieval``.
    """
    heads = (Head("Method", number=False), Head("Train", number=False), *map(_head, table.columns))
    apart = not table.ordered  # a table of places is one list
    split = (
        ("", [row for row in table.rows if not (row.baseline or (row.fixed and apart))]),
        ("Fixed models", [row for row in table.rows if row.fixed and not row.baseline and apart]),
        ("Baselines", [row for row in table.rows if row.baseline]),
    )
    split = tuple(
        (title if any(rows for _, rows in split[:at]) else "", rows) for at, (title, rows) in enumerate(split)
    )
    parts = tuple(Part(title, tuple(_line(row, table) for row in rows)) for title, rows in split if rows)
    title = f"{_place(table)}: {searched}"
    return Sheet(_number(table), title, slug(table.dataset, table.setting), heads, parts)


def arrow(metric: str) -> str:
    """Which way is better."""
    return "↓" if known(metric).lower_is_better else "↑"


def decimals(metric: str) -> int:
    """Digits after the point."""
    return known(metric).unit.digits


def place(dataset: str, setting: str) -> str:
    """``RTime, Hard``."""
    return ", ".join(part for part in (dataset, TITLES[setting]) if part)


def _number(table: Table) -> str:
    return f"Table {LETTERS.get(table.setting, TITLES[table.setting])}"


def _place(table: Table) -> str:
    # Binary's number names it already.
    return place(table.dataset, table.setting) if table.setting in LETTERS else table.dataset or "Twins"


def _head(column: Column) -> Head:
    return Head(column.title, "" if column.metric == RANK else arrow(column.metric), column.group)


def _line(row: Row, table: Table) -> tuple[Entry, ...]:
    cells = (_entry(cell, column, table) for cell, column in zip(row.cells, table.columns, strict=True))
    return (Entry(row.label, raised=row.letter), Entry(row.train), *cells)


def _entry(cell: Cell, column: Column, table: Table) -> Entry:
    digits = 0 if column.metric == RANK else decimals(column.metric)
    return Entry(
        number(cell.estimate, digits),
        number(cell.std, digits) if cell.std == cell.std else "",
        bounds(cell.low, cell.high, digits) if column.interval else None,
        ",".join(_spans(cell.beats) if table.ordered else cell.beats),
        cell.best,
    )


def _spans(letters: tuple[str, ...]) -> list[str]:
    """Three neighbours or more as ``c–f``: from best to worst, a method mostly beats all from some place on."""
    names = letter_names(26 * 27)
    runs: list[list[int]] = []
    for at in map(names.index, letters):
        if runs and runs[-1][-1] == at - 1:
            runs[-1].append(at)
        else:
            runs.append([at])
    pieces = ([f"{names[run[0]]}–{names[run[-1]]}"] if len(run) > 2 else [names[at] for at in run] for run in runs)
    return [piece for group in pieces for piece in group]
