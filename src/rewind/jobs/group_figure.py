"""Pictures of results by group."""

from __future__ import annotations

from pathlib import Path

from rewind.files import read_csv
from rewind.jobs.given import Given
from rewind.jobs.report import labels
from rewind.reporting import style
from rewind.reporting.figures.groups import group_intervals
from rewind.study import Study, comparing
from rewind.study.pretraining import condition


def group_figure(given: Given) -> None:
    """Rule ``group_figure``."""
    study = Study(**given.params.study)
    make_group_figure(study, given.params.setting, given.input.group_results, Path(given.output[0]))


def make_group_figure(study: Study, setting: str, table: str, result: Path) -> None:
    """Intervals of every method in every group, as PNG, PDF and SVG beside ``result``."""
    named = labels(study)
    baselines = [name for name in named if name not in comparing.compared(study)]
    way = study.evaluation.directions[0]
    figure = group_intervals(
        read_csv(table, text=("group",)), named, baselines, setting, way, study.statistics.confidence
    )
    style.save(style.given(figure, condition(study)), result.with_suffix(""))
