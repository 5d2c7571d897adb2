"""What is done to a finished study that changes no number: files touched, copied or lost, keys that decide nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mini_study import DATA, Workflow

TINY = """
dataset: shapes
backbone: {architecture: config/models/tiny.json}
frames: {max_frames: 2, size: 32}
text: {tokenizer: words, max_words: 24}
training: {epochs: 1, batch: {size: 8, captions: one}}
methods:
  meanP: {head: meanP}
  chance: {model: chance, seeds: [0]}
seeds: [0]
sanity: {clips: 2, min_r1: 0.0, training: {epochs: 1, batch: {size: 2}}}
statistics: {resamples: 100}
figures: {examples: 1}
"""
ALL_LARGE = ("--max-checksum-file-size", "0")
"""As if every file were above the size up to which Snakemake itself compares contents."""
SHARD = "results/data/shapes/videos/shards/0-of-1"


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Workflow:
    workflow = Workflow(tmp_path_factory.mktemp("finished"))
    (workflow.folder / "config/studies/mini.yaml").write_text(TINY)
    workflow.run()
    return workflow


@pytest.fixture
def workflow(finished, tmp_path) -> Workflow:
    return finished.copy(tmp_path / "copy")


def results(workflow: Workflow) -> list[Path]:
    return [path for path in sorted((workflow.folder / "results").rglob("*")) if path.is_file()]


def rewind(workflow: Workflow, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rewind", *arguments],
        **{"cwd": workflow.folder, "env": workflow.env, "capture_output": True, "text": True, "timeout": 300},
    )
    return done.stdout + done.stderr


@pytest.mark.workflow
@pytest.mark.parametrize("when", ["now", "long ago", "as copies have it"])
def test_touching_any_output_makes_nothing_stale(workflow, when):
    for number, path in enumerate(results(workflow)):
        later = {
            "now": time.time() + number,
            "long ago": 1e9 - number,
            "as copies have it": time.time() + 900 - number,
        }[when]
        os.utime(path, (later, later))
    assert workflow.stale(*ALL_LARGE) == {}
    times = {path: path.stat().st_mtime for path in results(workflow)}
    assert workflow.stale(*ALL_LARGE) == {} and times == {path: path.stat().st_mtime for path in results(workflow)}


@pytest.mark.workflow
def test_one_touched_output_at_a_time_makes_nothing_stale(workflow):
    """The others keep their times, so that a wrong order shows."""
    sealed = sorted((workflow.folder / "results").rglob(".seals/**/*.json"))
    outputs = [Path(str(path).replace("/.seals/", "/").removesuffix(".json")) for path in sealed]
    for path in [one for one in outputs if one.suffix in (".safetensors", ".npz", ".parquet", ".csv", "")][::3]:
        os.utime(path, None)
        assert workflow.stale(*ALL_LARGE) == {}, path


@pytest.mark.workflow
@pytest.mark.parametrize("records", [True, False])
def test_a_copied_study_is_up_to_date(workflow, tmp_path, records):
    """Copied without times, in any order, to another folder."""
    target = tmp_path / "elsewhere"
    ignore = shutil.ignore_patterns("opened", *[] if records else [".snakemake"])
    shutil.copytree(workflow.folder, target, symlinks=True, copy_function=shutil.copyfile, ignore=ignore)
    workflow.folder = target
    workflow.env = workflow.watched()
    assert workflow.stale(*ALL_LARGE) == {}


@pytest.mark.workflow
def test_an_edited_output_keeps_its_new_time(workflow):
    model = workflow.folder / "results/mini/runs/meanP/seed0/model.safetensors"
    model.write_bytes(model.read_bytes()[:-1] + b"\1")
    assert "similarity" in workflow.stale(*ALL_LARGE)


LOST = ["metrics.csv", "ranks/meanP/seed0.parquet", "sweep/best.json", "runs/meanP/seed0/run.json", "sanity.json"]


@pytest.mark.workflow
@pytest.mark.parametrize("name", LOST)
def test_an_intermediate_file_that_is_gone_is_named_with_a_command_that_makes_it(workflow, name):
    path = f"results/mini/{name}"
    (workflow.folder / path).unlink()
    command = f"`snakemake --cores all {path}"
    assert command in workflow.run("-n")
    why = rewind(workflow, "why", "mini")
    assert command in why and "nothing is stale" not in why
    if name not in ("sweep/best.json", "sanity.json"):
        assert command in rewind(workflow, "share", "mini", "--out", "mini.zip")
    if name == "metrics.csv":
        assert command in rewind(workflow, "board", "mini", "--out", "board")
        workflow.run(path)
        assert "nothing is stale" in rewind(workflow, "why", "mini")


@pytest.mark.workflow
def test_what_belongs_to_a_method_that_was_removed_is_not_missed(workflow):
    workflow.edit("config/studies/mini.yaml", "  chance: {model: chance, seeds: [0]}\n", "")
    workflow.run()
    for folder in ("runs", "ranks", "similarity"):
        shutil.rmtree(workflow.folder / "results/mini" / folder / "chance")
    assert "note:" not in workflow.run("-n")


@pytest.mark.workflow
def test_a_shard_that_was_killed_after_a_change_of_its_keys_is_resumed(workflow):
    target, over = "results/data/shapes/items.csv", ["--config", "overrides={datasets.shapes.video.qp: 30}"]
    log = workflow.folder / "results/data/shapes/logs/videos/0-of-1.log"
    log.unlink()
    job = subprocess.Popen(
        workflow.command(target, *over),
        **{"cwd": workflow.folder, "env": workflow.env, "start_new_session": True},
        **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL},
    )
    while job.poll() is None and not log.exists():
        time.sleep(0.05)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    subprocess.run([sys.executable, "workflow/unlock.py"], cwd=workflow.folder, env=workflow.env, check=False)
    assert not (workflow.folder / f"{SHARD}.index.csv").exists(), "killed while it was made"
    said = workflow.run(target, *over)
    assert "come back with the same bytes" not in said and workflow.stale(target, *over) == {}


@pytest.mark.workflow
def test_a_shard_that_is_only_lost_is_not_made_with_all_that_follows(workflow):
    (workflow.folder / f"{SHARD}.tar").unlink()
    text = workflow.run("results/data/shapes/items.csv", "--forcerun", "captions", ok=True)
    assert f"--force {SHARD}.tar" in text
    text = workflow.run("--forcerun", "export_vectors", ok=False)
    assert f"--force {SHARD}.tar" in text
    workflow.run("--force", f"{SHARD}.tar")
    assert workflow.stale() == {}


KEYS = {
    "studies.mini.methods.meanP.seeds: [0]": {"tables", "figures", "page"},
    "studies.mini.sanity.clips: 3": {"sanity"},
    "studies.mini.methods.meanP.label: Mean": {"tables", "figures", "page", "twin_figure", "group_figure"},
    "studies.mini.statistics.seed: 3": {"statistics", "tables", "figures", "page"},
    "studies.mini.evaluation.transductive: [dual_softmax]": {"transductive", "tables", "figures", "page"},
}
WITHOUT_EFFECT = (
    "studies.mini.training.save_every_steps: 7",
    "studies.mini.training.keep_every: 1",
    "studies.mini.resources.threads: 2",
    "datasets.shapes.how_to_get: Ask.",
    "datasets.shapes.max_missing: 0.5",
    "datasets.shapes.video.workers: 1",
)


@pytest.mark.workflow
@pytest.mark.parametrize("override", KEYS)
def test_snakemake_makes_stale_what_a_key_decides(workflow, override):
    stale = set(workflow.stale("--config", f"overrides={{{override}}}"))
    assert KEYS[override] <= stale <= KEYS[override] | {"group_figure", "order_figure"}


@pytest.mark.workflow
def test_keys_that_decide_no_result_make_nothing_stale(workflow):
    assert workflow.stale("--config", f"overrides={{{', '.join(WITHOUT_EFFECT)}}}") == {}


@pytest.mark.workflow
def test_a_change_of_settings_trains_nothing(workflow):
    stale = set(workflow.stale("--config", "overrides={studies.mini.evaluation.settings: [origin, hard]}"))
    assert "ranks" in stale and not stale & (DATA | {"train", "similarity", "sanity"})
