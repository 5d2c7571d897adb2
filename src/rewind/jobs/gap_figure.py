"""The picture of cosines, of pairs and of others."""

from __future__ import annotations

from pathlib import Path

from rewind.files import read_csv
from rewind.jobs.report import GapFiles, labels
from rewind.reporting import style
from rewind.reporting.figures.densities import densities
from rewind.study import Study


def make_gap_figure(study: Study, files: GapFiles, result: Path) -> None:
    """Densities of cosines, as PNG and PDF beside ``result``."""
    style.save(densities(read_csv(files.counts), labels(study)), result.with_suffix(""))
