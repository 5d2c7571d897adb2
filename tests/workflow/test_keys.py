"""Every configuration key decides what its definition says: which stages are stale where it is changed, both ways."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml

from rewind.analyses import all_analyses, analysis_rules
from rewind.analyses.base import Rule
from rewind.config import Dataset, Study, load_dataset, load_study
from rewind.config.base import Affects, ConfigModel, history, nested_models
from rewind.config.encoders import EncoderOptions
from rewind.workflow.plan import compute, extras, items, reporting, scoring, training
from rewind.workflow.plan.dataset import DatasetPlan
from rewind.workflow.plan.items import frame_candidates, uses_features
from rewind.workflow.plan.rules import WorkflowPlan
from rewind.workflow.plan.scoring import kind_of_run
from rewind.workflow.plan.study import StudyPlan
from rewind.workflow.plan.training import trials_of
from rewind.workflow.stages import RULES, is_display
from rule_files import rule_files

# One study with every stage that keys can ask for.
STUDY = yaml.safe_load(
    """
dataset: shapes
backbone: {architecture: config/models/tiny.json}
frames: {max_frames: 4, size: 32}
text: {tokenizer: words}
pretraining: {training: {epochs: 2}}
training: {epochs: 2, freeze: [visual], batch: {size: 16, sampler: topical}}
methods:
  meanP: {head: meanP}
  seqTransf: {head: seqTransf, head_layers: 2}
  u0: {head: meanP}
  t0: {head: seqTransf}
  tight: {head: tightTransf, rerank: {first: meanP}}
  theirs: {model: scores, options: {file: theirs.npz, inverse_temperature: 100}}
  clip_only: {model: clip_only}
  chance: {model: chance, seeds: [0]}
seeds: [0, 1]
sweep: {max_frames: [3, 4], method: meanP, keys: {training.lr: [1.0e-4, 1.0e-3]}}
evaluation:
  cosine_gap: false
  order: [reversed]
  probes: [pairs, direction]
  transductive: [dual_softmax]
  zero_shot: {folder: cifar}
