"""Study files (``config/studies/*.yaml``): methods, seeds, evaluation, statistics, tables."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import ValidationInfo, field_validator, model_validator

from rewind.study import brought, comparing
from rewind.study import keys as kinds
from rewind.study.backbone import Backbone
from rewind.study.evaluation import Evaluation
from rewind.study.keys import DRAFT, NAME, SEEDS, Keys, key, required
from rewind.study.report import Figures, Statistics, Tables
from rewind.study.rules import faults
from rewind.study.training import Training


class Frames(Keys):
    """Which frames of a clip the model sees."""

    max_frames: int = key(
        12, "Largest number of frames per clip; replaced by the sweep's choice if there is a sweep.", ge=1, le=512
    )
    sampling: Literal["uniform", "ends", "head", "tail", "stride"] = key(
        "uniform",
        "Which frames of a longer clip are used: `uniform` (the middles of equal parts), `ends` (evenly spaced from "
        "the first frame to the last), `head` (the first) or `tail` (the last). CLIP4Clip's `slice_framepos` 2, 0, 1 "
        "are `ends`, up to its rounding, which is not symmetric in time, `head` and `tail`. `stride` is ViCLIP's: "
        "every n-th frame from the first on; a shorter clip repeats frames.",
    )
    rate: float | None = key(
        None,
        "Frames per second that are read before `sampling` (CLIP4Clip's `feature_framerate`, 1); none: all frames.",
        ge=0.01,
        le=1000,
    )
    size: int = key(224, "Side of the square model input, in pixels.", ge=16, le=1024)
    fit: Literal["crop", "stretch"] = key(
        "crop",
        "How a frame becomes a square: `crop` (resize the short side, crop the centre; CLIP) or `stretch` (resize "
        "the whole frame without keeping its aspect ratio; ViCLIP).",
    )
    noise: bool = key(
        False, "A control: every clip is replaced by noise, always the same for an item; no clip is read."
    )
    workers: int = key(
        0, "Decoding processes beside each job that trains or encodes; 0 decodes in the job itself.", ge=0, le=256
    )
    store: bool = key(
        False,
        "Decode every clip once into memory-mapped shards (clips × frames × size² × 3 bytes on disk), from which "
        "all runs read. Use it when training from pixels, so that decoding does not keep a GPU waiting, or when each "
        "seed has a pre-training of its own, after which features are computed anew.",
    )
    keep_in_memory: bool = key(
        False, "Keep decoded frames in memory (small datasets only: clips × frames × size² × 3 bytes)."
    )


class Text(Keys):
    """How captions become tokens."""

    tokenizer: Literal["clip", "words", "miniclip"] = key(
        "clip",
        "`clip`: CLIP's byte-pair encoding. `words`: a vocabulary of the words in the training captions. "
        "`miniclip`: the same, but with MiniCLIP's way of splitting words and without start and end tokens (for "
        "`kind: miniclip_towers`).",
    )
    max_words: int = key(
        32,
        "Tokens per caption, including start and end; longer captions are cut, and the tables say how many.",
        ge=4,
        le=512,
    )
    max_vocabulary: int = key(
        kinds.VOCABULARY,
        "Token ids of `tokenizer: miniclip`, four of which are no words; the most frequent words of the training "
        "captions have one each, all others share one.",
        before=kinds.VOCABULARY,
        ge=8,
    )
    vocabulary: str | None = key(
        None,
        "File of captions whose words make the vocabulary of `tokenizer: miniclip` instead of those of the training "
        "captions, for weights that were trained with them: MiniCLIP's `captions.json`, or one caption a line.",
        before=None,
    )


class Method(Keys):
    """One row of the tables."""

    model: str = key(
        "clip4clip",
        "`clip4clip` (a backbone with a temporal head), `vectors` and `scores` (files that you bring, see "
        "docs/bring-your-model.md), `dual_encoder` (cosine of one vector per caption and clip, "
        "optionally with cross-attention within pairs during training), `miniclip` (`kind: miniclip_towers` without"
        " a head), `translator` (a map from caption vectors to item vectors), the baselines `ridge`, `pixels`, "
        "`chance`, `bow` and `zero_shot` (the study's backbone, or one of its own, before training), or the dotted "
        "path of your own class.",
    )
    head: str = key(
        "meanP",
        "Temporal head: meanP, seqLSTM, seqTransf, tightTransf, xpool, wti (docs/heads.md), or the dotted path of "
        "your own class. For a "
        "`translator`: linear, mlp1, mlp2, geometry_adapter, or the closed forms ridge and geometry.",
    )
    head_layers: int = key(4, "Number of transformer layers in the head (`cross_num_hidden_layers`).", ge=1, le=48)
    head_start: Literal["clip", "random"] = key(
        "clip",
        "Initial weights of transformer heads: `clip`, a copy of the first blocks of CLIP's text tower (as in "
        "CLIP4Clip), or `random`. Positions behind the tower's context start from random weights; a tower of another "
        "width, or of fewer blocks than the head, is refused.",
    )
    label: str = key("", "Name in tables and figures; the method's key if empty.")
    train: str = key("", "Text of the table's Train column; the dataset's title if empty.")
    options: dict[str, Any] = key({}, "Options of a head, of a model, or of a model or head of your own.")
    noise: bool = key(False, "A control: for this method every clip is replaced by noise (as `frames.noise`).")
    fixed: bool = key(
        False,
        "A single model that cannot be trained again, for example a checkpoint without its training recipe. Its "
        "intervals and tests generalise to other queries only. It has one seed. A model of your own that is `fixed` is "
        "scored as your `build` gives it, and needs no training split.",
    )
    seeds: list[int] | None = key(None, "Seeds of this method, if they differ from the study's.", min_length=1)
    training: Training = key(Training(), "Overrides of the study's `training` keys for this method.")

    @field_validator("seeds")
    @classmethod
    def _seeds(cls, seeds: list[int] | None) -> list[int] | None:
        return None if seeds is None else kinds.seeds(seeds)

    @model_validator(mode="before")
    @classmethod
    def _one_for_each_file(cls, given: Any) -> Any:
        """A model that is files has the seeds that it has files for."""
        if not isinstance(given, dict) or given.get("model") not in brought.BROUGHT:
            return given
        options = brought.read_back(given["model"], given.get("options", {}))
        seeds = given.get("seeds")
        return given | {"options": options, "seeds": brought.seeds(given["model"], options) if seeds is None else seeds}

    @property
    def baseline(self) -> bool:
        """Whether nothing in it learns by gradient descent."""
        closed = self.model in BASELINES or (self.model == "translator" and self.head in CLOSED_HEADS)
        return closed or self.scored_as_it_is

    @property
    def scored_as_it_is(self) -> bool:
        """See the function of this name."""
        return scored_as_it_is(self)


def scored_as_it_is(method: Method) -> bool:
    """Whether a method is a model of the user's own that cannot be trained again: nor is it here.

    A function, so that it counts as code of training; what keys say of themselves does not.
    """
    return method.fixed and "." in method.model


class Sanity(Keys):
    """The over-fitting check: a small subset must be learnt by heart before real runs start."""

    clips: int = key(200, "Number of training clips to over-fit (originals, one caption each).", ge=2, le=200)
    method: str = key("", "Method to use (one that is trained); the first such method if empty.")
    min_r1: float = key(
        0.9, "Training R@1 that must be reached, 0 to 1; with 0 it is reported but never fails.", ge=0, le=1
    )
    training: Training = key(Training(), "Overrides of the study's `training` keys for this check.")


class Sweep(Keys):
    """Choose `frames.max_frames` once, on validation, and use it for every method."""

    max_frames: list[int] = required("Values to try, from 1 to 512.", min_length=1)
    method: str = key("meanP", "Method to train with each value (one that is trained).")
    seed: int = key(0, "Seed of these runs.", **SEEDS)
    training: Training = key(Training(), "Overrides of that method's `training` keys for the trials.")

    @field_validator("max_frames")
    @classmethod
    def _numbers(cls, values: list[int]) -> list[int]:
        for value in values:
            if not 1 <= value <= 512:
                raise ValueError(f"{value} is not a number of frames from 1 to 512")
        return kinds.once(values)


class Pretraining(Keys):
    """Train the backbone first, on the training split, once for each seed (without pretrained weights)."""

    method: Method = key(Method(), "Method that is trained; its backbone is kept.")
    shared: bool = key(
        False,
        "Pre-train once for all runs. The spread over seeds then does not include the pre-training, so the captions"
        ' of all tables and figures say "given one pre-training".',
    )
    seed: int | None = key(
        None,
        "Seed of a `shared` pre-training, 0 if empty. Without `shared`, each run starts from the pre-training with "
        "its own seed.",
        **SEEDS,
    )
    threads: int | None = key(None, "CPU threads of a pre-training job; the study's if empty.", ge=1, le=512)
    max_frames: int | None = key(None, "Frames per clip while pre-training; the study's if empty.", ge=1, le=512)
    training: Training = key(Training(), "Overrides of the study's `training` keys.")


class Resources(Keys):
    """What one training job requests from the machine."""

    gpus: int = key(
        1,
        "GPUs per training job; without a GPU the job runs on the CPU and says so. Changing it trains and scores "
        "nothing again, and only renders tables and figures: every batch is the same on any number of GPUs "
        "(docs/cluster.md).",
        ge=0,
        le=64,
    )
    require_gpu: bool = key(False, "Refuse to train on the CPU, where a missing driver would cost days.")
    threads: int = key(1, "CPU threads per training job.", ge=1, le=512)
    feature_threads: int | None = key(
        None, "CPU threads of the job that computes a frozen tower's features; `threads` if empty.", ge=1, le=512
    )
    mem_mb: int = key(4000, "Memory per training job in MB, for schedulers.", ge=100)
    state_folder: str | None = key(
        None,
        "Where unfinished training keeps its state: a folder, or a URL such as `s3://bucket/folder`, which outlives "
        "the machine (docs/cluster.md). `results/<study>/.state` if empty. Changing it makes nothing stale.",
        before=None,
        min_length=1,
    )


RESERVED = ("data", "rehearsal")  # folders below results that are no study's


class Study(Keys):
    """One study file."""

    name: str = required("The file's name without `.yaml`; filled in by the reader.", pattern=NAME)
    title: str = key("", "Title of the report; the file's name if empty.")
    dataset: str = required("Name of a file in `config/datasets`.", pattern=NAME)
    backbone: Backbone = key(Backbone(), "The text and visual towers that all heads share.")
    frames: Frames = key(Frames(), "Which frames of a clip the model sees.")
    text: Text = key(Text(), "How captions become tokens.")
    pretraining: Pretraining | None = key(None, "Train the backbone first, if you have no pretrained weights.")
    training: Training = key(Training(), "How every method is trained.")
    methods: dict[str, Method] = required(
        "The methods, in the order of the tables' rows. Names consist of letters, digits, `-` and `_`.", min_length=1
    )
    seeds: list[int] = key([0, 1, 2], "Training seeds of all methods; only 0 if no method is trained.", min_length=1)
    sanity: Sanity | None = key(Sanity(), "The over-fitting check; `null` skips it. A study without training has none.")
    sweep: Sweep | None = key(
        None,
        "The sweep of `max_frames`; `null` skips it. Where values are added and the same one is chosen again, finished "
        "runs stay as they are.",
    )
    evaluation: Evaluation = key(Evaluation(), "Which queries search which gallery.")
    statistics: Statistics = key(Statistics(), "Intervals and comparisons.")
    tables: Tables = key(Tables(), "What the tables show.")
    figures: Figures = key(Figures(), "Figures.")
    resources: Resources = key(Resources(), "What one training job requests from the machine.")

    @field_validator("seeds")
    @classmethod
    def _seeds(cls, seeds: list[int]) -> list[int]:
        return kinds.seeds(seeds)

    @field_validator("name")
    @classmethod
    def _own_folder(cls, name: str) -> str:
        if name in RESERVED:
            raise ValueError(f"results/{name} is reserved for the workflow; give the study's file another name")
        return name

    @field_validator("methods")
    @classmethod
    def _names(cls, methods: dict[str, Method]) -> dict[str, Method]:
        if odd := [name for name in methods if not re.fullmatch(NAME, name)]:
            raise ValueError(
                f"{', '.join(map(repr, odd))}: a method's name also names its folders: use only letters, digits, - and "
                "_; `label` sets the name in tables"
            )
        return methods

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> Study:
        if not (info.context or {}).get(DRAFT) and (found := faults(self)):
            raise ValueError("\n".join(found))
        return self

    def runs(self) -> list[tuple[str, int]]:
        """Every (method, seed), in the order of the study file."""
        return [(name, seed) for name, method in self.methods.items() for seed in method.seeds or self.seeds]

    def pictured(self, method: str | None = None) -> tuple[str, int]:
        """Method and seed of the run that pictures of one run show: the first that is trained, if any is.

        With a ``method``, its own first run.
        """
        method = method or self.figures.method or next(iter(self.trained() or self.methods))
        return method, (self.methods[method].seeds or self.seeds)[0]

    def also_pictured(self) -> list[str]:
        """Methods of which there are pictures of their own beside those of the one run."""
        return [name for name in self.trained() if self.figures.every_method and name != self.pictured()[0]]

    def signature(self, **chosen: Any) -> dict[str, Any]:
        """The keys as plain values, without those on which no result depends."""
        return super().signature(**{"exclude": READING} | chosen)

    def pairs(self) -> list[tuple[str, str]]:
        """The declared family of comparisons; all pairs of compared methods where none is declared."""
        if self.statistics.pairs is not None:
            return list(self.statistics.pairs)
        names = comparing.compared(self)
        return [(a, b) for place, a in enumerate(names) for b in names[place + 1 :]]

    def run_spec(self, method: str, training: Training | None = None, seed: int | str | None = None) -> RunSpec:
        """Exactly the keys that one run depends on: what its rule passes as parameters.

        With other ``training`` keys than the method's it is a trial, of which no zero-shot accuracy is wanted. With a
        ``seed``, a model that brings files has those of this seed, and no key of towers, frames or training.
        """
        chosen, evaluation = brought.of_seed(self.methods[method], seed), self.evaluation
        if chosen.model in brought.BROUGHT and seed is not None:
            words = {"label": "", "train": ""}  # of tables alone
            chosen = chosen.model_copy(update={"training": Training(), "seeds": None, **words})
            alone = Evaluation(settings=evaluation.settings, pair_batch_size=brought.PAIRS)
            return RunSpec(backbone=Backbone(), frames=Frames(), text=Text(), evaluation=alone, method=chosen)
        if training is not None:
            chosen = chosen.model_copy(update={"training": training})
            evaluation = evaluation.model_copy(update={"zero_shot": None})
        frames = self.frames.model_copy(update={"noise": True}) if chosen.noise else self.frames
        return RunSpec(backbone=self.backbone, frames=frames, text=self.text, evaluation=evaluation, method=chosen)

    def encoding(self) -> list[str]:
        """Methods with towers, which encode any text and any picture, in order."""
        return [name for name, method in self.methods.items() if method.model not in TOWERLESS]

    def trained(self) -> list[str]:
        """Methods that learn by gradient descent, in order."""
        return [name for name, method in self.methods.items() if not method.baseline]


READING = {"frames": {"store", "workers", "keep_in_memory"}, "evaluation": {"cosine_gap"}}
"""Keys of how frames are read and of what is reported, on which no run depends."""


class RunSpec(Keys):
    """The slice of a study that one training run depends on."""

    backbone: Backbone
    frames: Frames
    text: Text
    evaluation: Evaluation
    method: Method

    def signature(self, **chosen: Any) -> dict[str, Any]:
        """The keys as plain values, without those on which no run depends."""
        apart = {"evaluation": READING["evaluation"] | {"item_to_text"}, "method": {"fixed"}}
        return super().signature(**{"exclude": READING | apart} | chosen)


TOWERLESS = ("ridge", "pixels", "chance", "bow", *brought.BROUGHT)
BASELINES = (*TOWERLESS, *comparing.MODELS)
CLOSED_HEADS = ("ridge", "geometry")  # of a translator
