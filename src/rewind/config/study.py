"""The study file (``config/studies/*.yaml``): its keys, and the checks of keys that depend on each other.

What depends on the dataset file too is checked in :mod:`rewind.config.checks`.
"""

from __future__ import annotations

import difflib
import importlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError, ValidationInfo, field_validator, model_validator

from rewind.config.base import (
    DEFAULT_VOCABULARY_SIZE,
    DRAFT_CONTEXT,
    NAME_PATTERN,
    SEED_BOUNDS,
    Affects,
    ConfigModel,
    LabelText,
    config_field,
    fault_message,
    read_options,
    require_unique,
    require_valid_seeds,
    required_field,
    unread_keys,
)
from rewind.config.dataset import Split
from rewind.config.encoders import SCORING_OPTIONS, EncoderOptions, Encoding, seeds_of_options
from rewind.config.evaluation import Evaluation
from rewind.config.methods import (
    CLIP_MAX_LOGIT_SCALE,
    FILE_OPTIONS,
    PRECOMPUTED_PAIR_BATCH,
    Backbone,
    Method,
    seeds_with_files,
)
from rewind.config.report import Figures, Statistics, Tables, load_metrics
from rewind.config.training import Sanity, Sweep, Training
from rewind.errors import ConfigErrors, RewindError, labels_fault
from rewind.ranking_metrics import ACCURACY_METRIC
from rewind.registry import BACKBONES

RunKey = tuple[str, int]
"""A run of a study: its method and seed."""
SHARED_PRETRAINING_NOTE = "given one pre-training"
SHARED_CHOICE_NOTE = "given one choice of keys"
TrackerName = Literal["tensorboard", "wandb", "mlflow"]
RESERVED_NAMES = ("data", "rehearsal")  # folders in results/ that belong to no study
_TRAINING_PURPOSES = {"sanity": "over-fit", "sweep": "try numbers of frames with"}

# ---- The study file ------------------------------------------------------------------------------------------------


class Frames(ConfigModel, affects="run"):
    """Which frames of a clip the model sees.

    >>> Frames(max_frames=8, sampling="ends").size
    224
    """

    max_frames: int = config_field(
        12, "Largest number of frames per clip; replaced by the sweep's choice if there is a sweep.", ge=1, le=512
    )
    sampling: Literal["uniform", "ends", "head", "tail", "stride"] = config_field(
        "uniform",
        "Which frames of a longer clip are used: `uniform` (the middles of equal parts), `ends` (evenly spaced from "
        "the first frame to the last), `head` (the first) or `tail` (the last). CLIP4Clip's `slice_framepos` 2, 0, 1 "
        "are `ends`, up to its rounding, which is not symmetric in time, `head` and `tail`. `stride` is ViCLIP's: "
        "every n-th frame from the first on; a shorter clip repeats frames.",
    )
    rate: float | None = config_field(
        None,
        "Frames per second that are read before `sampling` (CLIP4Clip's `feature_framerate`, 1); none: all frames.",
        ge=0.01,
        le=1000,
    )
    size: int = config_field(224, "Side of the square model input, in pixels.", ge=16, le=1024)
    fit: Literal["crop", "stretch"] = config_field(
        "crop",
        "How a frame becomes a square: `crop` (resize the short side, crop the centre; CLIP) or `stretch` (resize "
        "the whole frame without keeping its aspect ratio; ViCLIP).",
    )
    noise: bool = config_field(
        False, "A control: every clip is replaced by noise, always the same for an item; no clip is read."
    )
    workers: int = config_field(
        0,
        "Decoding processes for each job that trains or encodes; 0 decodes in the job itself.",
        ge=0,
        le=256,
        affects="nothing",
    )
    store: bool = config_field(
        False,
        "Decode every clip once into memory-mapped shards (clips × frames × size² × 3 bytes on disk), from which "
        "all runs read. Use it when training from pixels, so that decoding does not keep a GPU waiting, or when each "
        "seed has a pre-training of its own, after which features are computed again. Where it is changed, `rewind "
        "accept` keeps finished runs.",
        affects="nothing",
    )
    keep_in_memory: bool = config_field(
        False,
        "Keep decoded frames in memory (small datasets only: clips × frames × size² × 3 bytes).",
        affects="nothing",
    )


class Text(ConfigModel, affects="run"):
    """How captions become tokens.

    >>> Text(tokenizer="words").max_words
    32
    """

    tokenizer: Literal["clip", "words", "miniclip"] = config_field(
        "clip",
        "`clip`: CLIP's byte-pair encoding. `words`: a vocabulary of the words in the training captions. "
        "`miniclip`: the same, but with MiniCLIP's way of splitting words and without start and end tokens (for "
        "`kind: miniclip_towers`).",
    )
    max_words: int = config_field(
        32,
        "Tokens per caption, including start and end; longer captions are cut, and the tables say how many.",
        ge=4,
        le=512,
    )
    max_vocabulary: int = config_field(
        DEFAULT_VOCABULARY_SIZE,
        "Token ids of `tokenizer: miniclip`, four of which are not words; the most frequent words of the training "
        "captions have one each, all others share one.",
        legacy_default=DEFAULT_VOCABULARY_SIZE,
        ge=8,
        read_with={"tokenizer": ["miniclip"]},
    )
    vocabulary: str | None = config_field(
        None,
        "File of captions whose words make the vocabulary of `tokenizer: miniclip` instead of those of the training "
        "captions, for weights that were trained with them: MiniCLIP's `captions.json`, or one caption a line.",
        legacy_default=None,
        read_with={"tokenizer": ["miniclip"]},
    )


