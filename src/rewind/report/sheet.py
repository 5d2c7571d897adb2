"""A table ready to print, independent of markup: headings, numbers as text, and what is bold.

The Markdown, LaTeX, HTML and plain-text writers read nothing but a :class:`Sheet`.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

MISSING = "–"


@dataclass(frozen=True)
class ColumnHead:
    """Heading of a column.

    Attributes:
        title: what it shows.
        arrow: ``↑`` or ``↓``, which values are better; empty where neither.
        group: heading above several neighbouring columns.
        number: whether its cells are numbers, which are aligned at their decimal points.

    Example:
        >>> ColumnHead("R@1", "↑", group="T2V").name
        'T2V R@1 ↑'
    """

    title: str
    arrow: str = ""
    group: str = ""
    number: bool = True

    @property
    def name(self) -> str:
        """On one line: ``T2V R@1 ↑``."""
        return " ".join(part for part in (self.group, self.title, self.arrow) if part)


@dataclass(frozen=True)
class SheetCell:
    """A cell: a label, or a number with its standard deviation, the ends of its interval, and raised letters.

    Example:
        >>> cell = SheetCell("21.6", spread="0.4", interval=("17.8", "25.5"), raised="b")
        >>> cell.whole, cell.rest, cell.brackets
        ('21', '.6', '[17.8, 25.5]')
    """

    value: str
    spread: str = ""
    interval: tuple[str, str] | None = None
    raised: str = ""
    bold: bool = False

    @property
    def whole(self) -> str:
        """The digits before the decimal point."""
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
class RowGroup:
    """Rows that belong together, under a title of their own or none.

    Example:
        >>> RowGroup("Baselines", ((SheetCell("Chance"), SheetCell("1.0")),)).title
        'Baselines'
    """

    title: str
    rows: tuple[tuple[SheetCell, ...], ...]


@dataclass(frozen=True)
class Sheet:
    """A whole table.

    Attributes:
        number: its name, for example ``Table B``.
        title: its caption without full stop.
        slug: for labels and anchors: lower-case letters, digits and hyphens.
        heads: of the columns.
        parts: groups of rows in order; none is empty.
        key: what its marks mean, for a terminal; other markups have notes.

    Example:
        >>> heads = (ColumnHead("Method", number=False), ColumnHead("R@1", "↑"))
        >>> rows = RowGroup("", ((SheetCell("meanP"), SheetCell("40.2")),))
        >>> sheet = Sheet("Table A", "RTime, Origin", "rtime-origin", heads, (rows,))
        >>> sheet.heading, [cell.value for cell in sheet.column(1)]
        ('Table A. RTime, Origin', ['40.2'])
    """

    number: str
    title: str
    slug: str
    heads: tuple[ColumnHead, ...]
    parts: tuple[RowGroup, ...]
    key: str = ""

    @property
    def heading(self) -> str:
        """``Table B. RTime, Hard: text→video retrieval``."""
        return f"{self.number}. {self.title}" if self.number else self.title

    def given(self, condition: str) -> Sheet:
        """The table with the condition of all its numbers appended to its caption; unchanged if it is empty."""
        return replace(self, title=f"{self.title}, {condition}") if condition else self

    @property
    def grouped(self) -> bool:
        """Whether some columns have a common heading."""
        return any(head.group for head in self.heads)

    def column(self, position: int) -> list[SheetCell]:
        """A column's cells, top to bottom."""
        return [row[position] for part in self.parts for row in part.rows]

    def pick(self, columns: Sequence[int]) -> Sheet:
        """The table with some of its columns."""
        parts = tuple(
            RowGroup(part.title, tuple(tuple(row[position] for position in columns) for row in part.rows))
            for part in self.parts
        )
        return replace(self, heads=tuple(self.heads[position] for position in columns), parts=parts)

    def whole_width(self, position: int) -> int:
        """Characters before the point in the widest number of a column."""
        return max((len(entry.whole) for entry in self.column(position)), default=0)

    def spans(self) -> list[tuple[str, int]]:
        """Headings above groups of neighbouring columns, with the number of columns of each."""
        groups: list[tuple[str, int]] = []
        for head in self.heads:
            if groups and groups[-1][0] == head.group:
                groups[-1] = (head.group, groups[-1][1] + 1)
            else:
                groups.append((head.group, 1))
        return groups


def slug(*words: str) -> str:
    """Words as a label or anchor.

    Example:
        >>> slug("RTime", "hard")
        'rtime-hard'
    """
    name = unicodedata.normalize("NFKD", " ".join(words)).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def format_number(value: float, decimals: int = 1, signed: bool = False) -> str:
    """A number with a true minus sign; NaN is a dash, and zero has no sign.

    Example:
        >>> format_number(-1.25, decimals=2), format_number(3.0, signed=True), format_number(-0.04)
        ('−1.25', '+3.0', '0.0')
    """
    if math.isnan(value):
        return MISSING
    text = f"{value:{'+' if signed else ''}.{decimals}f}"
    # A value that rounds to zero has no sign: −0.04 is 0.0.
    text = text[1:] if text[0] in "+-" and not text.strip("+-0.") else text
    return text.replace("-", "−")


def format_bounds(low: float, high: float, decimals: int = 1, signed: bool = False) -> tuple[str, str] | None:
    """Both ends of an interval as text; None if one is NaN."""
    if math.isnan(low) or math.isnan(high):
        return None
    return format_number(low, decimals, signed), format_number(high, decimals, signed)


def format_p_value(p: float) -> str:
    """Three decimals, ``<0.001`` below them."""
    if math.isnan(p):
        return MISSING
    return "<0.001" if p < 0.001 else f"{p:.3f}"
