"""What the rows of a user's table must be: a schema for each format, and the one function that checks rows against it.

Rows are those of a CSV, of a list of objects in JSON, or of a Parquet file; an equal mistake gets an equal sentence in
all of them. :func:`unknown_name` is the one sentence about a name that another file lacks.
"""

from __future__ import annotations

import ast
import math
import re
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal

from rewind.errors import RewindError

# ASCII: \d also matches digits of other scripts, which float() would read.
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)

# ---- Schemas ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """What the cells of a column, or the values of a key, may be.

    Attributes:
        filled: whether no cell may be empty.
        is_id: an id: filled, and white space around it is refused, since with it the id would be another one.
        kind: ``texts``: a list of texts; ``number`` or ``whole``: a number, in a CSV written as one; ``id``: text or a
            whole number.
        choices: the only values there may be, besides an empty cell where ``filled`` is false.
        least: smallest value of a number; all are finite.
    """

    optional: bool = False  # whether the column may be missing
    filled: bool = False
    is_id: bool = False
    kind: Literal["text", "texts", "number", "whole", "id"] = "text"
    choices: tuple[str, ...] = ()
    least: float = -math.inf
    prose: bool = False  # whether it is a caption: a list that is written as text is refused
    within: str = ""  # what the path in a cell must stay inside of, for example ``source.videos``


TEXT, FILLED, ID = Column(), Column(filled=True), Column(is_id=True, filled=True)
OF_OTHER_CLIPS = "rows of clips that `only` leaves out"
CAPTION = Column(prose=True)
OPTIONAL, TEXTS = Column(optional=True), Column(kind="texts")


@dataclass(frozen=True)
class Schema:
    """The columns of a table, by name."""

    columns: Mapping[str, Column]
    others: bool = False  # whether further columns are allowed; they are not checked
    unique: tuple[tuple[str, ...], ...] = ()  # no two rows have the same cells in all columns of such a group

    @property
    def known(self) -> tuple[str, ...]:
        return tuple(self.columns)

    @property
    def needed(self) -> tuple[str, ...]:
        return tuple(name for name, column in self.columns.items() if not column.optional)

    @property
    def optional(self) -> tuple[str, ...]:
        return tuple(name for name, column in self.columns.items() if column.optional)


@dataclass
class RowChecks:
    """Checks the rows of one file, one after the other.

    >>> checks = RowChecks(Schema({"caption_id": ID}, unique=(("caption_id",),)), {"caption_id": {"v0#0"}}, "the data")
    >>> checks.take("a.csv: row 2", {"caption_id": "v0#0"})
    True
    >>> checks.take("a.csv: row 3", {"caption_id": "v0#0"})
    Traceback (most recent call last):
        ...
    rewind.errors.RewindError: a.csv: row 3: the caption_id 'v0#0' is in row 2 already; keep one.
    """

    schema: Schema
    known: Mapping[str, Collection[str]] = field(default_factory=dict)  # column → the ids that its cells may name
    of: str = ""  # what has these ids, for messages: ``the test split``
    left_out: list[str] | None = None  # None: an unknown id is refused; a list: it gains the place of the row left out
    noun: str = "row"  # what the file's rows are called
    _first: dict[tuple[str, ...], str] = field(default_factory=dict, repr=False)

    def take(self, where: str, cells: Mapping[str, Any]) -> bool:
        """Whether a row is used: it is not if it names an unknown id and ``left_out`` is a list.

        Raises:
            RewindError: naming the row and the column, for a cell that cannot be meant, an unknown id, or a row that
                repeats another one.
        """
        if fault := self.fault(cells):
            raise RewindError(f"{where}: {fault}.")
        for group in self.schema.unique:
            if all(name in cells for name in group):
                self._refuse_repeated(group, cells, where)
        for name, ids in self.known.items():
            if name in cells and cells[name] not in ids:
                if self.left_out is None:
                    raise RewindError(f"{where}: {unknown_name(f'the {name}', cells[name], ids, self.of, self.noun)}.")
                self.left_out.append(where)
                return False
        return True

    def fault(self, cells: Mapping[str, Any]) -> str:
        """What is wrong with the cells of a row by themselves; empty where nothing is."""
        for name, column in self.schema.columns.items():
            if name in cells:
                if fault := cell_fault(name, cells[name], column, self.noun):
                    return fault
            elif not column.optional:
                return f"{name!r} is missing; write it, or delete the {self.noun}"
        return ""

    def _refuse_repeated(self, group: tuple[str, ...], cells: Mapping[str, Any], where: str) -> None:
        key = (*group, *(str(cells[name]) for name in group))
        first = self._first.setdefault(key, where)
        if first != where:
            what = " with the ".join(f"{name} {cells[name]!r}" for name in group)
            file, _, place = first.rpartition(": ")
            place = place if where.startswith(f"{file}: ") else first
            raise RewindError(f"{where}: the {what} is in {place} already; keep one.")


def checked_objects(
    value: object, where: str, schema: Schema, known: Mapping[str, Collection[str]] | None = None, of: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSON list with their places, each checked; ``known`` and ``of``: see :class:`RowChecks`.

    Raises:
        RewindError: naming the place and the entry, which count from 0.
    """
    checks = RowChecks(schema, known or {}, of, noun="entry")
    if not isinstance(value, list):
        raise RewindError(f"{where}: a list of objects is needed, not {json_type_name(value)}.")
    for number, entry in enumerate(value):
        place = f"{where}[{number}]"
        checks.take(place, object_of(entry, place))
        yield place, entry


