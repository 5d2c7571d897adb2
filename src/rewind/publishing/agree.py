"""One table of several machines: the numbers of the first, and only those marks on which all agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rewind.errors import RewindError
from rewind.reporting.sheet import MISSING, Entry, Head, Part, Sheet


def agreed(sheets: Mapping[str, Sheet], where: str) -> Sheet:
    """The first machine's table without letters and bold that another machine's lacks.

    A word in a cell that is not the same everywhere (a verdict, say) becomes a dash.

    Args:
        sheets: machine → the same table.
        where: what it is called, for errors.

    Raises:
        RewindError: for tables of different rows or columns.
    """
    check_alike(sheets, where)
    first, *others = sheets.values()
    parts = []
    for at, part in enumerate(first.parts):
        rows = []
        for line, row in enumerate(part.rows):
            cells = [[row[column], *(o.parts[at].rows[line][column] for o in others)] for column in range(len(row))]
            rows.append(tuple(_cell(head, cell) for head, cell in zip(first.heads, cells, strict=True)))
        parts.append(Part(part.title, tuple(rows)))
    return replace(first, parts=tuple(parts))


def check_alike(sheets: Mapping[str, Sheet], where: str) -> None:
    """Refuse tables of different rows or columns."""
    shapes = {
        name: (sheet.heads, [(part.title, [row[0].value for row in part.rows]) for part in sheet.parts])
        for name, sheet in sheets.items()
    }
    (first, shape), *others = shapes.items()
    for name, other in others:
        if other != shape:
            raise RewindError(
                f"{where}: the tables of {first} and {name} have different rows or columns; publish both from the same "
                "study file."
            )


def _cell(head: Head, entries: list[Entry]) -> Entry:
    first = entries[0]
    kept = [set(entry.raised.split(",")) for entry in entries]
    raised = ",".join(letter for letter in first.raised.split(",") if all(letter in there for there in kept))
    same = head.number or all(entry.value == first.value for entry in entries)
    value = first.value if same else MISSING
    return replace(first, value=value, raised=raised, bold=all(entry.bold for entry in entries))


def marked(sheet: Sheet) -> bool:
    """Whether any number has letters."""
    return any(
        entry.raised for at, head in enumerate(sheet.heads) if head.number for entry in sheet.column(at)
    )  # fmt: skip
