"""Which pre-training a run starts from: one with its own seed, or one shared by all runs if the study says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewind.config.methods import PRECOMPUTED_MODELS

if TYPE_CHECKING:
    from rewind.config.study import Method, Study

MODELS_WITHOUT_BACKBONE = ("chance", "bow", "pixels", *PRECOMPUTED_MODELS)
"""Models that never use the study's backbone."""
SHARED_PRETRAINING_NOTE = "given one pre-training"
SEEDED_BACKBONES = ("clip", "viclip")
"""Backbones whose visual tower, if it has no weights, is initialised from the seed of the run."""


def own_backbone(method: Method) -> Any:
    """Keys of a backbone that the method has instead of the study's; None: it uses the study's."""
    if method.model == "clip_zero_shot":  # zero_shot, by its name in earlier versions
        return method.options | {"kind": "clip"}
    return method.options.get("backbone")


def uses_study_backbone(method: Method) -> bool:
    """Whether a method starts from the study's backbone, and so from its pre-training."""
    return method.model not in MODELS_WITHOUT_BACKBONE and own_backbone(method) is None


def pretrains_per_seed(study: Study) -> bool:
    """Whether the study pre-trains once for each seed, and not once for all runs or never."""
    return study.pretraining is not None and not study.pretraining.shared


def pretraining_seeds(study: Study) -> list[int]:
    """Seeds of the study's pre-trainings; none without pre-training.

    They are the seeds of all runs that start from one: the study's own first, in their order, then those of methods.
    Stages without a seed of their own take the first.
    """
    if study.pretraining is None:
        return []
    if study.pretraining.shared:
        return [study.pretraining.seed or 0]
    needed = [seed for m in study.methods.values() if uses_study_backbone(m) for seed in m.seeds or study.seeds]
    return [s for s in study.seeds if s in needed] + sorted(set(needed) - set(study.seeds)) or study.seeds[:1]


def pretraining_suffix(study: Study, method: str = "", seed: int | str | None = None) -> str:
    """What follows ``pretrained`` and ``features`` in the paths of a run's pre-training and of results based on it.

    Args:
        study: with pre-training or without.
        method, seed: of the run; without them, or for a method with another backbone, the first pre-training's.

    Returns:
        ``/seed<k>``; empty where there is one pre-training for all runs, or none.
    """
    if not pretrains_per_seed(study):
        return ""
    own = seed is not None and method in study.methods and uses_study_backbone(study.methods[method])
    return f"/seed{seed if own else pretraining_seeds(study)[0]}"


def pretraining_suffixes(study: Study) -> list[str]:
    """:func:`pretraining_suffix` of every pre-training, in the order of :func:`pretraining_seeds`."""
    if not pretrains_per_seed(study):
        return [""] if study.pretraining else []
    return [f"/seed{seed}" for seed in pretraining_seeds(study)]


def seed_of_suffix(study: Study, suffix: str) -> int:
    """The seed of the pre-training with this :func:`pretraining_suffix`."""
    return int(suffix.removeprefix("/seed")) if suffix else pretraining_seeds(study)[0]


def has_random_features(study: Study) -> bool:
    """Whether the study's visual tower has random weights, which the seed of each run draws: so do frozen features."""
    keys = study.backbone
    return keys.kind in SEEDED_BACKBONES and not (keys.weights or keys.pretrained or study.pretraining)


def features_suffix(study: Study, method: str = "", seed: int | str | None = None, trial: int | None = None) -> str:
    """What follows ``features`` in the paths of a run's cached features.

    Args:
        study: with pre-training or without.
        method, seed: of the run, see :func:`pretraining_suffix`.
        trial: seed of a run that is none of the study's (the over-fitting check, or a trial of the sweep), by which a
            random tower is drawn. None: the study's first seed.
    """
    if not has_random_features(study):
        return pretraining_suffix(study, method, seed)
    default = study.seeds[0] if trial is None else trial
    return f"/seed{default if seed is None else seed}"


def pretrained_weights_path(study: Study) -> str:
    """Path of the weights of the study's first pre-training."""
    return f"results/{study.name}/pretrained{pretraining_suffix(study)}/model.safetensors"


def pretraining_condition(study: Study) -> str:
    """The words that every caption has where all runs share one pre-training; else empty."""
    return SHARED_PRETRAINING_NOTE if study.pretraining is not None and study.pretraining.shared else ""
