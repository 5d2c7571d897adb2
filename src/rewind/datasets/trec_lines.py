"""Lines of a TREC run that a user brings: ``query Q0 document rank score tag``."""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rewind.errors import RewindError
from rewind.files import reading_user_file
from rewind.reading.text import decoded, lines, read_bytes

_UNPACK = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}
_FIELDS = "query Q0 document rank score tag"
_BETWEEN = re.compile(r"[ \t]+")
LARGEST_SCORE = 3.4e38
"""Bound of scores on either side of zero: what single precision holds, in which they are kept."""
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


class Scored(NamedTuple):
    """The line of a pair, as an editor shows it, and what is read of it."""

    number: int
    query: str
    document: str
    score: float


def is_score(value: object) -> bool:
    """Whether a value is a number that a score can be: neither NaN nor infinite, in single precision either."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST_SCORE


def read_run(path: Path) -> Iterator[Scored]:
    """The pairs of a run; empty lines are skipped, and a file ``.gz``, ``.bz2`` or ``.xz`` is unpacked.

    Raises:
        RewindError: naming the line that has more or fewer than six fields, or whose score is no number.
    """
    raw = read_bytes(path, "write the scores there, or correct the path")
    if unpack := _UNPACK.get(path.suffix):
        with reading_user_file(path, f"{path.suffix} file"):
            raw = unpack(raw)
    for number, line in enumerate(lines(decoded(raw, path)), start=1):
        fields = _BETWEEN.split(line.strip(" \t\r\n"))
        if fields == [""]:
            continue
        if len(fields) != 6:
            raise RewindError(
                f"{path}: line {number}: {len(fields)} fields, not the six of a TREC run ({_FIELDS}). Blanks inside of "
                "ids are written %20; a matrix is an .npz."
            )
        score = float(fields[4]) if _NUMBER.fullmatch(fields[4]) else math.nan
        if not is_score(score):
            large = not math.isnan(score)
            what = f"is beyond {LARGEST_SCORE:g}, the largest in single precision" if large else "is not a number"
            remedy = "; divide all scores by one number, which changes no rank" if large else ""
            raise RewindError(f"{path}: line {number}: the score {what}: {fields[4][:40]!r}{remedy}.")
        yield Scored(number, fields[0], fields[2], score)