statistics: {resamples: 200, pairs: [[meanP, seqTransf], [u0, t0]]}
tables: {verdict: {baseline: meanP, methods: [seqTransf], control: {meanP: u0, seqTransf: t0}}}
figures: {every_method: true}
"""
)
TABLE = {"source": {"format": "table", "table": "clips.csv", "videos": "clips"}, "groups": "none"}

DATA_RULES = {"sources", "inventory", "video_shard", "videos", "traces", "captions"}
RUN_RULES = {"pretrain", "features", "sweep_trial", "sweep", "trial", "tune", "train", "frames"}
BOTH = {"untrained_run", "blind_run"}  # a run and its scores in one job
SCORES_RULES = {"similarity", "ranks", "rerank", "order_controls", "probes", "zero_shot", "metrics", "export_vectors"}
SCORES_RULES |= {"answers", "foils"}
STATISTICS_RULES = {"statistics", "groups", "step_time", "metrics"}  # the last lists all runs
STATISTICS_RULES |= {name for name, rule in analysis_rules().items() if not rule.shows} - {"batches", "cosine_gap"}
REPORT_RULES = {rule for rule in RULES if is_display(rule)} | {"batches"}
STAGES: dict[Affects, set[str]] = {
    "data": DATA_RULES,
    "run": RUN_RULES | BOTH | {"sanity"},
    "scores": SCORES_RULES | BOTH,
    "statistics": STATISTICS_RULES,
    "report": REPORT_RULES,
}

STORAGE = {"frames.store"}
"""Keys that move what jobs read: their numbers are the same, and `rewind accept` keeps finished runs."""

TOWERS = {"backbone": {"kind": "mylab.towers.Towers"}}
# What must be so for a key to be read.
NEEDED: dict[str, Any] = {
    "backbone.token_mask": {"backbone": {"kind": "viclip"}, "evaluation": {"order": []}},
    "backbone.width": {"backbone": {"kind": "towers", "architecture": "ViT-B-32-quickgelu"}, "pretraining": None},
    "text.max_vocabulary": {"text": {"tokenizer": "miniclip"}} | TOWERS,
    "text.vocabulary": {"text": {"tokenizer": "miniclip"}} | TOWERS,
    "methods.fixed": {"methods": {"tight": {"seeds": [0]}}},
    "methods.seeds": {"methods": {"tight": {"seeds": [0]}}},
}

# What cannot be another by itself, or has no other value that a rule of this file makes.
OTHER: dict[str, Any] = {
    "resources.gpu_mem_mb": {"resources": {"gpu_mem_mb": 4000}},
    "dataset": None,  # another data set is another plan
    "name": None,
    "backbone.kind": {"backbone": {"kind": "mylab.towers.Towers"}},
    "backbone.architecture": {"backbone": {"architecture": "config/models/small.json"}},
    "backbone.weights": {"backbone": {"weights": "weights.pt"}},
    "backbone.pretrained": {"backbone": {"pretrained": "openai"}},
    "backbone.token_mask": {"backbone": {"token_mask": 0.5}},
    "backbone.width": {"backbone": {"width": 64}},
    **dict.fromkeys(("backbone.text_width", "backbone.item_width")),  # compared with the data alone, see below
    **{f"backbone.{name}": None for name in ("encoder", "name", "revision", "encoder_options")},
    "text.max_vocabulary": {"text": {"max_vocabulary": 90}},
    "text.vocabulary": {"text": {"vocabulary": "words.txt"}},
    "text.tokenizer": {"text": {"tokenizer": "clip"}},
    "pretraining.shared": {"pretraining": {"shared": True}},
    "pretraining.seed": {"pretraining": {"shared": True, "seed": 4}},
    "training.batch.sampler": {"training": {"batch": {"sampler": "uniform"}}},
    "training.batch.sampler_options": {"training": {"batch": {"sampler_options": {"clusters": 8}}}},
    "training.objective": {"training": {"objective": "sigmoid"}},
    "training.objective_options": {"training": {"objective_options": {"exclude": ["same_text"]}}},
    "training.hard_negatives": {"training": {"hard_negatives": "twins", "objective": "negclip"}},
    "training.lora": {"training": {"lora": {"rank": 4, "towers": ["text"]}}},
    "training.freeze": {"training": {"freeze": []}},
    "training.freeze_layers": {"training": {"freeze_layers": 1}},
    "training.betas": {"training": {"betas": [0.8, 0.9]}},
    "training.micro_batch": {"training": {"micro_batch": 4}},
    "methods.model": {"methods": {"meanP": {"model": "dual_encoder"}}},
    "methods.head": {"methods": {"meanP": {"head": "seqLSTM"}}},
    "methods.head_layers": {"methods": {"seqTransf": {"head_layers": 3}}},
    "methods.head_start": {"methods": {"seqTransf": {"head_start": "random"}}},
    "methods.options": {"methods": {"meanP": {"options": {"any": 1}}}},
    "methods.noise": {"methods": {"meanP": {"noise": True}}},
    "methods.rerank": {"methods": {"tight": {"rerank": {"first": "meanP", "top": 7}}}},
    "methods.rerank.first": {"methods": {"tight": {"rerank": {"first": "u0"}}}},
    "methods.rerank.top": {"methods": {"tight": {"rerank": {"top": 7}}}},
    "methods.fixed": {"methods": {"tight": {"fixed": True}}},
    "methods.seeds": {"methods": {"tight": {"seeds": [0, 1]}}},
    "methods.label": {"methods": {"meanP": {"label": "Mean"}}},
    "methods.train": {"methods": {"meanP": {"train": "all"}}},
    "seeds": {"seeds": [0, 1, 2]},
    "sanity.method": {"sanity": {"method": "seqTransf"}},
    "sweep.max_frames": {"sweep": {"max_frames": [2, 3, 4]}},
    "sweep.method": {"sweep": {"method": "seqTransf"}},
    "sweep.keys": {"sweep": {"keys": {"training.lr": [1e-4, 1e-2]}}},
    "sweep.methods": {"sweep": {"methods": {"seqTransf": {"training.lr": [1e-4, 1e-2]}}}},
    "sweep.search": {"sweep": {"search": "random", "trials": 1}},
    "sweep.trials": {"sweep": {"search": "random", "trials": 1}},
    "metrics": None,  # its code counts: tests/evaluation/test_metrics.py
    "analyses": None,  # they have rules of their own: tests/workflow/test_workflow.py
    "evaluation.settings": {"evaluation": {"settings": ["hard", "origin", "binary"]}},
    "evaluation.directions": {"evaluation": {"directions": ["text_to_item"]}},
    "evaluation.order": {"evaluation": {"order": ["shuffled"]}},
    "evaluation.probes": {"evaluation": {"probes": ["pairs"]}},
    "evaluation.transductive": {"evaluation": {"transductive": ["qb_norm"]}},
    "evaluation.cosine_gap": None,  # it has rules of its own, which are asked for or not
    "evaluation.zero_shot.data": None,  # one value
    "evaluation.zero_shot.folder": {"evaluation": {"zero_shot": {"folder": "cifar2"}}},
    "evaluation.zero_shot.sha256": {"evaluation": {"zero_shot": {"sha256": "0" * 64}}},
    "evaluation.zero_shot.templates": {"evaluation": {"zero_shot": {"templates": "simple"}}},
    "statistics.primary": {"statistics": {"primary": "R@5"}},
    "statistics.pairs": {"statistics": {"pairs": [["meanP", "seqTransf"]]}},
    "tables.columns": {"tables": {"columns": ["R@1", "MRR"]}},
    "tables.verdict.baseline": {"tables": {"verdict": {"baseline": "seqTransf", "methods": ["meanP"]}}},
    "tables.verdict.methods": None,  # with its counterparts, as the baseline is
    "tables.prefix": {"tables": {"prefix": "a_"}},
    "tables.quoted": {
        "tables": {"quoted": [{"method": "theirs", "setting": "hard", "value": 1.5, "source": "a paper, Table 1"}]}
    },
    "tables.verdict.control": {"tables": {"verdict": {"control": {"meanP": "t0", "seqTransf": "u0"}}}},
    "tables.verdict.setting": {"tables": {"verdict": {"setting": "hard"}}},
    "tables.verdict.requires": {"tables": {"verdict": {"requires": ["spread"]}}},
    "figures.method": {"figures": {"method": "seqTransf"}},
    "tracking": {"tracking": "tensorboard"},
    "resources.state_folder": {"resources": {"state_folder": "/tmp/states"}},
    "title": {"title": "Another"},
    "source.clips": {"source": {"clips": {"train": 9, "valid": 4, "test": 6}}},
    "source.format": None,
    "clips": None,
    "reverse": {"reverse": False},
    "groups": {"groups": "groups.csv"},
    "answers": {"answers": "answers.csv"},
    "answers_gallery": {"answers": "answers.csv", "answers_gallery": "judged"},
    "foils": {"foils": "foils.csv"},
    "only": {"only": "some.txt"},
    "licence": {"licence": "CC0"},
    "how_to_get": {"how_to_get": "Ask."},
}


def leaves(model: type[ConfigModel], value: Any, path: str = "") -> Iterator[tuple[str, Affects | None, Any, Any]]:
    """Path, what it decides, its field and value of every key of a block that is there; of methods one for all."""
    for name, field in model.model_fields.items():
        here, inner = f"{path}.{name}" if path else name, getattr(value, name)
        if "retired" in history(field) or here in ("methods.training", "pretraining.method"):
            continue
        if ".training." in here and name not in ("lr", "save_every_steps", "keep_every"):
            continue  # the same keys as of the study's own block
        below = next(iter(inner.values()), None) if name == "methods" and isinstance(inner, dict) else inner
        if not isinstance(below, ConfigModel):
            yield here, model.affects(name), field, inner
        else:
            # Keys of the over-fitting check are those of training; it alone depends on them.
            for one, kind, *rest in leaves(type(below), below, here):
                yield one, "check" if here.startswith("sanity") and kind != "nothing" else kind, *rest


def another(path: str, field: Any, value: Any) -> dict[str, Any] | None:
    """Overrides that give a key another value; None: there is none to try."""
    if path in OTHER:
        return OTHER[path]
    kinds = [field.annotation, *get_args(field.annotation)]
    new: Any = None
    bounds = {name: getattr(m, name) for m in field.metadata for name in ("ge", "gt", "le", "lt") if hasattr(m, name)}
    if isinstance(value, bool) or bool in kinds:
        new = not value
    elif literal := next((kind for kind in kinds if get_origin(kind) is Literal), None):
        new = next(one for one in get_args(literal) if one != value)
    elif int in kinds:
        new = 3 if value is None else value + 1 if value < bounds.get("le", value + 1) else value - 1
    elif float in kinds:
        new = 0.5 if value is None else value / 2 if value and value / 2 >= bounds.get("ge", 0) else 0.25
        new = 0.75 if path == "statistics.confidence" else new
    assert new is not None, f"{path}: name another value in OTHER"
    nested: Any = new
    for part in reversed(path.split(".")):
        nested = {part: nested}
    return nested


# ---- The jobs of a plan, without Snakemake -------------------------------------------------------------------------

RULE = re.compile(r"^(?:rule|checkpoint|use rule \w+ as) (\w+)(?: with)?:\n((?:(?:    .*)?\n)*)", re.M)
ENTRY = re.compile(r"^        (?:\w+=|\*\*)?(?:unpack\()?((?:plan\.\w+|job)(?:\([^()]*\))?)\)?,", re.M)


def rule_texts() -> dict[str, tuple[list[str], list[str]]]:
    """Rule → what its parameters and its inputs ask of the plan; what is untracked is left out."""
    found = {}
    for text in rule_files().values():
        for name, body in RULE.findall(text):
            sections = dict(re.findall(r"^    (\w+):\n((?:        .*\n|\n)*)", body, re.M))
            asked = [ENTRY.findall(sections.get(section, "")) for section in ("params", "input")]
            found[name] = tuple(
                [one for one in part if not one.startswith(("plan.untracked", "plan.execution"))] for part in asked
            )
    return found


RULE_TEXTS = rule_texts()
# Where rules look for what a study decides, by the names that workflow/rules/common.smk imports.
MODULES = {"compute": compute, "extras": extras, "items": items, "reporting": reporting, "scoring": scoring}
ANSWERS: dict[str, Any] = MODULES | {"training": training, "StudyPlan": StudyPlan, "DatasetPlan": DatasetPlan}


def jobs_of(plan: StudyPlan) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every job that the study needs: its rule and wildcards."""
    study, data = plan.keys, {"dataset": plan.dataset.name}
    made = ("sources",) * plan.dataset.keys.made_here
    for rule in (*made, "inventory", "videos", "captions", "groups", "answers", "foils"):
        yield rule, data
    yield from (("video_shard", data | {"shard": n}) for n in range(plan.dataset.keys.media.shards))
    for rule in ("sanity",) * bool(study.sanity) + ("sweep", "metrics", "statistics", "tables", "figures", "page"):
        yield rule, {}
    several = {
        "step_time": study.tables.verdict,
        "examples": True,
        "twin_figure": "binary" in study.evaluation.settings,
    }
    yield from ((rule, {}) for rule, asked in several.items() if asked)
    for analysis in (one for one in all_analyses().values() if one.applies(plan)):
        yield from ((rule.name, {}) for rule in analysis.rules if rule.applies(plan))
    yield from (("pretrain", {"part": part}) for part in study.pretraining_suffixes())
    frames = study.frames_sweep.max_frames if study.frames_sweep else []
    yield from (("sweep_trial", {"frames": n}) for n in frames)
    if any(uses_features(plan, method) for method in study.methods):
        for part in {study.features_suffix(*run) for run in plan.runs()}:
            yield from (("features", {"part": part, "frames": n}) for n in frame_candidates(plan))
    per_run: dict[str, Callable[[str, int], bool]] = {
        "train": lambda m, s: kind_of_run(plan, m) in ("trained", "reranked"),
        "similarity": lambda m, s: kind_of_run(plan, m) == "trained",
        "ranks": lambda m, s: kind_of_run(plan, m) == "trained",
        "rerank": lambda m, s: kind_of_run(plan, m) == "reranked",
        "untrained_run": lambda m, s: kind_of_run(plan, m) == "untrained",
        "blind_run": lambda m, s: kind_of_run(plan, m) == "blind",
        "order_controls": lambda m, s: bool(study.evaluation.order) and (m, s) in plan.runs(study.order_methods()),
        "probes": lambda m, s: (m, s) in plan.runs(study.probed_methods()),
        "zero_shot": lambda m, s: bool(study.evaluation.zero_shot) and (m, s) in plan.runs(study.with_towers()),
        "tune": lambda m, s: bool(study.trials_of(m)) and s == study.trial_seed(s),
        "export_vectors": lambda m, s: (m, s) == study.pictured(),
        "examples_of_method": lambda m, s: m in study.also_pictured() and s == study.seeds_of(m)[0],
    }
    for method, seed in plan.runs():
        wildcards = {"method": method, "seed": seed}
        yield from ((rule, wildcards) for rule, asked in per_run.items() if asked(method, seed))
        if study.trials_of(method) and seed == study.trial_seed(seed):
            yield from (("trial", wildcards | {"trial": trial}) for trial in trials_of(plan, method))


