"""Checks of a study against its dataset: faults that follow from the keys of both files.

:func:`study_dataset_faults` collects them. Faults within the study file alone are found in :mod:`rewind.config.study`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewind.config.dataset import FORMATS_WITH_ANSWERS, Dataset, FieldSource, RTimeSource, ShapesSource
from rewind.config.evaluation import TWIN_SETTINGS
from rewind.config.methods import MODELS_WITHOUT_BACKBONE
from rewind.config.study import Study
from rewind.config.training import TWINS

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
        *_probe_faults(study, dataset),
        *_vector_faults(study, dataset),
        *_clip_faults(study, dataset),
        *_input_faults(study, dataset),
        *_pretraining_faults(study),
        *_gpu_share_faults(study),
    ]
    return list(dict.fromkeys(faults))  # several methods may share one fault


def _twin_faults(study: Study, dataset: Dataset) -> Iterator[str]:
    why = dataset.why_no_twins
    if not why:
        if isinstance(dataset.source, FieldSource):
            yield from _undescribed_twin_faults(study, dataset)
        return
    reason = f"needs time-reversed twins, but config/datasets/{dataset.name}.yaml {why}"
    for setting in study.evaluation.settings:
        if setting in TWIN_SETTINGS:
            yield f"evaluation.settings: {setting!r} {reason}; use [test]"
    for block in study.training_blocks():
        # The over-fitting check looks at training R@1 alone.
        if block.where != "sanity" and block.training.select_setting in TWIN_SETTINGS:
            select_setting = block.training.select_setting
            yield f"{block.path(study, 'select_setting')}: {select_setting!r} {reason}; use test or auto"
        if block.training.batch.twins_together:
            yield f"{block.path(study, 'batch.twins_together')}: true {reason}; set it to false"
        if block.training.hard_negatives == TWINS:
            key = block.path(study, "hard_negatives")
            yield f"{key}: {TWINS!r} {reason}; name a CSV file of opposites, or remove the key"


def _undescribed_twin_faults(study: Study, dataset: Dataset) -> Iterator[str]:
    """What needs captions of twins, or twins to train on, where validation and test clips alone have twins."""
    where = f"config/datasets/{dataset.name}.yaml (format: {dataset.source.format})"
    if "binary" in study.evaluation.settings:
        yield f"evaluation.settings: 'binary' needs captions of twins, and {where} has none; use [origin, hard]"
    if "pairs" in study.evaluation.probes:
        yield f"evaluation.probes: pairs needs captions of twins, and {where} has none; remove it"
    for block in study.training_blocks():
        if block.training.batch.twins_together:
            key = block.path(study, "batch.twins_together")
            yield f"{key}: true needs captions of twins, and {where} has none; set it to false"
        if block.training.hard_negatives == TWINS:
            key = block.path(study, "hard_negatives")
            yield (
                f"{key}: {TWINS!r} needs captions of twins, and {where} has none; name a CSV file of opposites, or "
                "remove the key"
            )


def _probe_faults(study: Study, dataset: Dataset) -> Iterator[str]:
    where = f"config/datasets/{dataset.name}.yaml"
    probes = study.evaluation.probes
    if "direction" in probes and dataset.why_no_twins:
        yield f"evaluation.probes: direction needs time-reversed twins, but {where} {dataset.why_no_twins}; remove it"
    if "answers" in probes and not (dataset.answers or dataset.source.format in FORMATS_WITH_ANSWERS):
        yield f"evaluation.probes: answers needs right answers, and {where} has none: name a CSV with its key answers"
    asked = [name for name in study.methods if "foils" in study.probes_of(name)]
    encoding = [name for name in asked if study.methods[name].model not in MODELS_WITHOUT_BACKBONE]
    if encoding and dataset.vectors:
        yield f"evaluation.probes: methods.{encoding[0]} cannot encode foils, as {where} holds vectors; remove foils"
    if "foils" in probes and not (dataset.foils or dataset.source.format in ("foils", "shapes")):
        yield f"evaluation.probes: foils needs captions that are not true, and {where} has none: name a CSV with foils"
    if "pairs" in probes and dataset.why_no_twins and dataset.source.format != "foils":
        yield f"evaluation.probes: pairs needs time-reversed twins, but {where} {dataset.why_no_twins}; remove it"


def _split_faults(study: Study, dataset: Dataset) -> Iterator[str]:
    source = dataset.source
    where = f"config/datasets/{dataset.name}.yaml"
    for split, who in study.needed_splits().items():
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
    for name in study.blind_methods():
        if study.methods[name].model != "caption_only":
            yield f"methods.{name}.model: {study.methods[name].model} looks at frames, but {where}; remove the method"
    if study.evaluation.order:
        yield f"evaluation.order: vectors have no frames in an order, and {where}; remove the key"
    for name, method in study.methods.items():
        if method.own_backbone is not None:
            yield f"methods.{name}.model: {method.model} with towers of its own reads clips or images, but {where}"


def _clip_faults(study: Study, dataset: Dataset) -> Iterator[str]:
    if dataset.items == "images" and study.evaluation.order:
        where = f"config/datasets/{dataset.name}.yaml"
        yield f"evaluation.order: a picture is one frame, and {where} has pictures; remove the key"
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
        if cached and (method.noise or study.frames.noise) and not (method.model == "bow" or method.precomputed):
            yield f"{f'methods.{name}.noise' if method.noise else 'frames.noise'}: {NOISE_FAULT}"
        closed_form = method.model == "ridge" or (method.model == "translator" and method.baseline)
        if closed_form and not cached:
            yield f"methods.{name}.training.freeze: {CACHED_FEATURES_FAULT}"


def _pretraining_faults(study: Study) -> Iterator[str]:
    kind = study.backbone.kind
    if study.pretraining and kind in ("towers", "miniclip_towers", "embeddings", "encoder"):
        yield f"pretraining: kind: {kind} cannot start from a backbone that was pre-trained here; set pretraining: null"


def _gpu_share_faults(study: Study) -> Iterator[str]:
    """Batch sizes that the GPUs of a job cannot share equally."""
    gpus = study.resources.gpus
    for block in study.training_blocks():
        size = block.training.batch.size
        if gpus > 1 and size % gpus:
            yield (
                f"{block.path(study, 'batch.size')}: {size} pairs cannot be divided equally among resources.gpus: "
                f"{gpus}; use a multiple, or fewer GPUs"
            )
