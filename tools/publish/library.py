"""Reading published results: the tables of every study, machine by machine and as one table of all machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from rewind.analyses import analysis_results
from rewind.config import Dataset, Study
from rewind.errors import RewindError
from rewind.io.files import read_csv, read_json
from rewind.report.study import ReportFiles, load_results
from rewind.report.tables import planned_tables
from rewind.tables.footnotes import Footnotes
from rewind.tables.results import Results
from rewind.tables.spec import TableInputs
from rewind.tables.table import MISSING, Cell, Column, RowGroup, Table
from store import BENCHMARK_FILE, EFFICIENCY_FILES, load_benchmark, machine_folders, result_tables

# ---- One table of several machines: the first machine's numbers, and the marks on which all agree ------------------


def agreed_table(tables: Mapping[str, Table], where: str) -> Table:
    """The first machine's table, without letters and bold that the table of another machine lacks.

    A word in a cell that is not the same on all machines (a verdict, for example) becomes a dash.

    Args:
        tables: machine → the same table.
        where: name of the table, for errors.

    Raises:
        RewindError: for tables of different rows or columns.
    """
    check_same_rows(tables, where)
    first, *other_tables = tables.values()
    parts = []
    for part_index, part in enumerate(first.groups):
        rows = []
        for row_index, row in enumerate(part.rows):
            # The same row in every table, then column by column the same cell in every table.
            same_rows = [row, *(table.groups[part_index].rows[row_index] for table in other_tables)]
            cells = [list(column) for column in zip(*same_rows, strict=True)]
            rows.append(tuple(_agreed_cell(head, cell) for head, cell in zip(first.columns, cells, strict=True)))
        parts.append(RowGroup(part.title, tuple(rows)))
    return replace(first, groups=tuple(parts))


def check_same_rows(tables: Mapping[str, Table], where: str) -> None:
    """Refuse tables with different rows or columns.

    Args:
        tables: machine → the same table.
        where: name of the table, for the message.

    Raises:
        RewindError: naming two machines.
    """
    shapes = {
        name: (table.columns, [(part.title, [row[0].text for row in part.rows]) for part in table.groups])
        for name, table in tables.items()
    }
    (first, shape), *others = shapes.items()
    for name, other in others:
        if other != shape:
            raise RewindError(
                f"{where}: the tables of {first} and {name} have different rows or columns; publish both from the same "
                "study file."
            )


def _agreed_cell(head: Column, cells: list[Cell]) -> Cell:
    first = cells[0]
    letters = [set(cell.marks.split(",")) for cell in cells]
    agreed = ",".join(letter for letter in first.marks.split(",") if all(letter in marks for marks in letters))
    agrees = head.number or all(cell.text == first.text for cell in cells)
    text = first.text if agrees else MISSING
    return replace(first, text=text, marks=agreed, bold=all(cell.bold for cell in cells))


def has_letters(table: Table) -> bool:
    """Whether any number has letters."""
    return any(
        cell.marks for at, head in enumerate(table.columns) if head.number for cell in table.cells(at)
    )  # fmt: skip


# ---- The results of one machine, rendered from its stored files ----------------------------------------------------


class LazyTables:
    """Tables by name: of a setting by its name (``hard``), others as their files are called (``pairs_hard``).

    A table is built when it is asked for: documents show few of them.

    >>> LazyTables().get("hard") is None
    True
    """

    def __init__(self, inputs: TableInputs | None = None) -> None:
        self._inputs = inputs
        self._planned = {
            setting if spec.kind == "setting" else spec.file_name(setting).removeprefix("table_"): (spec, setting)
            for spec, setting in (planned_tables(inputs) if inputs else [])
        }
        self._built: dict[str, Table] = {}

    def get(self, name: str) -> Table | None:
        """The table, or None where the study has none of this name."""
        if name not in self._planned or self._inputs is None:
            return None
        if name not in self._built:
            spec, setting = self._planned[name]
            # Without notes: documents print none, and what some of them need is not stored.
            self._built[name] = spec.layout(self._inputs, setting).with_condition(self._inputs.results.given)
        return self._built[name]

    def all(self) -> dict[str, Table]:
        """Every table."""
        return {name: table for name in self._planned if (table := self.get(name))}


@dataclass(frozen=True)
class StoredResults:
    """The published results of one machine.

    Attributes:
        name: of the folder.
        record: its ``record.json``.
        tables: its tables.
        results: the numbers of a study.
        intervals: name → rows with an estimate and the ends of its interval, for comparisons between machines.
        texts: of a benchmark: name → the Markdown that it prints.
    """

    name: str
    record: dict[str, Any]
    tables: LazyTables = field(default_factory=LazyTables)
    results: Results | None = None
    intervals: dict[str, pd.DataFrame] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    budgets: dict[str, list[str]] = field(default_factory=dict)


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
    results = load_results(study, dataset, _stored_files(study, dataset, folder))
    results = replace(results, not_evaluated=record.get("not_evaluated", {}))
    intervals = {"intervals": results.intervals, "gaps": results.gaps.rename(columns={"gap": "estimate"})}
    if len(gaps := results.of("cosine_gap")):
        intervals["cosine gaps"] = gaps
    costs = next((read_csv(folder / name) for name in EFFICIENCY_FILES if (folder / name).is_file()), pd.DataFrame())
    inputs = TableInputs(
        results,
        study.evaluation.settings,
        Footnotes(items=dataset.items, budgets=study.budgets()),
        dataset.title or dataset.name,
        costs=costs,
    )
    intervals = {name: rows for name, rows in intervals.items() if len(rows)}
    return StoredResults(folder.name, record, LazyTables(inputs), results, intervals, budgets=study.budgets())


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


def _stored_files(study: Study, dataset: Dataset, folder: Path) -> ReportFiles:
    """The stored tables, under a report's names; what footnotes alone read is not stored, as documents print none."""
    stored: dict[str, Any] = {}
    analyses: dict[str, str] = {}
    for key, files in result_tables(study, dataset).items():
        paths = [str(folder / name) for name in files if (folder / name).is_file()]
        if paths and key in analysis_results():
            analyses[key] = paths[0]
        elif paths:
            stored[key] = paths if key == "trials" else paths[0]
    return ReportFiles(records={}, best="", videos="", analyses=analyses, **stored)


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

    def unpublished(self, source: str, name: str) -> str | None:
        """What a benchmark wants printed under a name while nothing of it is published; None if nothing."""
        if not (self.root / f"benchmarks/{source}.py").is_file():
            return None
        return getattr(load_benchmark(self.root, source), "UNPUBLISHED", {}).get(name)

    def tables(self, source: str, name: str) -> dict[str, Table]:
        """Machine → its table.

        Raises:
            NotPublished: if a machine's results do not have the table.
        """
        machines = self.machines(source)
        tables = {stored.name: table for stored in machines if (table := stored.tables.get(name))}
        if len(tables) < len(machines):
            raise NotPublished(f"{source} was published without the table {name}")
        return tables

    def table(self, source: str, name: str) -> Table:
        """A table: the first machine's numbers, with the marks on which all machines agree."""
        return agreed_table(self.tables(source, name), f"{source}, {name}")
