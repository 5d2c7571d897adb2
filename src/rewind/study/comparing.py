"""What a study compares: methods and fixed models, in which metric, and what is random in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewind.metrics import ACCURACY, METRICS
from rewind.study import pretraining
from rewind.study.brought import BROUGHT
from rewind.study.report import RANK, split_column

if TYPE_CHECKING:
    from rewind.study.model import Method, Study

MODELS = ("clip_zero_shot", "zero_shot")
"""Models that are scored as they are; the first is the other's name in earlier versions."""


def fixed(study: Study) -> list[str]:
    """Methods that are one model: declared so, or nothing is learnt in them, in order."""
    again = [n for n, m in study.methods.items() if (m.model == "zero_shot" and _anew(study, m)) or _of_seeds(m)]
    return [n for n, m in study.methods.items() if m.fixed or (m.baseline and n not in again)]


def compared(study: Study) -> list[str]:
    """Methods that earn letters: trained ones, models scored as they are; where there are none, baselines.

    Others (a network with random weights, closed forms, a bag of words) are compared where ``pairs`` names them.
    """
    wanted = {name for pair in study.statistics.pairs or [] for name in pair} | set(study.trained())
    as_they_are = {n for n, m in study.methods.items() if m.model in (*MODELS, *BROUGHT) or m.scored_as_it_is}
    wanted |= {name for name in as_they_are if not study.methods[name].options.get("untrained")}
    found = [name for name in study.methods if name in wanted]
    return found or [name for name, method in study.methods.items() if method.model != "chance"]


def primary(study: Study) -> str:
    """The metric that earns letters."""
    shown = [split_column(column)[1] for column in study.tables.columns]
    tested = [metric for metric in shown if metric != RANK and METRICS[metric].tested]
    return study.statistics.primary or (ACCURACY if ACCURACY in shown else next(iter(tested), ACCURACY))


def deciding(study: Study) -> dict[str, str]:
    """Setting → the metric that earns letters in it."""
    chosen = primary(study)
    return {setting: ACCURACY if setting == "binary" else chosen for setting in study.evaluation.settings}


def drawn(study: Study) -> str:
    """The metric of pictures: the one that earns letters, in a study of Binary accuracy."""
    return ACCURACY if "binary" in study.evaluation.settings else primary(study)


def random(study: Study) -> dict[str, Any]:
    """What is random in the runs, as :class:`rewind.statistics.pairs.Random` has it."""
    models = fixed(study)
    alike = [name for name, method in study.methods.items() if (method.seeds or study.seeds) == study.seeds]
    return {
        "fixed": models,
        "exact": [name for name, method in study.methods.items() if method.model == "chance"],
        "paired": [name for name in alike if _anew(study, study.methods[name]) and name not in models],
    }


def _of_seeds(method: Method) -> bool:
    """Whether a model brings files of several trainings."""
    return method.model in BROUGHT and len(method.seeds or []) > 1


def _anew(study: Study, method: Method) -> bool:
    """Whether each seed of a method starts from a pre-training of its own."""
    return pretraining.by_seed(study) and pretraining.starts(method)
