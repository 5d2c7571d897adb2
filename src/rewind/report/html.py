"""Tables as stand-alone HTML ``<table>`` elements, to be embedded in any page."""

from __future__ import annotations

from html import escape

from rewind.report import setting_table
from rewind.report.setting_table import SettingTable
from rewind.report.sheet import ColumnHead, Sheet, SheetCell

_ARROW_MEANINGS = {"↑": "higher is better", "↓": "lower is better"}
_FIGURE_SPACE = "&#8199;"  # a space as wide as a digit, which a browser does not collapse


def table_html(table: SettingTable | Sheet, notes: list[str], words: str = "") -> str:
    """A table as an HTML fragment without styles.

    Classes: ``rewind-table`` on the table, ``number`` on cells of numbers, ``best`` on bold ones, ``spread``,
    ``interval`` and ``marks`` on what follows a number, ``arrow`` in headings, ``part`` on a body with a title of its
    own, ``notes`` on the list below. Numbers are aligned at their decimal points in any font whose digits have equal
    widths (``font-variant-numeric: tabular-nums``).

    Args:
        table: of a setting, or any table that is ready to print.
        notes: plain sentences for the list below it.
        words: the task of a setting's table, for example ``text→video retrieval``.
    """
    return render_html(table if isinstance(table, Sheet) else setting_table.setting_sheet(table, words), notes)


def render_html(sheet: Sheet, notes: list[str]) -> str:
    """The HTML fragment of a table that is ready to print, see :func:`table_html`."""
    lines = [
        f'<table class="rewind-table" id="table-{sheet.slug}">',
        f"<caption>{escape(sheet.heading)}</caption>",
        "<thead>",
        *_spans(sheet),
        "<tr>" + "".join(map(_head, sheet.heads)) + "</tr>",
        "</thead>",
    ]
    for part in sheet.parts:
        title = f'<tr><th scope="rowgroup" colspan="{len(sheet.heads)}">{escape(part.title)}</th></tr>'
        lines += ['<tbody class="part">', title] if part.title else ["<tbody>"]
        lines += [_row(sheet, row) for row in part.rows] + ["</tbody>"]
    return "\n".join([*lines, *_foot(sheet, notes), "</table>"]) + "\n"


def _spans(sheet: Sheet) -> list[str]:
    if not sheet.grouped:
        return []
    cells = [
        f'<th scope="colgroup" colspan="{count}">{escape(title)}</th>' if title else f'<td colspan="{count}"></td>'
        for title, count in sheet.spans()
    ]
    return ["<tr>" + "".join(cells) + "</tr>"]


def _head(head: ColumnHead) -> str:
    sign = f' <abbr class="arrow" title="{_ARROW_MEANINGS[head.arrow]}">{head.arrow}</abbr>' if head.arrow else ""
    kind = ' class="number"' if head.number else ""
    return f'<th scope="col"{kind}>{escape(head.title)}{sign}</th>'


def _row(sheet: Sheet, row: tuple[SheetCell, ...]) -> str:
    first, *others = row
    cells = [_cell(sheet, column, entry) for column, entry in enumerate(others, start=1)]
    return f'<tr><th scope="row">{escape(first.value)}{_raised(first)}</th>{"".join(cells)}</tr>'


def _cell(sheet: Sheet, column: int, entry: SheetCell) -> str:
    if not sheet.heads[column].number:
        return f"<td>{escape(entry.value)}{_raised(entry)}</td>"
    pad = _FIGURE_SPACE * (sheet.whole_width(column) - len(entry.whole))
    value = f"<strong>{escape(entry.value)}</strong>" if entry.bold else escape(entry.value)
    spread = f'<span class="spread">±{escape(entry.spread)}</span>' if entry.spread else ""
    brackets = f' <span class="interval">{escape(entry.brackets)}</span>' if entry.interval else ""
    kind = "number best" if entry.bold else "number"
    return f'<td class="{kind}">{pad}{value}{spread}{brackets}{_raised(entry)}</td>'


def _raised(entry: SheetCell) -> str:
    return f'<sup class="marks">{escape(entry.raised)}</sup>' if entry.raised else ""


def _foot(sheet: Sheet, notes: list[str]) -> list[str]:
    if not notes:
        return []
    items = [f"<li>{escape(note)}</li>" for note in notes]
    return [
        f'<tfoot><tr><td colspan="{len(sheet.heads)}">',
        '<ul class="notes">',
        *items,
        "</ul>",
        "</td></tr></tfoot>",
    ]
