"""Published results as they are read: the product's own tables over the stored files."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from rewind.errors import RewindError
from rewind.files import read_csv, read_json
from rewind.jobs.cosine_gap_report import gap_results
from rewind.jobs.report import Files, GapFiles, load_results
from rewind.publishing.benchmarks import benchmark
from rewind.publishing.store import EFFICIENCY, FIGURES
from rewind.reporting import cosine_gap_table, efficiency_table
from rewind.reporting.footnotes import Footnotes
from rewind.reporting.sheet import Sheet
from rewind.reporting.tables import published, stem
from rewind.study import Dataset, Study


class Sheets:
    """Tables by name: of a setting by its name (``hard``), others as their files are called (``pairs_hard``).

    They are made one after the other as they are asked for: documents show few of them.
    """

    def __init__(self, tables: Iterable[tuple[str, Sheet]] = ()) -> None:
        self._rest, self._made = iter(tables), {}

    def get(self, name: str) -> Sheet | None:
        """The table, or None where the study has none of this name."""
        while name not in self._made:
            found = next(self._rest, None)
            if found is None:
                return None
            self._made[found[0]] = found[1]
        return self._made[name]

    def all(self) -> dict[str, Sheet]:
        """Every table."""
        self._made |= dict(self._rest)
        return self._made


@dataclass(frozen=True)
class Stored:
    """What one machine's folder holds.

    Attributes:
        name: of the folder.
        record: its ``record.json``.
        sheets: its tables.
        intervals: name → rows with an estimate and its ends, for comparisons between machines.
        texts: of a benchmark: name → what it prints.
    """

    name: str
    record: dict[str, Any]
    sheets: Sheets = field(default_factory=Sheets)
    intervals: dict[str, pd.DataFrame] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


def read(root: Path, folder: Path) -> Stored:
    """Render everything that a folder holds.

    Raises:
        RewindError: for files that this version cannot read.
    """
    record = read_json(folder / "record.json")
    if record["kind"] == "benchmark":
        return Stored(folder.name, record, texts=_texts(root, record["name"], folder))
    study, dataset = _keys(folder)
    results = load_results(study, dataset, _files(folder))
    results = replace(results, not_evaluated=record.get("not_evaluated", {}))
    title, facts = dataset.title or dataset.name, Footnotes(items=dataset.items)
    names = {stem(setting): setting for setting in study.evaluation.settings}
    tables = (
        (names.get(table.stem, table.stem.removeprefix("table_")), table.sheet)
        for table in published(results, study.evaluation.settings, facts, title)
    )
    extra: list[tuple[str, Sheet]] = []
    intervals = {"intervals": results.intervals, "gaps": results.gaps.rename(columns={"gap": "estimate"})}
    if gap := _gap_files(folder):
        gaps = gap_results(study, gap)
        extra.append(("cosine_gap", cosine_gap_table.sheet(gaps, title)))
        if len(gaps.pairs):
            extra.append(("cosine_gap_pairs", cosine_gap_table.pair_sheet(gaps, title)))
        intervals["cosine gaps"] = gaps.intervals
    for name in EFFICIENCY:
        if (folder / name).is_file():
            extra.append(("efficiency", efficiency_table.sheet(read_csv(folder / name), title)))
    intervals = {name: rows for name, rows in intervals.items() if len(rows)}
    return Stored(folder.name, record, Sheets(itertools.chain(extra, tables)), intervals)


def _keys(folder: Path) -> tuple[Study, Dataset]:
    keys = read_json(folder / "keys.json")
    try:
        return Study.model_validate(keys["study"]), Dataset.model_validate(keys["dataset"])
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise RewindError(
            f"keys.json: unknown to this version: {place}: {error.errors()[0]['msg']}. Publish the study again, or "
            "delete the folder."
        ) from None


def _files(folder: Path) -> Files:
    optional = {name: str(folder / f"{name}.csv") for name in ("zero_shot", "step_time", "control")}
    return Files(
        **{name: str(folder / f"{name}.csv") for name in ("metrics", "intervals", "pairs", "gaps")},
        **{name: path if Path(path).is_file() else None for name, path in optional.items()},
        places=str(folder / "ranks.csv") if (folder / "ranks.csv").is_file() else None,
        # Footnotes alone are made of these; documents print none.
        records={},
        best="",
        videos="",
    )


def _gap_files(folder: Path) -> GapFiles | None:
    runs = folder / "cosine_gap_runs.csv"
    if not runs.is_file() or read_csv(runs).empty:
        return None
    return GapFiles(str(runs), str(folder / "cosine_gap.csv"), str(folder / "cosine_gap_pairs.csv"), counts="")


def _texts(root: Path, name: str, folder: Path) -> dict[str, str]:
    return benchmark(root, name).published(read_csv(folder / FIGURES))