def object_of(value: object, where: str) -> dict[str, Any]:
    """The object at a place of a JSON file; anything else is refused."""
    if not isinstance(value, dict):
        raise RewindError(f"{where}: an object is needed, not {json_type_name(value)}.")
    return value


def texts_of(value: object, where: str) -> list[str]:
    """The list of texts at a place of a JSON file; anything else is refused."""
    if fault := _texts_fault("it", value):
        raise RewindError(f"{where}: {fault.replace(repr('it'), 'it', 1)}.")
    return list(value)  # type: ignore[call-overload]


def json_type_name(value: object) -> str:
    """The type of a JSON value, in words.

    >>> json_type_name([1, 2]), json_type_name(True)
    ('a list', 'true or false')
    """
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def number_of(value: object) -> float:
    """A finite number, or a text that is one; NaN for anything else, such as ``nan``, ``1_000`` or true.

    >>> number_of("1.5"), number_of(2), number_of("inf"), number_of(True)
    (1.5, 2.0, nan, nan)
    """
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return math.nan
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return math.nan
    number = float(value)
    return number if math.isfinite(number) else math.nan


def cell_fault(name: str, value: Any, column: Column, noun: str = "row") -> str:
    """What is wrong with a cell; empty where nothing is.

    >>> cell_fault("split", "dev", Column(choices=("train", "valid", "test")))
    "'split' is 'dev'; use train, valid or test"
    """
    if column.kind == "texts":
        return _texts_fault(name, value)
    if column.kind in ("number", "whole"):
        number, kinds = number_of(value), "a number" if column.kind == "number" else "a whole number"
        if math.isnan(number) or (column.kind == "whole" and not number.is_integer()):
            return f"{name!r} must be {kinds}, and is {_said(value)}"
        return f"{name!r} is {value}, below {column.least:g}; correct it" if number < column.least else ""
    if column.kind == "id" and isinstance(value, int) and not isinstance(value, bool):
        return ""
    if not isinstance(value, str):
        kinds = "a text or a whole number" if column.kind == "id" else "a text"
        return f"{name!r} must be {kinds}, and is {json_type_name(value)}"
    if column.filled and not value.strip():
        return f"{name!r} is empty; write it, or delete the {noun}"
    if column.is_id and value != value.strip():
        return f"column {name!r}: {value!r} has white space around it; remove it"
    if column.prose and (fault := caption_fault(value)):
        return fault
    if column.choices and value and value not in column.choices:
        return f"{name!r} is {value!r}; use {one_of(column.choices)}"
    if column.within and (path := PurePosixPath(value)) and (path.is_absolute() or ".." in path.parts or not path.name):
        return f"{name!r} is {value!r}, and must name a file inside {column.within}, relative to it"
    return ""


