"""What the training batches contained: a table and a figure, for samplers that record it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from rewind.config import Study
from rewind.errors import RewindError
from rewind.io.files import write_csv
from rewind.report.figures import style
from rewind.report.figures.curves import training_curves

BATCH_COLUMNS = (
    "topical_pct",
    "spill_pct",
    "largest_cluster_pct",
    "clusters",
    "smallest_cluster",
    "median_cluster",
    "largest_cluster",
)
PLOTTED_COLUMNS = ("topical_pct", "largest_cluster_pct", "largest_cluster")


def report_batches(study: Study, histories: Mapping[tuple[str, int], str], table: Path, stem: Path) -> None:
    """Write the table, one row per method, seed and epoch, and the figure ``<stem>.png``, ``.pdf`` and ``.svg``.

    Args:
        study: names and order of the methods.
        histories: ``history.csv`` of runs, by method and seed.
        table: CSV file that is written.
        stem: path of the figure without its suffix.

    Raises:
        RewindError: if no run's sampler recorded its batches.
    """
    stacked = pd.concat(
        [pd.read_csv(path).assign(method=method, seed=seed) for (method, seed), path in histories.items()]
    )
    columns = [name for name in BATCH_COLUMNS if name in stacked.columns]
    if not columns:
        raise RewindError(f"{study.name}: no history.csv has the figures about batches; train these runs again.")
    write_csv(table, stacked.dropna(subset=columns, how="all")[["method", "seed", "epoch", *columns]])
    labels = {name: method.label or name for name, method in study.methods.items() if not method.baseline}
    figure = training_curves(stacked, labels, values=[name for name in PLOTTED_COLUMNS if name in columns])
    style.save(style.with_condition(figure, study.condition), stem)
