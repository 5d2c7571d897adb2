"""CSV that a user brings: one header, as many cells in every row, and no row inside of another one's quotes."""

from __future__ import annotations

import contextlib
import csv
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rewind.errors import RewindError
from rewind.files import reading_user_file
from rewind.reading.text import lines, read_text

# Python's own default. It holds for the whole process, which may have raised it, so that cells are measured here too.
LONGEST_CELL = 131_072

_FEWER, _MORE = "write a comma for every empty cell", "put cells that contain commas into double quotes"


class Row(NamedTuple):
    """A row: its line in the file, as an editor shows it, and its cells by column, without white space around."""

    number: int
    cells: dict[str, str]


@dataclass(frozen=True)
class Columns:
    """What a header may say.

    Attributes:
        needed: names that must be there.
        optional: names that may be.
        others: whether there may be further columns, which are not read.
        ids: columns whose cells are names, which white space around them would make others.
    """

    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()
    others: bool = False
    ids: tuple[str, ...] = ()

    @property
    def known(self) -> tuple[str, ...]:
        return (*self.needed, *self.optional)


def read_table(path: str | Path, columns: Columns, missing: str = "") -> Iterator[Row]:
    """The rows of a CSV below its header, without blank ones.

    Args:
        path: the file.
        columns: what its header may say.
        missing: see :func:`~rewind.reading.text.read_text`.

    Raises:
        RewindError: as :func:`~rewind.reading.text.read_text`; naming the row for a column that is missing, unknown or
            there twice, too many or too few cells, and quotes that do not end where their cell does.
    """
    rows = records(read_text(path, missing), path)
    first, header = next(rows)
    header = [name.strip() for name in header]
    _check_header(f"{path}: row {first}", header, columns)
    for number, cells in rows:
        if any(cell.strip() for cell in cells):
            _check_row(f"{path}: row {number}", header, cells, columns)
            stripped = (cell.strip() for cell in cells)
            yield Row(number, {name: cell for name, cell in zip(header, stripped, strict=True) if name})


def header(path: str | Path) -> list[str]:
    """Names of a CSV's columns, as its first line says them; nothing else is read or checked."""
    with reading_user_file(path, "CSV"), Path(path).open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        return [name.strip() for name in next(csv.reader(stream), [])]


def records(text: str, where: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Records of a CSV with the lines at which they begin; blank lines are empty records.

    Raises:
        RewindError: for quotes that are not closed, and for a record that takes in what looks like others.
    """
    reader = csv.reader(lines(text), strict=True)
    width = 0
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise RewindError(f"{where}: row {start}: {explained(str(error), start, reader.line_num)}.") from error
        if any(len(cell) > LONGEST_CELL for cell in cells):
            raise RewindError(f"{where}: row {start}: {explained('field limit', start, reader.line_num)}.")
        width = width or len(cells)
        if reader.line_num > start and (inner := _swallowed(cells, width)):
            raise RewindError(
                f"{where}: row {start}: its quoted text goes on to row {reader.line_num} and takes in what looks like "
                f"a row of its own: {inner[:60]!r}; close the quote, or write the text on one line."
            )
        yield start, cells


@contextlib.contextmanager
def long_cells() -> Iterator[None]:
    """Let Python's reader take cells of any length, as vectors written as text are, in here alone."""
    before = csv.field_size_limit(2**30)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def explained(said: str, start: int, end: int) -> str:
    """A fault of Python's reader, met between two rows, in words of the file."""
    if "unexpected end of data" in said:
        down = f", so that all down to row {end} would be one cell" if end > start else ""
        return (
            f"not valid CSV: a quote opens a text here that none closes{down}; close it, or write a quote inside of a "
            'text as ""'
        )
    if "field limit" in said:
        return (
            f"not valid CSV: a cell has more than {LONGEST_CELL:,} characters; shorten it, or look for a "
            "quote that is not closed"
        )
    at = f"in row {end} " if end > start else ""
    return (
        f"not valid CSV: behind a quote {at}stands neither a comma nor the end of the row; write a quote inside of a "
        'text as "", and look for one that is not closed'
    )


def _swallowed(cells: Sequence[str], width: int) -> str:
    """A line inside of a cell that has as many cells as a row, none of which begins with a blank as prose does."""
    for cell in cells:
        for line in cell.splitlines()[1:]:
            inner = line.split(",")
            if 1 < width <= len(inner) and inner[0].strip() and " " not in inner[0] and line.find(", ") < 0:
                return line
    return ""


def _check_header(where: str, header: list[str], columns: Columns) -> None:
    named = [name for name in header if name]
    strangers = [name for name in named if name not in columns.known]
    other = next((sign for sign in (";", "\t", "|") if len(header) == 1 and sign in header[0]), "")
    if other:
        raise RewindError(f"{where}: cells are separated by {other!r}; save the table with commas.")
    for name in columns.needed:
        if name not in header:
            near = _near(name, strangers)
            hint = f"is it {near!r}? " if near else ""
            more = f" and may have {', '.join(columns.optional)}" if columns.optional else ""
            raise RewindError(
                f"{where}: the column {name!r} is missing; {hint}The header needs {', '.join(columns.needed)}{more}."
            )
    for name in strangers:
        near = _near(name, columns.known)
        if not columns.others:
            hint = f"did you mean {near!r}?" if near else "remove the column."
            raise RewindError(
                f"{where}: the column {name!r} is unknown, and would change nothing; {hint} Columns: "
                f"{', '.join(columns.known)}."
            )
    for name in named:
        if named.count(name) > 1:
            raise RewindError(f"{where}: the column {name!r} is there twice; keep one.")


def _near(name: str, names: Sequence[str]) -> str:
    by_case = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), by_case, n=1, cutoff=0.7)
    return by_case[near[0]] if near else ""


def _check_row(where: str, header: list[str], cells: list[str], columns: Columns) -> None:
    if len(cells) != len(header):
        advice = _MORE if len(cells) > len(header) else _FEWER
        raise RewindError(f"{where}: {len(cells)} cells, but the header names {len(header)} columns; {advice}.")
    for number, (name, cell) in enumerate(zip(header, cells, strict=True), start=1):
        if not name and cell.strip():
            raise RewindError(f"{where}: {cell[:60]!r} stands in column {number}, which has no name; name or empty it.")
        if name in columns.ids and cell != cell.strip():
            raise RewindError(f"{where}: column {name!r}: {cell!r} has white space around it; remove it.")
