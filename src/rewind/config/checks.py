"""Checks of a study against its dataset: faults that follow from the keys of both files.

:func:`study_dataset_faults` collects them. Faults within the study file alone are found in :mod:`rewind.config.study`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rewind.config import Dataset, Method, RTimeSource, RunSpec, ShapesSource, Study, Training
from rewind.config.dataset import EmojiSource, InternvidSource, Split
from rewind.config.methods import PRECOMPUTED_MODELS
from rewind.config.pretraining import MODELS_WITHOUT_BACKBONE, own_backbone

TWIN_SETTINGS = ("origin", "hard", "binary")
"""Evaluation settings that need a clip's time-reversed twin."""

NOISE_FAULT = (
    "cached features and a dataset's vectors come from the clips themselves; remove visual from training.freeze, or "
    "noise from the method"
)
CACHED_FEATURES_FAULT = "a closed-form baseline needs cached features: set training.freeze: [visual]"


def study_dataset_faults(study: Study, dataset: Dataset) -> list[str]:
    """Every fault as ``key: what is wrong; what to do``; none if the study can run on the dataset."""
    faults = [
        *_twin_faults(study, dataset),
        *_split_faults(study, dataset),
        *_vector_faults(study, dataset),
        *_clip_faults(study, dataset),
        *_input_faults(study, dataset),
        *_pretraining_faults(study),
        *_gpu_share_faults(study),
    ]
    return list(dict.fromkeys(faults))  # several methods may share one fault


@dataclass(frozen=True)
class TrainingBlock:
    """One ``training`` block of a study, with what is trained by it.

    Attributes:
        where: path of the block that contains ``training``, for example ``methods.meanP``.
        method: the method that is trained.
        training: its training keys.
    """

    where: str
    method: Method
    training: Training

    def path(self, study: Study, key: str) -> str:
        """Path of a training key for messages: in the study's own block if the value is inherited from there."""
        own, inherited = (_nested_value(block, key) for block in (self.training, study.training))
        return f"training.{key}" if own == inherited else f"{self.where}.training.{key}"


def training_blocks(study: Study) -> list[TrainingBlock]:
    """Everything that a study trains: its methods, the over-fitting check, the sweep, the pre-training."""
    trained = study.trained()
    blocks = [TrainingBlock(f"methods.{name}", study.methods[name], study.methods[name].training) for name in trained]
    for where, keys in (("sanity", study.sanity), ("sweep", study.sweep)):
        name = keys and (keys.method or next(iter(trained), ""))
        if keys and name in trained:
            blocks.append(TrainingBlock(where, study.methods[name], keys.training))
    if study.pretraining:
        blocks.append(TrainingBlock("pretraining", study.pretraining.method, study.pretraining.training))
    return blocks


def _nested_value(block: Any, path: str) -> Any:
    for name in path.split("."):
        block = getattr(block, name, None)
    return block


def why_no_twins(dataset: Dataset) -> str:
    """Why a dataset can have no time-reversed twins, as the end of a sentence; empty where it may have some."""
    if dataset.vectors:
        return "holds vectors"
    if dataset.items == "images":
        return "holds images"
    if isinstance(dataset.source, EmojiSource | InternvidSource):
        return f"(format: {dataset.source.format}) has no reverse captions"
    return "" if dataset.reverse else "says reverse: false"


def _twin_faults(study: Study, dataset: Dataset) -> Iterator[str]:
    why = why_no_twins(dataset)
    if not why:
        return
    reason = f"needs time-reversed twins, but config/datasets/{dataset.name}.yaml {why}"
    for setting in study.evaluation.settings:
        if setting in TWIN_SETTINGS:
            yield f"evaluation.settings: {setting!r} {reason}; use [test]"
    for block in training_blocks(study):
        # The over-fitting check looks at training R@1 alone.
        if block.where != "sanity" and block.training.select_setting in TWIN_SETTINGS:
            select_setting = block.training.select_setting
            yield f"{block.path(study, 'select_setting')}: {select_setting!r} {reason}; use test or auto"
        if block.training.batch.twins_together:
            yield f"{block.path(study, 'batch.twins_together')}: true {reason}; set it to false"


def needed_splits(study: Study) -> dict[Split, str]:
    """Split → the first reason for which the study needs it, in words."""
    needed: dict[Split, str] = {}
    for name in study.methods:
        for split, who in splits_needed_by_run(study.run_spec(name), f"method {name}").items():
            needed.setdefault(split, who)
    if study.pretraining:
        needed.setdefault("train", "pretraining learns from it")
        needed.setdefault("valid", "pretraining learns from it")
    if study.evaluation.cosine_gap:
        needed.setdefault("valid", "evaluation.cosine_gap is computed on it too")
    return needed


