"""Sentences of documents that rest on published results: they stay as they were written, while they are true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rewind.errors import RewindError
from rewind.publishing.choose import column, lines
from rewind.reporting.sheet import Sheet

CLAIMS = {"unmarked": 1, "says": 3}
"""Kinds, and how many words each takes behind it."""


class Untrue(RewindError):
    """A sentence that published results do not bear out."""


def check(kind: str, sheets: Mapping[str, Sheet], words: Sequence[str], options: Mapping[str, str]) -> None:
    """Refuse a sentence that does not hold on every machine.

    Args:
        kind: ``unmarked``: no value is significantly better than another; ``says``: a column says the same word in
            every row.
        sheets: machine → the table.
        words: of ``says``: the column and the word.
        options: ``rows`` and ``part`` narrow the table down.

    Raises:
        Untrue: naming the machine and the row.
    """
    for machine, whole in sheets.items():
        sheet = lines(whole, options)
        numbers = [at for at, head in enumerate(sheet.heads) if head.number]
        for at in numbers if kind == "unmarked" else [column(sheet, words[0])]:
            for label, entry in zip(sheet.column(0), sheet.column(at), strict=True):
                place = f"{machine}, {label.value}, {sheet.heads[at].name}"
                if kind == "unmarked" and entry.raised:
                    raise Untrue(f"{place}: {entry.value} is significantly better than {entry.raised}")
                if kind == "says" and entry.value != words[1]:
                    raise Untrue(f"{place}: it is {entry.value}, not {words[1]}")
