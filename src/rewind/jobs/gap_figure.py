"""The picture of cosines, of pairs and of others."""

from __future__ import annotations

from pathlib import Path

from rewind.files import read_csv
from rewind.jobs.report import GapFiles, labels
from rewind.reporting import style
from rewind.reporting.figures.densities import densities
from rewind.study import Study
from rewind.study.pretraining import condition


def make_gap_figure(study: Study, files: GapFiles, result: Path) -> None:
    """Densities of cosines, as PNG and PDF beside ``result``."""
    figure = densities(read_csv(files.counts), labels(study))
    style.save(style.given(figure, condition(study)), result.with_suffix(""))