class Pretraining(ConfigModel, affects="run"):
    """Train the backbone first, on the training split, once for each seed (without pretrained weights)."""

    method: Method = config_field(Method(), "Method that is trained; its backbone is kept.")
    shared: bool = config_field(
        False,
        "Pre-train once for all runs. The spread over seeds then does not include the pre-training, so the captions"
        ' of all tables and figures say "given one pre-training".',
    )
    seed: int | None = config_field(
        None,
        "Seed of a `shared` pre-training, 0 if empty. Without `shared`, each run starts from the pre-training with "
        "its own seed.",
        **SEED_BOUNDS,
    )
    threads: int | None = config_field(
        None, "CPU threads of a pre-training job; the study's if empty.", ge=1, le=512, affects="nothing"
    )
    max_frames: int | None = config_field(
        None, "Frames per clip while pre-training; the study's if empty.", ge=1, le=512
    )
    training: Training = config_field(Training(), "Overrides of the study's `training` keys.")


class Resources(ConfigModel, affects="nothing"):
    """What one training job requests from the machine."""

    gpus: int = config_field(
        1,
        "GPUs per training job; without a GPU the job runs on the CPU and says so. Changing it makes "
        "nothing stale: every batch is the same on any number of GPUs (docs/cluster.md).",
        ge=0,
        le=64,
    )
    gpu_mem_mb: int | None = config_field(
        None,
        "GPU memory that a job may use, in MB: jobs of one GPU for which it is given share a device while all fit, and "
        "none gets more than its own (docs/cluster.md). Empty, and with more GPUs: a job has its GPUs to itself.",
        legacy_default=None,
        ge=100,
    )
    require_gpu: bool = config_field(False, "Refuse to train on the CPU, where a missing driver would cost days.")
    threads: int = config_field(1, "CPU threads per training job.", ge=1, le=512)
    feature_threads: int | None = config_field(
        None, "CPU threads of the job that computes a frozen tower's features; `threads` if empty.", ge=1, le=512
    )
    mem_mb: int = config_field(4000, "Memory per training job in MB, for schedulers.", ge=100)
    state_folder: str | None = config_field(
        None,
        "Where unfinished training keeps its state: a folder, or a URL such as `s3://bucket/folder`, which outlives "
        "the machine (docs/cluster.md). `results/<study>/.state` if empty. Changing it makes nothing stale.",
        legacy_default=None,
        min_length=1,
    )

    @property
    def shared_gpu_mb(self) -> int | None:
        """Memory of the one GPU that a job shares with others; None if it has its GPUs alone."""
        return self.gpu_mem_mb if self.gpus == 1 else None


