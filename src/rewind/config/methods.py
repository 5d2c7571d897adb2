"""Keys of a method, and of its model: the backbone (text and visual towers), or precomputed embeddings and scores.

A method with ``model: vectors`` or ``model: scores`` names files, either one for all seeds or one for each seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import field_validator, model_validator

from rewind.config.base import ConfigModel, LabelText, config_field, read_options, require_valid_seeds, required_field
from rewind.config.encoders import Encoding, seeds_of_options
from rewind.config.training import Training
from rewind.registry import HEADS, MODELS

CLOSED_FORM_HEADS = ("ridge", "geometry")  # of a translator
CLIP_MAX_LOGIT_SCALE = 100.0
ENCODER_KEYS = ("encoder", "name", "revision", "encoder_options")
"""Keys of a backbone that is a model by name; the first two are needed."""


# ---- The backbone: text and visual towers that all heads share -----------------------------------------------------


class Backbone(ConfigModel, affects="run"):
    """The text and visual towers that all heads share.

    >>> Backbone(pretrained="openai").architecture
    'ViT-B-32-quickgelu'
    """

    kind: str = config_field(
        "clip",
        "`clip` (open_clip), `viclip` (ViCLIP, which encodes all frames together), `encoder` (a model by name, "
        "docs/encoders.md), `towers` (packaged pretrained "
        "towers), `miniclip_towers` (an image network and a small text tower, for `model: miniclip`), `embeddings` "
        "(for a dataset of vectors), or the dotted path of your own class.",
    )
    architecture: str = config_field(
        "ViT-B-32-quickgelu",
        "`clip`: open_clip's model name, or a JSON file in open_clip's format. `miniclip_towers`: `resnet18` (with "
        "`weights` in torchvision's names, else random) or `efficientnet_lite0` (packaged ImageNet weights). "
        "`viclip`: `viclip-b`, `viclip-l`, or a JSON file of sizes.",
        read_with={"kind": ["clip", "viclip", "miniclip_towers"]},
    )
    weights: str | None = config_field(
        None,
        "Local weights file: safetensors, a plain state dict, Hugging Face's CLIP, or a CLIP4Clip checkpoint "
        "(methods with the same head load its head too). `miniclip_towers`: torchvision's resnet18, or a checkpoint of "
        "MiniCLIP (docs/miniclip.md). None: random weights, and the table says so.",
        read_with={"kind": ["clip", "viclip", "miniclip_towers", "encoder"]},
    )
    pretrained: str | None = config_field(
        None,
        "open_clip's tag of published weights, downloaded once, instead of `weights`.",
        read_with={"kind": ["clip", "viclip", "miniclip_towers", "encoder"]},
    )
    family: Literal["openai", "open_clip"] | None = config_field(
        None,
        "Origin of weights whose file does not show it: `openai` (trained with QuickGELU, as MetaCLIP's and DFN's "
        "are too) or `open_clip` (trained with GELU). Needed if open_clip has the architecture with both.",
        read_with={"kind": ["clip"]},
    )
    allow_torchscript: bool = config_field(
        False,
        "Allow `weights` that are a TorchScript archive, as OpenAI's `.pt` files are. Opening one loads a program: "
        "only for files that you trust.",
        affects="nothing",
    )
    patch: Literal["2d", "3d"] = config_field(
        "2d",
        "How `clip` cuts a clip into patches: `2d`, each frame alone, or `3d`, over a frame and both its neighbours"
        " (CLIP4Clip's `linear_patch`).",
        read_with={"kind": ["clip", "viclip", "miniclip_towers", "encoder"]},
    )
    token_mask: float = config_field(
        0.0,
        "`viclip`: share of a clip's patches that training drops at random (upstream 0.9); evaluation sees all "
        "patches.",
        ge=0,
        lt=1,
        read_with={"kind": ["viclip", "encoder"]},
    )
    width: int = config_field(
        256,
        "`towers`, `miniclip_towers`, `embeddings`: width of the shared embedding space, to which trained "
        "projections map.",
        ge=8,
        le=4096,
        read_with={"kind": ["towers", "miniclip_towers", "embeddings"]},
    )
    text_width: int | None = config_field(
        None,
        "`embeddings`: required width of the caption vectors; none: any.",
        ge=1,
        affects="nothing",
        read_with={"kind": ["embeddings"]},
    )
    item_width: int | None = config_field(
        None,
        "`embeddings`: required width of the item vectors; none: any.",
        ge=1,
        affects="nothing",
        read_with={"kind": ["embeddings"]},
    )
    encoder: str | None = config_field(
        None,
        "`encoder`: what loads the model: `open_clip`, `transformers`, or the dotted path of a module of your own.",
        legacy_default=None,
        min_length=1,
    )
    name: str | None = config_field(
        None,
        "`encoder`: the model, as its encoder calls it: an architecture, a name on the hub, or a local folder.",
        legacy_default=None,
        min_length=1,
    )
    revision: str | None = config_field(
        None, "`encoder`: revision of a model on the hub.", legacy_default=None, min_length=1
    )
    encoder_options: dict[str, Any] = config_field(
        {}, "`encoder`: further options of the encoder, as for `model: vectors`.", legacy_default={}
    )

    @model_validator(mode="after")
    def _one_source(self) -> Backbone:
        if self.weights and self.pretrained:
            raise ValueError("weights and pretrained: give one of the two")
        return self

    @model_validator(mode="after")
    def _encoder_keys(self) -> Backbone:
        given = [name for name in ENCODER_KEYS if getattr(self, name)]
        if self.kind != "encoder" and given:
            raise ValueError(f"{given[0]} is a key of kind: encoder, and kind is {self.kind}; remove it")
        if self.kind != "encoder":
            return self
        if missing := [name for name in ENCODER_KEYS[:2] if name not in given]:
            raise ValueError(f"kind: encoder needs {missing[0]}: name what loads the model, and the model")
        if taken := [name for name in ("weights", "pretrained") if getattr(self, name)]:
            raise ValueError(f"{taken[0]}: the weights of kind: encoder are those of its name; remove the key")
        if self.patch != "2d" or self.token_mask:
            raise ValueError("patch and token_mask are keys of other kinds; remove them")
        return self

    def encoding(self) -> Encoding | None:
        """The model by name of ``kind: encoder``; None for other kinds.

        >>> Backbone(kind="encoder", encoder="transformers", name="models/siglip").encoding().title()
        'transformers models/siglip'
        """
        if self.kind != "encoder":
            return None
        return Encoding(**{name: getattr(self, name) for name in ENCODER_KEYS})

    @property
    def has_weights(self) -> bool:
        """Whether the towers start from weights that the study names."""
        return bool(self.weights or self.pretrained or self.kind == "encoder")


# ---- Precomputed embeddings and scores: the files a method names, and for which seeds ------------------------------

PRECOMPUTED_PAIR_BATCH = 2**22
"""Pairs that such a model scores at once: a matrix product or a look-up, which takes tens of megabytes."""

FilePerSeed = str | dict[int, str]
"""A file, or one for each seed (seed → path)."""


def _inverse_temperature(default: str) -> Any:
    return config_field(
        None,
        "What scores are multiplied by before a softmax, which `evaluation.transductive` needs to know: 1 for logits "
        f"of a loss with a softmax, 100 for cosines. None: {default}.",
        gt=0,
        affects="statistics",
        allow_inf_nan=False,
    )


class VectorOptions(ConfigModel, affects="run"):
    """Options of ``model: vectors``.

    >>> VectorOptions(captions="captions.npz", items="items.npz").score
    'cosine'
    """

    captions: FilePerSeed = required_field(
        "Vectors of captions, by caption id: .npz, .parquet, .csv, .safetensors, or .npy with ids."
    )
    items: FilePerSeed = required_field("Vectors of items, by item id; twins included.")
    score: Literal["cosine", "dot", "maxsim"] = config_field(
        "cosine",
        "How two vectors are compared; `maxsim` (late interaction) adds up, over the vectors of a caption, the largest "
        "dot product with a vector of the item.",
    )
    inverse_temperature: float | None = _inverse_temperature("100 for cosines, which have one")

    @model_validator(mode="after")
    def _same_seeds(self) -> VectorOptions:
        _check_same_seeds(captions=self.captions, items=self.items)
        return self


class ScoreOptions(ConfigModel, affects="run"):
    """Options of ``model: scores``.

    >>> ScoreOptions(file={0: "run0.npz", 1: "run1.npz"}).file[1]
    'run1.npz'
    """

    file: FilePerSeed = required_field("An npz with similarity, query_ids and item_ids, or a TREC run.")
    inverse_temperature: float | None = _inverse_temperature("none")
    higher_is_better: bool = config_field(
        True, "Whether large scores are best; false for distances. `-inf` represents a pair without a score either way."
    )


OPTIONS_BY_MODEL: Mapping[str, type[ConfigModel]] = {"vectors": VectorOptions, "scores": ScoreOptions}
FILE_OPTIONS = {"vectors": ("captions", "items"), "scores": ("file",)}
"""Names of the options that are files, by model."""


def _without_encoder_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Only the options of :class:`VectorOptions`, if there are also those of an encoder that makes the files.

    See :mod:`rewind.config.encoders`; without an encoder, all options stay, so that unknown ones are reported.
    """
    has_encoder = "encoder" in options
    return {name: value for name, value in options.items() if not has_encoder or name in VectorOptions.model_fields}


