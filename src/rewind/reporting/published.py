"""A table as it goes out, and its files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from rewind.files import write_spreadsheet, write_text
from rewind.reporting.markup import MARKUPS
from rewind.reporting.sheet import Sheet


@dataclass(frozen=True)
class Published:
    """A table as it goes out.

    Attributes:
        stem: file name without suffix.
        sheet: what is printed.
        notes: sentences below it.
        numbers: its CSV.
        line: the notes in one line, for a paper.
        setting: which it is of; empty for one that is of none.
        appendix: whether it takes the notes that a paper's other tables leave out.
        latex: the notes of its LaTeX, where they are others: see :func:`rewind.reporting.brief.for_paper`.
    """

    stem: str
    sheet: Sheet
    notes: list[str]
    numbers: pd.DataFrame = field(repr=False)
    line: str = ""
    setting: str = ""
    appendix: bool = False
    latex: list[str] | None = None


def write(folder: str | Path, table: Published, prefix: str = "") -> list[Path]:
    """Write a table in every markup and as CSV; returns the paths, by suffix in the order of ``MARKUPS``, CSV last."""
    paths, stem = [], f"{prefix}{table.stem}"
    for suffix, render in MARKUPS.items():
        paths.append(Path(folder) / f"{stem}{suffix}")
        said = table.latex if suffix == ".tex" and table.latex is not None else table.notes
        write_text(paths[-1], render(table.sheet, said))
    paths.append(Path(folder) / f"{stem}.csv")
    write_spreadsheet(paths[-1], table.numbers)
    return paths
