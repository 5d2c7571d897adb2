"""The price of a study: measured seconds × counts, worked by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rehearsal_rates import rates
from rewind.cli.rehearse import report, shrink, weights
from rewind.cli.rehearse.cost import (
    MeasuredFolder,
    PlannedJob,
    captions_per_epoch,
    scores_pairs,
    wall_time,
)
from rewind.cli.rehearse.measured import FinishedJob, StepTimes, fastest_steps, finished_jobs, read_step_times
from rewind.cli.rehearse.weights import RehearsedTowers
from rewind.config import Method, Study, load_study

PIXELS = {"dataset": "d", "methods": {"meanP": {}, "tightTransf": {"head": "tightTransf"}}, "name": "s"}


def folder(whole: dict[str, float], rehearsed: dict[str, float], *jobs: FinishedJob) -> MeasuredFolder:
    return MeasuredFolder(Path("none"), None, list(jobs), whole, rehearsed)


def test_a_vit_computes_what_its_matrices_say():
    # ViT-B/32: 12 layers, 50 tokens, width 768; published as 4.4 GMAC, which is 8.8 GFLOP.
    flops = weights.visual_tower_flops({"kind": "clip", "architecture": "ViT-B-32-quickgelu"}, 1, 224)
    assert flops == pytest.approx(2 * 4.4e9, rel=0.05)
    assert weights.visual_tower_flops({"kind": "clip", "architecture": "ViT-B-32-quickgelu"}, 12, 224) == 12 * flops
    assert weights.visual_tower_flops({"kind": "towers"}, 1, 224) is None


def test_jobs_wait_for_cores_and_for_their_level():
    jobs = [PlannedJob(3), PlannedJob(2), PlannedJob(1, rate=0.5, units=2), PlannedJob(1, level=1, threads=2)]
    assert wall_time(jobs, 1, 0) == 8
    assert wall_time(jobs, 2, 0) == 4 + 1, "3 beside 2, then 2 more; the next level starts after the last of them"
    assert wall_time([PlannedJob(5, threads=8)], 2, 0) == 5, "more threads than cores: all cores"
    gpus = [PlannedJob(10, gpus=1)] * 4
    assert [wall_time(gpus, 8, count) for count in (1, 2, 4, 0)] == [40, 20, 10, 10]


def test_a_run_costs_its_steps_its_validations_and_its_start():
    study = Study.model_validate(PIXELS | {"methods": {"meanP": {"training": {"epochs": 10, "batch": {"size": 4}}}}})
    cost = rates(study).training(FinishedJob("train", "meanP.seed0", 20.0, 15.0, None))
    # 20 s of which 6 were steps; three passes for each of 10 × 5000 captions, and one for 90 more items in each of 10
    # validations. A step of 4 captions took 2 s.
    assert (cost.start, cost.units) == (14, 3 * 10 * 5000 + 10 * 90) and cost.rate == pytest.approx(2 / 4 / 3)
    assert cost.seconds == pytest.approx(14 + 10 * 1250 * 2 + 10 * 90 * 0.5 / 3)


def test_items_cost_by_frames_and_layers_and_pairs_by_themselves():
    study = Study.model_validate(PIXELS)
    slow = {"meanP": StepTimes(2.0, 6.0, 4, 12, 0, None, 1), "tightTransf": StepTimes(3.0, 6.0, 4, 12, 0, None, 1)}
    at, keys = rates(study, steps=slow), study.training
    # A step of 4 is three forward passes: 2 s are 1/6 s an item; the second more of 16 pairs 1/48 s each.
    assert at.forward("meanP", keys, 12) == pytest.approx((1 / 6, 0))
    assert at.forward("meanP", keys, 24) == pytest.approx((1 / 3, 0))
    assert at.forward("tightTransf", keys, 12) == pytest.approx((1 / 6, 1 / 48))
    shallow = rates(study, steps=slow, share=0.5)
    assert shallow.forward("tightTransf", keys, 12) == pytest.approx((1 / 3, 1 / 48)), "pairs have no tower"
    frozen = keys.model_copy(update={"freeze": ["visual"]})
    assert shallow.forward("meanP", frozen, 12) == pytest.approx((1 / 6, 0)), "no tower in its steps"
    job = FinishedJob("similarity", "tightTransf.seed0", 10.0, 5.0, None)
    cost = at.job_cost(job, folder({"test": 200}, {"test": 20}))
    assert cost.seconds == pytest.approx(10 + 180 / 6 + (200**2 - 20**2) / 48)


def test_ranks_cost_by_their_pairs_however_few_were_rehearsed():
    at, job = rates(Study.model_validate(PIXELS)), FinishedJob("ranks", "meanP.seed0", 1.2, 0.4, None)
    assert at.job_cost(job, folder({"pairs": 400}, {"pairs": 400})).seconds == 1.2
    assert at.job_cost(job, folder({"pairs": 2000**2}, {"pairs": 8**2})).seconds == pytest.approx(1.8, abs=0.01)
    assert any("ranked" in guess for guess in at.guesses)


def test_what_a_language_model_is_asked_is_counted_and_its_time_is_a_guess(tmp_path):
    asked = {"encoder": "video_llm", "name": "owner/model"}
    here = {"model": "vectors", "options": asked | {"name": str(tmp_path)}, "rerank": {"first": "a", "top": 5}}
    methods = {
        "a": {"model": "vectors", "options": {"encoder": "open_clip", "name": "ViT-B-32"}},
        "b": {"model": "vectors", "options": asked, "rerank": {"first": "a", "top": 50}},
        "c": {"model": "vectors", "options": asked, "rerank": {"first": "a", "binary_only": True}},
        "here": here,
    }
    at = rates(Study.model_validate(PIXELS | {"methods": methods, "sanity": None}))
    at.guess_about_models()
    guesses, test = list(at.guesses), at.counts.items["test"]
    directions = len(at.study.evaluation.directions)
    assert "a takes as long as random vectors: open_clip ViT-B-32 was not loaded" in guesses
    known = "takes as long as random vectors: video_llm owner/model was not loaded, which scores up to"
    assert f"b {known} {(2 * 50 + 2) * test * directions:,} pairs, each in a pass" in guesses
    assert f"c {known} {2 * test * directions:,} pairs, each in a pass" in guesses
    assert not any(guess.startswith("here") for guess in guesses)


def test_other_stages_cost_what_each_unit_took():
    at = rates(Study.model_validate(PIXELS))
    part = folder({"originals": 600.0}, {"originals": 12.0})
    assert at.job_cost(FinishedJob("sources", "", 7.0, 6.0, None), part)[:3] == (1.0, 0.5, 600.0)
    # Two shards of six originals each; the whole has five of 120.
    assert at.job_cost(FinishedJob("video_shard", "0-of-2", 4.0, 3.0, None), part, 2, 5)[:3] == (1.0, 0.5, 120.0)
    few = FinishedJob("frames", "frames4", 4.0, 3.0, None)  # of sweeps that try up to 12 frames of 10 clips here
    assert at.job_cost(few, folder({"frames": 1200.0}, {"frames": 120.0}))[:3] == (1.0, 3 / 40, 400.0)
    assert at.job_cost(FinishedJob("tables", "", 4.0, 3.0, None), part)[:3] == (1.0, 3.0, 1.0)


def test_a_method_may_be_called_like_the_pre_training(tmp_path):
    """Their steps were kept under one name: the one that was read last priced both."""
    seconds_per_step = {"runs/pretraining/seed0": 1.0, "pretrained/seed0": 30.0}
    for name, each in seconds_per_step.items():
        run = tmp_path / name
        run.mkdir(parents=True)
        (run / "history.csv").write_text(f"epoch,seconds,clips_per_second\n1,{each},{4 / each}\n")
        record = {"spec": {"method": {"training": {"batch": {"size": 4}}}}, "max_frames": 12, "parameters": 7}
        (run / "run.json").write_text(json.dumps(record | {"hardware": {"gpus": 0}, "peak_gpu_memory_mb": None}))
    training = {"epochs": 1, "batch": {"size": 4}}
    keys = {"dataset": "d", "name": "s", "training": training, "methods": {"pretraining": {}}}
    study = Study.model_validate(keys | {"pretraining": {"training": training}})
    at = rates(study, steps=fastest_steps(tmp_path))
    jobs = [
        FinishedJob("train", "pretraining.seed0", 9.0, 5.0, None),
        FinishedJob("pretrain", "seed0", 49.0, 5.0, None),
    ]
    run, pretraining = (at.job_cost(job, folder({}, {})).rate for job in jobs)
    assert (run, pretraining) == pytest.approx((1 / 12, 30 / 12)), "a step is twelve forward passes"


def test_a_gpu_that_nobody_timed_is_a_guess_and_says_so():
    study = Study.model_validate(PIXELS)
    at = rates(study, gpus=4)
    seconds, _ = at.forward("meanP", study.training, 12)
    flops = weights.visual_tower_flops({"kind": "clip", "architecture": "ViT-B-32-quickgelu"}, 12, 224)
    assert seconds == pytest.approx(flops / 100e12)
    assert any("TFLOP/s" in guess for guess in at.guesses)
    timed = rates(study, gpus=4, steps={"meanP": StepTimes(2.0, 6.0, 128, 12, 1, 900.0, 10**6)})
    assert timed.forward("meanP", study.training, 12) == pytest.approx((2 / 3 / 128, 0)) and not timed.guesses


def test_captions_of_an_epoch():
    study = Study.model_validate(PIXELS)
    counts = rates(study).counts
    assert captions_per_epoch(study.training, counts) == 5000
    one = study.training.model_copy(update={"batch": study.training.batch.model_copy(update={"captions": "one"})})
    assert captions_per_epoch(one, counts) == 1000
    assert scores_pairs(Method(head="tightTransf")) and not scores_pairs(Method(head="meanP"))
    assert not scores_pairs(Method(model="translator", head="mlp1"))


def test_measurements_are_read_from_what_jobs_left(tmp_path):
    head = "s\th:m:s\tmax_rss\tcpu_time\n"
    for name, row in {
        "train/a.seed0": "6.5\t0:00:06\t526.5\t6.0",
        "sweep": "1.0\t0:00:01\t-\t1",
        "videos/0-of-2": "3\t0\t9\t1",
    }.items():
        path = tmp_path / "benchmarks" / f"{name}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(head + row + "\n")
    (tmp_path / "logs/train").mkdir(parents=True)
    (tmp_path / "logs/train/a.seed0.log").write_text("epoch\nfinished in 3.1 s\n")
    jobs = {job.rule: job for job in finished_jobs(tmp_path)}
    assert set(jobs) == {"train", "sweep", "video_shard"}
    assert (jobs["train"].method, jobs["train"].memory, jobs["train"].inside) == ("a", 526.5, 3.1)
    assert jobs["train"].start == pytest.approx(3.4) and jobs["sweep"].memory is None
    (tmp_path / "history.csv").write_text("epoch,seconds,clips_per_second\n1,4.0,4\n2,2.0,8\n")
    record = {
        "spec": {"method": {"training": {"batch": {"size": 8}}}},
        "max_frames": 4,
        "hardware": {"gpus": 0},
        "parameters": 7,
    }
    (tmp_path / "run.json").write_text(json.dumps(record | {"peak_gpu_memory_mb": None}))
    steps = read_step_times(tmp_path / "history.csv", tmp_path / "run.json")
    assert steps == StepTimes(1.0, 6.0, 8, 4, 0, None, 7), "16 captions an epoch are two steps of 8; the second is warm"
    (tmp_path / "history.csv").write_text("\n")
    assert read_step_times(tmp_path / "history.csv", tmp_path / "run.json") is None, "a baseline"


@pytest.mark.parametrize("name", ["rtime", "sanw", "cosine_gap", "translator", "miniclip", "demo"])
def test_a_rehearsed_study_is_a_study_and_keeps_its_methods(name, tmp_path):
    import yaml

    study = load_study(name)
    towers = RehearsedTowers(tmp_path / "weights", False, shrink.min_layers(study))
    towers.rehearsed = lambda keys, where, size, fit="crop": keys  # type: ignore[method-assign] # no weights are written here
    keys = shrink.shrink_study(study, tmp_path, towers, 2, 0)
    (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(keys, sort_keys=False))
    small = load_study(name, tmp_path)
    assert list(small.methods) == list(study.methods) and small.pairs() == study.pairs()
    assert all(len(seeds) <= 2 for seeds in [small.seeds, *(m.seeds or [] for m in small.methods.values())])
    assert (small.sweep is None) == (study.sweep is None) and small.evaluation.settings == study.evaluation.settings
    assert max(small.methods[m].training.epochs for m in small.trained()) <= 3
    assert all(small.methods[m].training.objective == study.methods[m].training.objective for m in study.methods)
    assert small.title.startswith("REHEARSAL") and small.tables.prefix == "rehearsal_"
    assert not small.resources.require_gpu and small.resources.threads <= 2


def test_paths_that_exist_become_absolute_and_nothing_else(tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config/tiny.json").write_text("{}")
    given = {"a": ["config/tiny.json", "none/there.json"], "b": {"c": "R@1"}, "d": 3, "e": "\0.x"}
    made = shrink.absolute_paths(given, tmp_path)
    assert made == {
        "a": [str(tmp_path / "config/tiny.json"), "none/there.json"],
        "b": {"c": "R@1"},
        "d": 3,
        "e": "\0.x",
    }


def test_what_people_read():
    assert [report.approximate_duration(s) for s in (20, 300, 5400, 86400, 3 * 86400)] == [
        "1 min",
        "5 min",
        "1.5 h",
        "24.0 h",
        "3.0 days",
    ]
    assert [report.format_bytes(n) for n in (3e6, 4.2e9)] == ["3 MB", "4.2 GB"]
    assert report.align_columns([("Stage", "Jobs"), ("train", "12")]) == ["Stage  Jobs", "───────────", "train    12"]