def caption_fault(text: str) -> str:
    r"""Why a text cannot be a caption; empty where nothing is wrong.

    >>> caption_fault("(1, 'a cat')"), caption_fault("[music] a dog")
    ('the caption "(1, \'a cat\')" is a list written as text; write a row, or an entry, for each', '')
    """
    if text[:1] not in ("[", "(", "{") or text[-1:] not in ("]", ")", "}"):
        return ""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # the last two: nested too deeply for the parser
        return ""
    if not isinstance(value, list | tuple | set | dict) or not any(isinstance(part, str) for part in value):
        return ""
    return f"the caption {text[:60]!r} is a list written as text; write a row, or an entry, for each"


def one_of(names: Sequence[str]) -> str:
    """``train, valid or test``; one name alone."""
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _texts_fault(name: str, value: object) -> str:
    if not isinstance(value, list):
        return f"{name!r} must be a list of texts, and is {json_type_name(value)}"
    if odd := [json_type_name(text) for text in value if not isinstance(text, str)]:
        return f"{name!r} must be a list of texts, and one is {odd[0]}"
    return next(filter(None, map(caption_fault, value)), "")


def _said(value: object) -> str:
    return repr(value) if isinstance(value, str | float) else json_type_name(value).replace("a number", str(value))


def tell_left_out(where: object, counts: Mapping[str, int]) -> None:
    """Print what a reader has not used of a file, on the error stream: ``answers.csv: not used: rows of … (3)``."""
    if parts := [f"{what} ({count:,})" for what, count in counts.items() if count]:
        print(f"{where}: not used: {', '.join(parts)}", file=sys.stderr)


# ---- Names that another file lacks -----------------------------------------------------------------------------------


def unknown_name(what: str, name: str, known: Iterable[str], of: str, noun: str = "row") -> str:
    """The sentence about a name that is not where it should be, with the one that was probably meant.

    >>> unknown_name("the item_id", "V1", ["v1"], "the test split")
    "the item_id 'V1' is not in the test split, but 'v1' is, which differs only in upper and lower case; correct it"
    """
    if twin := similar_name(name, known):
        return f"{what} {name!r} is not in {of}, but {twin}; correct it"
    return f"{what} {name!r} is not in {of}; correct it, or delete the {noun}"


def similar_name(name: str, known: Iterable[str]) -> str:
    """The name among others that is written almost alike, and in what they differ; empty if there is none.

    >>> similar_name("v1", ["v1.mp4"]), similar_name("v1", ["v2"])
    ("'v1.mp4' is, which differs only in the ending of a file", '')
    """
    names = list(known)
    for difference, plain in _DIFFERENCES.items():
        key = plain(name)
        if other := next((other for other in names if other != name and plain(other) == key), None):
            if difference != _UNICODE_FORM:
                return f"{other!r} is, which differs only in {difference}"
            return (
                f"{other!a} is, which differs only in Unicode form (here {name!a}): save both in one form, "
                "for example NFC"
            )
    return ""


def _without_ending(name: str) -> str:
    return re.sub(r"\.[A-Za-z]\w{1,4}(?=$|#|~)", "", name)


def _plainest(name: str) -> str:
    letters = unicodedata.normalize("NFKC", _without_ending(name)).casefold()
    return re.sub(r"(?<!\d)0+(?=\d)", "", "".join(sign for sign in letters if sign.isalnum() or sign in "#~"))


_UNICODE_FORM = "Unicode form"
_DIFFERENCES: dict[str, Callable[[str], str]] = {
    _UNICODE_FORM: lambda name: unicodedata.normalize("NFC", name),
    "upper and lower case": str.casefold,
    "white space": lambda name: "".join(name.split()),
    "the ending of a file": _without_ending,
    "the folder before it": lambda name: name.replace("\\", "/").rpartition("/")[2],
    "leading zeros": lambda name: re.sub(r"(?<!\d)0+(?=\d)", "", name),
    "signs, case or form": _plainest,
}
"""In what two names may differ that are meant to be one → what is equal then; the likeliest first."""
