"""Rendering of a marked block in a document.

A block is ``<!-- published: WHAT -->…<!-- end -->``. WHAT begins with the study (or the benchmark):

| WHAT | prints |
|---|---|
| ``demo table hard`` | the table as the terminal shows it |
| ``demo markdown hard columns="Method; R@1 ↑: value as R@1" rows="meanP; seqTransf" part="T2V"`` | a Markdown table |
| ``demo number hard seqTransf "R@1 ↑" spread part="T2V"`` | a number within a sentence: its value, or more |
| ``demo made`` | commit, date and machine |
| ``demo wall`` | how long the study took, as minutes and seconds |
| ``calibration markdown grid``, ``calibration number type-i-fisher`` | what the benchmark prints under this name |
| ``demo unmarked hard`` | the sentence as it stands, while no value of the table is significantly better than another |
| ``sanw says verdict Win no`` | the sentence as it stands, while the column says this in every row |

A column is named as the terminal names it; ``: value``, ``: spread`` and ``: interval`` print a part of its cells
(the first without letters). Numbers are the first machine's, marks those on which all published machines agree.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from library import NotPublished, ResultsLibrary, StoredResults, has_letters
from rewind.errors import RewindError
from rewind.report import markdown, notes, plain_text
from rewind.report.sheet import ColumnHead, RowGroup, Sheet, SheetCell
from store import describe_record, format_wall_time

# ---- Selecting rows and columns by their printed names -------------------------------------------------------------


def select_rows(sheet: Sheet, options: Mapping[str, str]) -> Sheet:
    """A table with some of its rows.

    Args:
        sheet: the table.
        options: ``part``, the title of the only part to keep; ``rows``, names of rows in their new order, separated by
            ``"; "``. Both may be absent.

    Raises:
        RewindError: for a part or row that the table does not have.
    """
    parts = sheet.parts
    if "part" in options:
        parts = tuple(replace(part, title="") for part in parts if part.title == options["part"])
        if not parts:
            titles = ", ".join(part.title for part in sheet.parts)
            raise RewindError(f"no part {options['part']!r} in {sheet.heading!r}; available: {titles}.")
    if "rows" in options:
        rows_by_name = {row[0].value: row for part in reversed(parts) for row in part.rows}
        names = options["rows"].split("; ")
        if unknown := [name for name in names if name not in rows_by_name]:
            raise RewindError(f"no row {unknown[0]!r} in {sheet.heading!r}; available: {'; '.join(rows_by_name)}.")
        parts = (RowGroup("", tuple(rows_by_name[name] for name in names)),)
    return replace(sheet, parts=parts)


def column_index(sheet: Sheet, name: str) -> int:
    """Number of the column with this name.

    Raises:
        RewindError: if there is none.
    """
    names = [head.name for head in sheet.heads]
    if name not in names:
        raise RewindError(f"no column {name!r} in {sheet.heading!r}; available: {', '.join(names)}.")
    return names.index(name)


# ---- Sentences that rest on published results ----------------------------------------------------------------------
# They stay as they were written while the results support them.

CLAIM_ARGUMENTS = {"unmarked": 1, "says": 3}
"""Kind of claim → number of words that follow it in the marker."""


class UntrueClaim(RewindError):
    """Raised for a sentence that published results do not support."""


def check_claim(kind: str, sheets: Mapping[str, Sheet], words: Sequence[str], options: Mapping[str, str]) -> None:
    """Refuse a sentence that does not hold on every machine.

    Args:
        kind: ``unmarked``: no value is significantly better than another; ``says``: a column has the same word in
            every row.
        sheets: machine → the table.
        words: of ``says``: the column and the word.
        options: ``rows`` and ``part`` select rows, see :func:`select_rows`.

    Raises:
        UntrueClaim: naming the machine and the row.
    """
    for machine, full_sheet in sheets.items():
        sheet = select_rows(full_sheet, options)
        numbers = [at for at, head in enumerate(sheet.heads) if head.number]
        for at in numbers if kind == "unmarked" else [column_index(sheet, words[0])]:
            for label, cell in zip(sheet.column(0), sheet.column(at), strict=True):
                where = f"{machine}, {label.value}, {sheet.heads[at].name}"
                if kind == "unmarked" and cell.raised:
                    raise UntrueClaim(f"{where}: {cell.value} is significantly better than {cell.raised}")
                if kind == "says" and cell.value != words[1]:
                    raise UntrueClaim(f"{where}: it is {cell.value}, not {words[1]}")


# ---- Rendering a block ---------------------------------------------------------------------------------------------

COUNT_WORDS = {2: "both", 3: "all three", 4: "all four"}
# Which part of a cell is printed → the cell reduced to it.
CELL_PIECES: dict[str, Callable[[SheetCell], SheetCell]] = {
    "": lambda entry: entry,
    "value": lambda entry: replace(entry, spread="", interval=None, raised=""),
    "spread": lambda entry: replace(entry, interval=None),
    "interval": lambda entry: replace(entry, spread=""),
}


def render_block(library: ResultsLibrary, what: str, body: str) -> str:
    """The text between the markers.

    Args:
        library: the published results.
        what: the marker's words.
        body: the present text.

    Raises:
        NotPublished: if no published results have what the block prints.
        UntrueClaim: for a sentence that the results do not support.
        UnreadableResults: if published results cannot be read.
        RewindError: for a marker that cannot be understood, or names a row or column that does not exist.
    """
    try:
        words = shlex.split(what)
    except ValueError as error:
        raise RewindError(f"{error} in its words; put names with spaces between double quotes.") from None
    options = dict(word.split("=", 1) for word in words if word.partition("=")[0] in ("columns", "rows", "part"))
    words = [word for word in words if word.partition("=")[0] not in options]
    source, kind, arguments = words[0], words[1] if len(words) > 1 else "", words[2:]
    counts = {"table": (1, 1), "markdown": (1, 1), "number": (1, 4), "made": (0, 0), "wall": (0, 0)}
    counts |= {claim: (number, number) for claim, number in CLAIM_ARGUMENTS.items()}
    if kind not in counts or not counts[kind][0] <= len(arguments) <= counts[kind][1]:
        raise RewindError(f"write `<study> {'|'.join(counts)} …`, as tools/publish/blocks.py lists.")
    stored = library.machines(source)
    if not stored:
        raise NotPublished(f"nothing of {source} is published")
    if kind == "made":
        return _describe_origin(stored)
    if kind == "wall":
        return _wall_time(stored[0])
    if stored[0].record["kind"] == "benchmark":
        return _benchmark_text(stored[0], arguments, kind == "markdown")
    if kind in CLAIM_ARGUMENTS:
        check_claim(kind, library.sheets(source, arguments[0]), arguments[1:], options)
        return body
    sheet = library.sheet(source, arguments[0])
    if kind == "table":
        return _terminal_table(sheet, len(stored))
    if kind == "number":
        return _number_text(select_rows(sheet, options), *arguments[1:])
    return "\n" + _markdown_table(select_rows(sheet, options), options) + "\n"


def _terminal_table(sheet: Sheet, count: int) -> str:
    key, *notes_below = sheet.key.splitlines() or [""]
    if key == notes.MARKS_KEY and count > 1:
        notes_below = [f"Only marks that {_all_machines(count)} agree on are shown.", *notes_below]
        if not has_letters(sheet):
            key, notes_below = "", []
    text = plain_text.render_text(replace(sheet, key="\n".join([key, *notes_below]).strip()))
    return "\n\n" + "\n".join(f"    {line}".rstrip() for line in text.splitlines()) + "\n\n"


def _all_machines(count: int) -> str:
    return f"{COUNT_WORDS.get(count, f'all {count}')} machines"


def _describe_origin(machines: list[StoredResults]) -> str:
    first, *others = machines
    text = describe_record(first.record)
    if others:
        text += f"; run again on {' and on '.join(describe_record(other.record) for other in others)}"
    return text


def _wall_time(stored: StoredResults) -> str:
    seconds = stored.record.get("wall_seconds")
    if seconds is None:
        raise NotPublished(
            f"how long {stored.record['name']} took is not known: its jobs did not run without interruption"
        )
    return format_wall_time(seconds)


def _benchmark_text(stored: StoredResults, arguments: list[str], is_block: bool) -> str:
    name = arguments[0]
    if name not in stored.texts:
        raise RewindError(f"{stored.record['name']} has no {name!r}; available: {', '.join(stored.texts)}.")
    return f"\n{stored.texts[name]}\n" if is_block else stored.texts[name]


def _number_text(sheet: Sheet, row: str = "", title: str = "", piece: str = "value") -> str:
    labels = [cell.value for cell in sheet.column(0)]
    if labels.count(row) != 1:
        problem = "occurs more than once; add part=" if row in labels else "is not there"
        raise RewindError(f"row {row!r} of {sheet.heading!r} {problem}; available: {'; '.join(labels)}.")
    cell = CELL_PIECES[_check_piece(piece)](sheet.column(column_index(sheet, title))[labels.index(row)])
    spread = f" ± {cell.spread}" if cell.spread else ""
    return f"{cell.value}{spread}" + (f" {cell.brackets}" if cell.brackets else "")


def _markdown_table(sheet: Sheet, options: dict[str, str]) -> str:
    selection = [_parse_column(text) for text in options["columns"].split("; ")] if "columns" in options else []
    indices = [column_index(sheet, name) for name, _, _ in selection] or list(range(len(sheet.heads)))
    table = sheet.pick(indices)
    for number, (_, piece, title) in enumerate(selection):
        table = _change_column(table, number, CELL_PIECES[piece], title)
    text = markdown.render_markdown(table, [])
    return text.split("\n\n", 1)[1].rstrip()


def _change_column(sheet: Sheet, at: int, piece: Callable[[SheetCell], SheetCell], title: str) -> Sheet:
    heads = list(sheet.heads)
    heads[at] = ColumnHead(title, number=heads[at].number) if title else heads[at]
    parts = tuple(
        RowGroup(part.title, tuple((*row[:at], piece(row[at]), *row[at + 1 :]) for row in part.rows))
        for part in sheet.parts
    )
    return replace(sheet, heads=tuple(heads), parts=parts)


def _parse_column(text: str) -> tuple[str, str, str]:
    """``R@1 ↑: value as R@1`` → name, piece, title."""
    text, _, title = text.partition(" as ")
    name, _, piece = text.partition(": ")
    return name, _check_piece(piece), title


def _check_piece(name: str) -> str:
    if name not in CELL_PIECES:
        raise RewindError(f"a cell has no part {name!r}; available: {', '.join(filter(None, CELL_PIECES))}.")
    return name
