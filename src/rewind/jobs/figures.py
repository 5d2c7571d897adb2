"""Figures of a study."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from rewind.jobs.report import Files, load_results
from rewind.jobs.results import read_ranks
from rewind.reporting import figures, style
from rewind.study import Dataset, Study


def make_figures(
    study: Study, dataset: Dataset, files: Files, histories: Mapping[tuple[str, int], str], ranks: str, folder: Path
) -> None:
    """Intervals per method, training curves, cumulative rank curve: each as PNG and PDF."""
    results = load_results(study, dataset, files)
    named = {"labels": results.labels, "baselines": results.baselines}
    stacked = [
        pd.read_csv(path).assign(method=method, seed=seed)
        for (method, seed), path in histories.items()
        if Path(path).read_text().strip()  # closed-form methods have no epochs
    ]
    gallery = (
        results.metrics[results.metrics["direction"] == "text_to_item"].groupby("setting")["gallery"].max().to_dict()
    )
    found = read_ranks(study.runs(), ranks)
    every = pd.concat(
        t.assign(method=method, seed=seed) for method, seeds in found.items() for seed, t in seeds.items()
    )
    style.save(figures.intervals(results.intervals, confidence=results.confidence, **named), folder / "intervals")
    style.save(
        figures.training_curves(pd.concat(stacked) if stacked else pd.DataFrame(), **named), folder / "training_curves"
    )
    style.save(figures.rank_curve(every, gallery, **named), folder / "rank_curve")
