"""What every stage reads, depends on and asks for: plain Python, without Snakemake and without a file of results."""

from __future__ import annotations

import inspect
import re
from types import SimpleNamespace

import pytest

from checkout import ROOT
from messages import refusal
from rewind.config import Dataset, Study, load_dataset, load_study
from rewind.config.dataset import EmbeddingsSource
from rewind.io.files import write_json
from rewind.job_values import Job, NamedList, Outputs
from rewind.workflow.job_inputs import run_spec
from rewind.workflow.plan import compute, extras, items, reporting, scoring, training
from rewind.workflow.plan.code import code_dependencies
from rewind.workflow.plan.compute import model_memory, training_gpus
from rewind.workflow.plan.dataset import DatasetPlan
from rewind.workflow.plan.files import Unwatched, UserFile
from rewind.workflow.plan.items import features_weights, frame_candidates
from rewind.workflow.plan.reporting import result_files, targets, targets_on_request
from rewind.workflow.plan.rules import WorkflowPlan
from rewind.workflow.plan.scoring import blind_inputs, kind_of_run, rerank_inputs, scored_inputs, untrained_inputs
from rewind.workflow.plan.study import StudyPlan
from rewind.workflow.plan.training import (
    pretraining_seed,
    pretraining_spec,
    sanity_spec,
    sweep_trial_spec,
    train_inputs,
)
from rewind.workflow.stages import RULES
from rule_files import rules_text

STUDIES = sorted(path.stem for path in (ROOT / "config/studies").glob("*.yaml"))


@pytest.fixture(autouse=True)
def in_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def load(name: str, **changes: object) -> tuple[Study, dict[str, Dataset]]:
    """A study of the repository and its data sets, with some keys changed."""
    study = load_study(name, overrides=changes)
    datasets = {study.dataset: load_dataset(study.dataset)}
    source = datasets[study.dataset].source
    if isinstance(source, EmbeddingsSource) and source.made_from:
        datasets[source.made_from.dataset] = load_dataset(source.made_from.dataset)
    return study, datasets


def plan_of(name: str, results: str = "results", **changes: object) -> StudyPlan:
    study, datasets = load(name, **changes)
    return StudyPlan(study, DatasetPlan(datasets[study.dataset], datasets, [study], results), results=results)


def test_no_answer_of_a_plan_is_left_over():
    texts = rules_text() + (ROOT / "Snakefile").read_text()
    source = "\n".join(path.read_text() for path in (ROOT / "src/rewind").rglob("*.py"))
    for owner in (compute, extras, items, reporting, scoring, training, StudyPlan, DatasetPlan):
        module = owner.__name__ if inspect.ismodule(owner) else owner.__module__
        own = [n for n, f in inspect.getmembers(owner, inspect.isfunction) if f.__module__ == module and n[0] != "_"]
        asked = set(re.findall(rf"\b{owner.__name__.rpartition('.')[2]}\.(\w+)", texts))
        unused = [n for n in own if n not in asked and len(re.findall(rf"\b{n}\b", source)) == 1]
        assert own and unused == [], f"{owner.__name__}: nothing asks for these"


def load_all() -> tuple[dict[str, Study], dict[str, Dataset]]:
    studies, datasets = {}, {}
    for name in STUDIES:
        study, found = load(name)
        studies[name], datasets = study, datasets | found
    return studies, datasets


@pytest.mark.parametrize("name", STUDIES)
def test_every_method_of_every_study_has_inputs_keys_and_code(name):
    # The one file that a plan looks for is that of labelled images.
    plan = plan_of(name, evaluation={"zero_shot": None})
    for method, seed in plan.runs():
        by_kind = {"trained": train_inputs, "untrained": untrained_inputs, "blind": blind_inputs}
        inputs = (by_kind | {"reranked": train_inputs})[kind_of_run(plan, method)]
        assert inputs(plan, method, seed)["item_table"] == f"results/data/{plan.keys.dataset}/items.csv"
        assert (
            scored_inputs(plan, method, seed)["model"] == f"results/{name}/runs/{method}/seed{seed}/model.safetensors"
        )
        assert plan.run_spec(method, seed).method.model == plan.method(method).model
        kept = plan.evaluation_spec(method, seed)["method"].get("training", {})
        named = plan.keys.backbone.kind == "encoder"
        assert kept.keys() <= ({"freeze", "lora"} if named else {"lora"}), "how it was trained is no part of scoring"
        assert code_dependencies(plan, "similarity", method, seed).modules
    reranked = [run for run in plan.runs() if kind_of_run(plan, run[0]) == "reranked"]
    assert len(plan.similarity_files()) + len(reranked) == len(plan.rank_files()) == len(plan.runs())
    for method, seed in reranked:
        assert rerank_inputs(plan, method, seed)["first"] in plan.similarity_files()
    assert f"results/{name}/tables" in targets(plan) and f"results/{name}/trec" in targets_on_request(plan)


