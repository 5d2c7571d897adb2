"""Keys of a method's model: the backbone (text and visual towers), or precomputed embeddings and scores.

A method with ``model: vectors`` or ``model: scores`` names files, either one for all seeds or one for each seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import model_validator

from rewind.config.base import ConfigModel, config_field, read_options, required_field

if TYPE_CHECKING:
    from rewind.config.study import Method


# ---- The backbone: text and visual towers that all heads share -----------------------------------------------------


class Backbone(ConfigModel):
    """The text and visual towers that all heads share.

    >>> Backbone(pretrained="openai").architecture
    'ViT-B-32-quickgelu'
    """

    kind: str = config_field(
        "clip",
        "`clip` (open_clip), `viclip` (ViCLIP, which encodes all frames together), `towers` (packaged pretrained "
        "towers), `miniclip_towers` (an image network and a small text tower, for `model: miniclip`), `embeddings` "
        "(for a dataset of vectors), or the dotted path of your own class.",
    )
    architecture: str = config_field(
        "ViT-B-32-quickgelu",
        "`clip`: open_clip's model name, or a JSON file in open_clip's format. `miniclip_towers`: `resnet18` (with "
        "`weights` in torchvision's names, else random) or `efficientnet_lite0` (packaged ImageNet weights). "
        "`viclip`: `viclip-b`, `viclip-l`, or a JSON file of sizes.",
    )
    weights: str | None = config_field(
        None,
        "Local weights file: safetensors, a plain state dict, Hugging Face's CLIP, or a CLIP4Clip checkpoint "
        "(methods with the same head load its head too). `miniclip_towers`: torchvision's resnet18, or a checkpoint of "
        "MiniCLIP (docs/miniclip.md). None: random weights, and the table says so.",
    )
    pretrained: str | None = config_field(
        None, "open_clip's tag of published weights, downloaded once, instead of `weights`."
    )
    family: Literal["openai", "open_clip"] | None = config_field(
        None,
        "Origin of weights whose file does not show it: `openai` (trained with QuickGELU, as MetaCLIP's and DFN's "
        "are too) or `open_clip` (trained with GELU). Needed if open_clip has the architecture with both.",
    )
    allow_torchscript: bool = config_field(
        False,
        "Allow `weights` that are a TorchScript archive, as OpenAI's `.pt` files are. Opening one loads a program: "
        "only for files that you trust.",
    )
    patch: Literal["2d", "3d"] = config_field(
        "2d",
        "How `clip` cuts a clip into patches: `2d`, each frame alone, or `3d`, over a frame and both its neighbours"
        " (CLIP4Clip's `linear_patch`).",
    )
    token_mask: float = config_field(
        0.0,
        "`viclip`: share of a clip's patches that training drops at random (upstream 0.9); evaluation sees all "
        "patches.",
        ge=0,
        lt=1,
    )
    width: int = config_field(
        256,
        "`towers`, `miniclip_towers`, `embeddings`: width of the shared embedding space, to which trained "
        "projections map.",
        ge=8,
        le=4096,
    )
    text_width: int | None = config_field(None, "`embeddings`: required width of the caption vectors; none: any.", ge=1)
    item_width: int | None = config_field(None, "`embeddings`: required width of the item vectors; none: any.", ge=1)

    @model_validator(mode="after")
    def _one_source(self) -> Backbone:
        if self.weights and self.pretrained:
            raise ValueError("weights and pretrained: give one of the two")
        return self


# ---- Precomputed embeddings and scores: the files a method names, and for which seeds ------------------------------

PRECOMPUTED_MODELS = ("vectors", "scores")
"""Models that are files: nothing is trained or encoded, and the study's backbone is not used."""

PRECOMPUTED_PAIR_BATCH = 2**22
"""Pairs that such a model scores at once: a matrix product or a look-up, which takes tens of megabytes."""

