"""Trials that choose keys of methods, as their user has them: what runs, what runs again, what tables say."""

from __future__ import annotations

import json

import pytest

from mini_study import Workflow

STUDY = """
dataset: shapes
backbone: {architecture: config/models/tiny.json}
frames: {max_frames: 2, size: 32, keep_in_memory: true}
text: {tokenizer: words, max_words: 16}
training: {epochs: 2, lr: 1.0e-3, backbone_lr_multiplier: 1.0, batch: {size: 8, captions: one}}
methods:
  meanP: {head: meanP}
  seqTransf: {head: seqTransf, head_layers: 1, head_start: random}
  chance: {model: chance, seeds: [0]}
seeds: [0, 1]
sanity: null
sweep:
  keys: {training.lr: [1.0e-9, 1.0e-2]}
  methods: {seqTransf: {training.lr: null, head_layers: [1, 2]}}
statistics: {resamples: 100}
figures: {examples: 2}
"""
TABLES = "results/tiny/tables"
FILE = "config/studies/tiny.yaml"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    workflow = Workflow(tmp_path_factory.mktemp("checkout"))
    (workflow.folder / FILE).write_text(STUDY)
    clips = "{train: 8, valid: 4, test: 4}"
    (workflow.folder / "config/config.yaml").write_text(
        f"studies: [tiny]\noverrides:\n  datasets.shapes.source.clips: {clips}\n"
    )
    workflow.run(TABLES, "results/tiny/report.html")
    return workflow


def choice(workflow: Workflow, method: str) -> dict:
    return json.loads((workflow.folder / f"results/tiny/sweep/{method}/seed0/choice.json").read_text())["keys"]


def record(workflow: Workflow, method: str, seed: int) -> dict:
    return json.loads((workflow.folder / f"results/tiny/runs/{method}/seed{seed}/run.json").read_text())


@pytest.mark.workflow
def test_runs_have_the_keys_that_their_trials_chose_and_tables_say_so(tuned):
    assert tuned.stale(TABLES) == {}
    lr, layers = choice(tuned, "meanP"), choice(tuned, "seqTransf")
    assert lr.keys() == {"training.lr"} and layers.keys() == {"head_layers"}
    for seed in (0, 1):
        run = record(tuned, "meanP", seed)
        assert run["tuned"] == lr and run["spec"]["method"]["training"]["lr"] == lr["training.lr"]
        assert record(tuned, "seqTransf", seed)["spec"]["method"]["head_layers"] == layers["head_layers"]
    table = "".join((tuned.folder / TABLES / f"{name}.md").read_text() for name in ("table_A_origin", "notes"))
    assert "given one choice of keys" in table and "after 2 trials each to choose keys" in table
    said = "once for all seeds, with seed 0, so the spread over seeds does not include the choice: meanP (training.lr "
    assert f"{said}{lr['training.lr']})" in table
    trials = (tuned.folder / TABLES / "table_trials.csv").read_text().splitlines()
    assert trials[0] == "label,method,seed,place,keys,metric,score,epoch" and len(trials) == 5
    chosen = [line.split(",")[4] for line in trials if line.split(",")[3] == "1"]
    assert chosen == [f"training.lr {lr['training.lr']}", f"head_layers {layers['head_layers']}"]
    scores = {tuple(line.split(",")[1:4:2]): float(line.split(",")[6]) for line in trials[1:]}
    for method in ("meanP", "seqTransf"):
        runs = [record(tuned, method, seed)["best"]["valid_sum"] for seed in (0, 1)]
        behind = scores[method, "1"] - scores[method, "2"]
        another = f"{method} 1 trial, up to {behind:.1f} in R@1 + R@5 + R@10 from the chosen one"
        assert (another in table) == (behind <= 2 * abs(runs[0] - runs[1])), "√2 of a spread of two is their difference"
    assert "Trials. Shapes" in (tuned.folder / "results/tiny/report.html").read_text()


@pytest.mark.workflow
def test_steps_are_timed_with_the_keys_that_were_chosen(tuned, tmp_path):
    study = tuned.copy(tmp_path / "copy")
    times = "results/tiny/step_time.csv"
    verdict = "tables: {verdict: {baseline: meanP, methods: [seqTransf], rounds: 5}}"
    study.edit(FILE, "statistics:", f"{verdict}\nstatistics:")
    study.run(times)
    log = (study.folder / "results/tiny/logs/step_time.log").read_text()
    layers = choice(study, "seqTransf")["head_layers"]
    assert f"seqTransf: timed with the keys that its trials chose: head_layers {layers}" in log
    other = {1: 2, 2: 1}[layers]
    study.edit("results/tiny/sweep/seqTransf/seed0/choice.json", f'"head_layers": {layers}', f'"head_layers": {other}')
    assert study.stale(times)["step_time"] == 1


@pytest.mark.workflow
def test_another_value_runs_one_trial_and_only_those_who_choose_it_train_again(tuned, tmp_path):
    study = tuned.copy(tmp_path / "copy")
    study.edit(FILE, "training.lr: [1.0e-9, 1.0e-2]", "training.lr: [1.0e-9, 1.0e-2, 1.0e-10]")
    study.edit(FILE, "head_layers: [1, 2]", "head_layers: [1, 2, 3]")
    ran = study.run(TABLES)
    assert ran.count("checkpoint tune:") == 2 and ran.count("rule trial:") == 2
    again = {m for m in ("meanP", "seqTransf") if choice(study, m) != choice(tuned, m)}
    assert ran.count("rule train:") == 2 * len(again)
    assert study.stale(TABLES) == {}
    study.edit(FILE, "sweep:\n", "sweep:\n  repeat: true\n")
    stale = study.stale(TABLES)
    assert stale["trial"] == 6 and stale["tune"] == 2, "the trials of seed 0 are there"
