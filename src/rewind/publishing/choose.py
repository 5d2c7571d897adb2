"""Rows and columns of a table by the names that it prints."""

from __future__ import annotations

from dataclasses import replace

from rewind.errors import RewindError
from rewind.reporting.sheet import Part, Sheet


def lines(sheet: Sheet, options: dict[str, str]) -> Sheet:
    """Some of the rows, in the order asked for, and one part alone without its title."""
    parts = sheet.parts
    if "part" in options:
        parts = tuple(replace(part, title="") for part in parts if part.title == options["part"])
        if not parts:
            titles = ", ".join(part.title for part in sheet.parts)
            raise RewindError(f"no part {options['part']!r} in {sheet.heading!r}; available: {titles}.")
    if "rows" in options:
        there = {row[0].value: row for part in reversed(parts) for row in part.rows}
        names = options["rows"].split("; ")
        if unknown := [name for name in names if name not in there]:
            raise RewindError(f"no row {unknown[0]!r} in {sheet.heading!r}; available: {'; '.join(there)}.")
        parts = (Part("", tuple(there[name] for name in names)),)
    return replace(sheet, parts=parts)


def column(sheet: Sheet, name: str) -> int:
    """The place of a column."""
    names = [head.name for head in sheet.heads]
    if name not in names:
        raise RewindError(f"no column {name!r} in {sheet.heading!r}; available: {', '.join(names)}.")
    return names.index(name)
