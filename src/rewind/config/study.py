"""The study file (``config/studies/*.yaml``): its keys, and the checks of keys that depend on each other.

What depends on the dataset file too is checked in :mod:`rewind.config.checks`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from pydantic import ValidationInfo, field_validator, model_validator

from rewind.config import comparing
from rewind.config.base import (
    DEFAULT_VOCABULARY_SIZE,
    DRAFT_CONTEXT,
    NAME_PATTERN,
    SEED_BOUNDS,
    ConfigModel,
    config_field,
    require_unique,
    require_valid_seeds,
    required_field,
)
from rewind.config.evaluation import Evaluation
from rewind.config.methods import (
    FILE_OPTIONS,
    PRECOMPUTED_MODELS,
    PRECOMPUTED_PAIR_BATCH,
    Backbone,
    method_for_seed,
    restore_seed_numbers,
    seeds_with_files,
)
from rewind.config.report import Figures, Statistics, Tables, load_metrics, split_column
from rewind.config.training import Training
from rewind.errors import RewindError

RunKey = tuple[str, int]
"""A run of a study: its method and seed."""
MODELS_WITHOUT_TOWERS = ("ridge", "pixels", "chance", "bow", *PRECOMPUTED_MODELS)
"""Models that cannot encode a text or picture of one's own."""
BASELINES = (*MODELS_WITHOUT_TOWERS, *comparing.ZERO_SHOT_MODELS)
"""Models in which nothing learns by gradient descent."""
CLOSED_FORM_HEADS = ("ridge", "geometry")  # of a translator
RESERVED_NAMES = ("data", "rehearsal")  # folders in results/ that belong to no study
KEYS_WITHOUT_EFFECT = {"frames": {"store", "workers", "keep_in_memory"}, "evaluation": {"cosine_gap"}}
"""Keys of how frames are read and of what is reported, on which no run depends."""
_TRAINING_PURPOSES = {"sanity": "over-fit", "sweep": "try numbers of frames with"}

# ---- The study file ------------------------------------------------------------------------------------------------


class Frames(ConfigModel):
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
        0, "Decoding processes beside each job that trains or encodes; 0 decodes in the job itself.", ge=0, le=256
    )
    store: bool = config_field(
        False,
        "Decode every clip once into memory-mapped shards (clips × frames × size² × 3 bytes on disk), from which "
        "all runs read. Use it when training from pixels, so that decoding does not keep a GPU waiting, or when each "
        "seed has a pre-training of its own, after which features are computed anew.",
    )
    keep_in_memory: bool = config_field(
        False, "Keep decoded frames in memory (small datasets only: clips × frames × size² × 3 bytes)."
    )


class Text(ConfigModel):
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
        "Token ids of `tokenizer: miniclip`, four of which are no words; the most frequent words of the training "
        "captions have one each, all others share one.",
        legacy_default=DEFAULT_VOCABULARY_SIZE,
        ge=8,
    )
    vocabulary: str | None = config_field(
        None,
        "File of captions whose words make the vocabulary of `tokenizer: miniclip` instead of those of the training "
        "captions, for weights that were trained with them: MiniCLIP's `captions.json`, or one caption a line.",
        legacy_default=None,
    )


