"""The table of trials: which keys each method tried, and how good they were on validation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from rewind.analyses.base import Analysis
from rewind.config.study import trial_words
from rewind.io.files import read_csv
from rewind.tables.footnotes import finish_sentences
from rewind.tables.results import with_labels
from rewind.tables.spec import TableInputs, TableSpec
from rewind.tables.table import Cell, Column, RowGroup, Table, count_cell, number_cell, slug

TRIAL_COLUMNS = ["method", "seed", "place", "keys", "metric", "score", "epoch"]
SCORE_COLUMN = "valid_"  # its prefix
METRIC_TITLES = {"sum": "R@1 + R@5 + R@10"}
LOSS_DECIMALS = 4  # a trial's loss may differ from another's by little


def read_trials(files: Sequence[str]) -> pd.DataFrame:
    """The trials of all methods, those of a method and seed together, the best first, with :data:`TRIAL_COLUMNS`.

    ``place`` counts from 1, the trial that was chosen; ``metric`` is ``training.select_metric``. The files are
    ``sweep/<method>/seed<k>/trials.csv``, see :func:`rewind.training.sweep.choose_keys`.
    """
    rows = []
    for file in files:
        table = read_csv(file, text=tuple(read_csv(file).columns))  # values of keys are JSON
        score = next(column for column in table.columns if column.startswith(SCORE_COLUMN))
        keys = [column for column in table.columns if column not in ("trial", "epoch", score)]
        method, seed = Path(file).parts[-3], int(Path(file).parts[-2].removeprefix("seed"))
        metric = score.removeprefix(SCORE_COLUMN)
        for place, row in enumerate(table.to_dict("records"), start=1):
            words = trial_words({key: json.loads(row[key]) for key in keys})
            rows.append((method, seed, place, words, metric, float(row[score]), int(row["epoch"])))
    return pd.DataFrame(rows, columns=TRIAL_COLUMNS)


def csv_rows(inputs: TableInputs, setting: str = "") -> pd.DataFrame:
    """The rows of :func:`read_trials` with the methods' names in front."""
    return with_labels(inputs.results.trials, inputs.results.labels)


def layout(inputs: TableInputs, setting: str = "") -> Table:
    """A row per trial under its method, the best first; seeds that chose for themselves stand one after the other."""
    rows, dataset = csv_rows(inputs), inputs.dataset
    several = rows.groupby("method")["seed"].nunique().max() > 1
    groups = []
    for (label, seed), trials in rows.groupby(["label", "seed"], sort=False):
        lines = tuple(map(_trial_row, trials.itertuples()))
        groups.append(RowGroup(f"{label}, seed {seed}" if several else str(label), lines))
    columns = (Column("Keys", number=False), Column("Validation"), Column("Epoch"))
    title = f"{dataset}: trials by which each method’s keys were chosen"
    return Table("Trials", title, slug(dataset, "trials"), columns, tuple(groups))


def _trial_row(row: Any) -> tuple[Cell, ...]:
    score = number_cell(row.score, LOSS_DECIMALS if row.metric == "loss" else 1, bold=row.place == 1)
    return Cell(row.keys), score, count_cell(row.epoch)


def notes_below(inputs: TableInputs, setting: str = "") -> list[str]:
    """The sentences below the table."""
    titles = [METRIC_TITLES.get(metric, metric) for metric in dict.fromkeys(inputs.results.trials["metric"])]
    lower = " (lower is better)" if "loss" in titles else ""
    return finish_sentences(
        [
            f"Validation: {' or '.join(titles)}{lower} of the best epoch on the validation split; bold: that of the "
            "keys that were chosen",
            "The test split was not read before",
        ]
    )


ANALYSIS = Analysis(
    tables=(
        TableSpec(
            "trials",
            place=120,
            file="table_trials",
            needs="results.trials",
            layout=layout,
            notes=notes_below,
            data=csv_rows,
            short_note=lambda inputs, _: "Validation scores; bold: that of the keys that were chosen.",
        ),
    ),
)
