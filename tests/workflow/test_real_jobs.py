"""Jobs as the workflow starts them: features of a frozen random tower, and weights kept along the way."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from messages import expect_message, refusal
from mini_study import Workflow
from real_jobs import job, run_job
from rewind.config import RunSpec, Study
from rewind.job_values import Job
from rewind.report.study import _random_feature_notes
from rewind.workflow.job import run_script
from search_runs import make_data, spec_of

pytestmark = pytest.mark.slow

FROZEN = """
dataset: shapes
backbone: {architecture: config/models/tiny.json}
frames: {max_frames: 3, size: 32}
text: {tokenizer: words, max_words: 24}
training: {freeze: [visual]}
methods: {meanP: {}, seqLSTM: {head: seqLSTM}}
seeds: [5, 3]
sanity: {method: meanP}
sweep: {max_frames: [2, 3], seed: 9}
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("walls")
    make_data(folder)
    return folder


def frozen() -> RunSpec:
    """CLIP without weights, its visual tower frozen; three epochs, all of which are kept."""
    spec = spec_of("meanP", 3)
    training = spec.method.training.model_copy(
        update={"freeze": ["visual"], "keep_every": 1, "evaluate_every": 1, "backbone_lr_multiplier": 1.0}
    )
    return spec.model_copy(update={"method": spec.method.model_copy(update={"training": training})})


def features(root: Path, seed: int, study: str = "walls") -> str:
    path = f"results/{study}/features/seed{seed}/frames2.npz"
    part = {"wildcards": {"study": study, "part": f"/seed{seed}", "frames": "2"}}
    done = run_job(root, job("features", frozen(), "walls", {}, {"npz": path}, max_frames=2, **part))
    assert done.returncode == 0, done.stderr
    return path


def train(study: str, seed: int, cache: str) -> dict:
    folder = f"results/{study}/runs/meanP/seed{seed}"
    outputs = {"model": "model.safetensors", "history": "history.csv", "record": "run.json", "metrics": "metrics.csv"}
    outputs = {name: f"{folder}/{file}" for name, file in outputs.items()}
    more = {"name": f"meanP/seed{seed}", "seed": seed, "max_frames": 2, "state": f"results/{study}/.state/meanP.pt"}
    return job("train", frozen(), "walls", {"features": cache}, outputs, **more)


def do_here(content: dict) -> None:
    for path in content["output"]["values"]:
        Path(path).parent.mkdir(parents=True, exist_ok=True)  # as Snakemake does
    run_script(replace(Job.read(content), by_hand=True))


def test_a_frozen_random_tower_is_that_of_its_seed_and_a_killed_run_keeps_every_epoch(root, monkeypatch):
    cache = features(root, 3)
    first = dict(np.load(root / cache))
    again = dict(np.load(root / features(root, 3, "again")))
    assert first["frames"].std() > 0.01 and first.keys() == again.keys()
    assert all(np.array_equal(first[name], again[name]) for name in first), "the same features whenever they are made"

    # Dies once the state of the second epoch is saved, before its weights are kept.
    assert run_job(root, train("walls", 3, cache), dies_after=2).returncode == -signal.SIGKILL
    kept = root / "results/walls/runs/meanP/seed3/epochs"
    assert [path.name for path in kept.iterdir()] == ["model.epoch1.safetensors"]
    done = run_job(root, train("walls", 3, cache))
    assert done.returncode == 0 and "resumed after epoch 2, step 0" in done.stdout, done.stderr
    monkeypatch.chdir(root)
    do_here(train("whole", 3, cache))
    whole = root / "results/whole/runs/meanP/seed3"
    names = [f"epochs/model.epoch{epoch}.safetensors" for epoch in (1, 2, 3)]
    assert sorted(path.name for path in kept.iterdir()) == [Path(name).name for name in names]
    for name in ("model.safetensors", *names):
        assert (whole / name).read_bytes() == (kept.parent / name).read_bytes(), name
    states = [load_file(whole / name) for name in names]
    learnt = [name for name in states[0] if not np.array_equal(states[0][name], states[1][name])]
    assert learnt and not any("visual" in name for name in learnt)

    with refusal("results/walls/features/seed3/frames2.npz"):
        do_here(train("other", 0, cache))


def test_the_workflow_makes_features_of_a_random_tower_for_each_seed(tmp_path):
    workflow = Workflow(tmp_path)
    (tmp_path / "config/studies/mini.yaml").write_text(FROZEN)
    said = workflow.run("-n", "results/mini/runs/meanP/seed3/model.safetensors")
    made = {line.split()[-1] for line in said.splitlines() if "output: results/mini/features" in line}
    # The over-fitting check has seed 0, the sweep's trials have 9.
    asked = [(0, 3), (3, 2), (3, 3), (9, 2), (9, 3)]
    assert made == {f"results/mini/features/seed{seed}/frames{frames}.npz" for seed, frames in asked}
    assert "asks for the file" not in said and "request the file with seed<k>/" in workflow.run(
        "-n", "results/mini/features/frames3.npz", ok=False
    )


def test_tables_say_which_rows_have_random_features():
    frozen = {"freeze": ["visual"]}
    methods = {"a": {"label": "Frozen", "training": frozen}, "b": {}, "c": {"model": "chance", "training": frozen}}
    keys = {"name": "s", "dataset": "d", "methods": methods, "seeds": [4, 1]}
    said = "Of Frozen: random features: the visual tower has random weights, drawn again for each seed, and is frozen"
    assert _random_feature_notes(Study(**keys)) == [said]
    assert Study(**keys).features_suffix("a", 1) == "/seed1" and Study(**keys).features_suffix() == "/seed4"
    for known in (
        {"backbone": {"weights": "w.pt"}},
        {"backbone": {"pretrained": "openai"}},
        {"pretraining": {}},
        {"backbone": {"kind": "towers"}},
    ):
        assert _random_feature_notes(Study(**keys | known)) == [], known
        assert Study(**keys | known).features_suffix("a", 1) == ("/seed1" if "pretraining" in known else "")
    image = {"backbone": {"kind": "miniclip_towers", "architecture": "resnet18"}}
    expect_message(_random_feature_notes(Study(**keys | image))[0])
