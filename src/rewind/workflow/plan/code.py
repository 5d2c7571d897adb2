"""Code that a stage's output depends on besides its script: what keys name, and files of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from rewind.analyses import analyses_of, module_of
from rewind.config import Backbone, Method
from rewind.config.methods import ENCODER_KEYS
from rewind.config.study import with_method_keys
from rewind.config.training import Training
from rewind.registry import BACKBONES, ENCODERS, HEADS, LOSSES, MODELS, SAMPLERS, head_modules
from rewind.workflow.plan.extras import measured_runs
from rewind.workflow.plan.files import json_files, user_files
from rewind.workflow.plan.scoring import reranking_encoding
from rewind.workflow.plan.study import StudyPlan
from rewind.workflow.plan.training import (
    encoder_files,
    sanity_method,
    weights_files,
    zero_shot_images,
    zero_shot_in_training,
)
from rewind.workflow.stages import RULES, CodeDependencies


def _candidates(plan: StudyPlan, method: str) -> list[Method]:
    """A method with the keys of each trial, and as it is."""
    own = plan.method(method)
    return [own, *(with_method_keys(own, keys) for keys in plan.keys.trials_of(method))]


def code_dependencies(plan: StudyPlan, rule: str, method: str = "", seed: int | None = None) -> CodeDependencies:
    """What a stage's code depends on besides its script: what keys name, and files of the user's."""
    named = _named_code(plan, rule, method, seed)
    if rule not in RULES or not RULES[rule].metrics:  # parts of rules have no entry
        return named
    return replace(named, modules=[*named.modules, *plan.keys.metrics])


def _named_code(plan: StudyPlan, rule: str, method: str, seed: int | None) -> CodeDependencies:
    """:func:`code_dependencies` without the study's own metrics."""
    study = plan.keys
    match rule:
        case "tables" | "page":
            # All of them are asked whether they have something to show.
            return CodeDependencies([module_of(name) for name in analyses_of(study)])
        case "train" | "untrained_run":
            return _trained(plan, _candidates(plan, method), seed, zero_shot_in_training(plan))
        case "trial":
            return _trained(plan, _candidates(plan, method), seed)
        case "step_time":
            methods = [plan.method(name) for name in plan.timed_methods()]
            return _trained(plan, methods, seed, zero_shot_in_training(plan))
        case "sanity":
            assert study.sanity
            return _trained(plan, [_with_training(plan, sanity_method(plan), study.sanity.training)], seed)
        case "sweep_trial":
            sweep = study.frames_sweep
            assert sweep
            return _trained(plan, [_with_training(plan, sweep.method, sweep.training)], seed)
        case "pretrain":
            assert study.pretraining
            trained = study.pretraining.method.model_copy(update={"training": study.pretraining.training})
            return _trained(plan, [trained], seed)
        case "features":
            backbone = _backbone_modules(study.backbone)
            files = user_files(json_files([study.backbone.architecture]))
            files += [] if study.pretraining else weights_files(plan)
            return CodeDependencies([MODELS.full_name("clip4clip"), HEADS.full_name("meanP"), *backbone], files=files)
        case "zero_shot":
            return _scored(plan, [method], seed, zero_shot_images(plan))
        case "blind_run":
            return _scored(plan, [method], seed, weights_files(plan))
        case "rerank":
            encoding = reranking_encoding(plan, method, seed)
            named, files = ([ENCODERS.full_name(encoding.encoder)], encoding.files()) if encoding else ([], [])
            scored = _scored(plan, [method], seed)
            return replace(scored, modules=[*scored.modules, *named], files=[*scored.files, *user_files(files)])
        case "similarity" | "order_controls" | "probes" | "cosines" | "export_vectors" | "submission":
            return _scored(plan, [method], seed)
        case "efficiency":
            return _scored(plan, [name for name, _ in measured_runs(plan)], seed)
    return CodeDependencies()


def _with_training(plan: StudyPlan, method: str, training: Training) -> Method:
    return plan.method(method).model_copy(update={"training": training})


def _trained(plan: StudyPlan, methods: Sequence[Method], seed: int | None, zero_shot: bool = False) -> CodeDependencies:
    """Dependencies of a stage that trains methods."""
    modules = [module for method in methods for module in _trained_modules(plan, method)]
    files = [*_model_files(plan, methods, seed), *weights_files(plan)]
    files += zero_shot_images(plan) if zero_shot else []
    return CodeDependencies(modules, zero_shot, files=files)


def _scored(plan: StudyPlan, names: Sequence[str], seed: int | None, files: Sequence[str] = ()) -> CodeDependencies:
    """Dependencies of a stage that runs models of methods; how they were trained is not part of them."""
    methods = [plan.method(name) for name in names]
    modules = [m for name in names for method in _candidates(plan, name) for m in _model_modules(plan, method)]
    return CodeDependencies(modules, files=[*files, *_model_files(plan, methods, seed)])


def _model_modules(plan: StudyPlan, method: Method) -> list[str]:
    """Modules of a method's model."""
    modules = [MODELS.full_name(method.model), *_backbone_modules(plan.keys.backbone)]
    own = method.own_backbone
    if isinstance(own, dict):
        modules += _backbone_modules(_own_backbone(own))
    return modules + head_modules(method.model, method.head)


def _trained_modules(plan: StudyPlan, method: Method) -> list[str]:
    """Modules of a method's model, its loss and its sampler."""
    training = method.training
    return [
        *_model_modules(plan, method),
        LOSSES.full_name(training.objective),
        SAMPLERS.full_name(training.batch.sampler),
    ]


def _model_files(plan: StudyPlan, methods: Sequence[Method], seed: int | None) -> list[str]:
    """Files that models are made of: vectors or scores, weights of their own, captions of a vocabulary.

    JSON files of sizes are among them, though no inputs of rules: in a fresh checkout all of them are new, and
    nothing is to run again for that.
    """
    backbones = [keys for method in methods if isinstance(keys := method.own_backbone, dict)]
    files = [keys.get("weights") for keys in backbones]
    files += [path for keys in backbones for path in encoder_files(_own_backbone(keys).encoding())]
    files += [path for method in methods for path in method.precomputed_files(seed)]
    architectures = [keys.get("architecture") for keys in backbones]
    if any(method.uses_study_backbone for method in methods):
        files += encoder_files(plan.keys.backbone.encoding())
        architectures.append(plan.keys.backbone.architecture)
    return user_files([*files, *json_files(architectures), plan.keys.text.vocabulary])


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
