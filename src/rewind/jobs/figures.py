"""Figures of a study."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from rewind.jobs.given import Given
from rewind.jobs.metrics import folder_of, read_ranks
from rewind.jobs.report import Files, load_results, of_every_run, report_files
from rewind.reporting import style
from rewind.reporting.figures import curves, forest, gap, rank_intervals, ranks
from rewind.reporting.order import trusted
from rewind.reporting.results import directions
from rewind.study import Dataset, Study, comparing


def figures(given: Given) -> None:
    """Rule ``figures``."""
    make_figures(
        Study(**given.params.study),
        Dataset(**given.params.dataset),
        report_files(given),
        of_every_run(given, "histories"),
        folder_of(given.input.ranks),
        Path(given.output[0]).parent,
    )


def make_figures(
    study: Study,
    dataset: Dataset,
    files: Files,
    histories: Mapping[tuple[str, int], str],
    rank_folder: str,
    folder: Path,
) -> None:
    """Intervals, pairs, the gap, training curves, rank curve, ranks of methods: each as PNG, PDF and SVG.

    Where a study searches in both directions, the pictures show captions searching items.
    """
    results = load_results(study, dataset, files)
    way = directions(results, study.evaluation.settings[0])[0]
    named = {"labels": results.labels, "baselines": results.baselines}
    selected = f"valid_{study.training.select_metric}"
    metric = comparing.drawn(study)
    tested = {"direction": way, "confidence": results.confidence}
    drawn = {
        "intervals": forest.intervals(results.intervals, **named, **tested, metric=metric),
        "pairs": forest.pairs(results.pairs, results.labels, **tested, metric=metric),
        "gap": gap.gap_slope(results.intervals, results.gaps, **named, **tested),
        "training_curves": curves.training_curves(_histories(histories), **named, values=(selected, "loss")),
        "rank_curve": ranks.rank_curve(
            _ranks(study, rank_folder), _gallery(results.metrics, way), **named, direction=way
        ),
        "ranks": rank_intervals.rank_intervals(
            trusted(results), results.labels, {s: results.deciding(s) for s in study.evaluation.settings}, **tested
        ),
    }
    for name, figure in drawn.items():
        style.save(style.given(figure, results.given), folder / name)


def _histories(histories: Mapping[tuple[str, int], str]) -> pd.DataFrame:
    stacked = [
        pd.read_csv(path).assign(method=method, seed=seed)
        for (method, seed), path in histories.items()
        if Path(path).read_text().strip()  # closed-form methods have no epochs
    ]
    return pd.concat(stacked) if stacked else pd.DataFrame()


def _ranks(study: Study, folder: str) -> pd.DataFrame:
    found = read_ranks(study.runs(), folder)
    return pd.concat(
        table.assign(method=method, seed=seed) for method, seeds in found.items() for seed, table in seeds.items()
    )


def _gallery(metrics: pd.DataFrame, direction: str) -> dict[str, int]:
    return metrics[metrics["direction"] == direction].groupby("setting")["gallery"].max().to_dict()
