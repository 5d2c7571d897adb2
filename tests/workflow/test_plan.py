"""What every stage reads, depends on and asks for: plain Python, without Snakemake and without a file of results."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from checkout import ROOT
from messages import refusal
from rewind.config import Dataset, Study, load_dataset, load_study
from rewind.config.dataset import EmbeddingsSource
from rewind.io.files import write_json
from rewind.job_values import Job, NamedList, Outputs
from rewind.workflow.job_inputs import run_spec
from rewind.workflow.plan.dataset import DatasetPlan
from rewind.workflow.plan.files import Unwatched, UserFile
from rewind.workflow.plan.rules import WorkflowPlan
from rewind.workflow.plan.study import StudyPlan
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


def names_in(text: str) -> Iterator[str]:
    """Names of the plan's methods in the rules."""
    yield from re.findall(r"(?<!workflow\.)\bplan\.(\w+)", text)


def test_every_question_of_a_rule_has_an_answer_and_no_answer_is_left_over():
    asked = set(names_in(rules_text())) | set(re.findall(r'plan\.untracked\("(\w+)"\)', rules_text()))
    plan = WorkflowPlan(*load_all())
    for name in asked:
        assert callable(getattr(plan, name)), name
    with pytest.raises(AttributeError, match="no plan has 'trained_inputs'"):
        plan.trained_inputs  # noqa: B018
    source = "\n".join(path.read_text() for path in (ROOT / "src/rewind").rglob("*.py"))
    for kind in (StudyPlan, DatasetPlan):
        public = [name for name, value in vars(kind).items() if not name.startswith("_") and callable(value)]
        unused = [n for n in public if n not in asked and len(re.findall(rf"[.\"]{n}\b", source)) == 0]
        assert unused == [], f"{kind.__name__}: nobody asks for these"


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
        by_kind = {"trained": plan.train_inputs, "untrained": plan.untrained_inputs, "blind": plan.blind_inputs}
        inputs = (by_kind | {"reranked": plan.train_inputs})[plan.kind_of_run(method)]
        assert inputs(method, seed)["item_table"] == f"results/data/{plan.keys.dataset}/items.csv"
        assert plan.scored_inputs(method, seed)["model"] == f"results/{name}/runs/{method}/seed{seed}/model.safetensors"
        assert plan.run_spec(method, seed).method.model == plan.method(method).model
        kept = plan.evaluation_spec(method, seed)["method"].get("training", {})
        named = plan.keys.backbone.kind == "encoder"
        assert kept.keys() <= ({"freeze", "lora"} if named else {"lora"}), "how it was trained is no part of scoring"
        assert plan.code_dependencies("similarity", method, seed).modules
    reranked = [run for run in plan.runs() if plan.kind_of_run(run[0]) == "reranked"]
    assert len(plan.similarity_files()) + len(reranked) == len(plan.rank_files()) == len(plan.runs())
    for method, seed in reranked:
        assert plan.rerank_inputs(method, seed)["first"] in plan.similarity_files()
    assert f"results/{name}/tables" in plan.targets() and f"results/{name}/trec" in plan.targets_on_request()


def test_a_tracker_makes_nothing_stale():
    plain, tracked = plan_of("demo"), plan_of("demo", tracking="wandb")
    assert tracked.execution() == plain.execution() | {"tracking": "wandb"}, "an untracked parameter"
    assert tracked.study_keys() == plain.study_keys() and "tracking" not in plain.study_keys()
    for name in ("sanity_spec", "pretraining_spec", "sweep_trial_spec"):
        assert getattr(tracked, name)().fingerprint() == getattr(plain, name)().fingerprint()
    assert tracked.run_spec("meanP", 0).fingerprint() == plain.run_spec("meanP", 0).fingerprint()


def test_a_run_reads_what_its_keys_say():
    plan = plan_of("demo")
    frozen = plan.train_inputs("meanP", 1)
    assert frozen["features"] == [f"results/demo/features/seed1/frames{n}.npz" for n in plan.keys.sweep.max_frames]
    assert frozen["pretrained"] == "results/demo/pretrained/seed1/model.safetensors"
    assert frozen["sanity"] == "results/demo/sanity.json" and frozen["best"] == "results/demo/sweep/best.json"
    whole = plan_of("demo", methods={"meanP": {"training": {"freeze": []}}}, frames={"store": False})
    pixels = whole.train_inputs("meanP", 1)
    assert "features" not in pixels and pixels["shards"] == "results/data/shapes/videos/shards.csv"
    assert all(isinstance(path, Unwatched) for path in pixels["clips"]), "a shard that is newer changes nothing"
    stored = plan_of("demo", methods={"meanP": {"training": {"freeze": []}}}, frames={"store": True})
    assert stored.train_inputs("meanP", 1)["store"] == [
        f"results/demo/frames/frames{n}/index.json" for n in plan.keys.sweep.max_frames
    ]
    alone = plan_of("demo", sweep=None, sanity=None)
    assert alone.train_inputs("meanP", 0)["features"] == ["results/demo/features/seed0/frames12.npz"] or (
        len(alone.train_inputs("meanP", 0)["features"]) == 1
    )
    assert "sanity" not in alone.train_inputs("meanP", 0)


