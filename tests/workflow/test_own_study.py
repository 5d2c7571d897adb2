"""A study of the user's own parts in a folder of its own, not the default one: every command, and labels."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import ROOT
from own_study import call, make_own_study
from rewind.cli.main import COMMAND_GROUPS

pytestmark = pytest.mark.workflow
RUN = "results/own/runs/attention/seed0"
SCORES = "results/own/similarity/meanP/seed0.npz"

# Command → exit code and a part of its last line.
EVERY_COMMAND = {
    ("doctor", "own"): (0, "Rewind can run|Everything that is needed"),
    ("new", "--update", "."): (0, "all files are those of Rewind"),
    ("init", "clips.csv", "--videos", "data/mylab/videos", "--name", "other", "--look", "2"): (0, "rewind power other"),
    ("opposites", "mylab", "--out", "words.csv"): (0, "words.csv"),
    ("rehearse", "own"): (0, ""),
    ("power", "own"): (0, "points: detected"),
    ("evaluate", "--data", "mylab", "--scores", SCORES, "--study", "scored", "-n"): (0, ""),
    ("search", RUN, "a red thing opens", "--trust"): (0, ""),
    ("search", RUN, "a red thing opens"): (1, "start again with --trust"),
    ("serve", RUN): (1, "start again with --trust"),
    ("why", "own"): (0, "nothing is stale"),
    ("why", "results/own/metrics.csv"): (0, "nothing is stale"),
    ("why", ""): (1, "an empty target"),
    ("board", "own"): (0, "Table: board/board.csv"),
    ("share", "own"): (0, "`rewind board own.rewind.zip` reads it"),
    ("export", "mteb", "own", "tasks"): (0, "tasks"),
    ("import", "mteb", "none.json", "scores.npz"): (1, "none.json"),
    ("clips", "extract", "mylab", "test0"): (0, "test0.mp4"),
    ("verify", "mylab"): (0, "all as they were written"),
    ("accept", "own"): (1, "nothing to accept"),
    ("job", "results/own/metrics.csv"): (0, "metrics.csv"),
    ("job", "results/own/ranks/attention/seed0.parquet"): (0, "seed0.json"),
    ("export-clip4clip", RUN, "model.bin"): (1, ""),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    folder = make_own_study(tmp_path_factory.mktemp("own") / "work")
    rows = [json.loads(line) for line in (folder / "data/mylab/clips.jsonl").read_text().splitlines()]
    lines = ["item_id,caption,split", *(f"{row['id']},{row['text']},{row['split']}" for row in rows)]
    (folder / "clips.csv").write_text("\n".join(lines) + "\n")
    call(folder, "snakemake", "--cores", "2", "--config", "studies=[own]")
    return folder


def copy(home: Path, folder: Path) -> Path:
    shutil.copytree(home, folder, symlinks=True)
    return folder


def test_every_command_is_in_the_table():
    assert {words[0] for words in EVERY_COMMAND} == {name for names in COMMAND_GROUPS.values() for name in names}


@pytest.mark.parametrize("words", EVERY_COMMAND, ids=" ".join)
def test_a_command_finds_what_the_workflow_finds(home, words):
    code, last = EVERY_COMMAND[words]
    said = call(home, "rewind", *words, code=code).strip().splitlines()
    print(f"rewind {' '.join(words)}: {code}: {said[-1]}")
    assert "Traceback" not in "\n".join(said) and re.search(last, "\n".join(said[-3:])), said[-3:]


def test_the_page_of_a_run_with_an_own_head_is_served(home):
    command = [sys.executable, "-m", "rewind", "serve", RUN, "--trust", "--port", "0"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    server = subprocess.Popen(
        command, cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        lines = []
        for line in server.stdout or ():
            lines.append(line)
            if "http://" in line:
                break
        assert "http://" in lines[-1], lines
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


# ---- Results are labelled by what ran ------------------------------------------------------------------------------

EDITS = {
    "confidence": ("config/studies/own.yaml", "resamples: 200,", "resamples: 200, confidence: 0.6,"),
    "label": ("config/studies/own.yaml", "label: Attention pool", "label: Another name"),
    "model": ("config/studies/own.yaml", "meanP: {head: meanP}", "meanP: {head: seqLSTM}"),
    "title": ("config/datasets/mylab.yaml", "title: My clips", "title: Your clips"),
    "main": (
        "config/config.yaml",
        "overrides: {}",
        "overrides: {studies.own.tables.columns: [R@1, RBP interval, MnR]}",
    ),
}
READERS = (("board", "own"), ("share", "own", "--out", "s.zip"), ("power", "own"))


@pytest.mark.parametrize("edit", EDITS)
def test_a_configuration_that_is_not_what_ran_is_refused_with_the_line(home, tmp_path, edit):
    work = copy(home, tmp_path / "work")
    file, old, new = EDITS[edit]
    text = (work / file).read_text()
    assert text.count(old) == 1
    (work / file).write_text(text.replace(old, new))
    for words in READERS:
        said = call(work, "rewind", *words, code=1)
        assert " → " in said and "`snakemake --cores all results/own/tables --config 'studies=[own]'`" in said, said


def test_what_was_typed_is_recorded_and_repeated_in_commands(home, tmp_path):
    work = copy(home, tmp_path / "work")
    (work / "mine.yaml").write_text('overrides:\n  datasets.mylab.title: "It\'s $mine"\n')
    typed = [
        "--configfile",
        "mine.yaml",
        "--config",
        "studies=[own]",
        "overrides={studies.own.statistics.confidence: 0.6}",
    ]
    call(work, "snakemake", "--cores", "2", *typed)
    call(work, "rewind", "board", "own")
    [shown] = json.loads((work / "board/board.json").read_text())["studies"]
    assert (shown["card"]["confidence"], shown["card"]["title"]) == (0.6, "It's $mine")
    assert "nothing is stale" in call(work, "rewind", "why", "own")
    study = work / "config/studies/own.yaml"
    study.write_text(study.read_text().replace("resamples: 200", "resamples: 201"))
    said = call(work, "rewind", "board", "own", code=1)
    assert "statistics.resamples: 200 → 201" in said
    command = re.search(r"`(snakemake .*)` brings", said)[1]
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}  # as activated
    done = subprocess.run(command, shell=True, cwd=work, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    call(work, "rewind", "board", "own")
    [shown] = json.loads((work / "board/board.json").read_text())["studies"]
    assert (shown["card"]["confidence"], shown["card"]["title"]) == (0.6, "It's $mine")
