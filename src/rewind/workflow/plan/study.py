"""The stages of a study: runs, their evaluation, statistics and report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from rewind.analyses import analyses_of
from rewind.analyses.base import Analysis
from rewind.config import Method, RunSpec, Study
from rewind.config.study import RunKey
from rewind.errors import RewindError
from rewind.io.files import read_json
from rewind.workflow.plan.dataset import DatasetPlan
from rewind.workflow.plan.files import Files, Unwatched


class StudyPlan:
    """The stages of one study.

    Args:
        chosen_frames: the sweep's choice of ``max_frames``; it may raise where the sweep is not up to date.
        chosen_keys: method and seed of trials → the keys that they chose; it may raise, too.

    >>> from rewind.config import Dataset
    >>> shapes = Dataset(name="shapes", source={"format": "shapes"})
    >>> study = Study(name="demo", dataset="shapes", methods={"meanP": {}}, sanity={"clips": 4})
    >>> plan = StudyPlan(study, DatasetPlan(shapes, {"shapes": shapes}))
    >>> plan.per_run("ranks/{method}/seed{seed}.parquet")[0]
    'results/demo/ranks/meanP/seed0.parquet'
    """

    def __init__(
        self,
        study: Study,
        dataset: DatasetPlan,
        chosen_frames: Callable[[], int] | None = None,
        results: str = "results",
        chosen_keys: Callable[[str, int], dict[str, Any]] | None = None,
    ) -> None:
        self.keys, self.name, self.dataset = study, study.name, dataset
        self.folder = f"{results}/{study.name}"
        self.chosen_frames = chosen_frames or (lambda: int(read_json(self.best_file)["max_frames"]))
        self.chosen_keys = chosen_keys or (lambda method, seed: read_json(self.choice_of(method, seed))["keys"])

    @property
    def summary_file(self) -> str:
        """All tables as plain text."""
        return f"{self.folder}/tables/summary.txt"

    @property
    def metrics_file(self) -> str:
        return f"{self.folder}/metrics.csv"

    @property
    def page_file(self) -> str:
        return f"{self.folder}/report.html"

    @property
    def best_file(self) -> str:
        """The sweep's choice."""
        return f"{self.folder}/sweep/best.json"

    # Runs, and slices of keys that results depend on

    def runs(self, methods: Collection[str] | None = None) -> list[RunKey]:
        """Every run, or those of some methods, in the order of the study."""
        return [(method, seed) for method, seed in self.keys.runs() if methods is None or method in methods]

    def per_run(self, pattern: str, runs: Iterable[RunKey] | None = None) -> list[str]:
        """A path below the study's folder for each of some runs, or for every run, in the order of the study."""
        chosen = self.runs() if runs is None else runs
        return [f"{self.folder}/{pattern.format(method=method, seed=seed)}" for method, seed in chosen]

    def method(self, name: str) -> Method:
        return self.keys.methods[name]

    def study_keys(self) -> dict[str, Any]:
        """What the report is made by; of the over-fitting check it says nothing."""
        return self.keys.model_copy(update={"sanity": None}).fingerprint() | {"sanity": None}

    def dataset_keys(self) -> dict[str, Any]:
        return self.dataset.keys.fingerprint("report")

    def own_metrics(self) -> list[str]:
        """Dotted paths of the study's own metrics; a job loads them before its script's work begins."""
        return list(self.keys.metrics)

    def run_spec(self, method: str, seed: int) -> RunSpec:
        return self.keys.run_spec(method, seed=seed)

    def evaluation_spec(self, method: str, seed: int | None = None) -> dict[str, Any]:
        """What a similarity matrix depends on besides the model: not how it was trained."""
        spec = self.keys.run_spec(method, seed=seed).fingerprint()
        scored = {
            "method": ("model", "head", "head_layers", "head_start", "options"),
            "evaluation": ("batch_size", "pair_batch_size"),
        }
        blocks = {
            block: {key: spec[block][key] for key in keys if key in spec[block]} for block, keys in scored.items()
        }
        # Which parameters a run's file holds, and under which names.
        keys = ("freeze", "lora") if self.keys.backbone.kind == "encoder" else ("lora",)
        training = {key: value for key in keys if (value := spec["method"]["training"].get(key))}
        if training and not self.method(method).baseline:
            blocks["method"]["training"] = training
        return spec | blocks

    def execution(self) -> dict[str, Any]:
        """How jobs compute, whatever comes out: nothing is stale where these keys change."""
        resources = self.keys.resources
        return {
            "require_gpu": resources.require_gpu,
            "gpu_mem_mb": resources.shared_gpu_mb,
            "state_folder": resources.state_folder,
            "tracking": self.keys.tracking,
        }

    # Captions, items and what is read of them

    def captions(self, *splits: str) -> dict[str, str]:
        return self.dataset.captions(*splits)

    def test_captions(self) -> str:
        return self.captions("test")["test"]

    def item_table(self) -> str:
        return self.dataset.item_table

    def clip_files(self) -> Files:
        return self.dataset.clip_files()

    def described(self) -> list[str]:
        """What is said of the data set, and the digest of its content: read, but no reason to run again."""
        return [Unwatched(f"{self.dataset.folder}/captions/report.json")]

    def group_table(self) -> str:
        return f"{self.dataset.folder}/captions/groups.csv"

    def pretraining_records(self) -> list[str]:
        """``run.json`` of every pre-training, in the order of their seeds."""
        return [f"{self.folder}/pretrained{part}/run.json" for part in self.keys.pretraining_suffixes()]

    def pretrained_weights(self, part: str) -> str:
        return f"{self.folder}/pretrained{part}/model.safetensors"

    def checked_part(self, part: str, by_seed: bool) -> str:
        """The part of a path that names a seed's towers, where the study has such."""
        if bool(part) != by_seed:
            towers, how = ("the same towers for all seeds", "without") if part else ("towers of each seed", "with")
            raise RewindError(f"{self.name} has {towers}: request the file {how} seed<k>/ in its path.")
        return part

    def choice_of(self, method: str, seed: int) -> str:
        return f"{self.folder}/sweep/{method}/seed{seed}/choice.json"

    # Results of all runs

    def similarity_files(self) -> list[str]:
        """The matrices of all runs that have one."""
        return self.per_run("similarity/{method}/seed{seed}.npz", self.keys.scored_runs())

    def rank_files(self) -> list[str]:
        return self.per_run("ranks/{method}/seed{seed}.parquet")

    def run_metrics(self) -> list[str]:
        return self.per_run("ranks/{method}/seed{seed}.json")

    def run_records(self) -> list[str]:
        return self.per_run("runs/{method}/seed{seed}/run.json")

    def run_histories(self) -> list[str]:
        return self.per_run("runs/{method}/seed{seed}/history.csv")

    def timed_methods(self) -> list[str]:
        """Methods whose steps are timed: the verdict's baseline, then those that are to beat it."""
        verdict = self.keys.tables.verdict
        assert verdict  # the rules exist only for studies that have one
        return [verdict.baseline, *verdict.methods]

    def analyses(self) -> list[Analysis]:
        """What it asks for besides its scores."""
        return [analysis for analysis in analyses_of(self.keys).values() if analysis.applies(self)]

    def analysis_pictures(self) -> list[str]:
        """Names of the pictures that rules of its analyses draw."""
        rules = [rule for analysis in self.analyses() for rule in analysis.rules if rule.applies(self)]
        return [name for rule in rules for name in rule.captions(self.keys)]

    def label(self, method: str) -> str:
        return self.method(method).label or method

    @property
    def results(self) -> Path:
        return Path(self.folder).parent
