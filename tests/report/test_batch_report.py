"""The table and the picture of batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from messages import refusal
from mini_study import Workflow
from rewind.analyses.batches import BATCH_COLUMNS, report
from rewind.config import Method, Study
from rewind.job_values import Job, NamedList, Outputs
from rewind.workflow.job import run_script

STUDY = Study(
    name="s",
    dataset="d",
    methods={"topical": Method(label="Topical"), "plain": Method(), "chance": Method(model="chance")},
    seeds=[3, 4],
)


def histories(folder, columns=BATCH_COLUMNS):
    found = {}
    for method in ("topical", "plain"):
        for seed in STUDY.seeds:
            table = pd.DataFrame({"epoch": [1, 2], "loss": [1.0, 0.5]})
            if method == "topical":
                table = table.assign(**{name: [seed, seed + 1.0] for name in columns})
            found[method, seed] = str(folder / f"{method}{seed}.csv")
            table.to_csv(found[method, seed], index=False)
    return found


def batches(folder, found):
    """The job of the rule."""
    figures = [str(folder / f"figures/batches.{suffix}") for suffix in ("png", "pdf", "svg")]
    table = str(folder / "batches.csv")
    params = {"runs": list(found), "study": STUDY.model_dump(mode="json")}
    inputs = NamedList(found.values(), {"histories": list(found.values())})
    return Job("batches", inputs, Outputs([*figures, table], {"table": table}), NamedList([], params), {}, 1, {}, "log")


def test_every_epoch_of_every_described_run_has_a_row(tmp_path):
    report(batches(tmp_path, histories(tmp_path)))
    table = pd.read_csv(tmp_path / "batches.csv")
    assert list(table) == ["method", "seed", "epoch", *BATCH_COLUMNS] and set(table["method"]) == {"topical"}
    assert table["seed"].tolist() == [3, 3, 4, 4] and np.array_equal(table["topical_pct"], [3, 4, 4, 5])
    assert all((tmp_path / f"figures/batches.{kind}").stat().st_size > 2000 for kind in ("png", "pdf"))


@pytest.mark.workflow
def test_a_study_asks_for_it_where_batches_are_topical(tmp_path):
    workflow = Workflow(tmp_path)
    assert "batches" not in workflow.stale()
    study = tmp_path / "config/studies/mini.yaml"
    change = "  seqLSTM: {head: seqLSTM, training: {batch: {sampler: topical, twins_together: false}}}"
    study.write_text(study.read_text().replace("  seqLSTM: {head: seqLSTM}", change))
    jobs = workflow.stale()
    assert jobs["batches"] == 1 and jobs["page"] == 1
    shown = workflow.run("-n", "results/mini/batches.csv")
    assert "runs/seqLSTM/seed0/history.csv" in shown and "runs/meanP/seed0/history.csv" not in shown


def test_histories_that_say_nothing_are_refused(tmp_path):
    with refusal("s"):
        report(batches(tmp_path, histories(tmp_path, ())))


def test_the_job_writes_the_files_that_its_rule_declares(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = batches(tmp_path, histories(tmp_path))
    run_script(given)
    assert all(Path(path).stat().st_size for path in given.output)