def test_a_tracker_makes_nothing_stale():
    plain, tracked = plan_of("demo"), plan_of("demo", tracking="wandb")
    assert tracked.execution() == plain.execution() | {"tracking": "wandb"}, "an untracked parameter"
    assert tracked.study_keys() == plain.study_keys() and "tracking" not in plain.study_keys()
    for spec in (sanity_spec, pretraining_spec, sweep_trial_spec):
        assert spec(tracked).fingerprint() == spec(plain).fingerprint()
    assert tracked.run_spec("meanP", 0).fingerprint() == plain.run_spec("meanP", 0).fingerprint()


def test_a_run_reads_what_its_keys_say():
    plan = plan_of("demo")
    frozen = train_inputs(plan, "meanP", 1)
    assert frozen["features"] == [f"results/demo/features/seed1/frames{n}.npz" for n in plan.keys.sweep.max_frames]
    assert frozen["pretrained"] == "results/demo/pretrained/seed1/model.safetensors"
    assert frozen["sanity"] == "results/demo/sanity.json" and frozen["best"] == "results/demo/sweep/best.json"
    whole = plan_of("demo", methods={"meanP": {"training": {"freeze": []}}}, frames={"store": False})
    pixels = train_inputs(whole, "meanP", 1)
    assert "features" not in pixels and pixels["shards"] == "results/data/shapes/videos/shards.csv"
    assert all(isinstance(path, Unwatched) for path in pixels["clips"]), "a shard that is newer changes nothing"
    stored = plan_of("demo", methods={"meanP": {"training": {"freeze": []}}}, frames={"store": True})
    assert train_inputs(stored, "meanP", 1)["store"] == [
        f"results/demo/frames/frames{n}/index.json" for n in plan.keys.sweep.max_frames
    ]
    alone = plan_of("demo", sweep=None, sanity=None)
    assert train_inputs(alone, "meanP", 0)["features"] == ["results/demo/features/seed0/frames12.npz"] or (
        len(train_inputs(alone, "meanP", 0)["features"]) == 1
    )
    assert "sanity" not in train_inputs(alone, "meanP", 0)


def test_a_finished_run_of_a_sweep_keeps_the_values_that_were_tried_for_it(tmp_path):
    results = str(tmp_path / "results")
    plan = plan_of("demo", results)
    tried, chosen = [4, 6], 6
    write_json(tmp_path / "results/demo/sweep/best.json", {"max_frames": chosen})
    write_json(tmp_path / "results/demo/runs/meanP/seed0/run.json", {"max_frames": chosen, "max_frames_tried": tried})
    assert frame_candidates(plan, "meanP", 0) == tried and isinstance(train_inputs(plan, "meanP", 0)["best"], Unwatched)
    write_json(tmp_path / "results/demo/sweep/best.json", {"max_frames": 8})
    assert frame_candidates(plan, "meanP", 0) == list(plan.keys.sweep.max_frames)
    assert not isinstance(train_inputs(plan, "meanP", 0)["best"], Unwatched), "another choice makes the run stale"


def test_an_edit_of_training_keys_leaves_scoring_alone():
    before, after = plan_of("demo"), plan_of("demo", training={"lr": 0.5})
    assert before.run_spec("meanP", 0).fingerprint() != after.run_spec("meanP", 0).fingerprint()
    assert before.evaluation_spec("meanP", 0) == after.evaluation_spec("meanP", 0)
    resources = plan_of("demo", resources={"mem_mb": 9999, "gpus": 2}, frames={"workers": 3})
    given, left_out = resources.run_spec("meanP", 0), resources.run_spec("meanP", 0).left_out("run")
    assert given.fingerprint() == before.run_spec("meanP", 0).fingerprint() and left_out["frames"]["workers"] == 3
    assert model_memory(resources, attempt=2) == 2 * 9999


def test_code_depends_on_the_heads_losses_and_samplers_that_a_study_names():
    plan = plan_of("demo")
    found = code_dependencies(plan, "train", "seqTransf", 0)
    assert {"rewind.models.heads.clip4clip:SeqTransf", "rewind.losses.infonce:Infonce"} <= set(found.modules)
    assert "rewind.losses.infonce:Infonce" not in code_dependencies(plan, "similarity", "seqTransf", 0).modules
    own = plan_of("demo", methods={"mine": {"head": "mylab.heads.Mine"}})
    assert "mylab.heads.Mine" in code_dependencies(own, "train", "mine", 0).modules
    assert code_dependencies(plan, "statistics").modules == []
    assert set(code_dependencies(plan, "tables").modules) >= {"rewind.analyses.blind", "rewind.analyses.order"}