class Study(ConfigModel):
    """One study file.

    >>> methods = {"meanP": {}, "ridge": {"model": "ridge", "seeds": [0]}}
    >>> study = Study(name="demo", dataset="shapes", methods=methods, seeds=[0, 1])
    >>> study.runs()
    [('meanP', 0), ('meanP', 1), ('ridge', 0)]
    >>> study.trained(), study.run_spec("meanP", seed=0).method.head
    (['meanP'], 'meanP')
    """

    name: str = required_field(
        "The file's name without `.yaml`; filled in by the reader.", pattern=NAME_PATTERN, affects="report"
    )
    title: LabelText = config_field("", "Title of the report; the file's name if empty.", affects="report")
    dataset: str = required_field("Name of a file in `config/datasets`.", pattern=NAME_PATTERN, affects="data")
    backbone: Backbone = config_field(Backbone(), "The text and visual towers that all heads share.")
    frames: Frames = config_field(Frames(), "Which frames of a clip the model sees.")
    text: Text = config_field(Text(), "How captions become tokens.")
    pretraining: Pretraining | None = config_field(None, "Train the backbone first, if you have no pretrained weights.")
    training: Training = config_field(Training(), "How every method is trained.")
    methods: dict[str, Method] = required_field(
        "The methods, in the order of the tables' rows. Names consist of letters, digits, `-` and `_`.", min_length=1
    )
    seeds: list[int] = config_field(
        [0, 1, 2], "Training seeds of all methods; only 0 if no method is trained.", min_length=1, affects="statistics"
    )
    sanity: Sanity | None = config_field(
        Sanity(),
        "The over-fitting check; `null` skips it (`rewind accept` keeps finished runs). A study without training has "
        "none.",
        affects="check",
    )
    sweep: Sweep | None = config_field(
        None,
        "The sweep of `max_frames`; `null` skips it. Where values are added and the same one is chosen again, finished "
        "runs stay as they are.",
    )
    evaluation: Evaluation = config_field(Evaluation(), "Which queries search which gallery.")
    # Before the blocks that name metrics: pydantic checks keys in this order.
    metrics: list[str] = config_field(
        [],
        "Metrics of your own in addition to the built-in ones, each the dotted path of a "
        "`rewind.ranking_metrics.Metric`, for example `mylab.metrics.RBP`; docs/add-a-metric.md.",
        legacy_default=[],
        affects="scores",
    )
    analyses: list[str] = config_field(
        [],
        "Analyses of your own in addition to the built-in ones, each the dotted path of a module that ends in "
        "`ANALYSIS`, for example `mylab.first_found`; docs/add-an-analysis.md.",
        legacy_default=[],
        affects="report",
    )
    statistics: Statistics = config_field(Statistics(), "Intervals and comparisons.")
    tables: Tables = config_field(Tables(), "What the tables show.")
    figures: Figures = config_field(Figures(), "Figures.")
    resources: Resources = config_field(Resources(), "What one training job requests from the machine.")
    tracking: TrackerName | None = config_field(
        None,
        "Log the curves of training runs with `tensorboard`, `wandb` or `mlflow`, which must be installed "
        "(docs/tracking.md). No result depends on it.",
        legacy_default=None,
        affects="nothing",
    )

    @field_validator("seeds")
    @classmethod
    def _seeds(cls, seeds: list[int]) -> list[int]:
        return require_valid_seeds(seeds)

    @field_validator("metrics", "analyses")
    @classmethod
    def _known(cls, paths: list[str], info: ValidationInfo) -> list[str]:
        # Analyses are made of statistics and tables, which know these keys.
        analyses = info.field_name == "analyses"
        load = importlib.import_module("rewind.analyses").add_analyses if analyses else load_metrics
        try:
            load(paths)
        except RewindError as error:
            raise ValueError(str(error).removeprefix(f"{info.field_name}: ")) from error
        return require_unique(paths)

    @field_validator("name")
    @classmethod
    def _not_reserved(cls, name: str) -> str:
        if name in RESERVED_NAMES:
            raise ValueError(f"results/{name} is reserved for the workflow; give the study's file another name")
        return name

    @field_validator("methods")
    @classmethod
    def _names(cls, methods: dict[str, Method]) -> dict[str, Method]:
        if invalid := [name for name in methods if not re.fullmatch(NAME_PATTERN, name)]:
            raise ValueError(
                f"{', '.join(map(repr, invalid))}: a method's name also names its folders: use only letters, digits, - "
                "and _; `label` sets the name in tables"
            )
        return methods

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> Study:
        # All faults at once, a line each: rewind.config.load splits them.
        if not (info.context or {}).get(DRAFT_CONTEXT) and (faults := self.faults()):
            raise ValueError("\n".join(faults))
        return self

    # Methods and their runs

    def seeds_of(self, method: str) -> list[int]:
        """Seeds of a method: its own, or the study's."""
        return self.methods[method].seeds or self.seeds

    def runs(self) -> list[RunKey]:
        """Every (method, seed), in the order of the study file."""
        return [(name, seed) for name in self.methods for seed in self.seeds_of(name)]

    def scored_runs(self) -> list[RunKey]:
        """Runs with a matrix of all scores: not those that score the first results of another method alone."""
        return [(method, seed) for method, seed in self.runs() if not self.methods[method].rerank]

    def first_stage(self, method: str, seed: int) -> RunKey:
        """The run whose first results a run scores again: of the same seed, or the only one of its method.

        >>> methods = {"meanP": {}, "tight": {"head": "tightTransf", "rerank": {"first": "meanP"}}}
        >>> Study(name="s", dataset="d", methods=methods, seeds=[0, 1]).first_stage("tight", 1)
        ('meanP', 1)
        """
        rerank = self.methods[method].rerank
        assert rerank is not None  # the rule applies only to such methods
        seeds = self.seeds_of(rerank.first)
        return rerank.first, seed if seed in seeds else seeds[0]

    def trained(self) -> list[str]:
        """Methods that learn by gradient descent, in order."""
        return [name for name, method in self.methods.items() if not method.baseline]

    def budgets(self) -> dict[str, list[str]]:
        """How long methods train, in words → labels of the trained methods that do, in order.

        >>> study = Study(name="s", dataset="d", methods={"a": {"head": "meanP"}, "b": {"head": "seqLSTM"}})
        >>> study.budgets()
        {'5 epochs of batches of 128': ['a', 'b']}
        """
        budgets: dict[str, list[str]] = {}
        for name in self.trained():
            method, keys = self.methods[name], self.methods[name].training
            steps = f"{keys.epoch_steps:,} steps with " if keys.epoch_steps else ""
            epochs = f"{keys.epochs:,} {'epoch' if keys.epochs == 1 else 'epochs'}"
            trials = len(self.trials_of(name))
            tried = f", after {trials:,} trials each to choose keys" if trials else ""
            budget = f"{epochs} of {steps}batches of {keys.batch.size:,}{tried}"
            budgets.setdefault(budget, []).append(method.label or name)
        return budgets

    @property
    def frames_sweep(self) -> Sweep | None:
        """The sweep, if it chooses a number of frames."""
        return self.sweep if self.sweep and self.sweep.max_frames else None

    def trials_of(self, method: str) -> list[dict[str, Any]]:
        """Keys of the trials from which a trained method chooses; none where nothing is tried."""
        return self.sweep.trials_of(method) if self.sweep and not self.methods[method].baseline else []

    def trial_seed(self, seed: int) -> int:
        """The seed of the trials that a run with ``seed`` is chosen by."""
        assert self.sweep is not None  # called only for methods with trials
        return seed if self.sweep.repeat else self.sweep.seed

    def with_towers(self) -> list[str]:
        """Methods with towers, which can encode any text and any picture, in order."""
        return [name for name, method in self.methods.items() if method.has_towers]

    def order_methods(self) -> list[str]:
        """Methods that look at frames when they are evaluated, and can therefore be shown others."""
        return [name for name, m in self.methods.items() if m.has_towers and not m.noise and not m.rerank]

    def probed_methods(self) -> list[str]:
        """Methods of which every run is probed: those that can be asked anything, see :meth:`probes_of`."""
        return [name for name in self.methods if self.probes_of(name)]

    def probes_of(self, method: str) -> list[str]:
        """What is asked of a method's runs.

        Chance is asked nothing, as its values are known; baselines that see too little to search, only pairs; vectors
        and scores from files, what these can tell.

        >>> methods = {"theirs": {"model": "scores", "options": {"file": "theirs.npz"}}, "meanP": {}}
        >>> study = Study(name="s", dataset="d", methods=methods, evaluation={"probes": ["pairs", "geometry"]})
        >>> study.probes_of("theirs"), study.probes_of("meanP")
        (['pairs'], ['pairs', 'geometry'])
        """
        keys = self.methods[method]
        if keys.model == "chance":
            return []
        return [
            probe
            for probe in self.evaluation.probes
            if (probe == "pairs" or not keys.blind) and not keys.why_not_probed(probe)
        ]

    def inverse_temperature(self, name: str) -> float | None:
        """What a method's scores are multiplied by before a softmax; None where only the scores show it, or nothing."""
        method = self.methods[name]
        # Vectors of a data set are compared by cosine as they are.
        is_cosine = method.model == "zero_shot" and self.backbone.kind == "embeddings" and not method.own_backbone
        return CLIP_MAX_LOGIT_SCALE if is_cosine else method.inverse_temperature

    def order_setting(self) -> str:
        """Where captions search clips whose frames are in another order."""
        return "origin" if "origin" in self.evaluation.settings else "test"

    def pictured(self, method: str | None = None) -> RunKey:
        """Method and seed of the run that figures of a single run show.

        It is the first run of ``method``, else of ``figures.method``, else of the first trained method, else of the
        first method; of those that have a matrix.
        """
        drawn = [name for name in [*self.trained(), *self.methods] if not self.methods[name].rerank]
        method = method or self.figures.method or drawn[0]
        return method, self.seeds_of(method)[0]

    def also_pictured(self) -> list[str]:
        """Trained methods that have figures of their own besides those of :meth:`pictured`."""
        first = self.pictured()[0]
        drawn = [name for name in self.trained() if name != first and not self.methods[name].rerank]
        return drawn if self.figures.every_method else []

    def compared_with_twins(self) -> list[str]:
        """Compared methods whose choice between a clip and its twin is drawn: those with a matrix."""
        return [name for name in self.compared_methods() if not self.methods[name].rerank]

    def run_spec(self, method: str, training: Training | None = None, seed: int | str | None = None) -> RunSpec:
        """Exactly the keys that one run depends on, which its rule passes as parameters.

        Args:
            training: other training keys than the method's, for a trial (of the sweep, the over-fitting check); trials
                measure no zero-shot accuracy.
            seed: of the run. With it, a precomputed method has only the files of this seed, and default keys for
                towers, frames and training, on which its results do not depend.
        """
        keys, evaluation = self.methods[method].for_seed(seed), self.evaluation
        if keys.precomputed and seed is not None:
            keys = keys.model_copy(update={"training": Training(), "seeds": None})
            scoring = Evaluation(settings=evaluation.settings, pair_batch_size=PRECOMPUTED_PAIR_BATCH)
            return RunSpec(backbone=Backbone(), frames=Frames(), text=Text(), evaluation=scoring, method=keys)
        if training is not None:
            keys = keys.model_copy(update={"training": training})
            evaluation = evaluation.model_copy(update={"zero_shot": None})
        frames = self.frames.model_copy(update={"noise": True}) if keys.noise else self.frames
        return RunSpec(backbone=self.backbone, frames=frames, text=self.text, evaluation=evaluation, method=keys)

    def training_blocks(self) -> list[TrainingBlock]:
        """Everything that is trained: methods, the over-fitting check, the sweep, the pre-training."""
        trained = {name: self.methods[name] for name in self.trained()}
        blocks = [TrainingBlock(f"methods.{name}", method, method.training) for name, method in trained.items()]
        for where, keys in (("sanity", self.sanity), ("sweep", self.frames_sweep)):
            name = keys and (keys.method or next(iter(trained), ""))
            if keys and name in trained:
                blocks.append(TrainingBlock(where, trained[name], keys.training))
        if self.pretraining:
            blocks.append(TrainingBlock("pretraining", self.pretraining.method, self.pretraining.training))
        return blocks

    def needed_splits(self) -> dict[Split, str]:
        """Split → the first reason for which it is needed, in words."""
        needed: dict[Split, str] = {}
        for name in self.methods:
            for split, why in self.run_spec(name).needed_splits(f"method {name}").items():
                needed.setdefault(split, why)
        if self.pretraining:
            needed.setdefault("train", "pretraining learns from it")
            needed.setdefault("valid", "pretraining learns from it")
        if self.evaluation.cosine_gap:
            needed.setdefault("valid", "evaluation.cosine_gap is computed on it too")
        return needed

    # Vectors that are computed by name

    def encodings(self) -> dict[str, Encoding]:
        """Method → how its vectors are made, for methods that name an encoder; with the options of its first seed.

        Keys of frames that are left out get the study's values.

        Raises:
            RewindError: naming the option that is unknown or has a wrong value, for noise, or for files besides an
                encoder.

        >>> named = Method(model="vectors", options={"encoder": "open_clip", "name": "RN50"})
        >>> study = Study(name="demo", dataset="shapes", methods={"named": named}, sanity=None)
        >>> study.encodings()["named"].max_frames
        12
        """
        return {name: self.encoding_of(name) for name in self._methods_by_name()}

    def _methods_by_name(self) -> list[str]:
        """Methods that name an encoder."""
        return [name for name, m in self.methods.items() if m.by_name]

    def seed_encodings(self, name: str) -> dict[int, Encoding]:
        """Seed → how a method's pairs are scored: with ``rerank``, options of the encoder may differ between seeds.

        Raises:
            RewindError: as :meth:`encodings`; for a seed that an option has no value for.
        """
        return {seed: self.encoding_of(name, seed) for seed in self.seeds_of(name)}

    def encoding_of(self, name: str, seed: int | None = None) -> Encoding:
        """How a method that names an encoder encodes; without a seed, with the options of its first."""
        method, where, first = self.methods[name], f"methods.{name}", self.seeds_of(name)[0]
        seed = first if seed is None else seed
        options = {option: value for option, value in method.options.items() if option not in SCORING_OPTIONS}
        if method.noise or self.frames.noise:
            raise RewindError(f"{where}.noise: an encoder reads clips; noise is only for models that are trained here.")
        given = read_options(EncoderOptions, options, f"{where}.options", f"{method.model} with an encoder")
        defaults = {key: getattr(self.frames, key) for key in ("max_frames", "sampling", "rate")}
        left_out = {key: value for key, value in defaults.items() if getattr(given, key) is None}
        chosen = dict(given.encoder_options)
        for option, seeds in seeds_of_options(chosen).items():
            key = f"{where}.options.encoder_options.{option}"
            if not method.rerank:
                raise RewindError(f"{key}: values for seeds need rerank, since vectors are made once; give one value.")
            if seed not in seeds:
                raise RewindError(f"{key}: has no value for seed {seed}; it has some for {', '.join(map(str, seeds))}.")
            chosen[option] = chosen[option][seed]
        keys = given.model_dump() | left_out | {"encoder_options": chosen}
        encoding = Encoding(**keys, scored_pairs="candidates" if method.rerank else "all")
        for option, path in self._vector_files(encoding).items():
            # The same paths are allowed: `with_encoded_files` has put them there when a study is read again.
            if seed == first and method.options.get(option, path) != path:
                raise RewindError(
                    f"{where}.options.{option}: the encoder makes the vectors; keep either it or the files."
                )
        return encoding

    def _vector_files(self, encoding: Encoding) -> dict[str, str]:
        """The files that rule ``encode_vectors`` makes, by the option of ``model: vectors`` that names them."""
        folder = f"results/data/{self.dataset}/vectors/{encoding.folder()}"
        return {name: f"{folder}/{name}.npz" for name in ("captions", "items")}

    def with_encoded_files(self) -> Study:
        """The study with the encoders' files in its methods' options: later stages read them like a user's own files.

        Raises:
            ConfigErrors: with what :meth:`encodings` refuses of every method; its draft has the files of all others.
        """
        methods, faults = dict(self.methods), dict[str, str]()
        for name in self._methods_by_name():
            try:
                options = methods[name].options | self._vector_files(self.encoding_of(name))
            except RewindError as error:
                faults[name] = str(error).removesuffix(".")
            else:
                methods[name] = methods[name].model_copy(update={"options": options})
        study = self.model_copy(update={"methods": methods})
        if faults:
            raise ConfigErrors({"": list(faults.values())}, study, [f"methods.{name}.options" for name in faults])
        return study

    # Which pre-training a run starts from: one with its own seed, or one that all runs share

    @property
    def pretrains_per_seed(self) -> bool:
        """Whether there is a pre-training for each seed, and not one for all runs or none."""
        return self.pretraining is not None and not self.pretraining.shared

    @property
    def pretraining_condition(self) -> str:
        """The words that every caption has where all runs share one pre-training; else empty."""
        return SHARED_PRETRAINING_NOTE if self.pretraining and self.pretraining.shared else ""

    @property
    def condition(self) -> str:
        """What all runs share although another study might have it otherwise, in words that every caption has."""
        chosen_once = self.sweep is not None and self.sweep.tunes and not self.sweep.repeat
        notes = [self.pretraining_condition, SHARED_CHOICE_NOTE if chosen_once else ""]
        return " and ".join(filter(None, notes)).replace(" and given", " and")

    def pretrained_per_seed(self) -> list[str]:
        """Methods of which each seed starts from a pre-training of its own, in order."""
        return [name for name, method in self.methods.items() if self.pretrains_per_seed and method.uses_study_backbone]

    def pretraining_seeds(self) -> list[int]:
        """Seeds of the pre-trainings; none without pre-training.

        They are the seeds of all runs that start from one: the study's own first, in their order, then those of
        methods. Stages without a seed of their own take the first.
        """
        if self.pretraining is None:
            return []
        if self.pretraining.shared:
            return [self.pretraining.seed or 0]
        needed = {seed for name in self.pretrained_per_seed() for seed in self.seeds_of(name)}
        return [s for s in self.seeds if s in needed] + sorted(needed - set(self.seeds)) or self.seeds[:1]

    def pretraining_suffixes(self) -> list[str]:
        """:meth:`pretraining_suffix` of every pre-training, in the order of :meth:`pretraining_seeds`."""
        return [f"/seed{seed}" if self.pretrains_per_seed else "" for seed in self.pretraining_seeds()]

    def pretraining_suffix(self, method: str = "", seed: int | str | None = None) -> str:
        """What follows ``pretrained`` and ``features`` in the paths of a run's pre-training and of results based on it.

        It is ``/seed<k>``; empty where there is one pre-training for all runs, or none. Without a run, or for a method
        with another backbone, it is the first pre-training's.

        >>> study = Study(name="demo", dataset="shapes", methods={"meanP": {}}, pretraining={}, seeds=[2, 3])
        >>> study.pretraining_suffix("meanP", 3), study.pretraining_suffix()
        ('/seed3', '/seed2')
        """
        if seed is not None and method in self.pretrained_per_seed():
            return f"/seed{seed}"
        return next(iter(self.pretraining_suffixes()), "")

    @property
    def has_random_features(self) -> bool:
        """Whether the visual tower has random weights, which the seed of each run draws: so do frozen features."""
        keys = self.backbone
        return keys.kind in BACKBONES.tagged("seeded") and not (keys.weights or keys.pretrained or self.pretraining)

    def features_suffix(self, method: str = "", seed: int | str | None = None, trial: int | None = None) -> str:
        """What follows ``features`` in the paths of a run's cached features.

        Args:
            trial: seed of a run that is not one of the study's (the over-fitting check, or a trial of the sweep), by
                which a random tower is drawn. None: the study's first seed.
        """
        if not self.has_random_features:
            return self.pretraining_suffix(method, seed)
        default = self.seeds[0] if trial is None else trial
        return f"/seed{default if seed is None else seed}"

    def seeded_methods(self) -> list[str]:
        """Methods whose results vary over training seeds: their own, or those of the towers that they start from."""
        return self.trained() or self.pretrained_per_seed()

    # What is compared, by which metric, and what is random

    def fixed_methods(self) -> list[str]:
        """Methods that are one model, not one per seed, in order: declared ``fixed``, or nothing is learnt in them.

        Exceptions are zero-shot models after a pre-training of each seed, and precomputed files of several seeds.
        """
        pretrained = self.pretrained_per_seed()

        def varies(name: str, method: Method) -> bool:
            return name in pretrained if method.model == "zero_shot" or method.blind else method.brought_per_seed

        return [
            name
            for name, method in self.methods.items()
            if method.fixed or (method.baseline and not varies(name, method))
        ]

    def labels(self) -> dict[str, str]:
        """Method → its name in tables and figures."""
        return {name: method.label or name for name, method in self.methods.items()}

    def interval_scope(self) -> str:
        """What the primary intervals generalise to."""
        trained = self.trained()
        if not trained and not self.pretrains_per_seed:
            if any(method.brought_per_seed for method in self.methods.values()):
                return "other seeds of what was brought and other queries"
            what = "only the backbone" if self.pretraining else "nothing"
            return f"other queries ({what} is trained, so there are no training seeds)"
        if not trained and len(self.pretraining_seeds()) > 1:
            return "other seeds of the pre-training and other queries"
        if all(len(self.methods[method].seeds or self.seeds) == 1 for method in trained):
            return "other queries only (one training seed)"
        return "other training seeds and other queries"

    def compared_methods(self) -> list[str]:
        """Methods that are compared with each other (by letters in tables), in order.

        These are trained methods and models that are scored as they are; if there are none, the baselines except
        chance. Others (a network with random weights, closed forms, a bag of words) are compared where ``pairs`` names
        them.

        >>> methods = {"meanP": {}, "ridge": {"model": "ridge"}}
        >>> Study(name="demo", dataset="shapes", methods=methods).compared_methods()
        ['meanP']
        """
        compared = {name for pair in self.statistics.pairs or [] for name in pair} | set(self.trained())
        compared |= {
            name
            for name, method in self.methods.items()
            if (method.zero_shot or method.precomputed or method.scored_as_it_is)
            and not method.options.get("untrained")
        }
        names = [name for name in self.methods if name in compared]
        return names or [name for name, m in self.methods.items() if m.model != "chance" and not m.blind]

    def blind_methods(self) -> list[str]:
        """Baselines of Binary that see too little to answer it, in order."""
        return [name for name, method in self.methods.items() if method.blind]

    def pairs(self) -> list[tuple[str, str]]:
        """The comparisons of the family that is tested: ``statistics.pairs``, else all pairs of compared methods."""
        if self.statistics.pairs is not None:
            return list(self.statistics.pairs)
        return list(itertools.combinations(self.compared_methods(), 2))

    def random_factors(self) -> dict[str, Any]:
        """What is random in the runs: the arguments of :class:`rewind.statistics.pairs.RandomFactors`.

        ``fixed``: methods that are one model; ``exact``: methods whose expected result is computed; ``paired``: methods
        whose run of a seed starts from the same pre-training as the others' runs of that seed.
        """
        fixed = self.fixed_methods()
        return {
            "fixed": fixed,
            "exact": [name for name, method in self.methods.items() if method.model == "chance"],
            "paired": [
                name for name in self.pretrained_per_seed() if self.seeds_of(name) == self.seeds and name not in fixed
            ],
        }

    def primary_metric(self) -> str:
        """The deciding metric: ``statistics.primary``, else the tables' own."""
        return self.statistics.primary or self.tables.default_metric()

    def primary_metric_by_setting(self) -> dict[str, str]:
        """Setting → its deciding metric: :meth:`primary_metric`, and in Binary accuracy."""
        primary = self.primary_metric()
        return {setting: ACCURACY_METRIC if setting == "binary" else primary for setting in self.evaluation.settings}

    def figure_metric(self) -> str:
        """The metric of figures: accuracy in a study with Binary, else :meth:`primary_metric`."""
        return ACCURACY_METRIC if "binary" in self.evaluation.settings else self.primary_metric()

    # Faults

    def faults(self) -> list[str]:
        """Every fault as ``key: what is wrong; what to do``; none where the keys fit together.

        >>> study = Study(name="demo", dataset="shapes", methods={"meanP": {}})
        >>> study.model_copy(update={"figures": Figures(method="meanQ")}).faults()
        ["figures.method: no method 'meanQ'; available: meanP; did you mean 'meanP'?"]
        """
        faults = [
            *unread_keys(self),
            *_unread_faults(self),
            *_label_faults(self),
            *_named_method_faults(self),
            *_pair_faults(self),
            *_training_faults(self),
            *_tuning_faults(self),
            *_fixed_model_faults(self),
            *_precomputed_faults(self),
            *self.tables.faults(self.evaluation.directions, self.statistics.primary),
            *_text_faults(self),
            *(fault for analysis in load_analyses(self) for fault in analysis.faults(self)),
            *_rerank_faults(self),
        ]
        return list(dict.fromkeys(faults))


