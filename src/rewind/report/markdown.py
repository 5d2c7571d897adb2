"""Tables as Markdown, for repositories and reports."""

from __future__ import annotations

import re

from rewind.report.sheet import Sheet, SheetCell

# Characters that Markdown may interpret. An underscore inside a word and a lone & or < print as themselves.
_SPECIAL_CHARACTERS = re.compile(r"([\\`*\[\]|~$]|(?<!\w)_|_(?!\w)|<(?=[A-Za-z/!?])|&(?=#?\w+;))")
# A space as wide as a digit, as an entity: Markdown renderers strip the character itself from the edge of a cell.
_FIGURE_SPACE = "&numsp;"


def escape_markdown(text: str) -> str:
    """``text`` on one line, so that Markdown prints it as itself, in a table cell or a list item.

    Example:
        >>> print(escape_markdown("R@1 * [a|b]"))
        R@1 \\* \\[a\\|b\\]
    """
    line = _SPECIAL_CHARACTERS.sub(r"\\\1", " ".join(text.split()))
    # At the beginning of a line these would start a list, a heading or a quotation.
    return re.sub(r"^(\d+)([.)])(?=\s|$)|^([-+=#>])", lambda m: f"{m[1]}\\{m[2]}" if m[1] else f"\\{m[3]}", line)


def render_markdown(sheet: Sheet, notes: list[str]) -> str:
    """The table under its heading, its notes as a list; numbers are aligned at their decimal points."""
    titles = [escape_markdown(head.name) for head in sheet.heads]
    rows = []
    for part in sheet.parts:
        if part.title:  # instead of a rule, which Markdown tables do not have
            rows.append([f"*{escape_markdown(part.title)}*", *[""] * (len(titles) - 1)])
        rows += [[_cell(sheet, column, entry) for column, entry in enumerate(row)] for row in part.rows]
    widths = [max(3, *(len(row[column]) for row in [titles, *rows])) for column in range(len(titles))]
    lines = [
        f"**{escape_markdown(sheet.heading)}**",
        "",
        _line(titles, widths),
        _line([":" + "-" * (width - 1) for width in widths], widths),
        *(_line(row, widths) for row in rows),
        "",
        *[f"- {escape_markdown(note)}" for note in notes],
    ]
    return "\n".join(lines) + "\n"


def _line(cells: list[str], widths: list[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


def _cell(sheet: Sheet, column: int, entry: SheetCell) -> str:
    raised = f" <sup>{escape_markdown(entry.raised)}</sup>" if entry.raised else ""
    if not sheet.heads[column].number:
        return escape_markdown(entry.value) + raised
    pad = _FIGURE_SPACE * (sheet.whole_width(column) - len(entry.whole))
    number, brackets = (_SPECIAL_CHARACTERS.sub(r"\\\1", text) for text in (entry.value, entry.brackets))
    value = f"**{number}**" if entry.bold else number
    spread = f"±{entry.spread}" if entry.spread else ""
    brackets = f" {brackets}" if brackets else ""
    return (pad + value + spread + brackets + raised).strip()
