"""Strict readers for text, CSV and JSON files of users: every fault is reported with its file and row.

Files are UTF-8. Rows and characters are counted from 1, as text editors show them. Wrong encodings, missing or
unknown columns, unclosed quotes, duplicate keys, NaN and infinity are refused, unless a caller allows further
columns or infinite numbers.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rewind.errors import RewindError, printable_name
from rewind.io.files import KIND_BYTES, SAVE_AS_UTF8, file_kind, name_file_in_errors, reading_user_file
from rewind.io.schema import RowChecks, Schema

_LINE_WITH_END = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_LINE_END = re.compile(r"\r\n|\r|\n")
# The default of Python's csv module. Its limit is one for the whole process, which may have raised it
# (:func:`allow_long_cells`), so cells are measured here too.
MAX_CELL_CHARACTERS = 131_072
_TOO_FEW_CELLS, _TOO_MANY_CELLS = (
    "write a comma for every empty cell",
    "put cells that contain commas into double quotes",
)
MAX_INTEGER_DIGITS = 300  # digits of a whole number; longer ones do not fit into a float
_HEX = "[0-9a-fA-F]"
# A pair of surrogates is one character; half of one is not, and cannot be encoded as UTF-8. An escaped backslash is
# matched first, so that `\\u0000`, which is text, is skipped.
_INVALID_ESCAPES = re.compile(
    rf"\\(?:\\|u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}|(?P<lone>u[dD][89a-fA-F]{_HEX}{{2}})|(?P<nul>u0000))"
)
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s"{}\[\]:,]+', re.DOTALL)

# ---- Text: whole files in UTF-8 ------------------------------------------------------------------------------------


def read_user_bytes(path: str | Path, missing: str = "") -> bytes:
    """A file's content; ``missing`` is added to the message for a missing file, such as its key and how to get it.

    Raises:
        RewindError: if it is missing, cannot be read, or is a folder, a named pipe or a device.
    """
    with reading_user_file(path, "file", missing=missing):
        try:
            return Path(path).read_bytes()
        except FileNotFoundError as error:
            raise RewindError(f"{path}: no such file {missing}".rstrip(" .") + ".") from error
        except IsADirectoryError as error:
            raise RewindError(f"{path}: this is a folder; name the file itself.") from error
        except PermissionError as error:
            raise RewindError(
                f"{path}: this account may not read the file; ask its owner for the right, or copy it."
            ) from error
        except (OSError, ValueError) as error:  # a path with a NUL character is a ValueError
            raise RewindError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}).") from error


def read_user_text(path: str | Path, missing: str = "") -> str:
    """A text file without its byte order mark; line ends stay as they are.

    Raises:
        RewindError: as :func:`read_user_bytes`; for another encoding, NUL characters or an empty file.
    """
    return decode_utf8(read_user_bytes(path, missing), path)


def decode_utf8(raw: bytes, where: str | Path) -> str:
    """UTF-8 as text, without its byte order mark; messages begin with ``where``.

    Raises:
        RewindError: for another encoding, NUL characters or nothing at all.

    >>> decode_utf8("café".encode("latin-1"), "captions.txt")
    Traceback (most recent call last):
        ...
    rewind.errors.RewindError: captions.txt: not UTF-8: row 1, character 4 is the byte 0xE9, as in Latin-1 or \
