"""Markdown for repositories and reports."""

from __future__ import annotations

import re

from rewind.reporting.sheet import Entry, Sheet

# An underscore inside a word, a lone & or < print as themselves.
_SPECIAL = re.compile(r"([\\`*\[\]|~$]|(?<!\w)_|_(?!\w)|<(?=[A-Za-z/!?])|&(?=#?\w+;))")
# A blank as wide as a digit; readers of Markdown strip the character itself from the edge of a cell.
_FIGURE = "&numsp;"


def escape(text: str) -> str:
    """``text`` on one line, so that Markdown prints it as itself, in a table cell or a list item."""
    line = _SPECIAL.sub(r"\\\1", " ".join(text.split()))
    # Would start a list, a heading or a quotation at the head of a line.
    return re.sub(r"^(\d+)([.)])(?=\s|$)|^([-+=#>])", lambda m: f"{m[1]}\\{m[2]}" if m[1] else f"\\{m[3]}", line)


def render(sheet: Sheet, notes: list[str]) -> str:
    """The table under its heading, its notes as a list; numbers stand at their decimal points."""
    titles = [escape(head.name) for head in sheet.heads]
    rows = []
    for part in sheet.parts:
        if part.title:  # Markdown has no rule inside a table; a row that says what follows takes its place
            rows.append([f"*{escape(part.title)}*", *[""] * (len(titles) - 1)])
        rows += [[_cell(sheet, at, entry) for at, entry in enumerate(row)] for row in part.rows]
    widths = [max(3, *(len(row[at]) for row in [titles, *rows])) for at in range(len(titles))]
    lines = [
        f"**{escape(sheet.heading)}**",
        "",
        _line(titles, widths),
        _line([":" + "-" * (width - 1) for width in widths], widths),
        *(_line(row, widths) for row in rows),
        "",
        *[f"- {escape(note)}" for note in notes],
    ]
    return "\n".join(lines) + "\n"


def _line(cells: list[str], widths: list[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


def _cell(sheet: Sheet, at: int, entry: Entry) -> str:
    raised = f" <sup>{escape(entry.raised)}</sup>" if entry.raised else ""
    if not sheet.heads[at].number:
        return escape(entry.value) + raised
    pad = _FIGURE * (sheet.whole_width(at) - len(entry.whole))
    number, brackets = (_SPECIAL.sub(r"\\\1", text) for text in (entry.value, entry.brackets))
    value = f"**{number}**" if entry.bold else number
    spread = f"±{entry.spread}" if entry.spread else ""
    brackets = f" {brackets}" if brackets else ""
    return (pad + value + spread + brackets + raised).strip()
