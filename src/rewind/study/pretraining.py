"""Which pre-training a run starts from: one of its own seed, or one for all where the study says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewind.study.brought import BROUGHT

if TYPE_CHECKING:
    from rewind.study.model import Method, Study

ELSEWHERE = ("chance", "bow", "pixels", *BROUGHT)
"""Models that never look through the study's backbone."""
GIVEN = "given one pre-training"
DRAWN_BY_SEED = ("clip", "viclip")
"""Backbones whose visual tower without weights is drawn from the seed of the run."""


def own_backbone(method: Method) -> Any:
    """Keys of a backbone of the method's own, which stands in the place of the study's; None: it has none."""
    if method.model == "clip_zero_shot":  # zero_shot, by its name in earlier versions
        return method.options | {"kind": "clip"}
    return method.options.get("backbone")


def starts(method: Method) -> bool:
    """Whether a method starts from the study's backbone, and so from its pre-training."""
    return method.model not in ELSEWHERE and own_backbone(method) is None


def by_seed(study: Study) -> bool:
    """Whether the study pre-trains, once for each seed."""
    return study.pretraining is not None and not study.pretraining.shared


def seeds(study: Study) -> list[int]:
    """Seeds of the study's pre-trainings: of all runs that start from one, the study's own first; none without.

    Stages without a seed of their own take the first.
    """
    if study.pretraining is None:
        return []
    if study.pretraining.shared:
        return [study.pretraining.seed or 0]
    needed = [seed for m in study.methods.values() if starts(m) for seed in m.seeds or study.seeds]
    return [s for s in study.seeds if s in needed] + sorted(set(needed) - set(study.seeds)) or study.seeds[:1]


def part(study: Study, method: str = "", seed: int | str | None = None) -> str:
    """What follows ``pretrained`` and ``features`` in the paths of a run's pre-training and of what rests on it.

    Args:
        study: with pre-training or without.
        method, seed: of the run; without them, or for a method that starts elsewhere, of the first pre-training.

    Returns:
        ``/seed<k>``; nothing where there is one for all, or none.
    """
    if not by_seed(study):
        return ""
    own = seed is not None and method in study.methods and starts(study.methods[method])
    return f"/seed{seed if own else seeds(study)[0]}"


def parts(study: Study) -> list[str]:
    """:func:`part` of every pre-training, in the order of their seeds; none without."""
    if not by_seed(study):
        return [""] if study.pretraining else []
    return [f"/seed{seed}" for seed in seeds(study)]


def seed_of(study: Study, named: str) -> int:
    """The seed of a pre-training whose :func:`part` is named."""
    return int(named.removeprefix("/seed")) if named else seeds(study)[0]


def random_features(study: Study) -> bool:
    """Whether a visual tower that the study freezes has random weights, which the seed of each run draws."""
    keys = study.backbone
    return keys.kind in DRAWN_BY_SEED and not (keys.weights or keys.pretrained or study.pretraining)


def features_part(study: Study, method: str = "", seed: int | str | None = None, trial: int | None = None) -> str:
    """What follows ``features`` in the paths of a run's cached features.

    Args:
        study: with pre-training or without.
        method, seed: of the run, see :func:`part`.
        trial: seed of a run that is none of the study's, which draws a random tower by it: the over-fitting check, or
            a trial of the sweep. None: the study's first.
    """
    if not random_features(study):
        return part(study, method, seed)
    drawn = study.seeds[0] if trial is None else trial
    return f"/seed{drawn if seed is None else seed}"


def weights(study: Study) -> str:
    """Path of the weights of the study's first pre-training."""
    return f"results/{study.name}/pretrained{part(study)}/model.safetensors"


def condition(study: Study) -> str:
    """What every caption says where all runs share one pre-training; else nothing."""
    return GIVEN if study.pretraining is not None and study.pretraining.shared else ""
