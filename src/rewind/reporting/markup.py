"""Markdown for repositories and reports, and aligned plain text for the terminal."""

from __future__ import annotations

import re

from rewind.reporting.cells import Cell, Column, Row, Table

# An underscore inside a word, a lone & or < print as themselves.
_SPECIAL = re.compile(r"([\\`*\[\]|~$]|(?<!\w)_|_(?!\w)|<(?=[A-Za-z/!?])|&(?=#?\w+;))")


def escape(text: str) -> str:
    """``text`` on one line, so that Markdown prints it as itself, in a table cell or a list item."""
    line = _SPECIAL.sub(r"\\\1", " ".join(text.split()))
    # Would start a list, a heading or a quotation at the head of a line.
    return re.sub(r"^(\d+)([.)])(?=\s|$)|^([-+=#>])", lambda m: f"{m[1]}\\{m[2]}" if m[1] else f"\\{m[3]}", line)


def markdown(table: Table, notes: list[str], searched: str) -> str:
    """The table with its heading and footnotes; ``searched`` is plain words such as ``text→video``."""
    titles = ["Method", "Train", *(column.title for column in table.columns)]
    trained = [_markdown_row(row, table.columns) for row in table.rows if not row.baseline]
    baselines = [_markdown_row(row, table.columns) for row in table.rows if row.baseline]
    # Markdown has no rule inside a table; a row that says what follows takes its place.
    rule = [["*Baselines*", *[""] * (len(titles) - 1)]] if trained and baselines else []
    lines = [
        f"**{escape(table.heading)}: {escape(searched)}**",
        "",
        _line(titles),
        _line([":--", ":--", *["--:"] * len(table.columns)]),
        *map(_line, trained + rule + baselines),
        "",
        *[f"- {escape(note)}" for note in notes],
    ]
    return "\n".join(lines) + "\n"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown_row(row: Row, columns: tuple[Column, ...]) -> list[str]:
    cells = [_markdown_cell(cell, column) for cell, column in zip(row.cells, columns, strict=True)]
    return [escape(row.label) + _raised(row.letter), escape(row.train), *cells]


def _markdown_cell(cell: Cell, column: Column) -> str:
    value = f"{cell.estimate:.1f}"
    value = f"**{value}**" if cell.best else value
    return value + _rest(cell, column) + _raised(",".join(cell.beats))


def _raised(letters: str) -> str:
    return f" <sup>{letters}</sup>" if letters else ""


def _rest(cell: Cell, column: Column) -> str:
    deviation = f"±{cell.std:.1f}" if cell.std == cell.std else ""
    if not column.interval or cell.low != cell.low:
        return deviation
    return f"{deviation} [{cell.low:.1f}, {cell.high:.1f}]"


def text(table: Table, searched: str) -> str:
    """The table for the terminal: aligned at the points, ``*`` before a best value, letters in brackets."""
    titles = ["Method", "Train", *(column.title for column in table.columns)]
    body = [_text_row(row, table.columns) for row in table.rows]
    columns = [[titles[i], *(row[i] for row in body)] for i in range(len(titles))]
    columns = [_left(c) for c in columns[:2]] + [_at_point(c) for c in columns[2:]]
    lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
    rule = "─" * max(map(len, lines))
    first = next((i for i, row in enumerate(table.rows) if row.baseline), None)
    if first:
        lines.insert(first + 1, rule)
    lines.insert(1, rule)
    key = (
        ["* best in a column with a significant difference; (a) significantly better than method a"]
        if table.marked
        else []
    )
    return "\n".join([f"{table.heading}: {searched}", *lines, *key]) + "\n"


def _text_row(row: Row, columns: tuple[Column, ...]) -> list[str]:
    name = f"{row.letter}  {row.label}" if row.letter else f"   {row.label}"
    return [name, row.train, *(_text_cell(cell, c) for cell, c in zip(row.cells, columns, strict=True))]


def _text_cell(cell: Cell, column: Column) -> str:
    beats = f" ({','.join(cell.beats)})" if cell.beats else ""
    return f"{'*' if cell.best else ''}{cell.estimate:.1f}{_rest(cell, column)}{beats}"


def _left(cells: list[str]) -> list[str]:
    width = max(map(len, cells))
    return [cell.ljust(width) for cell in cells]


def _at_point(cells: list[str]) -> list[str]:
    """A heading, then numbers whose first decimal points stand under each other."""
    before = max(cell.index(".") for cell in cells[1:])
    moved = [" " * (before - cell.index(".")) + cell for cell in cells[1:]]
    width = max(map(len, [cells[0], *moved]))
    return [cells[0].ljust(width), *(cell.ljust(width) for cell in moved)]