def restore_seed_numbers(model: str, options: Any) -> Any:
    """Options whose seeds are numbers again: rules pass keys to jobs as JSON, in which all keys are text.

    >>> restore_seed_numbers("scores", {"file": {"0": "run0.npz"}})
    {'file': {0: 'run0.npz'}}
    """
    if not isinstance(options, Mapping):
        return options

    def number(seed: Any) -> Any:
        return int(seed) if isinstance(seed, str) and seed.isdecimal() else seed

    def restored(value: Any) -> Any:
        return {number(seed): of_seed for seed, of_seed in value.items()} if isinstance(value, Mapping) else value

    further = options.get("encoder_options")
    numbered = {name: restored(value) for name, value in options.items() if name in FILE_OPTIONS[model]}
    if isinstance(further, Mapping):
        numbered["encoder_options"] = {name: restored(value) for name, value in further.items()}
    return {**options, **numbered}


def seeds_with_files(model: str, options: Any) -> list[int]:
    """Seeds that the options have files for, or options of an encoder, sorted; ``[0]`` where they are for one model.

    >>> seeds_with_files("scores", {"file": {3: "run3.npz", 1: "run1.npz"}})
    [1, 3]
    """
    values = [options.get(name) for name in FILE_OPTIONS[model]] if isinstance(options, Mapping) else []
    by_seed = [set(files) for files in values if isinstance(files, Mapping)]
    further = options.get("encoder_options") if isinstance(options, Mapping) else None
    by_seed += map(set, seeds_of_options(further).values()) if isinstance(further, Mapping) else []
    numbers = sorted({seed for files in by_seed for seed in files if isinstance(seed, int)})
    return numbers or [0]


