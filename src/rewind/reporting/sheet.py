"""A table as it is printed, in no markup: headings, numbers as text, what is bold. Every markup reads this alone."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

MISSING = "–"


@dataclass(frozen=True)
class Head:
    """Heading of a column: what it shows, ``↑`` or ``↓`` for what is better, what stands above several columns."""

    title: str
    arrow: str = ""
    group: str = ""
    number: bool = True

    @property
    def name(self) -> str:
        """On one line: ``T2V R@1 ↑``."""
        return " ".join(part for part in (self.group, self.title, self.arrow) if part)


@dataclass(frozen=True)
class Entry:
    """A cell: a label, or a number with its standard deviation, the ends of its interval, and raised letters."""

    value: str
    spread: str = ""
    interval: tuple[str, str] | None = None
    raised: str = ""
    bold: bool = False

    @property
    def whole(self) -> str:
        """What stands before the decimal point."""
        return self.value.partition(".")[0]

    @property
    def rest(self) -> str:
        """The decimal point and what follows it."""
        return self.value[len(self.whole) :]

    @property
    def brackets(self) -> str:
        """``[17.8, 25.5]``, or nothing."""
        return f"[{self.interval[0]}, {self.interval[1]}]" if self.interval else ""


@dataclass(frozen=True)
class Part:
    """Rows that belong together, under a title of their own or none."""

    title: str
    rows: tuple[tuple[Entry, ...], ...]


@dataclass(frozen=True)
class Sheet:
    """A whole table.

    Attributes:
        number: what it is called by, for example ``Table B``.
        title: its caption without full stop.
        slug: for labels and anchors: lower-case letters, digits and hyphens.
        heads: of the columns.
        parts: in order; none is empty.
        key: what its marks say, for a terminal; other markups have notes.
    """

    number: str
    title: str
    slug: str
    heads: tuple[Head, ...]
    parts: tuple[Part, ...]
    key: str = ""

    @property
    def heading(self) -> str:
        """``Table B. RTime, Hard: text→video retrieval``."""
        return f"{self.number}. {self.title}" if self.number else self.title

    def given(self, condition: str) -> Sheet:
        """The table with what all its numbers are conditional on in its caption; unchanged without."""
        return replace(self, title=f"{self.title}, {condition}") if condition else self

    @property
    def grouped(self) -> bool:
        """Whether anything stands above several columns."""
        return any(head.group for head in self.heads)

    def column(self, at: int) -> list[Entry]:
        """A column's cells, top to bottom."""
        return [row[at] for part in self.parts for row in part.rows]

    def pick(self, columns: Sequence[int]) -> Sheet:
        """The table with some of its columns."""
        parts = tuple(
            Part(part.title, tuple(tuple(row[at] for at in columns) for row in part.rows)) for part in self.parts
        )
        return replace(self, heads=tuple(self.heads[at] for at in columns), parts=parts)

    def whole_width(self, at: int) -> int:
        """Characters before the point in the widest number of a column."""
        return max((len(entry.whole) for entry in self.column(at)), default=0)

    def spans(self) -> list[tuple[str, int]]:
        """What stands above the columns, and above how many of them."""
        found: list[tuple[str, int]] = []
        for head in self.heads:
            if found and found[-1][0] == head.group:
                found[-1] = (head.group, found[-1][1] + 1)
            else:
                found.append((head.group, 1))
        return found


def slug(*words: str) -> str:
    """``RTime``, ``hard`` → ``rtime-hard``."""
    name = unicodedata.normalize("NFKD", " ".join(words)).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def number(value: float, decimals: int = 1, signed: bool = False) -> str:
    """A number with a true minus sign; a missing one is a dash, and zero has no sign."""
    if math.isnan(value):
        return MISSING
    text = f"{value:{'+' if signed else ''}.{decimals}f}"
    text = text[1:] if text[0] in "+-" and not text.strip("+-0.") else text
    return text.replace("-", "−")


def bounds(low: float, high: float, decimals: int = 1, signed: bool = False) -> tuple[str, str] | None:
    """Both ends of an interval as text; none where it is missing."""
    if math.isnan(low) or math.isnan(high):
        return None
    return number(low, decimals, signed), number(high, decimals, signed)


def p_value(p: float) -> str:
    """Three decimals, ``<0.001`` below them."""
    if math.isnan(p):
        return MISSING
    return "<0.001" if p < 0.001 else f"{p:.3f}"
