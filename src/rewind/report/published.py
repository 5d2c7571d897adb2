"""A table with its notes, and the files it is written to: Markdown, LaTeX, HTML and CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from rewind.io.files import write_spreadsheet, write_text
from rewind.report import html, latex, markdown
from rewind.report.sheet import Sheet

# To add a markup, write a module for it and add a line here.
MARKUPS: Mapping[str, Callable[[Sheet, list[str]], str]] = {
    ".md": markdown.render_markdown,
    ".tex": latex.render_latex,
    ".html": html.render_html,
}
"""Suffix → function that renders a table with its notes."""


@dataclass(frozen=True)
class PublishedTable:
    """A table as it is published.

    Attributes:
        stem: file name without suffix.
        sheet: what is printed.
        notes: sentences below it.
        numbers: its CSV.
        line: the notes in one line, for a paper.
        setting: to which it belongs; empty for a table of no setting.
        appendix: whether it takes the notes that a paper's other tables leave out.
        latex: the notes of its LaTeX if they differ, see :func:`rewind.report.short_notes.with_latex_notes`.

    Example:
        >>> table = PublishedTable("table_A_origin", Sheet("Table A", "Origin", "origin", (), ()), [], pd.DataFrame())
        >>> table.stem, table.latex is None
        ('table_A_origin', True)
    """

    stem: str
    sheet: Sheet
    notes: list[str]
    numbers: pd.DataFrame = field(repr=False)
    line: str = ""
    setting: str = ""
    appendix: bool = False
    latex: list[str] | None = None


def write_table(folder: str | Path, table: PublishedTable, prefix: str = "") -> list[Path]:
    """Write a table in every markup and as CSV; returns the paths in the order of :data:`MARKUPS`, CSV last."""
    paths, stem = [], f"{prefix}{table.stem}"
    for suffix, render in MARKUPS.items():
        paths.append(Path(folder) / f"{stem}{suffix}")
        notes = table.latex if suffix == ".tex" and table.latex is not None else table.notes
        write_text(paths[-1], render(table.sheet, notes))
    paths.append(Path(folder) / f"{stem}.csv")
    write_spreadsheet(paths[-1], table.numbers)
    return paths