@dataclass(frozen=True)
class TrainingBlock:
    """One ``training`` block of a study, with what is trained by it."""

    where: str  # path of the block that contains ``training``, for example ``methods.meanP``
    method: Method  # the method that is trained
    training: Training

    def path(self, study: Study, key: str) -> str:
        """Path of a training key for messages: in the study's own block if the value is inherited from there."""
        own, inherited = (_nested_value(block, key) for block in (self.training, study.training))
        return f"training.{key}" if own == inherited else f"{self.where}.training.{key}"


def _nested_value(block: Any, path: str) -> Any:
    for name in path.split("."):
        block = getattr(block, name, None)
    return block


class RunSpec(ConfigModel, affects="run"):
    """The slice of a study that one training run depends on; see :meth:`Study.run_spec`."""

    backbone: Backbone
    frames: Frames
    text: Text
    evaluation: Evaluation
    method: Method

    def fingerprint(self, stage: Affects = "run", **selection: Any) -> dict[str, Any]:
        values = super().fingerprint(stage, **selection)
        if self.method.scored_as_it_is:  # only for these `fixed` decides whether anything is trained
            values["method"]["fixed"] = True
        return values

    def needed_splits(self, who: str) -> dict[Split, str]:
        """Split → why the run needs it, in words that begin with ``who``, the name of the run."""
        method = self.method
        reasons: dict[Split, str] = {"test": f"{who} is evaluated on it"}
        if not method.baseline:
            return reasons | {"train": f"{who} learns from it", "valid": f"{who} chooses its checkpoint on it"}
        if method.model in ("ridge", "pixels", "translator") or method.blind:
            return reasons | {"train": f"{who} is fitted on it", "valid": f"{who} chooses its strength on it"}
        own_text = method.options.get("text")
        tokenizer = own_text.get("tokenizer", "clip") if isinstance(own_text, dict) else self.text.tokenizer
        if method.model == "zero_shot" and tokenizer != "clip" and self.backbone.kind != "towers":
            reasons["train"] = f"{who} has its vocabulary from it (text.tokenizer: {tokenizer})"
        return reasons


