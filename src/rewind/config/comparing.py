"""What a study compares: which methods, by which metric, and what is random in their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewind.config import pretraining
from rewind.config.methods import PRECOMPUTED_MODELS
from rewind.config.report import RANK_COLUMN, split_column
from rewind.ranking_metrics import ACCURACY_METRIC, METRICS

if TYPE_CHECKING:
    from rewind.config.study import Method, Study

ZERO_SHOT_MODELS = ("clip_zero_shot", "zero_shot")
"""Models that are scored without training; ``clip_zero_shot`` is the name of ``zero_shot`` in earlier versions."""


def fixed_methods(study: Study) -> list[str]:
    """Methods that are one model, not one per seed, in order: declared ``fixed``, or nothing is learnt in them.

    Exceptions are zero-shot models after a pre-training of each seed, and precomputed files of several seeds.
    """
    varying = [
        name
        for name, method in study.methods.items()
        if (method.model == "zero_shot" and _is_pretrained_per_seed(study, method))
        or _has_files_of_several_seeds(method)
    ]
    return [name for name, method in study.methods.items() if method.fixed or (method.baseline and name not in varying)]


def compared_methods(study: Study) -> list[str]:
    """Methods that are compared with each other (by letters in tables), in order.

    These are trained methods and models that are scored as they are; if there are none, the baselines except chance.
    Others (a network with random weights, closed forms, a bag of words) are compared where ``pairs`` names them.
    """
    compared = {name for pair in study.statistics.pairs or [] for name in pair} | set(study.trained())
    untrained = {
        name
        for name, method in study.methods.items()
        if method.model in (*ZERO_SHOT_MODELS, *PRECOMPUTED_MODELS) or method.scored_as_it_is
    }
    compared |= {name for name in untrained if not study.methods[name].options.get("untrained")}
    names = [name for name in study.methods if name in compared]
    return names or [name for name, method in study.methods.items() if method.model != "chance"]


def primary_metric(study: Study) -> str:
    """The deciding metric: ``statistics.primary``, else R@1 or, if no column shows it, the first tested column."""
    shown = [split_column(column)[1] for column in study.tables.columns]
    tested = [metric for metric in shown if metric != RANK_COLUMN and METRICS[metric].tested]
    return study.statistics.primary or (
        ACCURACY_METRIC if ACCURACY_METRIC in shown else next(iter(tested), ACCURACY_METRIC)
    )


def primary_metric_by_setting(study: Study) -> dict[str, str]:
    """Setting → its deciding metric: :func:`primary_metric`, and in Binary accuracy."""
    primary = primary_metric(study)
    return {setting: ACCURACY_METRIC if setting == "binary" else primary for setting in study.evaluation.settings}


def figure_metric(study: Study) -> str:
    """The metric of figures: accuracy in a study with Binary, else :func:`primary_metric`."""
    return ACCURACY_METRIC if "binary" in study.evaluation.settings else primary_metric(study)


def random_factors(study: Study) -> dict[str, Any]:
    """What is random in the runs: the arguments of :class:`rewind.statistics.pairs.RandomFactors`.

    ``fixed``: methods that are one model; ``exact``: methods whose expected result is computed; ``paired``: methods
    whose run of a seed starts from the same pre-training as the others' runs of that seed.
    """
    fixed = fixed_methods(study)
    same_seeds = [name for name, method in study.methods.items() if (method.seeds or study.seeds) == study.seeds]
    return {
        "fixed": fixed,
        "exact": [name for name, method in study.methods.items() if method.model == "chance"],
        "paired": [
            name for name in same_seeds if _is_pretrained_per_seed(study, study.methods[name]) and name not in fixed
        ],
    }


def _has_files_of_several_seeds(method: Method) -> bool:
    """Whether a method has precomputed files of several trainings."""
    return method.model in PRECOMPUTED_MODELS and len(method.seeds or []) > 1


def _is_pretrained_per_seed(study: Study, method: Method) -> bool:
    """Whether each seed of a method starts from a pre-training of its own."""
    return pretraining.pretrains_per_seed(study) and pretraining.uses_study_backbone(method)