def test_a_finished_run_of_a_sweep_keeps_the_values_that_were_tried_for_it(tmp_path):
    results = str(tmp_path / "results")
    plan = plan_of("demo", results)
    tried, chosen = [4, 6], 6
    write_json(tmp_path / "results/demo/sweep/best.json", {"max_frames": chosen})
    write_json(tmp_path / "results/demo/runs/meanP/seed0/run.json", {"max_frames": chosen, "max_frames_tried": tried})
    assert plan.frame_candidates("meanP", 0) == tried and isinstance(plan.train_inputs("meanP", 0)["best"], Unwatched)
    write_json(tmp_path / "results/demo/sweep/best.json", {"max_frames": 8})
    assert plan.frame_candidates("meanP", 0) == list(plan.keys.sweep.max_frames)
    assert not isinstance(plan.train_inputs("meanP", 0)["best"], Unwatched), "another choice makes the run stale"


def test_an_edit_of_training_keys_leaves_scoring_alone():
    before, after = plan_of("demo"), plan_of("demo", training={"lr": 0.5})
    assert before.run_spec("meanP", 0).fingerprint() != after.run_spec("meanP", 0).fingerprint()
    assert before.evaluation_spec("meanP", 0) == after.evaluation_spec("meanP", 0)
    resources = plan_of("demo", resources={"mem_mb": 9999, "gpus": 2}, frames={"workers": 3})
    given, left_out = resources.run_spec("meanP", 0), resources.run_spec("meanP", 0).left_out("run")
    assert given.fingerprint() == before.run_spec("meanP", 0).fingerprint() and left_out["frames"]["workers"] == 3
    assert resources.model_memory(attempt=2) == 2 * 9999


def test_code_depends_on_the_heads_losses_and_samplers_that_a_study_names():
    plan = plan_of("demo")
    found = plan.code_dependencies("train", "seqTransf", 0)
    assert {"rewind.models.heads.clip4clip:SeqTransf", "rewind.losses.infonce:Infonce"} <= set(found.modules)
    assert "rewind.losses.infonce:Infonce" not in plan.code_dependencies("similarity", "seqTransf", 0).modules
    own = plan_of("demo", methods={"mine": {"head": "mylab.heads.Mine"}})
    assert "mylab.heads.Mine" in own.code_dependencies("train", "mine", 0).modules
    assert plan.code_dependencies("statistics").modules == []
    assert set(plan.code_dependencies("tables").modules) >= {"rewind.analyses.blind", "rewind.analyses.order"}


def test_files_of_the_user_are_told_from_those_of_rules():
    plan = plan_of("demo", methods={"theirs": {"model": "scores", "options": {"file": "data/theirs.npz"}}})
    (brought,) = plan.train_inputs("theirs", 0)["brought"]
    assert (
        isinstance(brought, UserFile)
        and plan.kind_of_run("theirs") == "untrained"
        and plan.training_gpus("theirs") == 0
    )
    assert brought in plan.code_dependencies("untrained_run", "theirs", 0).files


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
            assert found == {study.kind_of_run(method): name}, file


def test_a_rule_gets_the_answer_of_its_own_study_or_data_set():
    plan = WorkflowPlan(*load_all())
    demo, rtime = SimpleNamespace(study="demo", method="meanP", seed="2"), SimpleNamespace(study="rtime")
    assert plan.train_inputs(demo)["pretrained"] == "results/demo/pretrained/seed2/model.safetensors"
    assert plan.key("dataset")(demo) == "shapes" and plan.key("dataset")(rtime) == "rtime"
    assert plan.key("statistics")(demo) == plan.studies["demo"].keys.statistics.fingerprint()
    assert plan.captions("valid")(demo) == {"valid": "results/data/shapes/captions/shapes_valid.csv"}
    assert plan.shard_reports(SimpleNamespace(dataset="shapes")) == ["results/data/shapes/videos/shards/0-of-1.csv"]
    assert plan.untracked("execution")(demo, input=[])["require_gpu"] is False


def test_a_study_without_gaps_reads_none_of_their_files():
    names = {"cosine_gap_runs", "cosine_gap", "cosine_gap_pairs"}
    assert not names & plan_of("demo").result_files().keys() and "cosine_gap" not in plan_of("demo").analysis_pictures()
    plan = plan_of("cosine_gap_demo")
    assert names <= plan.result_files().keys() and "cosine_gap" in plan.analysis_pictures()


def test_towers_of_a_path_are_those_that_the_study_has():
    plan = WorkflowPlan(*load_all(), error=KeyError)
    assert plan.pretraining_seed(SimpleNamespace(study="demo", part="/seed1")) == 1
    with refusal(error=KeyError):
        plan.pretraining_seed(SimpleNamespace(study="demo", part=""))
    with refusal():
        plan_of("demo", pretraining={"shared": True}).features_weights("/seed1")


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
