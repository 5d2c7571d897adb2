"""What a loss is, what it may offer beside its value, and how a study's keys become one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from rewind.errors import RewindError
from rewind.models.retriever import Features, Retriever, find, single
from rewind.study import Training

OPTIONS = "training.objective_options"


@dataclass
class Loss:
    """A scalar to minimise and numbers worth logging (plain, or tensors of one element)."""

    value: Tensor
    logs: dict[str, float | Tensor] = field(default_factory=dict)


class Objective(Protocol):
    """A callable is enough. Everything else is looked up by name, and a loss offers what it needs:

    ``prepare(retriever, data, device)``
        Once before training, with the weights that training starts from, also before a run is resumed: for example
        features of a teacher. ``data`` is a :class:`rewind.feeding.training_data.TrainingData`. Random numbers drawn
        here leave those of the run alone.
    ``start_epoch(epoch, retriever)``
        Before the first step of every epoch, counted from 0, and before a run goes on in the middle of one, ahead of
        ``load_state_dict``. What it sets must follow from the epoch alone.
    ``summary(logs)``
        The epoch's mean of every entry of ``Loss.logs`` over the steps that gave it → columns of ``history.csv``. The
        default is the means as they are.
    ``state_dict()``, ``load_state_dict(state)``
        Queues and other memory (tensors, numbers, strings, lists and dicts of them), saved and restored with the run.
        A step that runs out of GPU memory is tried again and calls the loss again.

    ``check(retriever, keys)``
        Before a study's first job, with a retriever of meta tensors (shapes without numbers) in evaluation mode: a
        :class:`RewindError` where method, loss and ``keys`` (:class:`rewind.study.Training`) do not fit together.

    On several processes all of them see the same features and make the same calls.
    """

    def __call__(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss: ...


def make_objective(keys: Training) -> Objective:
    """The loss that ``training.objective`` and ``training.objective_options`` describe.

    A module (or class) offers either ``build(options) -> Objective``, or ``objective``, a callable without options; a
    dotted path may also name a callable itself.

    Raises:
        RewindError: if there is no such loss, or it has no such option.
    """
    found = find(keys.objective, "rewind.objectives", "training.objective")
    if hasattr(found, "build"):
        return found.build(dict(keys.objective_options))
    if keys.objective_options:
        raise RewindError(
            f"{OPTIONS}.{next(iter(keys.objective_options))}: {keys.objective} has no options; remove it."
        )
    made = getattr(found, "objective", found)
    if not callable(made):
        raise RewindError(f"training.objective: {keys.objective} is a module without `objective` or `build(options)`.")
    return made


def unit_vectors(retriever: Any, text: Features, items: Features, loss: str) -> tuple[Tensor, Tensor]:
    """Unit vectors (n, D) of the texts and (m, D) of the items in at least float32, for a loss that needs cosines.

    Raises:
        RewindError: naming the method where it does not score by the cosine of two vectors.
    """
    check_vectors(retriever, loss)
    left, right = retriever.vectors(text, items)
    return single(left), single(right)


def check_vectors(retriever: Any, loss: str) -> None:
    """Refuse a retriever that never compares two vectors.

    Raises:
        RewindError: naming the method.
    """
    if not hasattr(retriever, "vectors"):
        kind = type(getattr(retriever, "retriever", retriever)).__name__
        raise RewindError(
            f"training.objective: {loss} needs the cosines of captions and items, but {kind} scores in another way (it "
            "has no vectors()). Train this method with infonce, or give it one vector per caption and per item."
        )
    if getattr(getattr(retriever, "head", None), "pairwise", False):
        retriever.vectors({}, {})  # says why it has none


def same_items(index: Tensor) -> Tensor:
    """Bool (B, B): another pair of the same item, which is no negative; ``index`` (B,) is the item of each pair."""
    return (index.unsqueeze(0) == index.unsqueeze(1)).fill_diagonal_(False)