def splits_needed_by_run(spec: RunSpec, who: str) -> dict[Split, str]:
    """Split → why a run needs it, in words that begin with ``who``, the name of the run."""
    method = spec.method
    reasons: dict[Split, str] = {"test": f"{who} is evaluated on it"}
    if not method.baseline:
        return reasons | {"train": f"{who} learns from it", "valid": f"{who} chooses its checkpoint on it"}
    if method.model in ("ridge", "pixels", "translator"):
        return reasons | {"train": f"{who} is fitted on it", "valid": f"{who} chooses its strength on it"}
    own_text = method.options.get("text")
    tokenizer = own_text.get("tokenizer", "clip") if isinstance(own_text, dict) else spec.text.tokenizer
    if method.model == "zero_shot" and tokenizer != "clip" and spec.backbone.kind != "towers":
        reasons["train"] = f"{who} has its vocabulary from it (text.tokenizer: {tokenizer})"
    return reasons


def _split_faults(study: Study, dataset: Dataset) -> Iterator[str]:
    source = dataset.source
    where = f"config/datasets/{dataset.name}.yaml"
    for split, who in needed_splits(study).items():
        if isinstance(source, ShapesSource) and not source.clips.get(split):
            yield f"dataset: {where}: source.clips.{split} is 0 or missing, but {who}: set a number of clips"
        if isinstance(source, RTimeSource) and split not in source.annotations:
            yield f"dataset: {where}: source.annotations.{split} is missing, but {who}: name its JSON file"


def _vector_faults(study: Study, dataset: Dataset) -> Iterator[str]:
    kind = study.backbone.kind
    if not dataset.vectors:
        return
    where = f"config/datasets/{dataset.name}.yaml holds vectors"
    if (
        kind != "embeddings"
        and "." not in kind
        and any(m.model not in MODELS_WITHOUT_BACKBONE for m in study.methods.values())
    ):
        yield f"backbone.kind: {kind} reads clips or images, but {where}; set kind: embeddings"
    if study.evaluation.zero_shot:
        yield f"evaluation.zero_shot: prompts and pictures need towers, but {where}; remove the key"
    for name, method in study.methods.items():
        if own_backbone(method) is not None:
            yield f"methods.{name}.model: {method.model} with towers of its own reads clips or images, but {where}"


def _clip_faults(study: Study, dataset: Dataset) -> Iterator[str]:
    if dataset.clips or dataset.vectors:
        return
    for name, method in study.methods.items():
        encoder = method.options.get("encoder")
        if encoder or method.model == "pixels" or method.model not in MODELS_WITHOUT_BACKBONE:
            what = f"options.encoder: {encoder}" if encoder else f"model: {method.model}"
            yield (
                f"methods.{name}.{what} looks at clips, but config/datasets/{dataset.name}.yaml says clips: false; set "
                "it to true, or bring vectors or scores (model: vectors, model: scores)"
            )


def _input_faults(study: Study, dataset: Dataset) -> Iterator[str]:
    """Faults in what a method reads: clips, cached features (computed once by a frozen tower), or vectors."""
    for name, method in study.methods.items():
        cached = dataset.vectors or "visual" in method.training.freeze
        if cached and (method.noise or study.frames.noise) and method.model not in ("bow", *PRECOMPUTED_MODELS):
            yield f"{f'methods.{name}.noise' if method.noise else 'frames.noise'}: {NOISE_FAULT}"
        closed_form = method.model == "ridge" or (method.model == "translator" and method.baseline)
        if closed_form and not cached:
            yield f"methods.{name}.training.freeze: {CACHED_FEATURES_FAULT}"


def _pretraining_faults(study: Study) -> Iterator[str]:
    kind = study.backbone.kind
    if study.pretraining and kind in ("towers", "miniclip_towers", "embeddings"):
        yield f"pretraining: kind: {kind} cannot start from a backbone that was pre-trained here; set pretraining: null"


def _gpu_share_faults(study: Study) -> Iterator[str]:
    """Batch sizes that the GPUs of a job cannot share equally."""
    gpus = study.resources.gpus
    for block in training_blocks(study):
        size = block.training.batch.size
        if gpus > 1 and size % gpus:
            yield (
                f"{block.path(study, 'batch.size')}: {size} pairs cannot be divided equally among resources.gpus: "
                f"{gpus}; use a multiple, or fewer GPUs"
            )