FilePerSeed = str | dict[int, str]
"""A file, or one for each seed (seed → path)."""


class VectorOptions(ConfigModel):
    """Options of ``model: vectors``.

    >>> VectorOptions(captions="captions.npz", items="items.npz").score
    'cosine'
    """

    captions: FilePerSeed = required_field(
        "Vectors of captions, by caption id: .npz, .parquet, .safetensors, or .npy with ids."
    )
    items: FilePerSeed = required_field("Vectors of items, by item id; twins included.")
    score: Literal["cosine", "dot", "maxsim"] = config_field(
        "cosine",
        "How two vectors are compared; `maxsim` (late interaction) adds up, over the vectors of a caption, the largest "
        "dot product with a vector of the item.",
    )

    @model_validator(mode="after")
    def _same_seeds(self) -> VectorOptions:
        _check_same_seeds(captions=self.captions, items=self.items)
        return self


class ScoreOptions(ConfigModel):
    """Options of ``model: scores``.

    >>> ScoreOptions(file={0: "run0.npz", 1: "run1.npz"}).file[1]
    'run1.npz'
    """

    file: FilePerSeed = required_field("An npz with similarity, query_ids and item_ids, or a TREC run.")


OPTIONS_BY_MODEL: Mapping[str, type[ConfigModel]] = {"vectors": VectorOptions, "scores": ScoreOptions}
FILE_OPTIONS = {"vectors": ("captions", "items"), "scores": ("file",)}
"""Names of the options that are files, by model."""


def precomputed_options(method: Method) -> Any:
    """The checked options of a precomputed method: :class:`VectorOptions` or :class:`ScoreOptions`.

    Raises:
        RewindError: with the path of the first option that is unknown or has a wrong value.
    """
    return read_options(
        OPTIONS_BY_MODEL[method.model],
        without_encoder_options(method.options),
        "methods.*.options",
        f"model: {method.model}",
    )


def without_encoder_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of :class:`VectorOptions` alone, if there are also those of an encoder that makes the files.

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

    return {
        name: {number(seed): path for seed, path in value.items()}
        if name in FILE_OPTIONS[model] and isinstance(value, Mapping)
        else value
        for name, value in options.items()
    }


def seeds_with_files(model: str, options: Any) -> list[int]:
    """Seeds that the options have files for, sorted; ``[0]`` where they name single files, of one model.

    >>> seeds_with_files("scores", {"file": {3: "run3.npz", 1: "run1.npz"}})
    [1, 3]
    """
    values = [options.get(name) for name in FILE_OPTIONS[model]] if isinstance(options, Mapping) else []
    by_seed = [set(files) for files in values if isinstance(files, Mapping)]
    numbers = sorted({seed for files in by_seed for seed in files if isinstance(seed, int)})
    return numbers or [0]


def method_for_seed(method: Method, seed: int | str | None) -> Method:
    """A precomputed method with the files of one seed alone; any other method, and one without a seed, as it is."""
    if method.model not in PRECOMPUTED_MODELS or seed is None:
        return method
    options = {
        name: value[int(seed)] if name in FILE_OPTIONS[method.model] and isinstance(value, Mapping) else value
        for name, value in without_encoder_options(method.options).items()
    }
    return method.model_copy(update={"options": options})


def precomputed_files(method: Method, seed: int | str | None = None) -> list[str]:
    """Files that a run of a precomputed method reads, or without a seed those of all its runs; else none.

    With a ``.npy`` comes the file of its ids.
    """
    if method.model not in PRECOMPUTED_MODELS:
        return []
    values = [method_for_seed(method, seed).options.get(name) for name in FILE_OPTIONS[method.model]]
    every = [path for value in values for path in (value.values() if isinstance(value, Mapping) else [value])]
    paths = [str(path) for path in every if path]
    return list(dict.fromkeys([*paths, *(str(ids_file_of(path)) for path in paths if path.endswith(".npy"))]))


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