class Asked(WorkflowPlan):
    """A plan whose code is what keys name, and not a hash."""

    def code(self, rule: str, stage: str = "") -> Callable[[Any], Any]:
        return lambda wildcards: self.code_dependencies(rule, wildcards)

    def analysis_params(self, rule: Rule) -> Callable[[Any], Any]:
        params = super().analysis_params(rule)
        return lambda wildcards: [ask(wildcards) for name, ask in params.items() if name != "metrics"]

    def clip_code(self, wildcards: Any) -> None: ...

    def accepted(self, wildcards: Any) -> None: ...


Answers = dict[tuple[str, str], str]
UNCHANGED: dict[str, Answers] = {}


def answers(study: Study, dataset: Dataset) -> Answers:
    """Every job → its parameters and its inputs, as Snakemake compares them."""
    plan = Asked(
        {study.name: study}, {dataset.name: dataset}, lambda name: 4, lambda name, method, seed: {"training.lr": 1e-3}
    )
    names = ANSWERS | {"plan": plan, "job": plan.job} | analysis_rules()
    found = {}
    for rule, wildcards in jobs_of(plan.studies[study.name]):
        job = SimpleNamespace(**wildcards | ({} if "dataset" in wildcards else {"study": study.name}))
        job.items = lambda wildcards=wildcards: wildcards.items()
        values = [eval(text, names)(job) for part in RULE_TEXTS[rule] for text in part]
        found[rule, str(sorted(wildcards.items()))] = repr(values)
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    (folder / "config/studies").mkdir(parents=True)
    (folder / "config/datasets").mkdir()
    for name in ("cifar", "cifar2"):
        (folder / name).mkdir()
        (folder / name / "test_batch.bin").write_bytes(b"\0" * 3073)
    (folder / "clips.csv").write_text("item_id,caption,group\na,words,one\n")
    (folder / "config/datasets/table.yaml").write_text(yaml.safe_dump(TABLE))
    (folder / "config/datasets/shapes.yaml").write_text("source: {format: shapes}\n")
    return folder


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """As overrides are, but a name with a dot is one name, as in `sweep.keys`."""
    both = {name: merged(base[name], over[name]) for name in over if isinstance(over[name], dict) and base.get(name)}
    return copy.deepcopy(base | over) | both


