"""Tables and pictures of cosine gaps, from the CSV files of the rule ``cosine_gap``; no model is looked at."""

from __future__ import annotations

from pathlib import Path

from rewind.files import read_csv
from rewind.jobs.given import Given
from rewind.jobs.report import GapFiles, gap_files, labels
from rewind.reporting import cosine_gap_notes, cosine_gap_table, plain, style
from rewind.reporting.brief import plain_line
from rewind.reporting.cosine_gap_table import GapResults
from rewind.reporting.figures.densities import densities
from rewind.reporting.footnotes import Footnotes
from rewind.reporting.published import Published
from rewind.study import Study
from rewind.study.pretraining import condition


def cosine_gap_figure(given: Given) -> None:
    """Rule ``cosine_gap_figure``."""
    files = gap_files(given.input)
    assert files is not None  # the rule is of studies that ask for the gap
    make_cosine_gap_figure(Study(**given.params.study), files, Path(given.output[0]))


def make_cosine_gap_figure(study: Study, files: GapFiles, result: Path) -> None:
    """Densities of cosines, as PNG, PDF and SVG beside ``result``."""
    figure = densities(read_csv(files.counts), labels(study))
    style.save(style.given(figure, condition(study)), result.with_suffix(""))


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


def cosine_gap_tables(study: Study, facts: Footnotes, files: GapFiles, dataset: str) -> tuple[list[Published], str]:
    """The tables of gaps and of their differences, and the first as plain text; nothing without gaps."""
    results = gap_results(study, files)
    if results.runs.empty:
        return [], ""
    noise = [label for name, label in labels(study).items() if study.methods[name].noise or study.frames.noise]
    given, line = condition(study), plain_line(results.confidence)
    sheet = cosine_gap_table.sheet(results, dataset).given(given)
    said = cosine_gap_notes.gap_sentences(facts, results, noise)
    tables = [Published("table_cosine_gap", sheet, said, cosine_gap_table.numbers(results), line)]
    if len(results.pairs):
        pairs = cosine_gap_table.pair_sheet(results, dataset).given(given)
        said = cosine_gap_notes.pair_sentences(facts, results)
        tables.append(Published("table_cosine_gap_pairs", pairs, said, cosine_gap_table.pair_numbers(results), line))
    return tables, plain.render(cosine_gap_table.short(sheet))