def ids_file_of(path: str | Path) -> Path:
    """The file with the ids of a ``.npy`` of vectors: the same name with ``.json`` if that exists, else ``.txt``.

    >>> ids_file_of("results/captions.npy").as_posix()
    'results/captions.txt'
    """
    json_file = Path(path).with_suffix(".json")
    return json_file if json_file.is_file() else Path(path).with_suffix(".txt")


def _check_same_seeds(**options: FilePerSeed) -> None:
    """Refuse options with files for different seeds; a single file serves every seed."""
    by_seed = {name: set(files) for name, files in options.items() if isinstance(files, Mapping)}
    for name, seeds in by_seed.items():
        first, first_seeds = next(iter(by_seed.items()))
        if seeds != first_seeds:
            missing = min(seeds ^ first_seeds)
            lacking = name if missing in first_seeds else first
            raise ValueError(f"{lacking} names no file for seed {missing}: name one for each seed, or one for all")


# ---- The method ----------------------------------------------------------------------------------------------------


class Rerank(ConfigModel, affects="scores"):
    """The first of two stages: the method whose first results are scored again.

    >>> Rerank(first="meanP").top
    100
    """

    first: str = required_field("Name of the method that searches first; its run of the same seed, or its only one.")
    top: int = config_field(
        100, "Results of each query that are scored, with those that tie with the last of them.", ge=2
    )
    binary_only: bool = config_field(
        False,
        "Score only the two pairs of each query of Binary, and no first results: for a model that takes long over a "
        "pair. Other settings are not evaluated.",
        legacy_default=False,
    )