def read(home: Path, dataset: str, of_study: dict[str, Any], of_dataset: dict[str, Any] | None = None) -> Answers:
    if not of_study and not of_dataset and dataset in UNCHANGED:
        return UNCHANGED[dataset]
    keys = merged(STUDY | {"dataset": dataset}, of_study)
    (home / "config/studies/mini.yaml").write_text(yaml.safe_dump(keys))
    study = load_study("mini", home / "config/studies")
    found = answers(study, load_dataset(dataset, home / "config/datasets", of_dataset or {}))
    if not of_study and not of_dataset:
        UNCHANGED[dataset] = found
    return found


def stale(before: Answers, after: Answers) -> set[tuple[str, str]]:
    return {job for job in before.keys() & after.keys() if before[job] != after[job]}


STUDY_KEYS = list(leaves(Study, Study.model_validate(STUDY | {"name": "mini"}), ""))
SHAPES = Dataset.model_validate({"name": "shapes", "source": {"format": "shapes"}})
TABLES = Dataset.model_validate({"name": "table"} | TABLE)


def test_every_rule_is_of_one_stage():
    known = set().union(*STAGES.values()) | {"vectors", "encode_dataset", "vector_report", "encode_vectors"}
    known |= {"encode_foil_texts", "cosines", "cosine_gap"} | {name for name, rule in RULES.items() if rule.on_request}
    assert known == set(RULES)


