"""Tables and the picture of cosine gaps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewind.files import read_csv
from rewind.reporting import cosine_gap_notes, cosine_gap_table, plain, style
from rewind.reporting.cosine_gap_table import GapResults
from rewind.reporting.figures.densities import densities
from rewind.reporting.footnotes import Footnotes
from rewind.reporting.tables import Published, write
from rewind.study import Study


@dataclass(frozen=True)
class GapFiles:
    """CSV files of the rule ``cosine_gap``."""

    runs: str
    intervals: str
    pairs: str
    counts: str


def gap_files(inputs: Any) -> GapFiles | None:
    """The files among a rule's inputs, if the study asks for the gap."""
    names = ("gap_runs", "gap_intervals", "gap_pairs", "gap_counts")
    found = [inputs.get(name) for name in names]
    return GapFiles(*found) if all(found) else None


def gap_results(study: Study, files: GapFiles) -> GapResults:
    """The numbers with the names that tables give them."""
    return GapResults(
        runs=read_csv(files.runs),
        intervals=read_csv(files.intervals),
        pairs=read_csv(files.pairs, text=("first", "second")),
        labels=_labels(study),
        baselines=[name for name, method in study.methods.items() if method.baseline],
        confidence=study.statistics.confidence,
    )


def make_gap_tables(study: Study, facts: Footnotes, files: GapFiles, folder: str | Path, dataset: str) -> str:
    """Write the tables of gaps and of their differences; returns the first as plain text."""
    results = gap_results(study, files)
    if results.runs.empty:
        return ""
    noise = [label for name, label in _labels(study).items() if study.methods[name].noise or study.frames.noise]
    sheet = cosine_gap_table.sheet(results, dataset)
    said = cosine_gap_notes.gap_sentences(facts, results, noise)
    write(folder, Published("table_cosine_gap", sheet, said, cosine_gap_table.numbers(results)))
    if len(results.pairs):
        pairs, said = cosine_gap_table.pair_sheet(results, dataset), cosine_gap_notes.pair_sentences(facts, results)
        write(folder, Published("table_cosine_gap_pairs", pairs, said, cosine_gap_table.pair_numbers(results)))
    return plain.render(cosine_gap_table.short(sheet))


def make_gap_figure(study: Study, files: GapFiles, result: Path) -> None:
    """Densities of cosines, as PNG and PDF beside ``result``."""
    style.save(densities(read_csv(files.counts), _labels(study)), result.with_suffix(""))


def _labels(study: Study) -> dict[str, str]:
    return {name: method.label or name for name, method in study.methods.items()}
