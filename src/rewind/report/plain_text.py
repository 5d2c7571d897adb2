"""Aligned plain text for the terminal."""

from __future__ import annotations

from rewind.report.sheet import Sheet, SheetCell


def render_text(sheet: Sheet) -> str:
    """The table aligned at decimal points, ``*`` before a bold value, letters in brackets; its key explains them.

    Example:
        >>> from rewind.report.sheet import ColumnHead, RowGroup
        >>> heads = (ColumnHead("Method", number=False), ColumnHead("R@1", "↑"))
        >>> first, second = (SheetCell("meanP"), SheetCell("9.2")), (SheetCell("WTI"), SheetCell("41.0", bold=True))
        >>> rows = RowGroup("", (first, second))
        >>> print(render_text(Sheet("Table A", "Origin", "origin", heads, (rows,))))
        Table A. Origin
        Method  R@1 ↑
        ─────────────
        meanP     9.2
        WTI     *41.0
        <BLANKLINE>
    """
    titles = [head.name for head in sheet.heads]
    columns = [
        _numbers(sheet, first_row) if head.number else _labels(sheet, first_row)
        for first_row, head in enumerate(sheet.heads)
    ]
    widths = [max(len(cell) for cell in [title, *cells]) for title, cells in zip(titles, columns, strict=True)]
    head, *rows = (
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in [titles, *zip(*columns, strict=True)]
    )
    rule = "─" * max(map(len, [head, *rows]))
    lines, first_row = [sheet.heading, head], 0
    for part in sheet.parts:
        lines += [rule, part.title] if part.title else [rule]
        lines += rows[first_row : first_row + len(part.rows)]
        first_row += len(part.rows)
    return "\n".join([*lines, *([sheet.key] if sheet.key else [])]) + "\n"


def _labels(sheet: Sheet, at: int) -> list[str]:
    entries = sheet.column(at)
    width = max(len(entry.raised) for entry in entries)
    return [f"{entry.raised.ljust(width)}  {entry.value}" if width else entry.value for entry in entries]


def _numbers(sheet: Sheet, at: int) -> list[str]:
    entries = sheet.column(at)
    whole_width = sheet.whole_width(at) + any(entry.bold for entry in entries)
    cells = [f"{'*' if entry.bold else ''}{entry.whole}".rjust(whole_width) + entry.rest for entry in entries]
    for piece in (_spread, _brackets, _raised):
        texts = [piece(entry) for entry in entries]
        if any(texts):
            width = max(map(len, cells))
            cells = [cell.ljust(width) + text for cell, text in zip(cells, texts, strict=True)]
    return [cell.rstrip() for cell in cells]


def _spread(entry: SheetCell) -> str:
    return f"±{entry.spread}" if entry.spread else ""


def _brackets(entry: SheetCell) -> str:
    return f" {entry.brackets}" if entry.brackets else ""


def _raised(entry: SheetCell) -> str:
    return f" ({entry.raised})" if entry.raised else ""