Windows-1252, or in a file that is not text; save it as UTF-8.
    """
    if kind := file_kind(raw[:KIND_BYTES]):
        raise RewindError(f"{printable_name(where)}: the file {kind}.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # What comes before the fault is sound; decoding it without the mark gives the column that an editor shows.
        row, column = row_and_column(raw[: error.start].decode("utf-8-sig"))
        raise RewindError(
            f"{printable_name(where)}: not UTF-8: row {row}, character {column} is the byte "
            f"0x{raw[error.start]:02X}, as in Latin-1 or Windows-1252, or in a file that is not text; {SAVE_AS_UTF8}."
        ) from error
    nul = text.find("\0")
    if nul >= 0:
        row, column = row_and_column(text[:nul])
        raise RewindError(
            f"{printable_name(where)}: row {row}, character {column} is a NUL character, as in UTF-16 or in a file "
            f"that is not text; {SAVE_AS_UTF8}."
        )
    if not text.strip():
        raise RewindError(f"{printable_name(where)}: the file is empty.")
    return text


def split_lines(text: str) -> Iterator[str]:
    r"""Lines with their ends, as editors count them: after a line feed, a carriage return, or both.

    ``str.splitlines`` also splits at form feeds, U+2028 and others, which would shift row numbers.

    >>> list(split_lines("one\r\ntwo\rthree"))
    ['one\r\n', 'two\r', 'three']
    """
    return (match[0] for match in _LINE_WITH_END.finditer(text))


def row_and_column(before: str) -> tuple[int, int]:
    r"""Row and column, from 1, of the character that follows the text ``before``.

    >>> row_and_column("one\ntw")
    (2, 3)
    """
    ends = list(_LINE_END.finditer(before))
    return len(ends) + 1, len(before) - (ends[-1].end() if ends else 0) + 1


# ---- CSV: one header, equally many cells in every row, no row swallowed by another one's quotes --------------------


class CsvRow(NamedTuple):
    """A row: its line in the file, as an editor shows it, and its cells by column, without surrounding white space."""

    number: int
    cells: dict[str, str]


def read_user_csv(
    path: str | Path, columns: Schema, missing: str = "", checks: RowChecks | None = None
) -> Iterator[CsvRow]:
    """The rows of a CSV below its header, without blank ones.

    Args:
        missing: see :func:`read_user_bytes`.
        checks: of the rows, where they name what other files have; they have the same schema.

    Raises:
        RewindError: as :func:`read_user_text`; naming the row, for a column that is missing, unknown or listed twice,
            too many or too few cells, quotes that do not end where their cell does, and what :class:`RowChecks` refuse.
    """
    checks = checks or RowChecks(columns)
    rows = csv_records(read_user_text(path, missing), path)
    first, header = next(rows)
    header = [name.strip() for name in header]
    if "".join(header[:1]).strip('"').lower().startswith("sep="):
        raise RewindError(f"{path}: row {first}: {','.join(header)!r} is a line only for Excel; delete it.")
    _check_header(f"{path}: row {first}", header, columns)
    for number, cells in rows:
        if any(cell.strip() for cell in cells):
            where = f"{path}: row {number}"
            _check_row(where, header, cells, columns)
            stripped = (cell.strip() for cell in cells)
            row = {name: cell for name, cell in zip(header, stripped, strict=True) if name}
            if checks.take(where, row):
                yield CsvRow(number, row)


def _check_header(where: str, header: list[str], columns: Schema) -> None:
    # Columns without a name may stand, as spreadsheets leave them, as long as their cells are empty (_check_row).
    names = [name for name in header if name]
    unknown = [name for name in names if name not in columns.known]
    separator = next((sign for sign in (";", "\t", "|") if len(header) == 1 and sign in header[0]), "")
    if separator:
        raise RewindError(f"{where}: cells are separated by {separator!r}; save the table with commas.")
    for name in columns.needed:
        if name not in header:
            near = _closest_name(name, unknown)
            hint = f"is it {near!r}? " if near else ""
            more = f" and may have {', '.join(columns.optional)}" if columns.optional else ""
            raise RewindError(
                f"{where}: the column {name!r} is missing; {hint}The header needs {', '.join(columns.needed)}{more}."
            )
    for name in unknown:
        near = _closest_name(name, columns.known)
        if not columns.others:
            hint = f"did you mean {near!r}?" if near else "remove the column."
            raise RewindError(
                f"{where}: the column {name!r} is unknown, and would change nothing; {hint} Columns: "
                f"{', '.join(columns.known)}."
            )
    for name in names:
        if names.count(name) > 1:
            raise RewindError(f"{where}: the column {name!r} is listed twice; keep one.")


def _closest_name(name: str, names: Sequence[str]) -> str:
    by_case = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), by_case, n=1, cutoff=0.7)
    return by_case[near[0]] if near else ""


def _check_row(where: str, header: list[str], cells: list[str], columns: Schema) -> None:
    if len(cells) != len(header):
        advice = _TOO_MANY_CELLS if len(cells) > len(header) else _TOO_FEW_CELLS
        raise RewindError(f"{where}: {len(cells)} cells, but the header names {len(header)} columns; {advice}.")
    for number, (name, cell) in enumerate(zip(header, cells, strict=True), start=1):
        if not name and cell.strip():
            raise RewindError(f"{where}: {cell[:60]!r} is in column {number}, which has no name; name or empty it.")
        column = columns.columns.get(name)
        if column and column.is_id and cell != cell.strip():
            raise RewindError(f"{where}: column {name!r}: {cell!r} has white space around it; remove it.")


def csv_header(path: str | Path) -> list[str]:
    """Names of a CSV's columns, from its first line; nothing else is read or checked."""
    with reading_user_file(path, "CSV"), Path(path).open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        return [name.strip() for name in next(csv.reader(stream), [])]