def test_files_of_the_user_are_told_from_those_of_rules():
    plan = plan_of("demo", methods={"theirs": {"model": "scores", "options": {"file": "data/theirs.npz"}}})
    (brought,) = train_inputs(plan, "theirs", 0)["brought"]
    assert (
        isinstance(brought, UserFile)
        and kind_of_run(plan, "theirs") == "untrained"
        and training_gpus(plan, "theirs") == 0
    )
    assert brought in code_dependencies(plan, "untrained_run", "theirs", 0).files


def test_a_pattern_tells_runs_that_learn_nothing_by_their_study_and_method():
    """The same method may be trained in one study and precomputed in another."""
    plan = WorkflowPlan(*load_all())
    path = r"results/(?P<study>{})/ranks/(?P<method>.+)/seed\d+\.json"
    patterns = {
        kind: re.compile(path.format(plan.studies_with(kind))) for kind in ("trained", "untrained", "blind", "reranked")
    }
    for name, study in plan.studies.items():
        for method, seed in study.runs():
            file = f"results/{name}/ranks/{method}/seed{seed}.json"
            found = {kind: match["study"] for kind, pattern in patterns.items() if (match := pattern.fullmatch(file))}
            assert found == {kind_of_run(study, method): name}, file


def test_a_rule_gets_the_answer_of_its_own_study_or_data_set():
    plan = WorkflowPlan(*load_all())
    demo, rtime = SimpleNamespace(study="demo", method="meanP", seed="2"), SimpleNamespace(study="rtime")
    assert plan.job(train_inputs)(demo)["pretrained"] == "results/demo/pretrained/seed2/model.safetensors"
    assert plan.key("dataset")(demo) == "shapes" and plan.key("dataset")(rtime) == "rtime"
    assert plan.key("statistics")(demo) == plan.studies["demo"].keys.statistics.fingerprint()
    assert plan.captions("valid")(demo) == {"valid": "results/data/shapes/captions/shapes_valid.csv"}
    assert plan.job(DatasetPlan.shard_reports)(SimpleNamespace(dataset="shapes")) == [
        "results/data/shapes/videos/shards/0-of-1.csv"
    ]
    assert plan.untracked(StudyPlan.execution)(demo, input=[])["require_gpu"] is False


def test_a_study_without_gaps_reads_none_of_their_files():
    names = {"cosine_gap_runs", "cosine_gap", "cosine_gap_pairs"}
    assert not names & result_files(plan_of("demo")).keys() and "cosine_gap" not in plan_of("demo").analysis_pictures()
    plan = plan_of("cosine_gap_demo")
    assert names <= result_files(plan).keys() and "cosine_gap" in plan.analysis_pictures()


def test_towers_of_a_path_are_those_that_the_study_has():
    plan = WorkflowPlan(*load_all(), error=KeyError)
    assert plan.job(pretraining_seed)(SimpleNamespace(study="demo", part="/seed1")) == 1
    with refusal(error=KeyError):
        plan.job(pretraining_seed)(SimpleNamespace(study="demo", part=""))
    with refusal():
        features_weights(plan_of("demo", pretraining={"shared": True}), "/seed1")


def test_rules_are_plain():
    """A reader of a rule sees its files; what a study decides is one question by name."""
    text = (ROOT / "Snakefile").read_text() + rules_text()
    assert text.count("lambda") < 10
    assert len(re.findall(r"^def ", text, re.M)) < 6
    assert set(re.findall(r"^(?:rule|checkpoint) (\w+):|^use rule \w+ as (\w+) with", text, re.M)) >= {("train", "")}
    begun = {
        name or other
        for name, other in re.findall(r"^(?:rule|checkpoint) (\w+):|^use rule \w+ as (\w+) with", text, re.M)
    }
    assert begun - {"all", "prepared", "trained", "scored", "ranked", "board"} == RULES.keys()
    scripts = {path.stem: path.read_text() for path in (ROOT / "workflow/scripts").glob("*.py")}
    assert scripts.keys() == {stage.script or rule for rule, stage in RULES.items()}
    assert set(re.findall(r'"\.\./scripts/(\w+)\.py"', text)) == scripts.keys()
    assert all("with start_job(" in script and len(script.splitlines()) <= 20 for script in scripts.values())


@pytest.mark.parametrize("name", STUDIES)
def test_every_job_of_a_run_can_be_given_the_keys_on_which_nothing_depends(name, tmp_path):
    """A study that classifies labelled images scored nothing: of its block a job was given one key alone."""
    images = {"folder": str(tmp_path), "sha256": "0" * 64}
    plan = plan_of(name, **({"evaluation": {"zero_shot": images}} if name == "demo" else {}))
    for method, seed in plan.runs():
        untracked = {"keys": plan.run_spec(method, seed).left_out("run")}
        for spec in (plan.run_spec(method, seed).fingerprint(), plan.evaluation_spec(method, seed)):
            given = NamedList([], {"spec": spec, "execution": untracked})
            run_spec(Job("similarity", NamedList([], {}), Outputs([], {}), given, {}, 1, {}, "log"))
