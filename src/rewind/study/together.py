"""What a study asks of its data set: every fault that the keys of both files already decide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rewind.study import Dataset, Method, RTimeSource, RunSpec, ShapesSource, Study, Training
from rewind.study.brought import BROUGHT
from rewind.study.dataset import EmojiSource, InternvidSource
from rewind.study.pretraining import ELSEWHERE, own_backbone

TWINS = ("origin", "hard", "binary")
"""Settings that are about a clip and its time-reversed twin."""

NOISE = (
    "cached features and a dataset's vectors come from the clips themselves; remove visual from training.freeze, or "
    "noise from the method"
)
FEATURES = "a closed-form baseline needs cached features: set training.freeze: [visual]"


def faults(study: Study, dataset: Dataset) -> list[str]:
    """Every fault as ``key: what is wrong; what to do``; none for a study that its data set can serve."""
    found = [
        *_twins(study, dataset),
        *_splits(study, dataset),
        *_vectors(study, dataset),
        *_clips(study, dataset),
        *_inputs(study, dataset),
    ]
    return list(dict.fromkeys([*found, *_pretraining(study), *_shares(study)]))


@dataclass(frozen=True)
class Block:
    """A block of ``training`` keys that something is trained with.

    Attributes:
        where: path of the block that holds ``training``, for example ``methods.meanP``.
        method: what is trained.
        training: with these keys.
    """

    where: str
    method: Method
    training: Training

    def path(self, study: Study, key: str) -> str:
        """Path of a training key in the file: the study's own block where its value is that."""
        mine, whole = (_value(keys, key) for keys in (self.training, study.training))
        return f"training.{key}" if mine == whole else f"{self.where}.training.{key}"


def _value(keys: Any, path: str) -> Any:
    for name in path.split("."):
        keys = getattr(keys, name, None)
    return keys


def blocks(study: Study) -> list[Block]:
    """Everything that a study trains: its methods, the over-fitting check, the sweep, the pre-training."""
    trained = study.trained()
    found = [Block(f"methods.{name}", study.methods[name], study.methods[name].training) for name in trained]
    for where, keys in (("sanity", study.sanity), ("sweep", study.sweep)):
        name = keys and (keys.method or next(iter(trained), ""))
        if name in trained:
            found.append(Block(where, study.methods[name], keys.training))
    if study.pretraining:
        found.append(Block("pretraining", study.pretraining.method, study.pretraining.training))
    return found


def without_twins(dataset: Dataset) -> str:
    """Why a data set can have no twins; empty where it may have some."""
    if dataset.vectors:
        return "holds vectors"
    if dataset.items == "images":
        return "holds images"
    if isinstance(dataset.source, EmojiSource | InternvidSource):
        return f"(format: {dataset.source.format}) has no reverse captions"
    return "" if dataset.reverse else "says reverse: false"


def _twins(study: Study, dataset: Dataset) -> Iterator[str]:
    why = without_twins(dataset)
    if not why:
        return
    reason = f"needs time-reversed twins, but config/datasets/{dataset.name}.yaml {why}"
    for setting in study.evaluation.settings:
        if setting in TWINS:
            yield f"evaluation.settings: {setting!r} {reason}; use [test]"
    for block in blocks(study):
        if block.where != "sanity" and block.training.select_setting in TWINS:
            chosen = block.training.select_setting
            yield f"{block.path(study, 'select_setting')}: {chosen!r} {reason}; use test or auto"
        if block.training.batch.twins_together:
            yield f"{block.path(study, 'batch.twins_together')}: true {reason}; set it to false"


def needed_splits(study: Study) -> dict[str, str]:
    """Split → who needs it."""
    needed: dict[str, str] = {}
    for name in study.methods:
        for split, who in needs(study.run_spec(name), f"method {name}").items():
            needed.setdefault(split, who)
    if study.pretraining:
        for split in ("train", "valid"):
            needed.setdefault(split, "pretraining learns from it")
    if study.evaluation.cosine_gap:
        needed.setdefault("valid", "evaluation.cosine_gap is computed on it too")
    return needed


