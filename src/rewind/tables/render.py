"""Tables as Markdown, LaTeX, HTML, JSON and text for the terminal, and the files that they are written to.

The layout of a markup is a template in ``tables/templates``. There, whatever a template prints is escaped for its
markup, unless it is :class:`markupsafe.Markup` and so escaped already.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from rewind.errors import printable, printable_name
from rewind.hashing import short_hash
from rewind.io.files import read_json, write_json, write_spreadsheet, write_text
from rewind.tables.latex import escape_latex, latex_blocks
from rewind.tables.table import Cell, Table

# ---- Templates -----------------------------------------------------------------------------------------------------

TEMPLATES_FOLDER = Path(__file__).parent / "templates"
# A LaTeX file is full of the braces and percent signs that mark gaps in other templates.
_LATEX_SIGNS: dict[str, Any] = {
    "block_start_string": "<%",
    "block_end_string": "%>",
    "variable_start_string": "<<",
    "variable_end_string": ">>",
    "comment_start_string": "<#",
    "comment_end_string": "#>",
}
ARROW_MEANINGS = {"↑": "higher is better", "↓": "lower is better"}


def render_template(name: str, folder: Path = TEMPLATES_FOLDER, **content: Any) -> str:
    """A template with its gaps filled; its suffix decides how text is escaped, but for :class:`markupsafe.Markup`."""
    return _environment(Path(name).suffix, folder).get_template(name).render(content)


@functools.cache
def _environment(suffix: str, folder: Path) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, TEMPLATES_FOLDER]),  # the parts of tables are available to all
        autoescape=True,  # with the function below, which runs first, in place of Jinja's own, which is for HTML
        finalize=functools.partial(_escaped, _ESCAPES[suffix]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **(_LATEX_SIGNS if suffix == ".tex" else {}),
    )
    environment.globals["ARROWS"] = ARROW_MEANINGS
    return environment


def _escaped(escape: Callable[[str], str], value: Any) -> Markup:
    return value if isinstance(value, Markup) else Markup(escape(str(value)))


def templates_hash() -> str:
    """Content hash (16 hex digits) of the tables’ templates, which the hash of Python code does not include."""
    return short_hash(*(path.name.encode() + b"\0" + path.read_bytes() for path in sorted(TEMPLATES_FOLDER.iterdir())))


# ---- Markdown ------------------------------------------------------------------------------------------------------

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
    line = _SPECIAL_CHARACTERS.sub(r"\\\1", printable(" ".join(text.split())))
    # At the beginning of a line these would start a list, a heading or a quotation.
    return re.sub(r"^(\d+)([.)])(?=\s|$)|^([-+=#>])", lambda m: f"{m[1]}\\{m[2]}" if m[1] else f"\\{m[3]}", line)


def escape_html(text: str) -> str:
    r"""``text`` so that HTML shows it as itself, and what cannot be shown as :func:`rewind.errors.printable` writes it.

    Example:
        >>> print(escape_html('<b title="\u202e">'))
        &lt;b title=&quot;\u202e&quot;&gt;
    """
    return html.escape(printable(text))


_ESCAPES: Mapping[str, Callable[[str], str]] = {".md": escape_markdown, ".tex": escape_latex, ".html": escape_html}


def render_markdown(table: Table) -> str:
    """The table under its heading, its notes as a list; numbers are aligned at their decimal points."""
    return render_template("table.md", table=table, rows=[Markup(line) for line in markdown_rows(table)])


def markdown_rows(table: Table) -> list[str]:
    """Only the lines of the table, without heading and notes.

    Example:
        >>> from rewind.tables.table import Column, RowGroup, number_cell
        >>> columns = (Column("Method", number=False), Column("R@1", "↑"))
        >>> rows = RowGroup("", ((Cell("meanP"), number_cell(9.2)), (Cell("WTI"), number_cell(41.0, bold=True))))
        >>> print("\\n".join(markdown_rows(Table("Table A", "Origin", "origin", columns, (rows,)))))
        | Method | R@1 ↑      |
        | :----- | :--------- |
        | meanP  | &numsp;9.2 |
        | WTI    | **41.0**   |
    """
    titles = [escape_markdown(column.name) for column in table.columns]
    rows = []
    for group in table.groups:
        if group.title:  # instead of a rule, which Markdown tables do not have
            rows.append([f"*{escape_markdown(group.title)}*", *[""] * (len(titles) - 1)])
        rows += [[_markdown_cell(table, position, cell) for position, cell in enumerate(row)] for row in group.rows]
    widths = [max(3, *(len(row[position]) for row in [titles, *rows])) for position in range(len(titles))]
    lines = [titles, [":" + "-" * (width - 1) for width in widths], *rows]
    return [
        "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]


def _markdown_cell(table: Table, position: int, cell: Cell) -> str:
    marks = f" <sup>{escape_markdown(cell.marks)}</sup>" if cell.marks else ""
    if not table.columns[position].number:
        return escape_markdown(cell.text) + marks
    pad = _FIGURE_SPACE * (table.whole_width(position) - len(cell.whole))
    number, brackets = (_SPECIAL_CHARACTERS.sub(r"\\\1", text) for text in (cell.text, cell.brackets))
    number = f"**{number}**" if cell.bold else number
    spread = f"±{cell.spread}" if cell.spread else ""
    brackets = f" {brackets}" if brackets else ""
    return (pad + number + spread + brackets + marks).strip()


# ---- LaTeX and HTML ------------------------------------------------------------------------------------------------


def render_latex(table: Table) -> str:
    """The table as a float, to be read by ``\\input``; it compiles under plain pdflatex with booktabs.

    Columns that do not fit side by side are stacked; rows that do not fit on a page go into another float. The
    notes are ``latex_notes`` where there are any, else ``notes``.
    """
    pages, gap = latex_blocks(table)
    notes = table.notes if table.latex_notes is None else table.latex_notes
    return render_template("table.tex", table=table, label=Markup(table.slug), pages=pages, gap=gap, notes=notes)


def render_html(table: Table) -> str:
    """The table as an HTML fragment without styles, to be embedded in any page.

    Classes: ``rewind-table`` on the table, ``number`` on cells of numbers, ``best`` on bold ones, ``spread``,
    ``interval`` and ``marks`` on what follows a number, ``arrow`` in headings, ``part`` on a body with a title of its
    own, ``notes`` on the list below. Numbers are aligned at their decimal points in any font whose digits have equal
    widths (``font-variant-numeric: tabular-nums``).
    """
    return render_template("table.html", table=table)


# ---- Text for the terminal -----------------------------------------------------------------------------------------


def render_text(table: Table) -> str:
    """The table aligned at decimal points, ``*`` before a bold value, letters in brackets; its key explains them.

    Example:
        >>> from rewind.tables.table import Column, RowGroup, number_cell
        >>> columns = (Column("Method", number=False), Column("R@1", "↑"))
        >>> rows = RowGroup("", ((Cell("meanP"), number_cell(9.2)), (Cell("WTI"), number_cell(41.0, bold=True))))
        >>> print(render_text(Table("Table A", "Origin", "origin", columns, (rows,))))
        Table A. Origin
        Method  R@1 ↑
        ─────────────
        meanP     9.2
        WTI     *41.0
        <BLANKLINE>
    """
    titles = [column.name for column in table.columns]
    columns = [
        _text_numbers(table, position) if column.number else _text_labels(table.cells(position))
        for position, column in enumerate(table.columns)
    ]
    widths = [max(len(cell) for cell in [title, *cells]) for title, cells in zip(titles, columns, strict=True)]
    head, *rows = (
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in [titles, *zip(*columns, strict=True)]
    )
    rule = "─" * max(map(len, [head, *rows]))
    lines, first_row = [table.heading, head], 0
    for group in table.groups:
        lines += [rule, group.title] if group.title else [rule]
        lines += rows[first_row : first_row + len(group.rows)]
        first_row += len(group.rows)
    key = [printable(table.key)] if table.key else []  # of several lines
    return "\n".join([*map(printable_name, lines), *key]) + "\n"


def _text_labels(cells: list[Cell]) -> list[str]:
    width = max(len(cell.marks) for cell in cells)
    texts = [printable_name(cell.text) for cell in cells]
    return [f"{cell.marks.ljust(width)}  {text}" if width else text for cell, text in zip(cells, texts, strict=True)]


def _text_numbers(table: Table, position: int) -> list[str]:
    cells = table.cells(position)
    whole_width = table.whole_width(position) + any(cell.bold for cell in cells)
    lines = [f"{'*' if cell.bold else ''}{cell.whole}".rjust(whole_width) + cell.rest for cell in cells]
    spreads = [f"±{cell.spread}" if cell.spread else "" for cell in cells]
    brackets = [f" {cell.brackets}" if cell.brackets else "" for cell in cells]
    marks = [f" ({cell.marks})" if cell.marks else "" for cell in cells]
    for texts in (spreads, brackets, marks):
        if any(texts):
            width = max(map(len, lines))
            lines = [line.ljust(width) + text for line, text in zip(lines, texts, strict=True)]
    return [line.rstrip() for line in lines]


# ---- Files ---------------------------------------------------------------------------------------------------------

# To add a markup, write a function for it and add a line here.
MARKUPS: Mapping[str, Callable[[Table], str]] = {
    ".md": render_markdown,
    ".tex": render_latex,
    ".html": render_html,
}
"""Suffix → function that renders a table with its notes."""

JSON_FILE = "tables.json"
JSON_FORMAT = 1
"""Raised when a key of ``tables.json`` changes its meaning or is removed."""


def write_table(folder: str | Path, table: Table, prefix: str = "") -> list[Path]:
    """Write a table in every markup and as CSV; returns the paths in the order of :data:`MARKUPS`, CSV last."""
    stem = Path(folder) / f"{prefix}{table.name}"
    csv_path = Path(f"{stem}.csv")
    paths = write_markups(stem, table)
    write_spreadsheet(csv_path, table.data)
    return [*paths, csv_path]


def write_markups(stem: Path, table: Table) -> list[Path]:
    """Write a table in every markup, to ``<stem>.md`` and so on; returns the paths in the order of :data:`MARKUPS`."""
    paths = []
    for suffix, render in MARKUPS.items():
        paths.append(Path(f"{stem}{suffix}"))
        write_text(paths[-1], render(table))
    return paths


NOTES_NAME = "notes"
"""Name of the files with the notes of all tables, without prefix and suffix."""


def write_tables(
    folder: str | Path, tables: Iterable[Table], prefix: str = "", shared: Sequence[str] = ()
) -> list[Path]:
    """Write all tables of a study as :func:`write_table` does, their notes in common, and ``tables.json`` with all.

    Args:
        tables: in reading order.
        prefix: put before the names of the files of every table, not before ``tables.json``.
        shared: notes that hold for all of them.

    Returns:
        The paths, ``tables.json`` last.
    """
    paths, contents = [], []
    for table in tables:
        files = write_table(folder, table, prefix)
        paths += files
        contents.append(table.to_json() | {"files": [path.name for path in files]})
    for suffix in MARKUPS if shared else ():
        paths.append(Path(folder) / f"{prefix}{NOTES_NAME}{suffix}")
        write_text(paths[-1], render_template(f"notes{suffix}", notes=list(shared)))
    paths.append(Path(folder) / JSON_FILE)
    write_json(paths[-1], {"format": JSON_FORMAT, "tables": contents, "notes": list(shared)})
    return paths


def read_tables(folder: str | Path) -> list[Table]:
    """The tables of a ``tables.json``, as :func:`write_tables` wrote it."""
    return [Table.from_json(content) for content in read_json(Path(folder) / JSON_FILE)["tables"]]


def read_shared_notes(folder: str | Path) -> list[str]:
    """The notes of all tables of a ``tables.json``; none in one of an earlier version."""
    return list(read_json(Path(folder) / JSON_FILE).get("notes", []))