def test_every_key_says_what_it_decides():
    def undeclared(model: type[ConfigModel], seen: set[type[ConfigModel]]) -> Iterator[str]:
        for name, field in model.model_fields.items():
            blocks = nested_models(field.annotation)
            if not blocks and model.affects(name) is None:
                yield f"{model.__name__}.{name}"
            for block in blocks:
                if block not in seen:
                    seen.add(block)
                    yield from undeclared(block, seen)

    seen: set[type[ConfigModel]] = set()
    assert [key for model in (Study, Dataset, EncoderOptions) for key in undeclared(model, seen)] == []


@pytest.mark.parametrize(("path", "affects", "field", "value"), STUDY_KEYS, ids=[key[0] for key in STUDY_KEYS])
def test_a_key_of_a_study_makes_stale_what_it_says(home, monkeypatch, path, affects, field, value):
    monkeypatch.chdir(home)
    overrides = another(path, field, value)
    if overrides is None:
        pytest.skip("it has no other value here")
    needed = NEEDED.get(path, {})
    before, after = read(home, "shapes", needed), read(home, "shapes", merged(needed, overrides))
    check(path, affects, stale(before, after), before.keys() ^ after.keys())
    if path.startswith("methods.") and affects == "run":
        (method,) = overrides["methods"]
        others = [job for job in stale(before, after) if "'method'" in job[1] and f"'{method}'" not in job[1]]
        assert others == [], "other methods do not depend on it"


