"""``rewind evaluate --probes``: what is asked of vectors and scores, what is not and why, and which files say so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from brought_files import caption_ids, item_ids, write_captions, write_vectors
from checkout import ROOT
from messages import expect_error, expect_message, invalid
from rewind.cli.probes import choose_probes
from rewind.config import Dataset, Method, Study, load_dataset, load_study

ANSWERS = "caption_id,item_id\nv0#0,v0\nv0#0,v1\n"
FOILS = (
    "caption_id,foil,kind\nv0#0,a cat opens door 0,subject\nv0#0,a dog opens door 0,subject\nv1_rev#0,no door,thing\n"
)
FOIL_IDS = ["v0#0~0", "v0#0~1", "v1_rev#0~0"]
ARGUMENTS = ["--data", "doors.csv", "--vectors", "one/captions.npz", "one/items.npz", "-n"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """A folder with captions, vectors of captions and foils, and scores, and a workflow without rules."""
    (tmp_path / "Snakefile").write_text("rule all:\n")
    shutil.copytree(ROOT / "config/models", tmp_path / "config/models")
    write_captions(tmp_path / "doors.csv")
    (tmp_path / "answers.csv").write_text(ANSWERS)
    (tmp_path / "foils.csv").write_text(FOILS)
    text, items = write_vectors(tmp_path / "one")
    ids, foils = [*caption_ids(), *FOIL_IDS], np.random.default_rng(1).normal(size=(len(FOIL_IDS), text.shape[1]))
    np.savez(tmp_path / "one/all.npz", ids=np.array(ids), vectors=np.concatenate([text, foils]))
    np.savez(tmp_path / "theirs.npz", similarity=text @ items.T, query_ids=caption_ids(), item_ids=item_ids())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def evaluate(*arguments: str) -> subprocess.CompletedProcess:
    """The command in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "rewind", "evaluate", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_the_study_has_all_probes_that_data_and_methods_allow(folder: Path) -> None:
    files = ["--vectors", "one/all.npz", "one/items.npz", "--scores", "theirs.npz"]
    done = evaluate("--data", "doors.csv", *files, "--answers", "answers.csv", "--foils", "foils.csv", "-n")
    assert done.returncode == 0, done.stderr
    expect_message(done.stdout.partition("Assuming")[0])
    study, dataset = load_study("doors"), load_dataset("doors")
    assert study.evaluation.probes == ["pairs", "answers", "foils", "direction", "geometry"]
    assert study.probes_of("theirs") == ["pairs", "answers"] and study.probes_of("chance") == []
    assert (dataset.answers, dataset.foils) == ("answers.csv", "foils.csv")


def test_what_the_data_lack_is_told(folder: Path) -> None:
    done = evaluate(*ARGUMENTS, "--probes")
    assert done.returncode == 0, done.stderr
    expect_message(done.stdout.partition("Assuming")[0])
    assert load_study("doors").evaluation.probes == ["pairs", "direction", "geometry"]
    assert yaml.safe_load(Path("config/datasets/doors.yaml").read_text()).keys() == {"source", "reverse", "clips"}


def test_files_of_an_earlier_command_get_further_keys(folder: Path) -> None:
    assert evaluate(*ARGUMENTS).returncode == 0
    path = Path("config/datasets/doors.yaml")
    path.write_text(path.read_text() + "# seen by eye\n")
    before = path.read_text()
    more = ["--data", "doors.csv", "--scores", "theirs.npz", "-n"]
    assert evaluate(*more, "--answers", "answers.csv", "--study", "asked").returncode == 0
    assert path.read_text() == before + "answers: answers.csv\n"
    assert load_study("asked").evaluation.probes == ["pairs", "answers"]
    assert evaluate(*more, "--add", "--probes", "--study", "asked").returncode == 0, "it is asked the same"
    done = evaluate(*more, "--add", "--probes")
    assert done.returncode == 1
    expect_error(done.stderr, "--probes")
    Path("others.csv").write_text(ANSWERS)
    done = evaluate(*more, "--answers", "others.csv", "--study", "third")
    assert done.returncode == 1 and path.read_text() == before + "answers: answers.csv\n"
    expect_error(done.stderr, "--answers")


