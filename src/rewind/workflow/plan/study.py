"""The stages of a study: runs, their evaluation, statistics and report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rewind.analyses import analyses_of, module_of
from rewind.analyses.base import Analysis
from rewind.config import Backbone, Method, RunSpec, Study
from rewind.config.dataset import EmbeddingsSource
from rewind.config.encoders import Encoding
from rewind.config.evaluation import Evaluation
from rewind.config.methods import ENCODER_KEYS
from rewind.config.report import Verdict
from rewind.config.study import RunKey, with_method_keys
from rewind.config.training import Training, opposites_file
from rewind.errors import RewindError
from rewind.hashing import stable_hash
from rewind.io.files import read_json
from rewind.registry import BACKBONES, ENCODERS, HEADS, LOSSES, MODELS, SAMPLERS, head_modules
from rewind.report.page.document import assets_hash
from rewind.tables.render import templates_hash
from rewind.workflow import memory
from rewind.workflow.config import zero_shot_file
from rewind.workflow.plan.dataset import DatasetPlan
from rewind.workflow.plan.files import Files, Unwatched, json_files, user_files
from rewind.workflow.stages import RULES, CodeDependencies

TRIAL_DIGITS = 8  # of the hash by which a trial is named
# Minutes, for schedulers, where they depend on the study; fixed ones are in the profiles.
TRAINING_MINUTES, ENCODING_MINUTES, SHORT_MINUTES = 1440, 720, 60

BLIND_REASON = "it sees too little to search"
PICTURES = ("intervals", "intervals_column", "pairs", "gap", "training_curves", "rank_curve", "ranks")  # of every study
PICTURES_OF_A_RUN = ("examples", "heatmap", "embedding")
DRAWN_OF_A_RUN = ("heatmap", "embedding")  # also as SVG


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
    >>> plan.train_inputs("meanP", 0)["sanity"]
    'results/demo/sanity.json'
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
        self._chosen_frames = chosen_frames or (lambda: int(read_json(self.best_file)["max_frames"]))
        self._chosen_keys = chosen_keys or (lambda method, seed: read_json(self._choice_file(method, seed))["keys"])

    # Targets

    def targets(self) -> list[str]:
        """Its tables, its pictures, and the page that holds them."""
        folder = self.folder
        return [
            f"{folder}/tables",
            f"{folder}/figures/intervals.png",
            f"{folder}/figures/examples.png",
            *(f"{folder}/figures/{method}/examples.png" for method in self.keys.also_pictured()),
            f"{folder}/report.html",
            *(f"{folder}/figures/{name}.png" for name in self.analysis_pictures()),
        ]

    def targets_on_request(self) -> list[str]:
        """What only those get who ask for it by name: files for TREC's tools, costs, a submission."""
        targets = [f"{self.folder}/trec"]
        translators = [name for name in self.keys.trained() if self.method(name).model == "translator"]
        if translators:
            targets.append(f"{self.folder}/efficiency")
        if translators and self.submission_captions():
            seed = next(seed for method, seed in self.keys.runs() if method == translators[0])
            targets.append(f"{self.folder}/submission/{translators[0]}.seed{seed}.csv")
        return targets

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

    def runs(self) -> list[RunKey]:
        return self.keys.runs()

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

    def pairs(self) -> list[tuple[str, str]]:
        return self.keys.pairs()

    def compared_methods(self) -> list[str]:
        return self.keys.compared_methods()

    def primary_metrics(self) -> dict[str, str]:
        """Setting → the metric that decides in it."""
        return self.keys.primary_metric_by_setting()

    def random_factors(self) -> dict[str, Any]:
        return self.keys.random_factors()

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

    def uses_features(self, method: str) -> bool:
        """Whether a method's visual tower is frozen, so that its features are computed once."""
        return "visual" in self.method(method).training.freeze

    def cached_items(self, method: str, seed: int | None = None, frames: int | None = None) -> Files:
        """What a run reads of items: vectors, features of a frozen tower, a frame store, or else clips."""
        if vectors := self._vectors():
            return {"vectors": vectors}
        if self.uses_features(method):
            trial = self.keys.frames_sweep.seed if frames and self.keys.frames_sweep else None
            return {"features": self._features(method, seed, frames, trial)}
        return self.pixel_files(*([frames] if frames else self.frame_candidates(method, seed)))

    def _vectors(self) -> list[str]:
        """The index of a data set of vectors; of other data sets nothing."""
        return [f"{self.dataset.folder}/source/embeddings.json"] if self.dataset.keys.vectors else []

    def _features(
        self, method: str, seed: int | None = None, frames: int | None = None, trial: int | None = None
    ) -> list[str]:
        """Caches for a frozen visual tower: of one number of frames, or of all that the sweep may choose."""
        if not self.uses_features(method):
            return []
        folder = f"{self.folder}/features{self.keys.features_suffix(method, seed, trial)}"
        numbers = [frames] if frames else self.frame_candidates(method, seed)
        return [f"{folder}/frames{n}.npz" for n in numbers]

    def pixel_files(self, *numbers: int) -> Files:
        """Where frames are read from: the stores for these numbers of them, or clips."""
        # Other jobs read too few clips to be worth a store, but read an existing one.
        wanted = self._stored_numbers() if self.keys.frames.store else []
        stores = [f"{self.folder}/frames/frames{n}" for n in numbers if n in wanted]
        if not stores:
            return self.clip_files()
        # As with clips: the index alone decides what is stale.
        parts = [Unwatched(f"{store}/{part}") for store in stores for part in ("items.csv", "shards")]
        return {"store": [f"{store}/index.json" for store in stores], "frames": parts}

    def _stored_numbers(self) -> list[int]:
        """Numbers of frames at which something learns from pixels, or features of them are computed more than once."""
        study = self.keys
        learning = [method for method in study.trained() if not self.uses_features(method)]
        again = len(study.pretraining_suffixes()) > 1
        numbers = list(self.frame_candidates()) if learning or (again and study.trained()) else []
        return numbers + ([self.pretraining_frames()] if study.pretraining else [])

    def frame_candidates(self, method: str = "", seed: int | None = None) -> list[int]:
        """Values of max_frames that it may end up with; of a run that keeps its own, those that were tried for it."""
        if not self.keys.frames_sweep:
            return [self.keys.frames.max_frames]
        made = self._made_with(method, seed)
        if made and made["max_frames"] == self._chosen_frames():
            return list(made["max_frames_tried"])
        return list(self.keys.frames_sweep.max_frames)

    def _made_with(self, method: str, seed: int | None) -> dict[str, Any] | None:
        """``run.json`` of a finished run of a study with a sweep, if it says what was tried; else nothing."""
        if seed is None or not self.keys.frames_sweep:
            return None
        made = self._record_of_run(method, seed)
        return made if {"max_frames", "max_frames_tried"} <= made.keys() else None

    def _record_of_run(self, method: str, seed: int) -> dict[str, Any]:
        """``run.json`` of a finished run; empty for one that is not trained yet, or kept in a bucket."""
        try:
            made = read_json(f"{self.folder}/runs/{method}/seed{seed}/run.json")
        except (RewindError, OSError):
            return {}
        return made if isinstance(made, dict) else {}

    def _best_of_run(self, method: str, seed: int | None) -> str:
        """The file with the sweep's choice: a finished run is stale only where that is another than its own."""
        made = self._made_with(method, seed)
        return Unwatched(self.best_file) if made and made["max_frames"] == self._chosen_frames() else self.best_file

    def frame_view(self, frames: int) -> dict[str, Any]:
        """Which frames a store holds."""
        keys = self.keys.frames.fingerprint("run", include={"size", "sampling", "rate", "fit"})
        return {"max_frames": frames, **keys}

    def decoding_workers(self) -> int:
        return max(1, self.keys.frames.workers)

    def weights(self) -> list[str]:
        """The backbone's weights file, or the files of its model, if the study names one."""
        return user_files([self.keys.backbone.weights, *_encoder_files(self.keys.backbone.encoding())])

    # Before real runs: the over-fitting check, pre-training, features, the sweep

    def sanity_method(self) -> str:
        """The method that is over-fitted."""
        assert self.keys.sanity  # the rule exists only for studies that have the check
        return self.keys.sanity.method or self.keys.trained()[0]

    def sanity_items(self) -> Files:
        """What the check reads of items: as a run, but a study may pre-train towers that are frozen later."""
        if vectors := self._vectors():
            return {"vectors": vectors}
        most = self.keys.frames.max_frames
        if not self.keys.pretraining and (features := self._features(self.sanity_method(), frames=most, trial=0)):
            return {"features": features}
        return self.pixel_files(most)

    def sanity_spec(self) -> RunSpec:
        assert self.keys.sanity
        keys = self.keys.sanity.training
        if self.keys.pretraining:
            keys = keys.model_copy(update={"freeze": []})
        if keys.hard_negatives:  # the question is whether clips and captions belong together, with any loss
            keys = keys.model_copy(update={"hard_negatives": None, "objective": "infonce", "objective_options": {}})
        return self.keys.run_spec(self.sanity_method(), keys)

    def sanity_file(self) -> str | list[str]:
        """What says that the over-fitting check was passed, of studies that have it: it is waited for, and no more."""
        return Unwatched(f"{self.folder}/sanity.json") if self.keys.sanity else []

    def pretraining_frames(self) -> int:
        assert self.keys.pretraining
        return self.keys.pretraining.max_frames or self.keys.frames.max_frames

    def pretraining_items(self) -> Files:
        """What it reads of items, and opposites of captions."""
        assert self.keys.pretraining
        opposites = self._opposites(self.keys.pretraining.training)
        return self.pixel_files(self.pretraining_frames()) | ({"opposites": opposites} if opposites else {})

    def pretraining_spec(self) -> RunSpec:
        keys = self.keys.pretraining
        assert keys
        evaluation = self.keys.evaluation.model_copy(update={"zero_shot": None})
        return self._shared_spec(keys.method.model_copy(update={"training": keys.training}), evaluation)

    def _shared_spec(self, method: Method, evaluation: Evaluation) -> RunSpec:
        """Keys of what several methods share, without keys of single methods, such as noise in the place of clips."""
        keys = self.keys
        return RunSpec(backbone=keys.backbone, frames=keys.frames, text=keys.text, evaluation=evaluation, method=method)

    def pretraining_seed(self, part: str) -> int:
        part = self._checked_part(part, self.keys.pretrains_per_seed)
        return int(part.removeprefix("/seed")) if part else self.keys.pretraining_seeds()[0]

    def pretraining_threads(self) -> int:
        assert self.keys.pretraining
        return self.keys.pretraining.threads or self.keys.resources.threads

    def pretraining_records(self) -> list[str]:
        """``run.json`` of every pre-training, in the order of their seeds."""
        return [f"{self.folder}/pretrained{part}/run.json" for part in self.keys.pretraining_suffixes()]

    def _pretrained_weights(self, part: str) -> str:
        return f"{self.folder}/pretrained{part}/model.safetensors"

    def _checked_part(self, part: str, by_seed: bool) -> str:
        """The part of a path that names a seed's towers, where the study has such."""
        if bool(part) != by_seed:
            towers, how = ("the same towers for all seeds", "without") if part else ("towers of each seed", "with")
            raise RewindError(f"{self.name} has {towers}: request the file {how} seed<k>/ in its path.")
        return part

    def feature_items(self, frames: int) -> Files:
        return self.pixel_files(frames)

    def features_weights(self, part: str) -> str | list[str]:
        """Weights of the pre-training that features of a path are of, if the study has any."""
        part = self._checked_part(part, self.keys.pretrains_per_seed or self.keys.has_random_features)
        return self._pretrained_weights(part) if self.keys.pretraining else []

    def features_spec(self) -> dict[str, Any]:
        """What the features of a frozen tower depend on: no method, no training key."""
        spec = self.features_run().fingerprint()
        return {key: spec[key] for key in ("backbone", "frames", "text")}

    def features_run(self) -> RunSpec:
        return self._shared_spec(Method(), Evaluation())

    def feature_threads(self) -> int:
        return self.keys.resources.feature_threads or self.keys.resources.threads

    def sweep_trial_inputs(self, frames: int) -> Files:
        assert self.keys.frames_sweep
        return self._learning_inputs(self.keys.frames_sweep.method, frames=frames)

    def sweep_trial_spec(self) -> RunSpec:
        assert self.keys.frames_sweep
        return self.keys.run_spec(self.keys.frames_sweep.method, self.keys.frames_sweep.training)

    def sweep_trials(self) -> list[str]:
        """``run.json`` of every trial."""
        numbers = self.keys.frames_sweep.max_frames if self.keys.frames_sweep else []
        return [f"{self.folder}/sweep/frames{n}.json" for n in numbers]

    # Before real runs: trials, from which each method chooses its keys

    def trials(self, method: str) -> dict[str, dict[str, Any]]:
        """The keys of a method's trials by their names, which are hashes: a trial that is there is not run again."""
        return {stable_hash(keys)[:TRIAL_DIGITS]: keys for keys in self.keys.trials_of(method)}

    def trial_inputs(self, method: str, seed: int) -> Files:
        """What a trial learns from: what a run does."""
        return self._learning_inputs(method, seed) | {"best": self.best_file}

    def trial_spec(self, method: str, trial: str) -> RunSpec:
        trials = self.trials(method)
        if trial not in trials:
            raise RewindError(f"{self.name}/{method} has no trial {trial}; it has {', '.join(trials) or 'none'}.")
        tried = with_method_keys(self.method(method), trials[trial])
        return self.keys.model_copy(update={"methods": {method: tried}}).run_spec(method, tried.training)

    def trial_records(self, method: str, seed: int) -> list[str]:
        """``run.json`` of every trial, in the order of :meth:`trials`."""
        return [f"{self.folder}/sweep/{method}/seed{seed}/trial.{name}.json" for name in self.trials(method)]

    def select_metric(self, method: str) -> str:
        return self.method(method).training.select_metric

    def choice(self, method: str, seed: int) -> str | list[str]:
        """The file with the keys that a run's trials chose, of methods that have any."""
        return self._choice_file(method, self.keys.trial_seed(seed)) if self.keys.trials_of(method) else []

    def _choice_files(self, runs: Iterable[RunKey]) -> list[str]:
        """:meth:`choice` of each of some runs that has any."""
        return [path for run in runs if isinstance(path := self.choice(*run), str)]

    def _choice_file(self, method: str, seed: int) -> str:
        return f"{self.folder}/sweep/{method}/seed{seed}/choice.json"

    def _choice_of_run(self, method: str, seed: int) -> str | list[str]:
        """:meth:`choice`; a finished run is stale only where other keys were chosen than its own."""
        path = self.choice(method, seed)
        if not isinstance(path, str):
            return path
        made = self._record_of_run(method, seed).get("tuned")
        if made is None:
            return path
        return Unwatched(path) if made == self._chosen_keys(method, self.keys.trial_seed(seed)) else path

    def _candidates(self, method: str) -> list[Method]:
        """A method with the keys of each trial, and as it is."""
        own = self.method(method)
        return [own, *(with_method_keys(own, keys) for keys in self.keys.trials_of(method))]

    # Runs

    def train_inputs(self, method: str, seed: int) -> Files:
        """What a run learns from; for precomputed vectors and scores, what is checked of them."""
        if not self.method(method).precomputed:
            return self._learning_inputs(method, seed) | {"tuned": self._choice_of_run(method, seed)}
        # Ids of all splits are known ids; the record of vectors holds notes for the tables.
        files = self._precomputed_inputs(method, seed) | self.captions("valid")
        return files | {"encoded": self._encoding_records(files["brought"])}

    def _learning_inputs(self, method: str, seed: int | None = None, frames: int | None = None) -> Files:
        """Without a number of frames it reads the sweep's choice; without a seed, the study's first pre-training."""
        files: Files = {
            "item_table": self.item_table(),
            **self.captions("train", "valid"),
            "described": self.described(),
            **self.cached_items(method, seed, frames),
        }
        if not frames:
            files["best"] = self._best_of_run(method, seed)
            if self._validates_zero_shot(method):
                files["zero_shot"] = self.zero_shot_images()
        files["weights"] = self.weights()
        files["opposites"] = self._opposites(
            self.keys.frames_sweep.training if frames and self.keys.frames_sweep else self.method(method).training
        )
        if self.keys.sanity:
            files["sanity"] = self.sanity_file()
        if self.keys.pretraining:
            starts_there = self.method(method).uses_study_backbone
            part = self.keys.pretraining_suffix(method, seed)
            files["pretrained"] = self._pretrained_weights(part) if starts_there else []
        return files

    def _opposites(self, *trained: Training) -> list[str]:
        """The files of hard negatives that are trained with."""
        named = dict.fromkeys(opposites_file(training) for training in trained)
        return user_files([path for path in named if path])

    def _precomputed_inputs(self, method: str, seed: int) -> Files:
        """What such a run is made of: no sweep, no pre-training, no over-fitting check comes before it."""
        return {
            "item_table": self.item_table(),
            **self.captions("train", "test"),
            "described": self.described(),
            "brought": user_files(self.method(method).precomputed_files(seed)),
        }

    def _encoding_records(self, paths: Iterable[str]) -> list[str]:
        """The records next to vectors that rules make by name."""
        made = f"{self.dataset.folder}/vectors/"
        folders = dict.fromkeys(path.rpartition("/")[0] for path in paths if path.startswith(made))
        return [f"{folder}/record.json" for folder in folders]

    def model_inputs(self, method: str, seed: int, *splits: str) -> Files:
        """What a job reads that runs the model of one run over splits."""
        model = {"model": f"{self.folder}/runs/{method}/seed{seed}/model.safetensors"}
        if self.method(method).precomputed:
            return self._precomputed_inputs(method, seed) | model
        return {
            **self.captions(*splits),
            **self.cached_items(method, seed),
            "item_table": self.item_table(),
            "best": self._best_of_run(method, seed),
            "tuned": self.known_choice(method, seed),
            **model,
        }

    def known_choice(self, method: str, seed: int) -> str | list[str]:
        """:meth:`choice` as part of a run that is there: where it changes, so does the run's file."""
        path = self.choice(method, seed)
        return Unwatched(path) if isinstance(path, str) else path

    def scored_inputs(self, method: str, seed: int) -> Files:
        """What a job reads that runs a model over the test split."""
        return self.model_inputs(method, seed, "train", "test")

    def cosine_inputs(self, method: str, seed: int) -> Files:
        return self.model_inputs(method, seed, "train", "valid", "test")

    def submission_inputs(self, method: str, seed: int) -> Files:
        return self.model_inputs(method, seed, "train")

    # Results of all runs

    def scored_runs(self) -> list[RunKey]:
        return self.keys.scored_runs()

    def similarity_files(self) -> list[str]:
        """The matrices of all runs that have one."""
        return self.per_run("similarity/{method}/seed{seed}.npz", self.scored_runs())

    def rerank_inputs(self, method: str, seed: int) -> Files:
        """What a job reads that scores the first results of another run."""
        name, first_seed = self.keys.first_stage(method, seed)
        files = self.scored_inputs(method, seed) | {"first": f"{self.folder}/similarity/{name}/seed{first_seed}.npz"}
        encoding = self._reranking_encoding(method)
        if encoding is None:
            return files
        # A model by name may score pairs, which its vectors' rule has then left to this job: it opens clips.
        return files | self.clip_files() | {"local": user_files(encoding.files())}

    def _reranking_encoding(self, method: str) -> Encoding | None:
        """How a model by name encodes, if it scores the first results of another method."""
        return self.keys.encodings().get(method) if self.method(method).rerank else None

    def reranking_encoder(self, method: str) -> dict[str, Any] | None:
        encoding = self._reranking_encoding(method)
        return encoding.content() if encoding else None

    def reranking_execution(self, method: str, seed: int) -> dict[str, Any]:
        encoding, keys = self._reranking_encoding(method), self.run_spec(method, seed).left_out("run")
        return self.execution() | {"keys": keys} | ({"batch_size": encoding.batch_size} if encoding else {})

    def rerank_keys(self, method: str) -> dict[str, Any]:
        rerank = self.method(method).rerank
        assert rerank is not None  # the rule exists only for such methods
        return rerank.fingerprint("scores")

    def rank_files(self) -> list[str]:
        return self.per_run("ranks/{method}/seed{seed}.parquet")

    def run_metrics(self) -> list[str]:
        return self.per_run("ranks/{method}/seed{seed}.json")

    def run_records(self) -> list[str]:
        return self.per_run("runs/{method}/seed{seed}/run.json")

    def run_histories(self) -> list[str]:
        return self.per_run("runs/{method}/seed{seed}/history.csv")

    # Zero-shot classification

    def zero_shot_images(self) -> list[str]:
        """The file of labelled images, if the study names one."""
        return user_files(zero_shot_file(self.keys))

    def _validates_zero_shot(self, method: str) -> bool:
        """Whether every validation of a method also classifies labelled images."""
        return self._zero_shot_in_training() and method in self.keys.trained()

    def _zero_shot_in_training(self) -> bool:
        keys = self.keys.evaluation.zero_shot
        return keys is not None and keys.validation_images != 0

    def zero_shot_spec(self, method: str) -> dict[str, Any]:
        """What a run's zero-shot accuracy depends on besides the model."""
        assert self.keys.evaluation.zero_shot
        spec = self.evaluation_spec(method)
        keys = self.keys.evaluation.zero_shot.fingerprint("run", exclude={"validation_images"})
        return spec | {"evaluation": spec["evaluation"] | {"zero_shot": keys}}

    def zero_shot_runs(self) -> list[RunKey]:
        """Every run that has towers."""
        return [(method, seed) for method, seed in self.runs() if method in self.keys.with_towers()]

    def order_setting(self) -> str:
        return self.keys.order_setting()

    def order_runs(self) -> list[RunKey]:
        """Every run that is shown frames in another order."""
        return [(method, seed) for method, seed in self.runs() if method in self.keys.order_methods()]

    def probes_of(self, method: str) -> list[str]:
        return self.keys.probes_of(method)

    def probed_runs(self) -> list[RunKey]:
        """Every run that is probed."""
        return [(method, seed) for method, seed in self.runs() if method in self.keys.probed_methods()]

    def probe_inputs(self, method: str, seed: int) -> Files:
        """What a run's probes read besides its scores: its model and its data, and what the data set asks."""
        probes = self.probes_of(method)
        if self._scores_tell(method):
            files: Files = {"item_table": self.item_table(), **self.captions("test")}
            files |= {"model": self.model_inputs(method, seed, "test")["model"], "best": []}
        else:
            files = self.model_inputs(method, seed, "train", "valid", "test")
        captions = self.method(method).options.get("captions", "")
        if "foils" in probes and method in self.keys.encodings():
            files["foil_vectors"] = captions.removesuffix("captions.npz") + "captions_and_foils.npz"
        return files | self.dataset.question_files(probes)

    def probing_gpus(self, method: str) -> int:
        return 0 if self._scores_tell(method) else self.encoding_gpus(method)

    def _scores_tell(self, method: str) -> bool:
        """Whether the method's probes read its matrices of scores alone, and no model."""
        return set(self.probes_of(method)) <= {"pairs", "answers"}

    # The verdict

    def _verdict(self) -> Verdict:
        assert self.keys.tables.verdict  # the rules exist only for studies that have one
        return self.keys.tables.verdict

    def timed_methods(self) -> list[str]:
        """Methods whose steps are timed: the verdict's baseline, then those that are to beat it."""
        return [self._verdict().baseline, *self._verdict().methods]

    def step_time_inputs(self) -> Files:
        timed = [self.method(name).training for name in self.timed_methods()]
        return self._learning_inputs(self._verdict().baseline) | {
            "opposites": self._opposites(*timed),
            "tuned": self._choice_files((name, self.first_seed()) for name in self.timed_methods()),
        }

    def timed_specs(self) -> dict[str, Any]:
        return {
            name: self.keys.run_spec(name, self.method(name).training).fingerprint() for name in self.timed_methods()
        }

    def first_seed(self) -> int:
        return self.keys.seeds[0]

    # The translator

    def submission_captions(self) -> str | list[str]:
        """The npz of captions of a submission; where there is none, it was refused when it was asked for."""
        source = self.dataset.keys.source
        return (source.test or []) if isinstance(source, EmbeddingsSource) else []

    def measured_runs(self) -> list[RunKey]:
        """The first run of those methods that read what the first method reads."""
        first = next(iter(self.keys.methods))
        seeds = dict(reversed(self.runs()))
        # What is read of another pre-training has the same shape, and shapes are all that is timed.
        wanted = self.cached_items(first)
        return [(name, seeds[name]) for name in self.keys.methods if self.cached_items(name) == wanted]

    def efficiency_inputs(self) -> Files:
        measured = self.measured_runs()
        return {
            **self.captions("train", "test"),
            **self.cached_items(*measured[0]),
            "item_table": self.item_table(),
            "best": self.best_file,
            "models": self.per_run("runs/{method}/seed{seed}/model.safetensors", measured),
            "tuned": [Unwatched(path) for path in self._choice_files(measured)],
        }

    def measured_spec(self) -> dict[str, Any]:
        return self.evaluation_spec(self.measured_runs()[0][0])

    def measured_methods(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Name, name in tables and keys of each."""
        return [(name, self._label(name), self.evaluation_spec(name)) for name, _ in self.measured_runs()]

    def data_title(self) -> str:
        """The title of its data, with what all its runs were given."""
        return ", ".join(filter(None, [self.dataset.keys.title, self.keys.condition]))

    # The report

    def result_files(self) -> Files:
        """What tables, figures and the page are all made from."""
        files = {
            "metrics": self.metrics_file,
            "ranks": self.rank_files(),
            "said": self.run_metrics(),
            "intervals": f"{self.folder}/statistics/intervals.csv",
            "pairs": f"{self.folder}/statistics/pairs.csv",
            "gaps": f"{self.folder}/statistics/gaps.csv",
            "places": f"{self.folder}/statistics/ranks.csv",
            "chance": f"{self.folder}/statistics/chance.csv",
            "best": self.best_file,
            "videos": f"{self.dataset.folder}/videos/report.csv",
        }
        for analysis in self.analyses():
            results = {name: one for name, one in analysis.results.items() if one.applies(self)}
            files |= {name: f"{self.folder}/{result.file}" for name, result in results.items()}
        if self.keys.pretraining:
            files["pretraining"] = self.pretraining_records()
        return files

    def table_files(self) -> Files:
        """What only some studies' tables show, and their answer says."""
        files = Files()
        if trials := [Path(path).with_name("trials.csv").as_posix() for path in self._choice_files(self.runs())]:
            files["trials"] = list(dict.fromkeys(trials))
        return files

    def _pictures(self) -> tuple[str, ...]:
        """Names of the pictures of all runs."""
        return (*PICTURES, *self.analysis_pictures())

    def analyses(self) -> list[Analysis]:
        """What it asks for besides its scores."""
        return [analysis for analysis in analyses_of(self.keys).values() if analysis.applies(self)]

    def analysis_pictures(self) -> list[str]:
        """Names of the pictures that rules of its analyses draw."""
        rules = [rule for analysis in self.analyses() for rule in analysis.rules if rule.applies(self)]
        return [name for rule in rules for name in rule.captions(self.keys)]

    def page_pictures(self) -> list[str]:
        twins = ("twin_examples",) * ("binary" in self.keys.evaluation.settings)
        return [f"{self.folder}/figures/{name}.png" for name in self._pictures() + twins + PICTURES_OF_A_RUN]

    def twin_similarity(self) -> list[str]:
        """The matrices of the first seed of every compared method, in the order of :meth:`twin_methods`."""
        return [self.pictured_similarity(method) for method in self.keys.compared_with_twins()]

    def twin_methods(self) -> list[str]:
        """Names of those methods in tables."""
        return [self._label(method) for method in self.keys.compared_with_twins()]

    def pictured_label(self) -> str:
        """What tables call the method that pictures show."""
        return self._label(self.keys.pictured()[0])

    def _label(self, method: str) -> str:
        return self.method(method).label or method

    def page_drawings(self) -> list[str]:
        """Pictures of the page as SVG."""
        return [f"{self.folder}/figures/{name}.svg" for name in self._pictures() + DRAWN_OF_A_RUN]

    def table_templates(self) -> str:
        """A hash of the templates of tables."""
        return templates_hash()

    def page_assets(self) -> str:
        """A hash of the page's templates, style and script."""
        return assets_hash()

    def pictured_similarity(self, method: str | None = None) -> str:
        """The matrix of the run that pictures show, or of a method's first seed."""
        name, seed = self.keys.pictured(method)
        return f"{self.folder}/similarity/{name}/seed{seed}.npz"

    def pictured_vectors(self, method: str | None = None) -> str:
        name, seed = self.keys.pictured(method)
        return f"{self.folder}/embedding/{name}.seed{seed}.npz"

    def pictured_run(self, method: str | None = None) -> str:
        """What pictures of one run call it."""
        name, seed = self.keys.pictured(method)
        return ", ".join([name, f"seed {seed}", *filter(None, [self.keys.condition])])

    def pictured_setting(self) -> str:
        """The gallery that examples search: with twins where there are any."""
        settings = list(self.keys.evaluation.settings)
        return ([setting for setting in ("hard", "origin", "test") if setting in settings] or settings)[0]

    def thumbnail_size(self) -> int:
        return min(self.keys.frames.size, 112)

    # Threads, GPUs and minutes

    def one_gpu(self) -> int:
        """GPUs of a job that is one process: one, if the study uses any."""
        return min(1, self.keys.resources.gpus)

    def training_gpus(self, method: str) -> int:
        """GPUs that share the batches of a run; what learns nothing by gradient descent needs none."""
        return 0 if self.method(method).baseline else self.keys.resources.gpus

    def training_minutes(self, method: str) -> int:
        return SHORT_MINUTES if self.method(method).baseline else TRAINING_MINUTES

    def kind_of_run(self, method: str) -> str:
        """Which rules make a run: ``trained``, in three jobs; ``reranked``, in two; ``untrained`` or ``blind``, in one.

        Precomputed vectors and scores, and chance, learn nothing: one short job checks, scores and ranks them.
        """
        keys = self.method(method)
        if keys.rerank:
            return "reranked"
        if keys.precomputed or keys.model == "chance":
            return "untrained"
        return "blind" if keys.blind else "trained"

    def untrained_inputs(self, method: str, seed: int) -> Files:
        """What such a job reads: what it is made of, and the test split."""
        files = self.train_inputs(method, seed) | self.scored_inputs(method, seed)
        return {name: paths for name, paths in files.items() if name != "model"}

    def blind_inputs(self, method: str, seed: int) -> Files:
        """What a blind baseline is fitted on, chosen on and scored on; of captions alone no clip is read."""
        files = self._learning_inputs(method, seed) | self.captions("train", "valid", "test")
        read = self.cached_items(method, seed) if self.method(method).model == "caption_only" else {}
        return {name: paths for name, paths in files.items() if name not in read}

    def blind_settings(self) -> dict[str, str]:
        """Settings in which blind baselines are not evaluated → the reason."""
        return {setting: BLIND_REASON for setting in self.keys.evaluation.settings if setting != "binary"}

    def blind_gpus(self, method: str) -> int:
        """GPUs of a job that encodes frames, unless their features are cached."""
        keys = self.method(method)
        return 0 if keys.model == "caption_only" or "visual" in keys.training.freeze else self.one_gpu()

    def blind_minutes(self, method: str) -> int:
        return ENCODING_MINUTES if self.blind_gpus(method) else SHORT_MINUTES

    def _encodes_nothing(self, method: str) -> bool:
        """Chance, word counts and closed forms on vectors."""
        keys = self.method(method)
        if self._reranking_encoding(method):
            return False
        return not keys.has_towers or (keys.model == "translator" and keys.baseline)

    def sharing_gpus(self, method: str) -> int:
        """GPUs of a job that encodes test data in as many processes."""
        return 0 if self._encodes_nothing(method) else self.keys.resources.gpus

    def encoding_gpus(self, method: str) -> int:
        """GPUs of a job that encodes test data in one process."""
        return min(1, self.sharing_gpus(method))

    def encoding_minutes(self, method: str) -> int:
        return SHORT_MINUTES if self._encodes_nothing(method) else ENCODING_MINUTES

    # Memory in MB; an attempt after the first asks for as much again

    def model_memory(self, attempt: int) -> int:
        """Memory of jobs that run a model, as the study sets it."""
        return attempt * self.keys.resources.mem_mb

    def decoding_memory(self, attempt: int) -> int:
        return attempt * (2000 + 500 * self.keys.frames.workers)

    def matrix_memory(self, attempt: int) -> int:
        return attempt * memory.matrix_job_mb(self.dataset.keys, self._results)

    def scoring_memory(self, attempt: int) -> int:
        return attempt * memory.scoring_job_mb(self.dataset.keys, self.keys, self._results)

    def whole_matrix_memory(self, attempt: int) -> int:
        return attempt * memory.whole_matrix_job_mb(self.dataset.keys, self.keys, self._results)

    def little_memory(self, attempt: int) -> int:
        return attempt * memory.BASE_MB

    def ranks_memory(self, attempt: int) -> int:
        return attempt * memory.ranks_job_mb(self.dataset.keys, self.keys, self._results)

    def page_memory(self, attempt: int) -> int:
        """Memory of jobs that read all ranks and every matrix, one after the other."""
        both = memory.ranks_job_mb(self.dataset.keys, self.keys, self._results) - memory.BASE_MB
        return self.matrix_memory(attempt) + attempt * both

    @property
    def _results(self) -> Path:
        return Path(self.folder).parent

    # Code

    def code_dependencies(self, rule: str, method: str = "", seed: int | None = None) -> CodeDependencies:
        """What a stage's code depends on besides its script: what keys name, and files of the user's."""
        named = self._named_code(rule, method, seed)
        if rule not in RULES or not RULES[rule].metrics:  # parts of rules have no entry
            return named
        return replace(named, modules=[*named.modules, *self.keys.metrics])

    def _named_code(self, rule: str, method: str, seed: int | None) -> CodeDependencies:
        """:meth:`code_dependencies` without the study's own metrics."""
        study = self.keys
        match rule:
            case "tables" | "page":
                # All of them are asked whether they have something to show.
                return CodeDependencies([module_of(name) for name in analyses_of(study)])
            case "train" | "untrained_run":
                return self._trained(self._candidates(method), seed, self._zero_shot_in_training())
            case "trial":
                return self._trained(self._candidates(method), seed)
            case "step_time":
                methods = [self.method(name) for name in self.timed_methods()]
                return self._trained(methods, seed, self._zero_shot_in_training())
            case "sanity":
                assert study.sanity
                return self._trained([self._with_training(self.sanity_method(), study.sanity.training)], seed)
            case "sweep_trial":
                sweep = study.frames_sweep
                assert sweep
                return self._trained([self._with_training(sweep.method, sweep.training)], seed)
            case "pretrain":
                assert study.pretraining
                trained = study.pretraining.method.model_copy(update={"training": study.pretraining.training})
                return self._trained([trained], seed)
            case "features":
                backbone = _backbone_modules(study.backbone)
                files = user_files(json_files([study.backbone.architecture]))
                files += [] if study.pretraining else self.weights()
                return CodeDependencies(
                    [MODELS.full_name("clip4clip"), HEADS.full_name("meanP"), *backbone], files=files
                )
            case "zero_shot":
                return self._scored([method], seed, self.zero_shot_images())
            case "blind_run":
                return self._scored([method], seed, self.weights())
            case "rerank":
                encoding = self._reranking_encoding(method)
                named, files = ([ENCODERS.full_name(encoding.encoder)], encoding.files()) if encoding else ([], [])
                scored = self._scored([method], seed)
                return replace(scored, modules=[*scored.modules, *named], files=[*scored.files, *user_files(files)])
            case "similarity" | "order_controls" | "probes" | "cosines" | "export_vectors" | "submission":
                return self._scored([method], seed)
            case "efficiency":
                return self._scored([name for name, _ in self.measured_runs()], seed)
        return CodeDependencies()

    def _with_training(self, method: str, training: Training) -> Method:
        return self.method(method).model_copy(update={"training": training})

    def _trained(self, methods: Sequence[Method], seed: int | None, zero_shot: bool = False) -> CodeDependencies:
        """Dependencies of a stage that trains methods."""
        modules = [module for method in methods for module in self._trained_modules(method)]
        files = [*self._model_files(methods, seed), *self.weights()]
        files += self.zero_shot_images() if zero_shot else []
        return CodeDependencies(modules, zero_shot, files=files)

    def _scored(self, names: Sequence[str], seed: int | None, files: Sequence[str] = ()) -> CodeDependencies:
        """Dependencies of a stage that runs models of methods; how they were trained is not part of them."""
        methods = [self.method(name) for name in names]
        modules = [m for name in names for method in self._candidates(name) for m in self._model_modules(method)]
        return CodeDependencies(modules, files=[*files, *self._model_files(methods, seed)])

    def _model_modules(self, method: Method) -> list[str]:
        """Modules of a method's model."""
        modules = [MODELS.full_name(method.model), *_backbone_modules(self.keys.backbone)]
        own = method.own_backbone
        if isinstance(own, dict):
            modules += _backbone_modules(_own_backbone(own))
        return modules + head_modules(method.model, method.head)

    def _trained_modules(self, method: Method) -> list[str]:
        """Modules of a method's model, its loss and its sampler."""
        training = method.training
        return [
            *self._model_modules(method),
            LOSSES.full_name(training.objective),
            SAMPLERS.full_name(training.batch.sampler),
        ]

    def _model_files(self, methods: Sequence[Method], seed: int | None) -> list[str]:
        """Files that models are made of: vectors or scores, weights of their own, captions of a vocabulary.

        JSON files of sizes are among them, though no inputs of rules: in a fresh checkout all of them are new, and
        nothing is to run again for that.
        """
        backbones = [keys for method in methods if isinstance(keys := method.own_backbone, dict)]
        files = [keys.get("weights") for keys in backbones]
        files += [path for keys in backbones for path in _encoder_files(_own_backbone(keys).encoding())]
        files += [path for method in methods for path in method.precomputed_files(seed)]
        architectures = [keys.get("architecture") for keys in backbones]
        if any(method.uses_study_backbone for method in methods):
            files += _encoder_files(self.keys.backbone.encoding())
            architectures.append(self.keys.backbone.architecture)
        return user_files([*files, *json_files(architectures), self.keys.text.vocabulary])


def _own_backbone(keys: dict[str, Any]) -> Backbone:
    """The block of a method's own backbone, as far as its keys are valid; what is not is refused elsewhere."""
    known = {name: keys[name] for name in ("kind", *ENCODER_KEYS) if name in keys}
    try:
        return Backbone(**known)
    except ValidationError:
        return Backbone()


def _backbone_modules(keys: Backbone) -> list[str]:
    """Code of the towers."""
    encoding = keys.encoding()
    return [BACKBONES.full_name(keys.kind), *([ENCODERS.full_name(encoding.encoder)] if encoding else [])]


def _encoder_files(encoding: Encoding | None) -> list[str]:
    return encoding.files() if encoding else []