def csv_records(text: str, where: str | Path) -> Iterator[tuple[int, list[str]]]:
    r"""Records of a CSV with the lines at which they begin, from 1; blank lines are empty records.

    Raises:
        RewindError: for quotes that are not closed, and for a record that contains what looks like other rows.

    >>> list(csv_records('a,b\n"1\n2",3\n4,5\n', "clips.csv"))
    [(1, ['a', 'b']), (2, ['1\n2', '3']), (4, ['4', '5'])]
    """
    # strict: otherwise text behind a closing quote would pass, and so would a quote that is open at the file's end.
    reader = csv.reader(split_lines(text), strict=True)
    width = 0
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise RewindError(
                f"{where}: row {start}: {explain_csv_error(str(error), start, reader.line_num)}."
            ) from error
        if any(len(cell) > MAX_CELL_CHARACTERS for cell in cells):
            raise RewindError(f"{where}: row {start}: {explain_csv_error('field limit', start, reader.line_num)}.")
        width = width or len(cells)
        if reader.line_num > start and (inner := _swallowed_row(cells, width)):
            raise RewindError(
                f"{where}: row {start}: its quoted text goes on to row {reader.line_num} and takes in what looks like "
                f"a row of its own: {inner[:60]!r}; close the quote, or write the text on one line."
            )
        yield start, cells


def _swallowed_row(cells: Sequence[str], width: int) -> str:
    """A line inside a quoted cell that looks like a row: the quote was probably never meant to go on this far.

    It has at least as many cells as a row, its first one is a single word, and no comma is followed by a blank, as in
    prose.
    """
    for cell in cells:
        for line in cell.splitlines()[1:]:
            parts = line.split(",")
            if 1 < width <= len(parts) and parts[0].strip() and " " not in parts[0] and line.find(", ") < 0:
                return line
    return ""


def explain_csv_error(message: str, start: int, end: int) -> str:
    """An error of Python's csv module, met between two rows, in terms of the file."""
    if "unexpected end of data" in message:
        down = f", so that all down to row {end} would be one cell" if end > start else ""
        return (
            f"not valid CSV: a quote opens a text here that none closes{down}; close it, or write a quote inside of a "
            'text as ""'
        )
    if "field limit" in message:
        return (
            f"not valid CSV: a cell has more than {MAX_CELL_CHARACTERS:,} characters; shorten it, or look for a "
            "quote that is not closed"
        )
    at = f"in row {end} " if end > start else ""
    return (
        f"not valid CSV: a quote {at}is followed by neither a comma nor the end of the row; write a quote inside of a "
        'text as "", and look for one that is not closed'
    )


@contextlib.contextmanager
def allow_long_cells() -> Iterator[None]:
    """Let Python's csv module take cells of any length (vectors written as text) while the block runs."""
    before = csv.field_size_limit(2**30)  # fits into a C long everywhere; sys.maxsize does not on Windows
    try:
        yield
    finally:
        csv.field_size_limit(before)


# ---- JSON: refused with its row if it is not valid, or contains what cannot be meant -------------------------------


def read_user_json(path: str | Path, missing: str = "", infinite: bool = False) -> Any:
    """The content of a JSON file.

    Args:
        missing: see :func:`read_user_bytes`.
        infinite: whether ``NaN`` and ``Infinity`` are read, for a caller that reports them with more context.

    Raises:
        RewindError: as :func:`read_user_text`; naming the row, if the file is not JSON, is nested too deeply, or has a
            key twice in one object, a number that is not one (``NaN``, ``1e999``, thousands of digits), or half of a
            surrogate pair.
    """
    with name_file_in_errors(path):
        text = read_user_text(path, missing)
        check_json_escapes(text, path)
        return parse_json(text, path, lambda: strict_json_decoder(infinite).decode(text))


