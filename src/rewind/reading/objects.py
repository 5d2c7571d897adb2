"""JSON that a user brings: refused with its row wherever it is not JSON, or holds what nobody can have meant."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rewind.errors import RewindError
from rewind.files import naming_file
from rewind.reading.text import place, read_text

_HEX = "[0-9a-fA-F]"
# Pairs of surrogates are one character; one alone is none, and no file can be written with it.
_ESCAPES = re.compile(
    rf"\\(?:\\|u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}|(?P<lone>u[dD][89a-fA-F]{_HEX}{{2}})|(?P<nul>u0000))"
)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s"{}\[\]:,]+', re.DOTALL)
DIGITS = 300  # of a whole number; longer ones are no float


class _Unwanted(ValueError):
    """What a parser must not let pass; the ``token`` that is the fault is looked for in the text."""

    def __init__(self, said: str, token: Callable[[str], bool] | None = None) -> None:
        super().__init__(said)
        self.token = token


def read_json(path: str | Path, missing: str = "", infinite: bool = False) -> Any:
    """The content of a JSON file.

    Args:
        path: the file.
        missing: see :func:`~rewind.reading.text.read_text`.
        infinite: whether ``NaN`` and ``Infinity`` are read, for a caller that says whose number it is.

    Raises:
        RewindError: as :func:`~rewind.reading.text.read_text`; where the file is not JSON, is nested too deeply, has a
            key twice in one object, a number that is none (``NaN``, ``1e999``, thousands of digits), or a character
            that is none.
    """
    with naming_file(path):
        text = read_text(path, missing)
        check_characters(text, path)
        return parsed(text, path, lambda: decoder(infinite).decode(text))


def parsed(text: str, where: str | Path, parse: Callable[[], Any]) -> Any:
    """What ``parse`` makes of a text with :func:`decoder`; what it refuses is said with its row.

    Raises:
        RewindError: see :func:`read_json`; ``where`` leads.
    """
    try:
        return parse()
    except json.JSONDecodeError as error:
        raise RewindError(f"{where}: not valid JSON: {error}.") from error
    except _Unwanted as error:
        row, column = place(text[: _start(text, error.token)])
        raise RewindError(f"{where}: row {row}, character {column}: {error}") from error
    except RecursionError as error:
        raise RewindError(
            f"{where}: lists and objects are nested too deeply to be read; a few levels suffice."
        ) from error


def check_characters(text: str, where: str | Path) -> None:
    """Refuse escapes that stand for no character: half a surrogate pair, or NUL.

    Raises:
        RewindError: naming the row of the first.
    """
    for found in _ESCAPES.finditer(text) if "\\u" in text else ():
        if found.lastgroup:
            what = "half a surrogate pair" if found.lastgroup == "lone" else "a NUL character"
            row, column = place(text[: found.start()])
            raise RewindError(f"{where}: row {row}, character {column}: {found[0]} is {what}; correct the text.")


def decoder(infinite: bool = False) -> json.JSONDecoder:
    """A parser that refuses keys that are there twice, and numbers that are none."""
    constants = None if infinite else _constant
    return json.JSONDecoder(object_pairs_hook=_unique, parse_constant=constants, parse_float=_finite, parse_int=_whole)


def kind(value: object) -> str:
    """What a JSON value is, in words."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _Unwanted(f"the key {twice!r} is given twice in one object; keep one.")
    return found


def _constant(name: str) -> None:
    raise _Unwanted(f"{name} is no JSON; write a number, or null.", lambda token: token == name)


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _Unwanted(f"the number {_short(digits)} is too large.", lambda token: token == digits)
    return value


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        said = f"the number {_short(digits)} has {len(digits):,} digits, more than any number here may have."
        raise _Unwanted(said, lambda token: token == digits)
    return int(digits)


def _short(digits: str) -> str:
    return digits if len(digits) <= 20 else f"{digits[:8]}…"


def _start(text: str, wanted: Callable[[str], bool] | None) -> int:
    """Where the first token is that is wanted; without one, the first key that its object has already."""
    objects: list[set[str] | None] = []
    last = None
    for found in _TOKEN.finditer(text):
        token = found[0]
        if wanted is not None and wanted(token):
            return found.start()
        if token in "{[":
            objects.append(set() if token == "{" else None)
        elif token in "}]" and objects:
            objects.pop()
        elif token == ":" and wanted is None and objects and objects[-1] is not None and last is not None:
            key = json.loads(last[0], strict=False)
            if key in objects[-1]:
                return last.start()
            objects[-1].add(key)
        last = found
    return 0