@pytest.mark.parametrize("name", ["shapes", "table"])
def test_a_key_of_a_data_set_makes_stale_what_it_says(home, monkeypatch, name):
    monkeypatch.chdir(home)
    before = read(home, name, {})
    for path, affects, field, value in leaves(Dataset, SHAPES if name == "shapes" else TABLES):
        if (name == "table" and path.startswith("source")) or path.startswith("image"):
            continue
        if overrides := another(path, field, value):
            check(path, affects, stale(before, read(home, name, {}, overrides)))


def check(
    path: str, affects: Affects | None, found: set[tuple[str, str]], others: Set[tuple[str, str]] = frozenset()
) -> None:
    """That the rules of ``found`` are those that a key of this kind may make stale, and that some of its stage are, or
    have jobs that come and go with the key (``others``)."""
    rules = {rule for rule, _ in found}
    if path in STORAGE or path == "max_missing":
        return
    if affects in ("check", "nothing"):
        assert rules == ({"sanity"} if affects == "check" else set()), path
        return
    order = list(STAGES)
    allowed = set().union(*(STAGES[stage] for stage in order[order.index(affects) :]))
    if affects == "run":
        allowed.add("sanity")
    assert rules <= allowed, f"{path}: {sorted(rules - allowed)}"
    if path != "seeds" and path != "methods.seeds":  # other runs; those that are there stay as they are
        assert (rules | {rule for rule, _ in others}) & STAGES[affects], f"{path} decides nothing"