class Method(ConfigModel):
    """One row of the tables.

    >>> Method(model="ridge").baseline, Method(head="seqTransf").baseline
    (True, False)
    >>> Method(model="scores", options={"file": {1: "run1.npz", 2: "run2.npz"}}).seeds
    [1, 2]
    """

    model: str = config_field(
        "clip4clip",
        "`clip4clip` (a backbone with a temporal head), `vectors` and `scores` (files that you bring, see "
        "docs/bring-your-model.md), `dual_encoder` (cosine of one vector per caption and clip, "
        "optionally with cross-attention within pairs during training), `miniclip` (`kind: miniclip_towers` without"
        " a head), `translator` (a map from caption vectors to item vectors), the baselines `ridge`, `pixels`, "
        "`chance`, `bow` and `zero_shot` (the study's backbone, or one of its own, before training), or the dotted "
        "path of your own class.",
    )
    head: str = config_field(
        "meanP",
        "Temporal head: meanP, seqLSTM, seqTransf, tightTransf, xpool, wti (docs/heads.md), or the dotted path of "
        "your own class. For a "
        "`translator`: linear, mlp1, mlp2, geometry_adapter, or the closed forms ridge and geometry.",
    )
    head_layers: int = config_field(
        4, "Number of transformer layers in the head (`cross_num_hidden_layers`).", ge=1, le=48
    )
    head_start: Literal["clip", "random"] = config_field(
        "clip",
        "Initial weights of transformer heads: `clip`, a copy of the first blocks of CLIP's text tower (as in "
        "CLIP4Clip), or `random`. Positions behind the tower's context start from random weights; a tower of another "
        "width, or of fewer blocks than the head, is refused.",
    )
    label: str = config_field("", "Name in tables and figures; the method's key if empty.")
    train: str = config_field("", "Text of the table's Train column; the dataset's title if empty.")
    options: dict[str, Any] = config_field({}, "Options of a head, of a model, or of a model or head of your own.")
    noise: bool = config_field(False, "A control: for this method every clip is replaced by noise (as `frames.noise`).")
    fixed: bool = config_field(
        False,
        "A single model that cannot be trained again, for example a checkpoint without its training recipe. Its "
        "intervals and tests generalise to other queries only. It has one seed. A model of your own that is `fixed` is "
        "scored as your `build` gives it, and needs no training split.",
    )
    seeds: list[int] | None = config_field(None, "Seeds of this method, if they differ from the study's.", min_length=1)
    training: Training = config_field(Training(), "Overrides of the study's `training` keys for this method.")

    @field_validator("seeds")
    @classmethod
    def _seeds(cls, seeds: list[int] | None) -> list[int] | None:
        return None if seeds is None else require_valid_seeds(seeds)

    @model_validator(mode="before")
    @classmethod
    def _seeds_of_files(cls, keys: Any) -> Any:
        """The seeds of a precomputed method are those that it has files for, unless the study gives others."""
        if not isinstance(keys, dict) or keys.get("model") not in PRECOMPUTED_MODELS:
            return keys
        options = restore_seed_numbers(keys["model"], keys.get("options", {}))
        seeds = keys.get("seeds")
        return keys | {
            "options": options,
            "seeds": seeds_with_files(keys["model"], options) if seeds is None else seeds,
        }

    @property
    def baseline(self) -> bool:
        """Whether nothing in the method learns by gradient descent."""
        untrained = self.model in BASELINES or (self.model == "translator" and self.head in CLOSED_FORM_HEADS)
        return untrained or self.scored_as_it_is

    @property
    def scored_as_it_is(self) -> bool:
        """See :func:`scored_as_is`."""
        return scored_as_is(self)


def scored_as_is(method: Method) -> bool:
    """Whether a method is a fixed model of the user's own, which is scored without training.

    A function and not only a property, because the code hash of training covers functions, but not what the classes of
    keys say about themselves.
    """
    return method.fixed and "." in method.model


class Sanity(ConfigModel):
    """The over-fitting check: a small subset must be learnt by heart before real runs start."""

    clips: int = config_field(200, "Number of training clips to over-fit (originals, one caption each).", ge=2, le=200)
    method: str = config_field("", "Method to use (one that is trained); the first such method if empty.")
    min_r1: float = config_field(
        0.9, "Training R@1 that must be reached, 0 to 1; with 0 it is reported but never fails.", ge=0, le=1
    )
    training: Training = config_field(Training(), "Overrides of the study's `training` keys for this check.")


class Sweep(ConfigModel):
    """Choose `frames.max_frames` once, on validation, and use it for every method."""

    max_frames: list[int] = required_field("Values to try, from 1 to 512.", min_length=1)
    method: str = config_field("meanP", "Method to train with each value (one that is trained).")
    seed: int = config_field(0, "Seed of these runs.", **SEED_BOUNDS)
    training: Training = config_field(Training(), "Overrides of that method's `training` keys for the trials.")

    @field_validator("max_frames")
    @classmethod
    def _numbers(cls, values: list[int]) -> list[int]:
        for value in values:
            if not 1 <= value <= 512:
                raise ValueError(f"{value} is not a number of frames from 1 to 512")
        return require_unique(values)


class Pretraining(ConfigModel):
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
    threads: int | None = config_field(None, "CPU threads of a pre-training job; the study's if empty.", ge=1, le=512)
    max_frames: int | None = config_field(
        None, "Frames per clip while pre-training; the study's if empty.", ge=1, le=512
    )
    training: Training = config_field(Training(), "Overrides of the study's `training` keys.")


