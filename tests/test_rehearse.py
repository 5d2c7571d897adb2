"""`rewind rehearse` as its user runs it: every stage on the first of their own clips, up to the last."""

from __future__ import annotations

import json
import subprocess
import sys

import pandas as pd
import pytest

from rewind.files import write_text
from rewind.rehearsal.formats.table import stand_in
from rewind.rehearsal.pictures import Sizes
from test_workflow import Workflow

DATASET = """
title: Mine
source: {format: table, table: data/mine/captions.csv, videos: data/mine/files}
video: {short_side: 32, fps: 2}
"""
STUDY = """
dataset: mine
backbone: {architecture: config/models/tiny.json}
frames: {max_frames: 2, size: 32}
text: {tokenizer: words}
training: {epochs: 30, lr: 1.0e-3, batch: {size: 16}}
methods:
  meanP: {head: meanP}
  chance: {model: chance, seeds: [0]}
seeds: [3, 4, 5]
sanity: null
resources: {require_gpu: true, threads: 1}
"""


def rehearse(workflow: Workflow, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "rewind", "rehearse", *arguments]
    return subprocess.run(command, cwd=workflow.folder, env=workflow.env, capture_output=True, text=True, timeout=500)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Workflow:
    workflow = Workflow(tmp_path_factory.mktemp("checkout"))
    stand_in({}, workflow.folder / "data/mine", Sizes(70, 13, 14))
    write_text(workflow.folder / "config/datasets/mine.yaml", DATASET)
    write_text(workflow.folder / "config/studies/mine.yaml", STUDY)
    return workflow


@pytest.mark.slow
def test_every_stage_is_walked_and_priced(checkout):
    done = rehearse(checkout, "mine", "--cores", "8", "--json", "price.json")
    assert done.returncode == 0, done.stdout + done.stderr
    folder = checkout.folder / "results/rehearsal/mine"
    results = folder / "results/mine"
    assert "the first of your own videos (64 train, 12 valid, 12 test)" in done.stderr
    assert "every stage of every method ended" in done.stdout and "Nothing in this folder is a result" in done.stdout
    assert "The whole study on 8 cores: about" in done.stdout
    assert not (checkout.folder / "results/mine").exists(), "real results are left alone"
    assert (results / "report.html").read_text().count("REHEARSAL") > 3 and (results / "trec").is_dir()
    tables = list((results / "tables").glob("*.md"))
    assert tables and all(path.name.startswith("rehearsal_") and "REHEARSAL" in path.read_text() for path in tables)
    assert {path.parent.name for path in results.glob("runs/meanP/*/run.json")} == {"seed3", "seed4"}
    (price,) = json.loads((checkout.folder / "price.json").read_text())
    whole = price["whole_study"]
    assert price["ended"] and whole["counts"]["known"] and whole["counts"]["originals"] == 97
    rows = {row["rule"]: row for row in whole["rows"]}
    assert rows["train"]["jobs"] == 3 and rows["train"]["whole_jobs"] == 4
    assert rows["train"]["whole_seconds"] > rows["train"]["seconds"] > 0
    history = pd.read_csv(results / "runs/meanP/seed3/history.csv")
    assert len(history) == 3, "30 epochs are three here"


@pytest.mark.slow
def test_a_fault_in_the_last_stage_is_found_in_time(checkout):
    script = checkout.folder / "workflow/scripts/page.py"
    before = script.read_text()
    script.write_text(before.replace("make_page(\n", "raise KeyError(0)\n    make_page(\n"))
    done = rehearse(checkout, "mine")
    script.write_text(before)
    assert done.returncode == 1 and "Failed: page" in done.stdout and "KeyError: 0" in done.stdout, done.stdout


def test_what_cannot_be_rehearsed_is_said(checkout, tmp_path):
    done = rehearse(checkout, "mine", "--items", "5,x")
    assert done.returncode == 1 and "--items: '5,x': three numbers are needed" in done.stderr
    assert "Did you mean 'mine'" in rehearse(checkout, "mime").stderr
    strange = checkout.folder / "results/rehearsal/mini"
    strange.mkdir(parents=True)
    (strange / "thesis.txt").write_text("dear\n")
    done = rehearse(checkout, "mini")
    assert done.returncode == 1 and "this is no rehearsal's folder" in done.stderr and (strange / "thesis.txt").exists()
