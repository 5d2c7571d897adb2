"""The model of a table: columns, groups of rows of cells, notes; every markup is rendered from it.

A cell has its text as it is printed and its numbers at full precision. :mod:`rewind.tables.render` writes tables,
:mod:`rewind.report.tables` lists the tables of a study.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

MISSING = "–"

# ---- The model -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Example:
        >>> Column("R@1", "↑", group="T2V").name
        'T2V R@1 ↑'
    """

    title: str
    arrow: str = ""  # ``↑`` or ``↓``, which values are better; empty where neither
    group: str = ""  # heading above several neighbouring columns
    number: bool = True  # whether its cells are numbers, which are aligned at their decimal points

    @property
    def name(self) -> str:
        """The column's heading on one line: ``T2V R@1 ↑``."""
        return " ".join(part for part in (self.group, self.title, self.arrow) if part)


@dataclass(frozen=True)
class Cell:
    """A cell: a label, or a number with its standard deviation, the ends of its interval, and letters or signs.

    ``text``, ``spread`` (empty without one) and ``interval`` are as printed; ``value``, ``std``, ``low`` and ``high``
    are the numbers at full precision, None where there is none.

    Example:
        >>> cell = number_cell(21.62, std=0.44, low=17.8, high=25.5, marks="b")
        >>> cell.whole, cell.rest, cell.spread, cell.brackets, cell.value
        ('21', '.6', '0.4', '[17.8, 25.5]', 21.62)
    """

    text: str
    spread: str = ""
    interval: tuple[str, str] | None = None
    marks: str = ""  # raised letters or signs
    bold: bool = False
    value: float | None = None
    std: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def whole(self) -> str:
        """The digits before the decimal point."""
        return self.text.partition(".")[0]

    @property
    def rest(self) -> str:
        """The decimal point and what follows it."""
        return self.text[len(self.whole) :]

    @property
    def brackets(self) -> str:
        """``[17.8, 25.5]``, or nothing."""
        return f"[{self.interval[0]}, {self.interval[1]}]" if self.interval else ""