class Resources(ConfigModel):
    """What one training job requests from the machine."""

    gpus: int = config_field(
        1,
        "GPUs per training job; without a GPU the job runs on the CPU and says so. Changing it trains and scores "
        "nothing again, and only renders tables and figures: every batch is the same on any number of GPUs "
        "(docs/cluster.md).",
        ge=0,
        le=64,
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


class Study(ConfigModel):
    """One study file.

    >>> methods = {"meanP": {}, "ridge": {"model": "ridge", "seeds": [0]}}
    >>> study = Study(name="demo", dataset="shapes", methods=methods, seeds=[0, 1])
    >>> study.runs()
    [('meanP', 0), ('meanP', 1), ('ridge', 0)]
    >>> study.trained(), study.run_spec("meanP", seed=0).method.head
    (['meanP'], 'meanP')
    """

    name: str = required_field("The file's name without `.yaml`; filled in by the reader.", pattern=NAME_PATTERN)
    title: str = config_field("", "Title of the report; the file's name if empty.")
    dataset: str = required_field("Name of a file in `config/datasets`.", pattern=NAME_PATTERN)
    backbone: Backbone = config_field(Backbone(), "The text and visual towers that all heads share.")
    frames: Frames = config_field(Frames(), "Which frames of a clip the model sees.")
    text: Text = config_field(Text(), "How captions become tokens.")
    pretraining: Pretraining | None = config_field(None, "Train the backbone first, if you have no pretrained weights.")
    training: Training = config_field(Training(), "How every method is trained.")
    methods: dict[str, Method] = required_field(
        "The methods, in the order of the tables' rows. Names consist of letters, digits, `-` and `_`.", min_length=1
    )
    seeds: list[int] = config_field(
        [0, 1, 2], "Training seeds of all methods; only 0 if no method is trained.", min_length=1
    )
    sanity: Sanity | None = config_field(
        Sanity(), "The over-fitting check; `null` skips it. A study without training has none."
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
        "Metrics of your own beside the built-in ones, each the dotted path of a `rewind.ranking_metrics.Metric`, for "
        "example `mylab.metrics.RBP`; docs/add-a-metric.md.",
        legacy_default=[],
    )
    statistics: Statistics = config_field(Statistics(), "Intervals and comparisons.")
    tables: Tables = config_field(Tables(), "What the tables show.")
    figures: Figures = config_field(Figures(), "Figures.")
    resources: Resources = config_field(Resources(), "What one training job requests from the machine.")

    @field_validator("seeds")
    @classmethod
    def _seeds(cls, seeds: list[int]) -> list[int]:
        return require_valid_seeds(seeds)

    @field_validator("metrics")
    @classmethod
    def _known(cls, metrics: list[str]) -> list[str]:
        try:
            load_metrics(metrics)
        except RewindError as error:
            raise ValueError(str(error).removeprefix("metrics: ")) from error
        return require_unique(metrics)

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
        if not (info.context or {}).get(DRAFT_CONTEXT) and (faults := study_faults(self)):
            raise ValueError("\n".join(faults))
        return self

    def runs(self) -> list[RunKey]:
        """Every (method, seed), in the order of the study file."""
        return [(name, seed) for name, method in self.methods.items() for seed in method.seeds or self.seeds]

    def pictured(self, method: str | None = None) -> RunKey:
        """Method and seed of the run that figures of a single run show.

        It is the first run of ``method``, else of ``figures.method``, else of the first trained method, else of the
        first method.
        """
        method = method or self.figures.method or next(iter(self.trained() or self.methods))
        return method, (self.methods[method].seeds or self.seeds)[0]

    def also_pictured(self) -> list[str]:
        """Trained methods that have figures of their own besides those of :meth:`pictured`."""
        return [name for name in self.trained() if self.figures.every_method and name != self.pictured()[0]]

    def fingerprint(self, **selection: Any) -> dict[str, Any]:
        """The keys as plain values, without those on which no result depends."""
        return super().fingerprint(**{"exclude": KEYS_WITHOUT_EFFECT} | selection)

    def pairs(self) -> list[tuple[str, str]]:
        """The comparisons of the family that is tested: ``statistics.pairs``, else all pairs of compared methods."""
        if self.statistics.pairs is not None:
            return list(self.statistics.pairs)
        names = comparing.compared_methods(self)
        return [(a, b) for position, a in enumerate(names) for b in names[position + 1 :]]

    def run_spec(self, method: str, training: Training | None = None, seed: int | str | None = None) -> RunSpec:
        """Exactly the keys that one run depends on, which its rule passes as parameters.

        Args:
            method: name of the method.
            training: other training keys than the method's, for a trial (of the sweep, the over-fitting check); trials
                measure no zero-shot accuracy.
            seed: of the run. With it, a precomputed method has the files of this seed alone, and default keys for
                towers, frames and training, on which its results do not depend.
        """
        keys, evaluation = method_for_seed(self.methods[method], seed), self.evaluation
        if keys.model in PRECOMPUTED_MODELS and seed is not None:
            table_words = {"label": "", "train": ""}
            keys = keys.model_copy(update={"training": Training(), "seeds": None, **table_words})
            scoring = Evaluation(settings=evaluation.settings, pair_batch_size=PRECOMPUTED_PAIR_BATCH)
            return RunSpec(backbone=Backbone(), frames=Frames(), text=Text(), evaluation=scoring, method=keys)
        if training is not None:
            keys = keys.model_copy(update={"training": training})
            evaluation = evaluation.model_copy(update={"zero_shot": None})
        frames = self.frames.model_copy(update={"noise": True}) if keys.noise else self.frames
        return RunSpec(backbone=self.backbone, frames=frames, text=self.text, evaluation=evaluation, method=keys)

    def encoding(self) -> list[str]:
        """Methods with towers, which can encode any text and any picture, in order."""
        return [name for name, method in self.methods.items() if method.model not in MODELS_WITHOUT_TOWERS]

    def trained(self) -> list[str]:
        """Methods that learn by gradient descent, in order."""
        return [name for name, method in self.methods.items() if not method.baseline]


class RunSpec(ConfigModel):
    """The slice of a study that one training run depends on; see :meth:`Study.run_spec`."""

    backbone: Backbone
    frames: Frames
    text: Text
    evaluation: Evaluation
    method: Method

    def fingerprint(self, **selection: Any) -> dict[str, Any]:
        """The keys as plain values, without those on which no run depends."""
        # Ranks and statistics read these two; training and similarities do not.
        excluded = {"evaluation": KEYS_WITHOUT_EFFECT["evaluation"] | {"item_to_text"}, "method": {"fixed"}}
        return super().fingerprint(**{"exclude": KEYS_WITHOUT_EFFECT | excluded} | selection)


# ---- Checks of keys that depend on each other: every fault, with its key, before anything runs ---------------------


def study_faults(study: Study) -> list[str]:
    """Every fault as ``key: what is wrong; what to do``; none for a study whose keys fit together.

    >>> study = Study(name="demo", dataset="shapes", methods={"meanP": {}})
    >>> study_faults(study.model_copy(update={"figures": Figures(method="meanQ")}))
    ["figures.method: no method 'meanQ'; available: meanP; did you mean 'meanP'?"]
    """
    faults = [
        *_named_method_faults(study),
        *_pair_faults(study),
        *_training_faults(study),
        *_fixed_model_faults(study),
        *_precomputed_faults(study),
        *_column_faults(study),
        *_text_faults(study),
    ]
    if study.evaluation.zero_shot and not study.encoding():
        faults.append("evaluation.zero_shot: no method here has towers that encode prompts and images; set it to null")
    if verdict := study.tables.verdict:
        seeds = {name: method.seeds or study.seeds for name, method in study.methods.items()}
        compute = {name: method.training.compute() for name, method in study.methods.items()}
        if "zero_shot" in verdict.requires and study.evaluation.zero_shot is None:
            faults.append("tables.verdict.requires: zero_shot: evaluation.zero_shot names no labelled images")
        faults += verdict.faults(study.trained(), seeds, study.pairs(), study.evaluation.settings, compute)
    return list(dict.fromkeys(faults))


def _named_method_faults(study: Study) -> Iterator[str]:
    for where, name in (
        ("sanity.method", study.sanity and study.sanity.method),
        ("sweep.method", study.sweep and study.sweep.method),
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


def _training_faults(study: Study) -> Iterator[str]:
    """Parts that need a method that is trained: the over-fitting check, the sweep, the pre-training."""
    trained = study.trained()
    for where, keys in (("sanity", study.sanity), ("sweep", study.sweep)):
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
        seeds = method.seeds or study.seeds
        if method.fixed and len(seeds) > 1:
            yield (
                f"methods.{name}.fixed: a fixed model has one seed, but this has {len(seeds)}; set "
                f"methods.{name}.seeds: [{seeds[0]}], or remove fixed"
            )


def _precomputed_faults(study: Study) -> Iterator[str]:
    for name, method in study.methods.items():
        if method.model not in PRECOMPUTED_MODELS:
            continue
        if study.evaluation.cosine_gap:
            yield (
                f"evaluation.cosine_gap: gaps are computed on validation too, but methods.{name} has files for the "
                "test split alone; set it to false, or take the method out"
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


def _column_faults(study: Study) -> Iterator[str]:
    for column in study.tables.columns:
        direction = split_column(column)[0]
        if direction and direction not in study.evaluation.directions:
            yield f"tables.columns: {column!r}: {direction} is not among evaluation.directions"
        first = study.evaluation.directions[0]
        plain = " ".join(word for word in column.split() if word != first)
        if plain != column and plain in study.tables.columns:
            yield f"tables.columns: {column!r} and {plain!r} are the same column; keep one"

    primary = study.statistics.primary
    if primary and primary not in {split_column(column)[1] for column in study.tables.columns}:
        yield (
            f"statistics.primary: {primary} is the only metric with letters, but no column of tables.columns shows it; "
            "add the column or name another metric"
        )


def _text_faults(study: Study) -> Iterator[str]:
    if study.text.tokenizer != "miniclip" and study.text.max_vocabulary != DEFAULT_VOCABULARY_SIZE:
        yield f"text.max_vocabulary: tokenizer: {study.text.tokenizer} does not read it; remove the key"
    if study.text.tokenizer == "miniclip" and study.backbone.kind == "clip":
        yield "text.tokenizer: miniclip has no end token, which CLIP's text tower reads; use words"
