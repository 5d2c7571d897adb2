"""Reading published results: the tables of every study, machine by machine and as one table of all machines."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from rewind.config import Dataset, Study
from rewind.errors import RewindError
from rewind.io.files import read_csv, read_json
from rewind.report import cosine_gap, efficiency_table
from rewind.report.footnotes import Footnotes
from rewind.report.sheet import MISSING, ColumnHead, RowGroup, Sheet, SheetCell
from rewind.report.study import GapFiles, ReportFiles, load_gap_results, load_results
from rewind.report.tables import published_tables, table_stem
from store import BENCHMARK_FILE, EFFICIENCY_FILES, load_benchmark, machine_folders

# ---- One table of several machines: the first machine's numbers, and the marks on which all agree ------------------


def agreed_sheet(sheets: Mapping[str, Sheet], where: str) -> Sheet:
    """The first machine's table, without letters and bold that the table of another machine lacks.

    A word in a cell that is not the same on all machines (a verdict, for example) becomes a dash.

    Args:
        sheets: machine → the same table.
        where: name of the table, for errors.

    Raises:
        RewindError: for tables of different rows or columns.
    """
    check_same_rows(sheets, where)
    first, *other_sheets = sheets.values()
    parts = []
    for part_index, part in enumerate(first.parts):
        rows = []
        for row_index, row in enumerate(part.rows):
            # The same row in every table, then column by column the same cell in every table.
            same_rows = [row, *(sheet.parts[part_index].rows[row_index] for sheet in other_sheets)]
            cells = [list(column) for column in zip(*same_rows, strict=True)]
            rows.append(tuple(_agreed_cell(head, cell) for head, cell in zip(first.heads, cells, strict=True)))
        parts.append(RowGroup(part.title, tuple(rows)))
    return replace(first, parts=tuple(parts))


def check_same_rows(sheets: Mapping[str, Sheet], where: str) -> None:
    """Refuse tables with different rows or columns.

    Args:
        sheets: machine → the same table.
        where: name of the table, for the message.

    Raises:
        RewindError: naming two machines.
    """
    shapes = {
        name: (sheet.heads, [(part.title, [row[0].value for row in part.rows]) for part in sheet.parts])
        for name, sheet in sheets.items()
    }
    (first, shape), *others = shapes.items()
    for name, other in others:
        if other != shape:
            raise RewindError(
                f"{where}: the tables of {first} and {name} have different rows or columns; publish both from the same "
                "study file."
            )


def _agreed_cell(head: ColumnHead, cells: list[SheetCell]) -> SheetCell:
    first = cells[0]
    letters = [set(cell.raised.split(",")) for cell in cells]
    raised = ",".join(letter for letter in first.raised.split(",") if all(letter in marks for marks in letters))
    agrees = head.number or all(cell.value == first.value for cell in cells)
    value = first.value if agrees else MISSING
    return replace(first, value=value, raised=raised, bold=all(cell.bold for cell in cells))


def has_letters(sheet: Sheet) -> bool:
    """Whether any number has letters."""
    return any(
        cell.raised for at, head in enumerate(sheet.heads) if head.number for cell in sheet.column(at)
    )  # fmt: skip


# ---- The results of one machine, rendered from its stored files ----------------------------------------------------


class LazySheets:
    """Tables by name: of a setting by its name (``hard``), others as their files are called (``pairs_hard``).

    Tables are rendered one after the other until the one that is asked for: documents show few of them.

    >>> LazySheets().get("hard") is None
    True
    """

    def __init__(self, tables: Iterable[tuple[str, Sheet]] = ()) -> None:
        self._rest = iter(tables)
        self._rendered: dict[str, Sheet] = {}

    def get(self, name: str) -> Sheet | None:
        """The table, or None where the study has none of this name."""
        while name not in self._rendered:
            table = next(self._rest, None)
            if table is None:
                return None
            self._rendered[table[0]] = table[1]
        return self._rendered[name]

    def all(self) -> dict[str, Sheet]:
        """Every table."""
        self._rendered |= dict(self._rest)
        return self._rendered


@dataclass(frozen=True)
class StoredResults:
    """The published results of one machine.

    Attributes:
        name: of the folder.
        record: its ``record.json``.
        sheets: its tables.
        intervals: name → rows with an estimate and the ends of its interval, for comparisons between machines.
        texts: of a benchmark: name → the Markdown that it prints.
    """

    name: str
    record: dict[str, Any]
    sheets: LazySheets = field(default_factory=LazySheets)
    intervals: dict[str, pd.DataFrame] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


def read_stored(root: Path, folder: Path) -> StoredResults:
    """Read a published folder; its tables are rendered when they are asked for.

    Args:
        root: of the checkout.
        folder: ``docs/published/<study or benchmark>/<machine>``.

    Raises:
        RewindError: for files that this version cannot read.
    """
    record = read_json(folder / "record.json")
    if record["kind"] == "benchmark":
        return StoredResults(folder.name, record, texts=_benchmark_texts(root, record["name"], folder))
    study, dataset = _stored_config(folder)
    results = load_results(study, dataset, _stored_files(folder))
    results = replace(results, not_evaluated=record.get("not_evaluated", {}))
    title, footnotes = dataset.title or dataset.name, Footnotes(items=dataset.items)
    names = {table_stem(setting): setting for setting in study.evaluation.settings}
    tables = (
        (names.get(table.stem, table.stem.removeprefix("table_")), table.sheet)
        for table in published_tables(results, study.evaluation.settings, footnotes, title)
    )
    extra: list[tuple[str, Sheet]] = []
    intervals = {"intervals": results.intervals, "gaps": results.gaps.rename(columns={"gap": "estimate"})}
    if gap_files := _stored_gap_files(folder):
        gaps = load_gap_results(study, gap_files)
        extra.append(("cosine_gap", cosine_gap.cosine_gap_sheet(gaps, title)))
        if len(gaps.pairs):
            extra.append(("cosine_gap_pairs", cosine_gap.cosine_gap_pair_sheet(gaps, title)))
        intervals["cosine gaps"] = gaps.intervals
    for name in EFFICIENCY_FILES:
        if (folder / name).is_file():
            extra.append(("efficiency", efficiency_table.efficiency_sheet(read_csv(folder / name), title)))
    intervals = {name: rows for name, rows in intervals.items() if len(rows)}
    return StoredResults(folder.name, record, LazySheets(itertools.chain(extra, tables)), intervals)


def _stored_config(folder: Path) -> tuple[Study, Dataset]:
    keys = read_json(folder / "keys.json")
    try:
        return Study.model_validate(keys["study"]), Dataset.model_validate(keys["dataset"])
    except ValidationError as error:
        key = ".".join(map(str, error.errors()[0]["loc"]))
        raise RewindError(
            f"keys.json: unknown to this version: {key}: {error.errors()[0]['msg']}. Publish the study again, or "
            "delete the folder."
        ) from None


def _stored_files(folder: Path) -> ReportFiles:
    def if_stored(name: str) -> str | None:
        return str(folder / name) if (folder / name).is_file() else None

    return ReportFiles(
        metrics=str(folder / "metrics.csv"),
        intervals=str(folder / "intervals.csv"),
        pairs=str(folder / "pairs.csv"),
        gaps=str(folder / "gaps.csv"),
        zero_shot=if_stored("zero_shot.csv"),
        step_time=if_stored("step_time.csv"),
        control=if_stored("control.csv"),
        places=if_stored("ranks.csv"),
        # Only footnotes need these, and documents print none.
        records={},
        best="",
        videos="",
    )


def _stored_gap_files(folder: Path) -> GapFiles | None:
    runs = folder / "cosine_gap_runs.csv"
    if not runs.is_file() or read_csv(runs).empty:
        return None
    return GapFiles(str(runs), str(folder / "cosine_gap.csv"), str(folder / "cosine_gap_pairs.csv"), counts="")


def _benchmark_texts(root: Path, name: str, folder: Path) -> dict[str, str]:
    return load_benchmark(root, name).published(read_csv(folder / BENCHMARK_FILE))


# ---- All published results of a checkout ---------------------------------------------------------------------------


class NotPublished(Exception):
    """Raised where no published results have what a block prints; the text says why."""


class UnreadableResults(RewindError):
    """Raised for a published folder that this version cannot read."""


class ResultsLibrary:
    """All published results of a checkout; each folder is read once, when it is first asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._read: dict[str, list[StoredResults]] = {}

    def machines(self, source: str) -> list[StoredResults]:
        """The results of a study or benchmark, by machine; the numbers of the first one are printed."""
        if source not in self._read:
            self._read[source] = [self._folder(folder) for folder in machine_folders(self.root, source)]
        return self._read[source]

    def _folder(self, folder: Path) -> StoredResults:
        try:
            return read_stored(self.root, folder)
        except RewindError as error:
            raise UnreadableResults(f"{folder}: {error}") from None

    def sheets(self, source: str, name: str) -> dict[str, Sheet]:
        """Machine → its table.

        Raises:
            NotPublished: if a machine's results do not have the table.
        """
        machines = self.machines(source)
        sheets = {stored.name: sheet for stored in machines if (sheet := stored.sheets.get(name))}
        if len(sheets) < len(machines):
            raise NotPublished(f"{source} was published without the table {name}")
        return sheets

    def sheet(self, source: str, name: str) -> Sheet:
        """A table: the first machine's numbers, with the marks on which all machines agree."""
        return agreed_sheet(self.sheets(source, name), f"{source}, {name}")