# ---- Checks of keys that depend on each other: every fault, with its key, before anything runs ---------------------


def _unread_faults(study: Study) -> Iterator[str]:
    """Keys without effect where they stand, as far as one key of the same block does not say so."""
    default, shared = Method(), study.training
    for name, method in study.methods.items():
        for key in Training.model_fields if method.baseline else ():
            # What towers are frozen decides whether features are cached, for baselines too.
            inherited = getattr(shared, key), getattr(default.training, key)
            if key not in ("freeze", "deterministic") and getattr(method.training, key) not in inherited:
                yield f"methods.{name}.training.{key}: {method.model} is not trained; remove the key"
        if method.noise and method.model in ("bow", "chance"):
            yield f"methods.{name}.noise: {method.model} looks at no clip; remove the key"
    if study.pretraining:
        for key in ("label", "train", "noise", "rerank", "fixed", "seeds"):
            if getattr(study.pretraining.method, key) != getattr(default, key):
                yield f"pretraining.method.{key}: a pre-training is not a row of a table; remove the key"
        if study.pretraining.method.training != default.training:
            yield "pretraining.method.training: pretraining.training is read instead; move its keys there"
        if not any(method.uses_study_backbone for method in study.methods.values()):
            yield "pretraining: no method here starts from the study's backbone; remove it"
    if study.evaluation.item_to_text != "all_captions" and "item_to_text" not in study.evaluation.directions:
        yield "evaluation.item_to_text: no item searches captions (evaluation.directions); remove the key"


