"""What a loss is, what it may offer beside its value, and how a study's keys become one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rewind.errors import RewindError
from rewind.models.making import with_defaults
from rewind.models.retriever import Features, Retriever, find, offers, single
from rewind.study import Training

OPTIONS = "training.objective_options"


@dataclass
class Loss:
    """A scalar to minimise and numbers worth logging (plain, or tensors of one element)."""

    value: Tensor
    logs: dict[str, float | Tensor] = field(default_factory=dict)


class Objective:
    """A callable is enough; what a loss offers beside its value has a default here.

    On several processes all of them see the same features and make the same calls.
    """

    def __call__(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
        """The loss of a global batch, row i of ``text`` and row i of ``items`` a pair.

        ``batch`` says which caption (``rows``, (B,)) and which item (``items``, (B,)) each pair shows. A step that runs
        out of GPU memory is tried again and calls the loss again.
        """
        raise NotImplementedError

    def check(self, retriever: Retriever, keys: Training) -> None:
        """Refuse a method with which the loss or its keys do not fit.

        Called before a study's first job, with a retriever of meta tensors (shapes without numbers) in evaluation mode.

        Raises:
            RewindError: naming the key.
        """

    def prepare(self, retriever: Retriever, data: Any, device: torch.device) -> None:
        """Look at the weights that training starts from: for example, keep features of a teacher.

        Called once before training, also before a run is resumed. Random numbers drawn here leave those of the run
        alone.

        Args:
            retriever: on ``device``.
            data: a :class:`rewind.feeding.training_data.TrainingData`.
            device: of the run.
        """

    def start_epoch(self, epoch: int, retriever: Retriever) -> None:
        """For what changes with the epoch; what this sets must follow from the epoch alone.

        Called before the first step of every epoch, counted from 0, and before a run goes on in the middle of one,
        ahead of :meth:`load_state_dict`.
        """

    def summary(self, logs: dict[str, float]) -> dict[str, float]:
        """The epoch's mean of every entry of ``Loss.logs``, over the steps that gave it → columns of ``history.csv``.

        Called at the end of every epoch. The default: the means as they are.
        """
        return logs

    def state_dict(self) -> dict[str, Any] | None:
        """Queues and other memory: tensors, numbers, strings, lists and dicts of them. None: there is none.

        Called whenever the run is saved.
        """
        return None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`. Called where a run is resumed that had some."""


class _Given(Objective):
    """A loss that is no :class:`Objective`: a function, or an object with some of its names."""

    function: Callable[..., Loss]

    def __call__(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
        return self.function(retriever, text, items, batch)


def make_objective(keys: Training) -> Objective:
    """The loss that ``training.objective`` and ``training.objective_options`` describe.

    A module (or class) offers either ``build(options)``, or ``objective``, a callable without options; a dotted path
    may also name a callable itself.

    Raises:
        RewindError: if there is no such loss, or it has no such option.
    """
    module = find(keys.objective, "rewind.objectives", "training.objective")
    if hasattr(module, "build"):
        return _whole(module.build(dict(keys.objective_options)))
    if keys.objective_options:
        raise RewindError(
            f"{OPTIONS}.{next(iter(keys.objective_options))}: {keys.objective} has no options; remove it."
        )
    made = getattr(module, "objective", module)
    if not callable(made):
        raise RewindError(f"training.objective: {keys.objective} is a module without `objective` or `build(options)`.")
    return _whole(made)


def _whole(made: Any) -> Objective:
    if isinstance(made, Objective):
        return made
    whole = with_defaults(made, _Given)
    whole.function = made
    return whole


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
    if retriever.compares_vectors:
        return
    if not offers(retriever.vectors):
        kind = type(getattr(retriever, "retriever", retriever)).__name__
        raise RewindError(
            f"training.objective: {loss} needs the cosines of captions and items, but {kind} scores them differently "
            "(it has no vectors()). Train this method with infonce, or give it one vector per caption and per item."
        )
    retriever.vectors({}, {})  # says why it has none


def same_items(index: Tensor) -> Tensor:
    """Bool (B, B): another pair of the same item, which is no negative; ``index`` (B,) is the item of each pair."""
    return (index.unsqueeze(0) == index.unsqueeze(1)).fill_diagonal_(False)
