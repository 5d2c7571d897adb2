"""One job of the workflow: what it is given, and the same again for a debugger, by the real commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from messages import expect_error
from mini_study import Workflow
from rewind.job_values import Job, NamedList

pytestmark = pytest.mark.slow

STUDY = """
dataset: shapes
backbone: {architecture: config/models/tiny.json}
frames: {size: 32}
text: {tokenizer: words, max_words: 24}
methods: {meanP: {head: meanP}}
"""
BEST = "results/tiny/sweep/best.json"  # of a study without a sweep it needs no other file


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Workflow:
    workflow = Workflow(tmp_path_factory.mktemp("checkout"))
    (workflow.folder / "config/studies/tiny.yaml").write_text(STUDY)
    (workflow.folder / "config/config.yaml").write_text("studies: [tiny]\n")
    workflow.run(BEST)
    return workflow


def python(workflow: Workflow, *arguments: str, ok: bool = True, typed: str = "") -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=workflow.folder, env=workflow.env, input=typed, capture_output=True, text=True)
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_job_is_done_again_elsewhere_and_snakemake_knows_nothing_of_it(checkout, tmp_path):
    kept = {path: path.stat().st_mtime_ns for path in (checkout.folder / "results").rglob("*")}
    said = python(checkout, "-m", "rewind", "job", BEST, "--out", str(tmp_path))
    assert said.startswith("sweep, as Snakemake started it on 20") and said.endswith(f"{tmp_path / BEST}\n")
    assert (tmp_path / BEST).read_bytes() == (checkout.folder / BEST).read_bytes()
    assert kept == {path: path.stat().st_mtime_ns for path in (checkout.folder / "results").rglob("*")}
    assert checkout.stale(BEST) == {}


def test_a_script_runs_by_hand_for_the_job_that_its_wildcards_name(checkout, tmp_path):
    said = python(checkout, "workflow/scripts/sweep.py", "--mock", "tiny", "--out", str(tmp_path))
    assert said.startswith("sweep, as Snakemake started it on 20") and f"{tmp_path / BEST}\n" in said
    assert (tmp_path / BEST).read_bytes() == (checkout.folder / BEST).read_bytes()
    said = python(checkout, "workflow/scripts/sweep.py", "--mock", "other", "7", ok=False)
    assert " other 7 " in said and ": tiny" in said
    expect_error(said)


def test_a_debugger_steps_into_it(checkout, tmp_path):
    lines = (checkout.folder / "src/rewind/training/sweep.py").read_text().splitlines()
    at = next(number for number, line in enumerate(lines, 1) if "trials = [" in line)
    begin = ["-m", "pdb", "-c", f"break src/rewind/training/sweep.py:{at}", "-c", "continue", "-m", "rewind"]
    said = python(checkout, *begin, "job", BEST, "--out", str(tmp_path), typed="p default * 1000\nquit\n")
    assert "choose_frames()" in said and "(Pdb) 12000" in said and not (tmp_path / BEST).exists()


def test_a_job_that_was_never_started_is_no_job_to_repeat(checkout):
    said = python(checkout, "-m", "rewind", "job", "results/tiny/sweeps/best.json", ok=False)
    assert f" {BEST}?" in said
    expect_error(said, "results/tiny/sweeps/best.json")


def test_an_error_inside_is_shown_whole(checkout, tmp_path):
    (record,) = (checkout.folder / ".snakemake/rewind/jobs").glob("sweep-*.json")
    content = json.loads(record.read_text())
    twin = record.with_name("sweep-broken.json")
    broken = {"values": ["results/tiny/a", "results/tiny/b"], "names": {"table": "results/tiny/a"}}
    twin.write_text(json.dumps(content | {"output": broken}))
    said = python(checkout, "-m", "rewind", "job", "results/tiny/a", "--out", str(tmp_path), ok=False)
    twin.unlink()
    assert "Traceback" in said and "'best' is not given; available: table" in said


def test_what_a_job_is_given_outlives_json_and_moves_whole(tmp_path):
    files = NamedList(["a/x", "a/y", "a/z"], {"first": "a/x", "rest": ["a/y", "a/z"], "none": []})
    params = NamedList([3, {"lr": 0.1}, "s/t.pt"], {"seed": 3, "state": "s/t.pt"})
    given = Job("train", files, files, params, {"study": "demo"}, 2, {"gpu": 1}, "logs/a.log")
    again = Job.read(json.loads(json.dumps(given.content())))
    assert again.content() == given.content() and again.params[1] == {"lr": 0.1} and again.input.rest == ["a/y", "a/z"]
    moved = again.below(tmp_path)
    assert list(moved.output) == [str(tmp_path / name) for name in ("a/x", "a/y", "a/z")]
    assert moved.output.rest == [str(tmp_path / "a/y"), str(tmp_path / "a/z")] and moved.output.get("other") is None
    assert (moved.log, moved.params.state) == (str(tmp_path / "logs/a.log"), str(tmp_path / "s/t.pt"))
    assert list(moved.input) == ["a/x", "a/y", "a/z"] and moved.params.seed == 3
    assert Path(given.below(tmp_path).below(tmp_path / "b").log) == tmp_path / "b" / tmp_path.relative_to("/") / (
        "logs/a.log"
    )
    with pytest.raises(AttributeError, match="'model' is not given; available: first, rest, none"):
        _ = given.output.model