def _label_faults(study: Study) -> Iterator[str]:
    if found := labels_fault({name: method.label or name for name, method in study.methods.items()}):
        yield f"methods.{found[0]}.label: {found[1]}"


def _named_method_faults(study: Study) -> Iterator[str]:
    for where, name in (
        ("sanity.method", study.sanity and study.sanity.method),
        ("sweep.method", study.frames_sweep and study.frames_sweep.method),
        ("figures.method", study.figures.method),
    ):
        if name and name not in study.methods:
            yield _unknown_method(where, name, study.methods)


def _pair_faults(study: Study) -> Iterator[str]:
    for pair in study.statistics.pairs or []:
        for name in pair:
            if name not in study.methods:
                yield _unknown_method("statistics.pairs", name, study.methods)


def _unknown_method(where: str, name: str, methods: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, methods, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{where}: no method {name!r}; available: {', '.join(methods)}{hint}"


def with_method_keys(method: Method, keys: Mapping[str, Any]) -> Method:
    """A method with some of its keys replaced, each given by its path.

    Raises:
        RewindError: for a value that the method does not accept.

    >>> with_method_keys(Method(), {"training.lr": 0.5, "head_layers": 2}).training.lr
    0.5
    """
    values = method.model_dump(mode="json")
    for path, value in keys.items():
        *blocks, name = path.split(".")
        block = values
        for part in blocks:
            block[part] = dict(block.get(part) or {})
            block = block[part]
        block[name] = value
    try:
        return Method.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise RewindError(f"{'.'.join(map(str, first['loc']))}: {fault_message(first)}.") from None


def _tuning_faults(study: Study) -> Iterator[str]:
    """Trials of methods that are not trained, that no method accepts, that are the same, or not as many for each."""
    if study.sweep is None:
        return
    if not study.sweep.max_frames:
        own = study.methods.get(study.sweep.method, Method()).training
        if study.sweep.training not in (Training(), study.training, own):
            yield "sweep.training: it is for trials of max_frames, and none are tried; remove it"
        if study.sweep.method != Sweep.model_fields["method"].default:
            yield "sweep.method: it is for trials of max_frames, and none are tried; remove it"
    if not study.sweep.tunes:
        return
    trained = study.trained()
    for name in study.sweep.methods:
        if name not in study.methods:
            yield _unknown_method(f"sweep.methods.{name}", name, study.methods)
        elif name not in trained:
            yield f"sweep.methods.{name}: it is not trained, so there is nothing to try; remove it"
    if not trained:
        yield "sweep.keys: no method here is trained, so there is nothing to try; remove the key"
    counts = {name: len(study.trials_of(name)) for name in trained}
    if study.sweep.trials is not None and any(count < study.sweep.trials for count in counts.values()):
        yield f"sweep.trials: {study.sweep.trials}, but there are fewer different values; lower it, or add values"
    elif len(set(counts.values())) > 1:
        told = ", ".join(f"{name} {count}" for name, count in counts.items())
        yield (
            f"sweep.keys: not all methods have the same number of trials ({told}), so the one that tries more has an "
            "advantage; give them lists of one length, or search: random with a number of trials and enough values"
        )
    for name in trained:
        tried: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for trial in study.trials_of(name):
            words = f"sweep.keys: methods.{name} with {trial_words(trial)}"
            try:
                method = with_method_keys(study.methods[name], trial)
            except RewindError as error:
                yield f"{words}: {str(error).removesuffix('.')}"
                break
            unread = [fault for fault in unread_keys(method) if fault.partition(":")[0] in trial]
            if unread:
                path, _, why = unread[0].partition(": ")
                yield f"{words}: {path}: {why}, or set sweep.methods.{name}: {{{path}: null}}"
                break
            counted = method.fingerprint("run")
            if same := next((other for one, other in tried if one == counted), None):
                yield f"{words}: the same as with {trial_words(same)}; remove one"
                break
            tried.append((counted, trial))


def trial_words(keys: Mapping[str, Any]) -> str:
    """Keys of a trial, for people.

    >>> trial_words({"training.lr": 0.0001, "head_layers": 2})
    'training.lr 0.0001, head_layers 2'
    """
    return ", ".join(f"{path} {value}" for path, value in keys.items())


def _training_faults(study: Study) -> Iterator[str]:
    """Parts that need a method that is trained: the over-fitting check, the sweep, the pre-training."""
    trained = study.trained()
    for where, keys in (("sanity", study.sanity), ("sweep", study.frames_sweep)):
        if keys is None:
            continue
        name = keys.method
        if name in study.methods and name not in trained:
            others = f"name a trained method ({', '.join(trained)})" if trained else "no method here is trained"
            yield (
                f"{where}.method: {name!r} is not trained, so there is nothing to {_TRAINING_PURPOSES[where]}: "
                f"{others}, or set {where}: null"
            )
        elif not name and not trained:
            yield (
                f"{where}: no method here is trained, so there is nothing to {_TRAINING_PURPOSES[where]}; set "
                f"{where}: null"
            )
    if study.pretraining and study.pretraining.method.baseline:
        model = study.pretraining.method.model
        yield f"pretraining.method.model: {model} is not trained; name a model that is, for example clip4clip"
    if study.pretraining and study.pretraining.seed is not None and not study.pretraining.shared:
        yield (
            f"pretraining.seed: {study.pretraining.seed}, but each run starts from a pre-training with its own seed; "
            "remove the key, or share one pre-training with pretraining.shared: true"
        )


def _fixed_model_faults(study: Study) -> Iterator[str]:
    for name, method in study.methods.items():
        seeds = study.seeds_of(name)
        if method.fixed and len(seeds) > 1:
            yield (
                f"methods.{name}.fixed: a fixed model has one seed, but this has {len(seeds)}; set "
                f"methods.{name}.seeds: [{seeds[0]}], or remove fixed"
            )


def _precomputed_faults(study: Study) -> Iterator[str]:
    for name, method in study.methods.items():
        if not method.precomputed:
            continue
        if study.evaluation.cosine_gap:
            yield (
                f"evaluation.cosine_gap: gaps are computed on validation too, but methods.{name} has files only for "
                "the test split; set it to false, or remove the method"
            )
        if method.noise:
            yield f"methods.{name}.noise: {method.model} are files and look at no clip; remove the key"
        if any(isinstance(method.options.get(option), dict) for option in FILE_OPTIONS[method.model]):
            available, seeds = seeds_with_files(method.model, method.options), sorted(method.seeds or [])
            if available != seeds:
                yield (
                    f"methods.{name}.seeds: {seeds}, but its options name files for {available}: name a file for each "
                    "seed, or remove seeds"
                )


def _text_faults(study: Study) -> Iterator[str]:
    if study.text.tokenizer == "miniclip" and study.backbone.kind == "clip":
        yield "text.tokenizer: miniclip has no end token, which CLIP's text tower reads; use words"


def load_analyses(study: Study) -> Iterable[Any]:
    """A study's analyses; imported by name, since they are made of statistics and tables, which know these keys."""
    analyses: Mapping[str, Any] = importlib.import_module("rewind.analyses").analyses_of(study)
    return analyses.values()


def _rerank_faults(study: Study) -> Iterator[str]:
    for name, method in study.methods.items():
        if method.rerank is None:
            continue
        where, first = f"methods.{name}.rerank", method.rerank.first
        if method.blind or method.model == "chance":
            yield f"{where}: {method.model} searches nothing; remove the key"
        if method.rerank.binary_only and "binary" not in study.evaluation.settings:
            yield f"{where}.binary_only: evaluation.settings has no binary; add it, or remove the key"
        if first not in study.methods:
            yield _unknown_method(f"{where}.first", first, study.methods)
            continue
        if first == name or study.methods[first].rerank or study.methods[first].blind:
            why = (
                "a method cannot search for itself"
                if first == name
                else f"{first} scores the first results of another method itself"
                if study.methods[first].rerank
                else f"{first} is evaluated only in binary"
            )
            yield f"{where}.first: {why}; name a method that scores all pairs"
        missing = sorted(set(study.seeds_of(name)) - set(study.seeds_of(first)))
        if missing and len(study.seeds_of(first)) > 1:
            yield f"{where}.first: {first} has no seed {missing[0]}; give both methods the same seeds"
        if study.figures.method == name:
            yield f"figures.method: {name} scores only the first results of {first}; name a method with all scores"
