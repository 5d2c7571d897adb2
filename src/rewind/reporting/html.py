"""HTML: a ``<table>`` that stands alone, to be put into any page."""

from __future__ import annotations

from html import escape

from rewind.reporting import setting_table
from rewind.reporting.cells import Table
from rewind.reporting.sheet import Entry, Head, Sheet

_BETTER = {"↑": "higher is better", "↓": "lower is better"}
_FIGURE = "&#8199;"  # a blank as wide as a digit, which a browser does not swallow


def table_html(table: Table | Sheet, notes: list[str], words: str = "") -> str:
    """A table as an HTML fragment without style of its own.

    Classes: ``rewind-table`` on the table, ``number`` on cells of numbers, ``best`` on bold ones, ``spread``,
    ``interval`` and ``marks`` on what follows a number, ``arrow`` in headings, ``part`` on a body with a title of its
    own, ``notes`` on the list below. Numbers stand at their decimal points in any font whose digits are equally wide
    (``font-variant-numeric: tabular-nums``).

    Args:
        table: of a setting, or any table that is ready to print.
        notes: plain sentences for below.
        words: of a setting's table, what is searched, for example ``text→video retrieval``.
    """
    return render(table if isinstance(table, Sheet) else setting_table.sheet(table, words), notes)


def render(sheet: Sheet, notes: list[str]) -> str:
    """The fragment of a table that is ready to print."""
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


def _head(head: Head) -> str:
    sign = f' <abbr class="arrow" title="{_BETTER[head.arrow]}">{head.arrow}</abbr>' if head.arrow else ""
    kind = ' class="number"' if head.number else ""
    return f'<th scope="col"{kind}>{escape(head.title)}{sign}</th>'


def _row(sheet: Sheet, row: tuple[Entry, ...]) -> str:
    first, *others = row
    cells = [_cell(sheet, at, entry) for at, entry in enumerate(others, start=1)]
    return f'<tr><th scope="row">{escape(first.value)}{_raised(first)}</th>{"".join(cells)}</tr>'


def _cell(sheet: Sheet, at: int, entry: Entry) -> str:
    if not sheet.heads[at].number:
        return f"<td>{escape(entry.value)}{_raised(entry)}</td>"
    pad = _FIGURE * (sheet.whole_width(at) - len(entry.whole))
    value = f"<strong>{escape(entry.value)}</strong>" if entry.bold else escape(entry.value)
    spread = f'<span class="spread">±{escape(entry.spread)}</span>' if entry.spread else ""
    brackets = f' <span class="interval">{escape(entry.brackets)}</span>' if entry.interval else ""
    kind = "number best" if entry.bold else "number"
    return f'<td class="{kind}">{pad}{value}{spread}{brackets}{_raised(entry)}</td>'


def _raised(entry: Entry) -> str:
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
