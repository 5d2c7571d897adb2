"""``captions.txt`` of the challenge: which image each line's caption belongs to."""

from __future__ import annotations

import csv
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from rewind.errors import RewindError, listed
from rewind.reading.tables import explained
from rewind.reading.text import lines, read_text

SEPARATORS = ("|", "\t", ",", "  ", " ")


class Line(NamedTuple):
    """A caption: its line in the file (from 1), its image's row, its text."""

    number: int
    image: int
    caption: str


class Names:
    """Finds images by their full name, else by base name, else by stem.

    Args:
        names: of the images, in the order of their vectors.
        where: names the file in messages.

    Raises:
        RewindError: if a name is there twice.
    """

    def __init__(self, names: list[str], where: str) -> None:
        self.names, self.where = names, where
        self.exact: dict[str, int] = {}
        self.base: dict[str, list[int]] = {}
        self.stem: dict[str, list[int]] = {}
        for row, name in enumerate(names):
            if name in self.exact:
                raise RewindError(f"{where}: image {name!r} is in rows {self.exact[name]} and {row}; keep one.")
            self.exact[name] = row
            path = PurePosixPath(name.replace("\\", "/"))
            self.base.setdefault(path.name, []).append(row)
            self.stem.setdefault(path.stem, []).append(row)

    def find(self, token: str, where: str) -> int | None:
        """Row of the image that ``token`` names, None for none.

        Raises:
            RewindError: if several fit equally well (``where`` leads).
        """
        if token in self.exact:
            return self.exact[token]
        path = PurePosixPath(token.replace("\\", "/"))
        for known, key in ((self.base, path.name), (self.stem, path.stem if path.suffix else path.name)):
            rows = known.get(key, [])
            if len(rows) > 1:
                fits = ", ".join(repr(self.names[row]) for row in rows[:3])
                raise RewindError(
                    f"{where}: {token!r} matches several images of {self.where}: {fits}; write full names."
                )
            if rows:
                return rows[0]
        return None


def read_caption_lines(path: str | Path, names: Names) -> list[Line]:
    """Read ``captions.txt``: ``image,caption`` in CSV, or image and caption apart by ``|``, a tab or blanks.

    A first line without a known image is a header; where it is a CSV header with a column ``image`` (some releases have
    ``id`` before it), that column names the image. Empty lines are skipped.

    Raises:
        RewindError: naming lines whose image is unknown or ambiguous, or whose quotes do not end.
    """
    rows = [line.rstrip("\r\n") for line in lines(read_text(path))]
    column, found, faults = _image_column(rows[0]), [], []
    for number, line in enumerate(rows, start=1):
        if not line.strip() or (number == 1 and column is not None):
            continue
        where = f"{path}: line {number}"
        read = ([_from_column(line, column, where)] if column is not None else []) + _apart(line)
        rows = ((names.find(token, where), text) for token, text in read)
        hit = next(((row, text) for row, text in rows if row is not None), None)
        if hit is None and number == 1 and "." not in read[0][0]:
            continue  # a header of another form
        if hit is None:
            faults.append(f"  line {number}: {read[0][0]!r}")
        else:
            found.append(Line(number, hit[0], " ".join(hit[1].split())))
    if faults:
        raise RewindError(
            f"{path}: {len(faults)} captions name images that {names.where} does not have:\n{listed(faults)}\n"
            "Correct these names, or use the npz that belongs to this file."
        )
    return found


def _image_column(line: str) -> int | None:
    """Place of the column ``image`` in a CSV header; None for a line that is none."""
    fields = [field.strip().lower() for field in line.split(",")]
    return fields.index("image") if "image" in fields and len(fields) > 1 else None


def _from_column(line: str, column: int, where: str) -> tuple[str, str]:
    try:
        fields = next(csv.reader([line], skipinitialspace=True, strict=True))
    except csv.Error as error:
        if "expected after" not in str(error):
            raise RewindError(f"{where}: {explained(str(error), 0, 0)}.") from error
        fields = next(csv.reader([line], skipinitialspace=True))  # words behind a quoted text belong to it
    token = fields[column] if column < len(fields) else ""
    return token.strip(), ",".join(fields[column + 1 :])


def _apart(line: str) -> list[tuple[str, str]]:
    """(image, caption) by each separator that the line has, the likeliest first."""
    parts = [line.strip().partition(separator) for separator in SEPARATORS]
    found = [(left.strip().strip("\"'"), right.strip().strip("\"'")) for left, middle, right in parts if middle]
    return found or [(line.strip().strip("\"'"), "")]