def needs(spec: RunSpec, who: str) -> dict[str, str]:
    """Split → why a run needs it, in words; ``who`` is the run."""
    method = spec.method
    found = {"test": f"{who} is evaluated on it"}
    if not method.baseline:
        return found | {"train": f"{who} learns from it", "valid": f"{who} chooses its checkpoint on it"}
    if method.model in ("ridge", "pixels", "translator"):
        return found | {"train": f"{who} is fitted on it", "valid": f"{who} chooses its strength on it"}
    own = method.options.get("text")
    tokenizer = own.get("tokenizer", "clip") if isinstance(own, dict) else spec.text.tokenizer
    if method.model == "zero_shot" and tokenizer != "clip" and spec.backbone.kind != "towers":
        found["train"] = f"{who} has its vocabulary from it (text.tokenizer: {tokenizer})"
    return found


def _splits(study: Study, dataset: Dataset) -> Iterator[str]:
    source = dataset.source
    where = f"config/datasets/{dataset.name}.yaml"
    for split, who in needed_splits(study).items():
        if isinstance(source, ShapesSource) and not source.clips.get(split):
            yield f"dataset: {where}: source.clips.{split} is 0 or missing, but {who}: set a number of clips"
        if isinstance(source, RTimeSource) and split not in source.annotations:
            yield f"dataset: {where}: source.annotations.{split} is missing, but {who}: name its JSON file"


def _vectors(study: Study, dataset: Dataset) -> Iterator[str]:
    kind = study.backbone.kind
    if not dataset.vectors:
        return
    where = f"config/datasets/{dataset.name}.yaml holds vectors"
    if kind != "embeddings" and "." not in kind and any(m.model not in ELSEWHERE for m in study.methods.values()):
        yield f"backbone.kind: {kind} reads clips or images, but {where}; set kind: embeddings"
    if study.evaluation.zero_shot:
        yield f"evaluation.zero_shot: prompts and pictures need towers, but {where}; remove the key"
    for name, method in study.methods.items():
        if own_backbone(method) is not None:
            yield f"methods.{name}.model: {method.model} with towers of its own reads clips or images, but {where}"


def _clips(study: Study, dataset: Dataset) -> Iterator[str]:
    if dataset.clips or dataset.vectors:
        return
    for name, method in study.methods.items():
        encoder = method.options.get("encoder")
        if encoder or method.model == "pixels" or method.model not in ELSEWHERE:
            what = f"options.encoder: {encoder}" if encoder else f"model: {method.model}"
            yield (
                f"methods.{name}.{what} looks at clips, but config/datasets/{dataset.name}.yaml says clips: false; set "
                "it to true, or bring vectors or scores (model: vectors, model: scores)"
            )


def _inputs(study: Study, dataset: Dataset) -> Iterator[str]:
    """What a method reads: clips, features that are computed once, vectors."""
    for name, method in study.methods.items():
        cached = dataset.vectors or "visual" in method.training.freeze
        if cached and (method.noise or study.frames.noise) and method.model not in ("bow", *BROUGHT):
            yield f"{f'methods.{name}.noise' if method.noise else 'frames.noise'}: {NOISE}"
        closed = method.model == "ridge" or (method.model == "translator" and method.baseline)
        if closed and not cached:
            yield f"methods.{name}.training.freeze: {FEATURES}"


def _pretraining(study: Study) -> Iterator[str]:
    kind = study.backbone.kind
    if study.pretraining and kind in ("towers", "miniclip_towers", "embeddings"):
        yield f"pretraining: kind: {kind} cannot start from a backbone that was pre-trained here; set pretraining: null"


def _shares(study: Study) -> Iterator[str]:
    """The global batch is shared equally by the GPUs of a job."""
    gpus = study.resources.gpus
    for block in blocks(study):
        size = block.training.batch.size
        if gpus > 1 and size % gpus:
            yield (
                f"{block.path(study, 'batch.size')}: {size} pairs cannot be divided equally among resources.gpus: "
                f"{gpus}; use a multiple, or fewer GPUs"
            )
