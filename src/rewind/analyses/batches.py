"""What the training batches contained, epoch by epoch, for samplers that record it: a table and a picture."""

from __future__ import annotations

from typing import Any

import pandas as pd

from rewind.analyses.base import Analysis, Rule
from rewind.config import Study
from rewind.config.study import RunKey
from rewind.errors import RewindError
from rewind.io.files import read_csv, write_csv
from rewind.job_values import Job, files_by_run

BATCH_COLUMNS = (
    *("topical_pct", "spill_pct", "largest_cluster_pct", "clusters"),
    *("smallest_cluster", "median_cluster", "largest_cluster"),
)
PLOTTED_COLUMNS = ("topical_pct", "largest_cluster_pct", "largest_cluster")


def topical_runs(plan: Any) -> list[RunKey]:
    """Runs whose histories say what their batches were."""
    return [run for run in plan.runs() if run[0] in plan.keys.trained() and _is_topical(plan.keys, run[0])]


def _is_topical(study: Study, method: str) -> bool:
    return study.methods[method].training.batch.sampler == "topical"


def report(job: Job) -> None:
    """The table, one row per method, seed and epoch, and the picture.

    Raises:
        RewindError: if no run's sampler recorded its batches.
    """
    from rewind.figures import style
    from rewind.figures.curves import training_curves

    study, histories = Study(**job.params.study), files_by_run(job, job.input.histories)
    stacked = pd.concat([read_csv(path).assign(method=method, seed=seed) for (method, seed), path in histories.items()])
    columns = [name for name in BATCH_COLUMNS if name in stacked.columns]
    if not columns:
        raise RewindError(f"{study.name}: no history.csv has the figures about batches; train these runs again.")
    write_csv(job.output.table, stacked.dropna(subset=columns, how="all")[["method", "seed", "epoch", *columns]])
    labels = {name: label for name, label in study.labels().items() if not study.methods[name].baseline}
    figure = training_curves(stacked, labels, values=[name for name in PLOTTED_COLUMNS if name in columns])
    style.save_output(figure, study.condition, job.output[0])


ANALYSIS = Analysis(
    applies=lambda plan: bool(topical_runs(plan)),
    rules=(
        Rule(
            "batches",
            "rewind.analyses.batches:report",
            {"table": "batches.csv"},
            inputs={"histories": lambda plan: plan.per_run("runs/{method}/seed{seed}/history.csv", topical_runs(plan))},
            params={"runs": topical_runs, "study": lambda plan: plan.study_keys()},
            picture="batches",
            caption=lambda study, setting: (
                "Left: share of batches drawn from one topic. Middle: share of the most frequent cluster in an average "
                "batch. Right: number of captions in the largest cluster; clusters follow the current text vectors."
            ),
            grows="",
            memory="little",
        ),
    ),
)
