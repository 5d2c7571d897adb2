"""Aligned plain text for the terminal."""

from __future__ import annotations

from rewind.reporting.sheet import Entry, Sheet


def render(sheet: Sheet) -> str:
    """The table aligned at the points, ``*`` before a bold value, letters in brackets; its key says what they mean."""
    titles = [head.name for head in sheet.heads]
    columns = [_numbers(sheet, at) if head.number else _labels(sheet, at) for at, head in enumerate(sheet.heads)]
    widths = [max(len(cell) for cell in [title, *cells]) for title, cells in zip(titles, columns, strict=True)]
    head, *rows = (
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in [titles, *zip(*columns, strict=True)]
    )
    rule = "─" * max(map(len, [head, *rows]))
    lines, at = [sheet.heading, head], 0
    for part in sheet.parts:
        lines += [rule, part.title] if part.title else [rule]
        lines += rows[at : at + len(part.rows)]
        at += len(part.rows)
    return "\n".join([*lines, *([sheet.key] if sheet.key else [])]) + "\n"


def _labels(sheet: Sheet, at: int) -> list[str]:
    entries = sheet.column(at)
    room = max(len(entry.raised) for entry in entries)
    return [f"{entry.raised.ljust(room)}  {entry.value}" if room else entry.value for entry in entries]


def _numbers(sheet: Sheet, at: int) -> list[str]:
    entries = sheet.column(at)
    whole = sheet.whole_width(at) + any(entry.bold for entry in entries)
    cells = [f"{'*' if entry.bold else ''}{entry.whole}".rjust(whole) + entry.rest for entry in entries]
    for piece in (_spread, _brackets, _raised):
        shown = [piece(entry) for entry in entries]
        if any(shown):
            width = max(map(len, cells))
            cells = [cell.ljust(width) + text for cell, text in zip(cells, shown, strict=True)]
    return [cell.rstrip() for cell in cells]


def _spread(entry: Entry) -> str:
    return f"±{entry.spread}" if entry.spread else ""


def _brackets(entry: Entry) -> str:
    return f" {entry.brackets}" if entry.brackets else ""


def _raised(entry: Entry) -> str:
    return f" ({entry.raised})" if entry.raised else ""