class Method(ConfigModel, affects="run"):
    """One row of the tables.

    >>> Method(model="ridge").baseline, Method(head="seqTransf").baseline
    (True, False)
    >>> Method(model="scores", options={"file": {1: "run1.npz", 2: "run2.npz"}}).seeds
    [1, 2]
    """

    model: str = config_field(
        "clip4clip",
        "`clip4clip` (a backbone with a temporal head), `vectors` and `scores` (files that you provide, "
        "see docs/bring-your-model.md), `dual_encoder` (cosine of one vector per caption and clip, "
        "optionally with cross-attention within pairs during training), `miniclip` (`kind: miniclip_towers` without"
        " a head), `translator` (a map from caption vectors to item vectors), the baselines `ridge`, `pixels`, "
        "`chance`, `bow` and `zero_shot` (the study's backbone, or one of its own, before training), the baselines of "
        "Binary `caption_only`, `clip_only`, `blind_product`, `single_frame` (docs/probes.md) and `artefacts_only` "
        "(docs/artefacts.md), or the dotted path of your own class.",
    )
    head: str = config_field(
        "meanP",
        "Temporal head: meanP, projection, seqLSTM, seqTransf, tightTransf, xpool, wti (docs/heads.md), or the dotted "
        "path of your own class. For a `translator`: linear, mlp1, mlp2, geometry_adapter, or the closed forms ridge "
        "and geometry.",
        read_with={"model": ["clip4clip", "translator"]},
    )
    head_layers: int = config_field(
        4,
        "Number of transformer layers in the head (`cross_num_hidden_layers`).",
        ge=1,
        le=48,
        read_with={"model": ["clip4clip"], "head": HEADS.tagged("transformer")},
    )
    head_start: Literal["clip", "random"] = config_field(
        "clip",
        "Initial weights of transformer heads: `clip`, a copy of the first blocks of CLIP's text tower (as in "
        "CLIP4Clip), or `random`. Positions behind the tower's context start from random weights; a tower of another "
        "width, or of fewer blocks than the head, is refused.",
        read_with={"model": ["clip4clip"], "head": HEADS.tagged("transformer")},
    )
    label: LabelText = config_field("", "Name in tables and figures; the method's key if empty.", affects="report")
    train: LabelText = config_field(
        "", "Text of the table's Train column; the dataset's title if empty.", affects="report"
    )
    options: dict[str, Any] = config_field({}, "Options of a head, of a model, or of a model or head of your own.")
    noise: bool = config_field(False, "A control: for this method every clip is replaced by noise (as `frames.noise`).")
    rerank: Rerank | None = config_field(
        None,
        "Score only the first results of another, cheaper method (docs/heads.md): of a large test split, a head that "
        "looks at pairs cannot score all of them. `{first: meanP, top: 100}`. Training is the same.",
        legacy_default=None,
        affects="scores",
    )
    fixed: bool = config_field(
        False,
        "A single model that cannot be trained again, for example a checkpoint without its training recipe. Its "
        "intervals and tests generalise to other queries only. It has one seed. A model of your own that is `fixed` is "
        "scored as your `build` gives it, and needs no training split.",
        affects="statistics",
    )
    seeds: list[int] | None = config_field(
        None, "Seeds of this method, if they differ from the study's.", min_length=1, affects="statistics"
    )
    training: Training = config_field(Training(), "Overrides of the study's `training` keys for this method.")

    @field_validator("seeds")
    @classmethod
    def _seeds(cls, seeds: list[int] | None) -> list[int] | None:
        return None if seeds is None else require_valid_seeds(seeds)

    @model_validator(mode="before")
    @classmethod
    def _seeds_of_files(cls, keys: Any) -> Any:
        """The seeds of a precomputed method are those that it has files for, unless the study gives others."""
        if not isinstance(keys, dict) or keys.get("model") not in MODELS.tagged("files"):
            return keys
        options = restore_seed_numbers(keys["model"], keys.get("options", {}))
        seeds = keys.get("seeds")
        return keys | {
            "options": options,
            "seeds": seeds_with_files(keys["model"], options) if seeds is None else seeds,
        }

    @property
    def precomputed(self) -> bool:
        """Whether the method is files: vectors or scores that the user brings, or that are made by name."""
        return self.model in MODELS.tagged("files")

    @property
    def by_name(self) -> bool:
        """Whether the method names an encoder, which makes its vectors."""
        return self.model == "vectors" and "encoder" in self.options

    @property
    def brought_per_seed(self) -> bool:
        """Whether the method is files, or options of a model by name, of several seeds."""
        return self.precomputed and len(self.seeds or []) > 1

    def why_not_probed(self, probe: str) -> str:
        """Why files cannot be asked a probe of ``evaluation.probes``; empty for one that they can be asked.

        Vectors of an encoder may turn out to be scores of pairs once they are made: such a run has no rows then.

        >>> Method(model="scores", options={"file": "mine.npz"}).why_not_probed("geometry")
        'scores have no vectors'
        """
        if self.rerank:
            return "a method that scores the first results of another one alone has no matrix"
        if self.model == "scores" and probe in ("foils", "direction", "geometry"):
            return "scores of foils are in no file of scores" if probe == "foils" else "scores have no vectors"
        score = self.options.get("score", "cosine")
        if self.model == "vectors" and probe in ("direction", "geometry") and score != "cosine":
            return f"vectors with score: {score} are not compared by cosine"
        return ""

    @property
    def inverse_temperature(self) -> float | None:
        """What scores are multiplied by before a softmax: 1 for logits, CLIP's for cosines; None: not known.

        It is not known for scores from files, nor for a model by name, which may turn out to score pairs by logits.

        >>> Method(model="vectors").inverse_temperature, Method(head="meanP").inverse_temperature
        (100.0, 1.0)
        >>> Method(model="scores", options={"file": "mine.npz"}).inverse_temperature is None
        True
        """
        if self.precomputed and self.options.get("inverse_temperature") is not None:
            return self.options["inverse_temperature"]
        if self.model == "scores" or (
            self.model == "vectors" and ("encoder" in self.options or self.options.get("score", "cosine") != "cosine")
        ):
            return None
        return CLIP_MAX_LOGIT_SCALE if self.model in MODELS.tagged("cosines") else 1.0

    @property
    def zero_shot(self) -> bool:
        """Whether it is a built-in model that is scored without training."""
        return self.model in MODELS.tagged("as it is")

    @property
    def needs_no_backbone(self) -> bool:
        """Whether its model never uses the study's backbone."""
        return self.model in MODELS.tagged("no backbone")

    @property
    def scored_as_it_is(self) -> bool:
        """Whether the method is a fixed model of the user's own, which is scored without training."""
        return self.fixed and "." in self.model

    @property
    def blind(self) -> bool:
        """Whether it is a baseline that sees too little to answer Binary (:mod:`rewind.models.blind`)."""
        return self.model in MODELS.tagged("blind")

    @property
    def reads_traces(self) -> bool:
        """Whether it sees traces of clips (:mod:`rewind.video.traces`) in the place of their frames."""
        return self.model in MODELS.tagged("traces")

    @property
    def baseline(self) -> bool:
        """Whether nothing in the method learns by gradient descent."""
        closed_form = self.model == "translator" and self.head in CLOSED_FORM_HEADS
        return closed_form or not self.has_towers or self.zero_shot or self.scored_as_it_is

    @property
    def has_towers(self) -> bool:
        """Whether the method can encode a text or picture of one's own."""
        return self.model not in MODELS.tagged("no towers")

    @property
    def own_backbone(self) -> Any:
        """Keys of a backbone that the method has instead of the study's; None: it uses the study's."""
        if self.model == "clip_zero_shot":  # zero_shot, by its name in earlier versions
            return self.options | {"kind": "clip"}
        return self.options.get("backbone")

    @property
    def uses_study_backbone(self) -> bool:
        """Whether the method starts from the study's backbone, and so from its pre-training."""
        return not self.needs_no_backbone and self.own_backbone is None

    def precomputed_options(self) -> Any:
        """The checked options of a precomputed method: :class:`VectorOptions` or :class:`ScoreOptions`."""
        options = _without_encoder_options(self.options)
        return read_options(OPTIONS_BY_MODEL[self.model], options, "methods.*.options", f"model: {self.model}")

    def precomputed_files(self, seed: int | str | None = None) -> list[str]:
        """Files that a run of a precomputed method reads, or without a seed those of all its runs; else none.

        A ``.npy`` is listed with the file of its ids.

        >>> Method(model="scores", options={"file": {1: "run1.npz", 2: "run2.npz"}}).precomputed_files(seed=2)
        ['run2.npz']
        """
        if not self.precomputed:
            return []
        values = [self.for_seed(seed).options.get(name) for name in FILE_OPTIONS[self.model]]
        every = [path for value in values for path in (value.values() if isinstance(value, Mapping) else [value])]
        paths = [str(path) for path in every if path]
        return list(dict.fromkeys([*paths, *(str(ids_file_of(path)) for path in paths if path.endswith(".npy"))]))

    def for_seed(self, seed: int | str | None) -> Method:
        """A precomputed method with the files of one seed alone; any other method, and one without a seed, as it is."""
        if not self.precomputed or seed is None:
            return self
        options = {
            name: value[int(seed)] if name in FILE_OPTIONS[self.model] and isinstance(value, Mapping) else value
            for name, value in _without_encoder_options(self.options).items()
        }
        return self.model_copy(update={"options": options})