def test_foils_without_vectors_are_refused_by_their_ids(folder: Path) -> None:
    done = evaluate(*ARGUMENTS, "--foils", "foils.csv")
    assert done.returncode == 1 and not Path("config/studies/doors.yaml").exists()
    expect_error(done.stderr, "config/studies/doors.yaml: one/captions.npz")
    Path("foils.csv").write_text(FOILS.replace("v1_rev#0,no door,thing\n", ""))
    done = evaluate("--data", "doors.csv", "--vectors", "one/all.npz", "one/items.npz", "--foils", "foils.csv", "-n")
    assert done.returncode == 1 and "'v1_rev#0~0'" in done.stderr
    expect_error(done.stderr, "config/studies/doors.yaml: one/all.npz")


def test_faulty_questions_are_refused_before_a_file_is_written(folder: Path) -> None:
    for file, text in (("answers", "caption_id,item_id\nv0#0,v99\n"), ("foils", "caption_id,foil\nv99#0,no door\n")):
        Path("faulty.csv").write_text(text)
        done = evaluate(*ARGUMENTS, f"--{file}", "faulty.csv")
        assert done.returncode == 1
        expect_error(done.stderr, f"--{file}: faulty.csv: row 2")
    done = evaluate(*ARGUMENTS, "--foils", "gone.csv")
    expect_error(done.stderr, "--foils: gone.csv")
    assert not Path("config/datasets/doors.yaml").exists()


def test_a_data_set_s_own_faulty_questions_are_found_before_the_first_job(folder: Path) -> None:
    assert evaluate(*ARGUMENTS, "--answers", "answers.csv").returncode == 0
    Path("answers.csv").write_text("caption_id,item_id\nv0#0,v99\n")
    done = evaluate("--data", "doors", "--scores", "theirs.npz", "--study", "more", "-n")
    assert done.returncode == 1
    expect_error(done.stderr, "config/datasets/doors.yaml: answers.csv: row 2")


@pytest.mark.parametrize("score", ["dot", "maxsim"])
def test_vectors_that_no_cosine_compares_have_no_geometry(score: str) -> None:
    dataset = Dataset(name="d", clips=False, source={"format": "table", "table": "d.csv"}, foils="foils.csv")
    files = {"captions": "c.npz", "items": "i.npz"}
    mine = Method(model="vectors", options=files | {"score": score})
    probes, left_out = choose_probes(dataset, None, {"mine": mine})
    assert probes == ["pairs", "foils"]
    assert f"geometry: vectors with score: {score} are not compared by cosine" in left_out
    both = {"mine": mine, "other": Method(model="vectors", options=files)}
    probes, left_out = choose_probes(dataset, None, both)
    assert probes == ["pairs", "foils", "direction", "geometry"]
    assert f"geometry of mine: vectors with score: {score} are not compared by cosine" in left_out


def test_a_probe_that_no_method_can_be_asked_is_refused() -> None:
    theirs = Method(model="scores", options={"file": "theirs.npz"})
    with invalid("evaluation.probes: geometry"):
        probes = {"probes": ["pairs", "geometry"]}
        Study(name="s", dataset="d", methods={"theirs": theirs}, evaluation=probes, sanity=None)


def test_few_clips_have_no_geometry_and_no_direction(folder: Path) -> None:
    rows = Path("doors.csv").read_text().splitlines()[:5]
    Path("few.csv").write_text("\n".join(rows))
    done = evaluate("--data", "few.csv", "--scores", "theirs.npz", "--probes", "-n")
    assert done.returncode == 1, "its ids are others; what is left out is told of a command that goes on"
    with np.load("theirs.npz") as theirs:
        first = [
            n for n, item in enumerate(theirs["item_ids"]) if item.removesuffix("_rev") in ("v0", "v1", "v2", "v3")
        ]
        ids = {name: theirs[name][first] for name in ("query_ids", "item_ids")}
        np.savez("few.npz", similarity=theirs["similarity"][np.ix_(first, first)], **ids)
    done = evaluate("--data", "few.csv", "--scores", "few.npz", "--probes", "-n")
    assert done.returncode == 0, done.stderr
    assert load_study("few").evaluation.probes == ["pairs"]
    assert "direction: needs clips with reversed twins in 5 clusters; there are 4" in done.stdout
    assert "geometry: needs more than 10 clips, twins counted; there are 8" in done.stdout