@dataclass(frozen=True)
class RowGroup:
    """Rows that belong together, under a title of their own or none."""

    title: str
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Table:
    """A whole table.

    Example:
        >>> columns = (Column("Method", number=False), Column("R@1", "↑"))
        >>> rows = RowGroup("", ((Cell("meanP"), number_cell(40.21)),))
        >>> table = Table("Table A", "RTime, Origin", "rtime-origin", columns, (rows,), notes=("In percent.",))
        >>> table.heading, [cell.text for cell in table.cells(1)]
        ('Table A. RTime, Origin', ['40.2'])
        >>> Table.from_json(table.to_json()) == table
        True
    """

    number: str  # how the text refers to it, for example ``Table B``
    title: str  # its caption without full stop
    slug: str  # for labels and anchors: lower-case letters, digits and hyphens
    columns: tuple[Column, ...]
    groups: tuple[RowGroup, ...]  # none is empty
    key: str = ""  # what its marks mean, for a terminal; other markups have notes
    name: str = ""  # of its files, without prefix and suffix
    kind: str = ""  # of a table spec: rewind.report.tables.table_specs
    setting: str = ""  # empty for a table of no setting
    appendix: bool = False  # whether it takes the notes that a paper's other tables leave out
    notes: tuple[str, ...] = ()  # sentences below it
    short_note: str = ""  # the notes in one line, for a paper
    latex_notes: tuple[str, ...] | None = None  # the notes of its LaTeX if they differ: short_notes.with_latex_notes
    data: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False, compare=False)  # CSV: more than is printed

    @property
    def heading(self) -> str:
        """``Table B. RTime, Hard: text→video retrieval``."""
        return f"{self.number}. {self.title}" if self.number else self.title

    @property
    def grouped(self) -> bool:
        """Whether some columns have a common heading."""
        return any(column.group for column in self.columns)

    def with_condition(self, condition: str) -> Table:
        """The table with the condition of all its numbers appended to its caption; unchanged if it is empty."""
        return replace(self, title=f"{self.title}, {condition}") if condition else self

    def cells(self, position: int) -> list[Cell]:
        return [row[position] for group in self.groups for row in group.rows]

    def pick(self, columns: Sequence[int]) -> Table:
        """The table with some of its columns."""
        groups = tuple(
            RowGroup(group.title, tuple(tuple(row[position] for position in columns) for row in group.rows))
            for group in self.groups
        )
        return replace(self, columns=tuple(self.columns[position] for position in columns), groups=groups)

    def whole_width(self, position: int) -> int:
        """Characters before the point in the widest number of a column."""
        return max((len(cell.whole) for cell in self.cells(position)), default=0)

    def spans(self) -> list[tuple[str, int]]:
        """Headings above groups of neighbouring columns, with the number of columns of each."""
        spans: list[tuple[str, int]] = []
        for column in self.columns:
            if spans and spans[-1][0] == column.group:
                spans[-1] = (column.group, spans[-1][1] + 1)
            else:
                spans.append((column.group, 1))
        return spans

    def to_json(self) -> dict[str, Any]:
        """The table as plain values, without ``key``, LaTeX's own notes and ``data``; see ``results/README.md``."""
        return {
            "name": self.name,
            "kind": self.kind,
            "setting": self.setting,
            "appendix": self.appendix,
            "number": self.number,
            "title": self.title,
            "slug": self.slug,
            "columns": [
                {"title": c.title, "arrow": c.arrow, "group": c.group, "number": c.number} for c in self.columns
            ],
            "groups": [
                {"title": group.title, "rows": [[_cell_to_json(cell) for cell in row] for row in group.rows]}
                for group in self.groups
            ],
            "notes": list(self.notes),
            "short_note": self.short_note,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Table:
        """The table of :meth:`to_json`."""
        groups = tuple(
            RowGroup(group["title"], tuple(tuple(map(_cell_from_json, row)) for row in group["rows"]))
            for group in content["groups"]
        )
        columns = tuple(Column(**column) for column in content["columns"])
        plain = {name: content[name] for name in ("name", "kind", "setting", "appendix", "number", "title", "slug")}
        notes, short_note = tuple(content["notes"]), content["short_note"]
        return cls(**plain, columns=columns, groups=groups, notes=notes, short_note=short_note)


def _cell_to_json(cell: Cell) -> dict[str, Any]:
    """The text always; whatever else the cell has."""
    content = {
        "text": cell.text,
        "value": cell.value,
        "std": cell.std,
        "low": cell.low,
        "high": cell.high,
        "spread": cell.spread or None,
        "interval": list(cell.interval) if cell.interval else None,
        "marks": cell.marks or None,
        "bold": cell.bold or None,
    }
    return {name: value for name, value in content.items() if name == "text" or value is not None}


def _cell_from_json(content: Mapping[str, Any]) -> Cell:
    interval = content.get("interval")
    return Cell(**{**content, "interval": (interval[0], interval[1]) if interval else None})


# ---- Numbers as text -----------------------------------------------------------------------------------------------


def number_cell(
    value: float,
    decimals: int = 1,
    std: float = math.nan,
    low: float = math.nan,
    high: float = math.nan,
    *,
    signed: bool = False,
    marks: str = "",
    bold: bool = False,
) -> Cell:
    """A number with what is known of its uncertainty; NaN is not known.

    Example:
        >>> number_cell(-1.25, 2, low=-2.0, high=-0.5, signed=True).brackets, number_cell(float("nan")).text
        ('[−2.00, −0.50]', '–')
    """
    spread = "" if math.isnan(std) else format_number(std, decimals)
    interval = format_bounds(low, high, decimals, signed)
    numbers = (_known(number) for number in (value, std, low, high))
    return Cell(format_number(value, decimals, signed), spread, interval, marks, bold, *numbers)


def count_cell(count: int, separator: str = ",") -> Cell:
    """A whole number, with a separator between thousands.

    Example:
        >>> count_cell(151_277_313).text, count_cell(2000, separator="").text
        ('151,277,313', '2000')
    """
    return Cell(f"{int(count):,}".replace(",", separator), value=int(count))


def p_value_cell(p: float, bold: bool = False) -> Cell:
    return Cell(format_p_value(p), bold=bold, value=_known(p))


def _known(number: float) -> float | None:
    """A plain Python number, whatever numpy's type was; None for NaN and infinity, which JSON cannot hold."""
    return float(number) if math.isfinite(number) else None


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
