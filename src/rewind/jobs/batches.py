"""What the batches of a study's runs were: a table and a picture, for samplers that say it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from rewind.errors import RewindError
from rewind.files import write_csv
from rewind.jobs.given import Given
from rewind.jobs.unpack import by_run
from rewind.reporting import style
from rewind.reporting.figures.curves import training_curves
from rewind.study import Study
from rewind.study.pretraining import condition

COLUMNS = (
    "topical_pct",
    "spill_pct",
    "largest_cluster_pct",
    "clusters",
    "smallest_cluster",
    "median_cluster",
    "largest_cluster",
)
SHOWN = ("topical_pct", "largest_cluster_pct", "largest_cluster")


def batches(given: Given) -> None:
    """Rule ``batches``."""
    table, picture = given.output[0], given.output[1]  # the picture also as PDF and SVG
    histories = by_run(given, given.input)
    report_batches(Study(**given.params.study), histories, Path(table), Path(picture).with_suffix(""))


def report_batches(study: Study, histories: Mapping[tuple[str, int], str], table: Path, stem: Path) -> None:
    """Write the table, one row per method, seed and epoch, and the picture ``<stem>.png``, ``.pdf`` and ``.svg``.

    Args:
        study: names and order of the methods.
        histories: ``history.csv`` of runs, by method and seed.
        table, stem: what is written.

    Raises:
        RewindError: if no run's sampler says what its batches were.
    """
    stacked = pd.concat(
        [pd.read_csv(path).assign(method=method, seed=seed) for (method, seed), path in histories.items()]
    )
    said = [name for name in COLUMNS if name in stacked.columns]
    if not said:
        raise RewindError(f"{study.name}: no history.csv has the figures about batches; train these runs again.")
    write_csv(table, stacked.dropna(subset=said, how="all")[["method", "seed", "epoch", *said]])
    labels = {name: method.label or name for name, method in study.methods.items() if not method.baseline}
    figure = training_curves(stacked, labels, values=[name for name in SHOWN if name in said])
    style.save(style.given(figure, condition(study)), stem)
