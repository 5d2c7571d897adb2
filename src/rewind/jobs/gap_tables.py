"""Tables of cosine gaps."""

from __future__ import annotations

from pathlib import Path

from rewind.files import read_csv
from rewind.jobs.report import GapFiles, labels
from rewind.reporting import cosine_gap_notes, cosine_gap_table, plain
from rewind.reporting.cosine_gap_table import GapResults
from rewind.reporting.footnotes import Footnotes
from rewind.reporting.tables import Published, write
from rewind.study import Study
from rewind.study.pretraining import condition


def gap_results(study: Study, files: GapFiles) -> GapResults:
    """The numbers with the names that tables give them."""
    return GapResults(
        runs=read_csv(files.runs),
        intervals=read_csv(files.intervals),
        pairs=read_csv(files.pairs, text=("first", "second")),
        labels=labels(study),
        baselines=[name for name, method in study.methods.items() if method.baseline],
        confidence=study.statistics.confidence,
    )


def make_gap_tables(study: Study, facts: Footnotes, files: GapFiles, folder: str | Path, dataset: str) -> str:
    """Write the tables of gaps and of their differences; returns the first as plain text."""
    results = gap_results(study, files)
    if results.runs.empty:
        return ""
    noise = [label for name, label in labels(study).items() if study.methods[name].noise or study.frames.noise]
    given = condition(study)
    sheet = cosine_gap_table.sheet(results, dataset).given(given)
    said = cosine_gap_notes.gap_sentences(facts, results, noise)
    prefix = study.tables.prefix
    write(folder, Published("table_cosine_gap", sheet, said, cosine_gap_table.numbers(results)), prefix)
    if len(results.pairs):
        pairs = cosine_gap_table.pair_sheet(results, dataset).given(given)
        said = cosine_gap_notes.pair_sentences(facts, results)
        numbers = cosine_gap_table.pair_numbers(results)
        write(folder, Published("table_cosine_gap_pairs", pairs, said, numbers), prefix)
    return plain.render(cosine_gap_table.short(sheet))
