"""`rewind rehearse` as its user runs it: every stage on the first of their own clips, up to the last."""

from __future__ import annotations

import json
import subprocess
import sys

import pandas as pd
import pytest

from messages import expect_error
from mini_study import Workflow
from rewind.cli.rehearse import report
from rewind.cli.rehearse.command import load_with_overrides
from rewind.cli.rehearse.cost import Machine, estimate_cost
from rewind.cli.rehearse.shrink import PreparedRehearsal
from rewind.config import Dataset
from rewind.config.load import read_yaml
from rewind.data.dummy import SplitSizes
from rewind.data.formats.table import make_dummy_data
from rewind.io.files import write_text

DATASET = """
title: Mine
source: {format: table, table: data/mine/captions.csv, videos: data/mine/files}
video: {short_side: 32, fps: 2}
"""
STUDY = """
dataset: mine
backbone: {architecture: config/models/tiny.json}
frames: {max_frames: 2, size: 32}
text: {tokenizer: words, max_words: 24}
training: {epochs: 30, lr: 1.0e-3, batch: {size: 16}}
methods:
  meanP: {head: meanP}
  chance: {model: chance, seeds: [0]}
seeds: [3, 4, 5]
sanity: null
figures: {examples: 1}
resources: {require_gpu: true, threads: 1}
"""


def rehearse(workflow: Workflow, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "rewind", "rehearse", *arguments]
    return subprocess.run(command, cwd=workflow.folder, env=workflow.env, capture_output=True, text=True)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Workflow:
    workflow = Workflow(tmp_path_factory.mktemp("checkout"))
    dataset = Dataset.model_validate({"name": "mine", "source": {"format": "table", "table": "a", "videos": "b"}})
    make_dummy_data(dataset, workflow.folder / "data/mine", SplitSizes(70, 13, 14))
    write_text(workflow.folder / "config/datasets/mine.yaml", DATASET)
    write_text(workflow.folder / "config/studies/mine.yaml", STUDY)
    return workflow


@pytest.fixture(scope="module")
def broken(checkout) -> subprocess.CompletedProcess:
    """A rehearsal whose last stage breaks: all others are walked on the user's own clips."""
    checkout.edit(
        "workflow/scripts/page.py", "        data, page = ", "        raise KeyError(0)\n        data, page = "
    )
    return rehearse(checkout, "mine", "--cores", "8", "--json", "told.json")


@pytest.mark.workflow
def test_a_fault_in_the_last_stage_is_found_in_time(checkout, broken):
    assert broken.returncode == 1 and "Failed: page" in broken.stdout and "KeyError: 0" in broken.stdout
    (told,) = json.loads((checkout.folder / "told.json").read_text())
    (why,) = told["why"]
    assert why in broken.stdout and why.startswith("page, ") and why.endswith("logs/page.log: KeyError: 0")
    assert told["failed"] == ["page"] and not told["ended"] and told["whole_study"] is None
    assert {"train": 2, "similarity": 2, "untrained_run": 1, "tables": 1, "trec": 1}.items() <= {
        s["stage"]: s["jobs"] for s in told["stages"]
    }.items()


@pytest.mark.workflow
def test_every_stage_before_it_was_walked_on_the_users_clips(checkout, broken):
    results = checkout.folder / "results/rehearsal/mine/results/mine"
    assert "the first of your own videos (64 train, 12 valid, 12 test)" in broken.stderr
    assert not (checkout.folder / "results/mine").exists(), "real results are left alone"
    tables = list((results / "tables").glob("*table_*.md"))
    assert tables and all(path.name.startswith("rehearsal_") and "REHEARSAL" in path.read_text() for path in tables)
    assert {path.parent.name for path in results.glob("runs/meanP/*/run.json")} == {"seed3", "seed4"}
    history = pd.read_csv(results / "runs/meanP/seed3/history.csv")
    assert len(history) == 3, "30 epochs are three here"


@pytest.mark.workflow
def test_the_whole_is_priced_by_what_was_measured(checkout, broken, monkeypatch):
    monkeypatch.chdir(checkout.folder)
    study, datasets = load_with_overrides("mine")
    folder = checkout.folder / "results/rehearsal/mine"
    prepared = PreparedRehearsal(folder, read_yaml(folder / "config/studies/mine.yaml"), [])
    cost = estimate_cost(study, datasets, prepared, Machine(8, 0, 100.0), None, 60.0, 2)
    assert cost.counts.known and cost.counts.originals == 97 and cost.counts.items["train"] == 140
    rows = {row.rule: row for row in cost.rows}
    assert (rows["train"].jobs, rows["train"].whole_jobs) == (2, 3) and rows["trec"].whole_jobs == 0
    assert rows["train"].whole_seconds > rows["train"].seconds > 0 and cost.wall > 0 and cost.disk > 0
    assert rows["ranks"].unit == "scores" and rows["video_shard"].unit == "originals" and rows["tables"].unit == "jobs"
    assert rows["video_shard"].count == 97 and rows["tables"].count == 1 and rows["train"].unit == "forward passes"
    priced = "\n".join(report.cost_lines(cost, Machine(8, 0, 100.0, price=3600.0)))
    assert f"At 3600 an hour for that machine: about {cost.wall:,.2f}." in priced
    assert "an hour" not in "\n".join(report.cost_lines(cost, Machine(8, 0, 100.0)))
    train = rows["train"]
    assert train.whole_seconds >= train.rate * train.count > 0, "the rest is what jobs start with"


@pytest.mark.slow
def test_what_cannot_be_rehearsed_is_said(checkout, tmp_path):
    done = rehearse(checkout, "mine", "--items", "5,x")
    assert done.returncode == 1
    expect_error(done.stderr, "--items: '5,x'")
    expect_error(rehearse(checkout, "mime").stderr, "config/studies/mime.yaml")
    strange = checkout.folder / "results/rehearsal/mini"
    strange.mkdir(parents=True)
    (strange / "thesis.txt").write_text("dear\n")
    done = rehearse(checkout, "mini")
    assert done.returncode == 1 and (strange / "thesis.txt").exists()
    expect_error(done.stderr, "results/rehearsal/mini")
