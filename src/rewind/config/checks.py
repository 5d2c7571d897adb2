"""Checks of a study against its dataset: faults that follow from the keys of both files.

:func:`study_dataset_faults` collects them. Faults within only the study file are found in :mod:`rewind.config.study`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewind.config.dataset import Dataset, FieldSource, RTimeSource, ShapesSource
from rewind.config.evaluation import TWIN_SETTINGS
from rewind.config.study import Study, load_analyses
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
        *_vector_faults(study, dataset),
        *_clip_faults(study, dataset),
        *_query_faults(study, dataset),
        *(fault for analysis in load_analyses(study) for fault in analysis.dataset_faults(study, dataset)),
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
        # The over-fitting check looks only at training R@1.
        if block.where != "sanity" and block.training.select_setting in TWIN_SETTINGS:
            select_setting = block.training.select_setting
            yield f"{block.path(study, 'select_setting')}: {select_setting!r} {reason}; use test or auto"
        if block.training.batch.twins_together:
            yield f"{block.path(study, 'batch.twins_together')}: true {reason}; set it to false"
        if block.training.hard_negatives == TWINS:
            key = block.path(study, "hard_negatives")
            yield f"{key}: {TWINS!r} {reason}; name a CSV file of opposites, or remove the key"


def _undescribed_twin_faults(study: Study, dataset: Dataset) -> Iterator[str]:
    """What needs captions of twins, or twins to train on, where only validation and test clips have twins."""
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
    if kind != "embeddings" and "." not in kind and any(not m.needs_no_backbone for m in study.methods.values()):
        yield f"backbone.kind: {kind} reads clips or images, but {where}; set kind: embeddings"
    for name, method in study.methods.items():
        if method.own_backbone is not None:
            yield f"methods.{name}.model: {method.model} with towers of its own reads clips or images, but {where}"


def _clip_faults(study: Study, dataset: Dataset) -> Iterator[str]:
    if dataset.clips or dataset.vectors:
        return
    for name, method in study.methods.items():
        encoder = method.options.get("encoder")
        if encoder or method.model == "pixels" or not method.needs_no_backbone:
            what = f"options.encoder: {encoder}" if encoder else f"model: {method.model}"
            yield (
                f"methods.{name}.{what} looks at clips, but config/datasets/{dataset.name}.yaml sets clips: false; set "
                "it to true, or provide vectors or scores (model: vectors, model: scores)"
            )


def _query_faults(study: Study, dataset: Dataset) -> Iterator[str]:
    """Methods that read texts alone, where queries show a clip too; and a key that is only for such queries."""
    where = f"config/datasets/{dataset.name}.yaml (format: {dataset.source.format})"
    for name, method in study.methods.items():
        if not dataset.composed:
            if method.by_name and method.options.get("query", "both") != "both":
                yield f"methods.{name}.options.query: queries of {where} are texts alone; remove the key"
        elif (
            method.rerank
            or method.options.get("encoder") == "video_llm"
            or not (method.precomputed or method.model == "chance")
        ):
            yield (
                f"methods.{name}.model: queries of {where} show a clip besides a text, which {method.model} "
                f"{'with rerank or pair scores ' if method.precomputed else ''}does not see; take model: vectors with "
                "an encoder of vectors, or provide vectors or scores"
            )
    if dataset.composed and "foils" in study.evaluation.probes:
        yield f"evaluation.probes: foils are false captions, and queries of {where} are a clip and a text; remove it"


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