def parse_json(text: str, where: str | Path, parse: Callable[[], Any]) -> Any:
    """The result of ``parse``, which reads ``text`` with :func:`strict_json_decoder`; its errors get a row.

    >>> text = '{"seed": 1, "seed": 2}'
    >>> parse_json(text, "study.json", lambda: strict_json_decoder().decode(text))
    Traceback (most recent call last):
        ...
    rewind.errors.RewindError: study.json: row 1, character 13: the key 'seed' is given twice in one object; keep one.
    """
    try:
        return parse()
    except json.JSONDecodeError as error:
        raise RewindError(f"{where}: not valid JSON: {error}.") from error
    except _RejectedValue as error:
        row, column = row_and_column(text[: _find_token(text, error.token)])
        raise RewindError(f"{where}: row {row}, character {column}: {error}") from error
    except RecursionError as error:
        raise RewindError(
            f"{where}: lists and objects are nested too deeply to be read; a few levels suffice."
        ) from error


def check_json_escapes(text: str, where: str | Path) -> None:
    """Refuse escapes that do not stand for a usable character: half a surrogate pair, or NUL."""
    for match in _INVALID_ESCAPES.finditer(text) if "\\u" in text else ():
        if match.lastgroup:
            what = "half a surrogate pair" if match.lastgroup == "lone" else "a NUL character"
            row, column = row_and_column(text[: match.start()])
            raise RewindError(f"{where}: row {row}, character {column}: {match[0]} is {what}; correct the text.")


def strict_json_decoder(infinite: bool = False) -> json.JSONDecoder:
    """A decoder that refuses repeated keys and numbers that are not finite; ``infinite`` lets NaN and Infinity pass."""
    constants = None if infinite else _reject_constant
    return json.JSONDecoder(
        object_pairs_hook=_unique_keys, parse_constant=constants, parse_float=_parse_finite, parse_int=_parse_integer
    )


class _RejectedValue(ValueError):
    """A value that a decoder must not let pass.

    The hooks of :class:`json.JSONDecoder` are not told where they are in the text, so ``token`` finds the fault again
    (:func:`_find_token`); None: a key that is given twice.
    """

    def __init__(self, message: str, token: Callable[[str], bool] | None = None) -> None:
        super().__init__(message)
        self.token = token


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise _RejectedValue(f"the key {repeated!r} is given twice in one object; keep one.")
    return value


def _reject_constant(name: str) -> None:
    raise _RejectedValue(f"{name} is no JSON; write a number, or null.", lambda token: token == name)


def _parse_finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _RejectedValue(f"the number {_shorten_digits(digits)} is too large.", lambda token: token == digits)
    return value


def _parse_integer(digits: str) -> int:
    if len(digits) > MAX_INTEGER_DIGITS:
        message = (
            f"the number {_shorten_digits(digits)} has {len(digits):,} digits, more than any number here may have."
        )
        raise _RejectedValue(message, lambda token: token == digits)
    return int(digits)


def _shorten_digits(digits: str) -> str:
    return digits if len(digits) <= 20 else f"{digits[:8]}…"


def _find_token(text: str, is_fault: Callable[[str], bool] | None) -> int:
    """Position of the first token for which ``is_fault`` is true; if it is None, of the first repeated key."""
    objects: list[set[str] | None] = []  # keys seen so far in each open object; None for an open list
    last = None
    for match in _JSON_TOKEN.finditer(text):
        token = match[0]
        if is_fault is not None and is_fault(token):
            return match.start()
        if token in "{[":
            objects.append(set() if token == "{" else None)
        elif token in "}]" and objects:
            objects.pop()
        elif token == ":" and is_fault is None and objects and objects[-1] is not None and last is not None:
            key = json.loads(last[0], strict=False)  # keys that differ only in escapes are one key
            if key in objects[-1]:
                return last.start()
            objects[-1].add(key)
        last = match
    return 0
