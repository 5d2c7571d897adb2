"""The interface of losses, how `training.objective` becomes one, and which pairs of a batch are not negatives.

A loss is a callable ``(retriever, text, items, batch) -> Loss``; row i of ``text`` and of ``items`` is a pair. Other
pairs of the same item never count as negatives. The option ``exclude`` (captions of the same words, twins) leaves out
further ones in the same way in every loss.

Shapes: B pairs in the global batch, n texts, m items, D the width of the vectors that are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from rewind.config import Training
from rewind.config.base import ConfigModel, config_field
from rewind.data.tokenizers import same_text_labels
from rewind.errors import RewindError
from rewind.loading.hard_negatives import NegativePairs
from rewind.loading.run_data import TrainingData
from rewind.models.registry import make_component, with_default_hooks
from rewind.models.retriever import Features, Retriever, at_least_float32, is_overridden
from rewind.registry import LOSSES

# ---- The interface, and construction from a study's keys -----------------------------------------------------------

OPTIONS_KEY = "training.objective_options"


@dataclass
class Loss:
    """A scalar to minimise and numbers worth logging (plain, or tensors of one element)."""

    value: Tensor
    logs: dict[str, float | Tensor] = field(default_factory=dict)


class Objective:
    """A callable is enough; what a loss offers besides its value has a default here.

    A loss whose parameters learn is an ``nn.Module`` as well, named first: ``class Mine(nn.Module, Objective)``, with
    ``forward`` in place of ``__call__``. Its parameters are created by its constructor, trained at ``training.lr`` and
    saved with the run's state; scores after training do not see them.

    On several processes all of them see the same features and make the same calls.

    Attributes:
        Options: a ``ConfigModel`` that declares ``training.objective_options``, of which the constructor gets an
            instance; None: it has none, and its constructor no arguments.
        reads_hard_negatives: whether it is called with the features of hard negatives, ``negatives``, row i an opposite
            of caption i, and cannot do without (``training.hard_negatives``; :mod:`rewind.loading.hard_negatives`).

    >>> class MeanDistance(Objective):
    ...     def __call__(self, retriever, text, items, batch):
    ...         return Loss((text["text"] - items["frames"]).square().mean())
    >>> pairs = {"items": torch.arange(2), "rows": torch.arange(2)}
    >>> MeanDistance()(None, {"text": torch.ones(2, 4)}, {"frames": torch.zeros(2, 4)}, pairs).value.item()
    1.0
    """

    Options: ClassVar[type[ConfigModel] | None] = None
    reads_hard_negatives: ClassVar[bool] = False

    def __call__(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
        """The loss of a global batch, row i of ``text`` and row i of ``items`` a pair.

        ``batch`` states which caption (``rows``, (B,)) and item (``items``, (B,)) each pair shows. After a step that
        ran out of GPU memory, the loss is called a second time for the same batch.
        """
        raise NotImplementedError

    def check(self, retriever: Retriever, keys: Training) -> None:
        """Refuse, by a RewindError that names the key, a method that the loss or its keys do not fit.

        Called before a study's first job, with a retriever of meta tensors (shapes without numbers) in evaluation mode.
        """

    def prepare(self, retriever: Retriever, data: Any, device: torch.device) -> None:
        """Look at the weights that training starts from: for example, keep a teacher's features.

        Called once before training, also before a run is resumed. Random numbers drawn here do not change those of the
        run. ``data`` is a :class:`rewind.loading.run_data.TrainingData`.
        """

    def start_epoch(self, epoch: int, retriever: Retriever) -> None:
        """Set what changes with the epoch; it must follow only from the epoch.

        Called before the first step of every epoch, counted from 0, and before a run is resumed in the middle of one,
        ahead of :meth:`load_state_dict`.
        """

    def summary(self, logs: dict[str, float]) -> dict[str, float]:
        """Means over an epoch's steps of every entry of ``Loss.logs`` → columns of ``history.csv``."""
        return logs

    def state_dict(self) -> dict[str, Any] | None:
        """Queues and other memory, for a saved run: tensors, numbers, strings, lists and dicts of them; None: none."""
        return None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`. Called when a run is resumed whose loss had memory."""


def loss_module(objective: Callable[..., Loss]) -> nn.Module | None:
    """The module whose parameters are trained next to the retriever's; None for a loss that is not an ``nn.Module``.

    >>> [name for name, _ in loss_module(make_objective(Training(objective="sigmoid"))).named_parameters()]
    ['bias']
    """
    loss = getattr(objective, "function", objective)
    return loss if isinstance(loss, nn.Module) else None


class _FunctionObjective(Objective):
    """A loss that is not an :class:`Objective`: a function, or an object with some of its methods."""

    function: Callable[..., Loss]

    def __call__(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
        return self.function(retriever, text, items, batch)


def make_objective(keys: Training, device: torch.device | None = None) -> Objective:
    """The loss that ``training.objective`` and ``training.objective_options`` describe, checked against the other keys.

    >>> make_objective(Training(objective="hnac", objective_options={"temperature": 0.05})).temperature
    0.05
    """
    objective = make_loss(keys.objective, keys.objective_options)
    if keys.hard_negatives is not None and not objective.reads_hard_negatives:
        raise RewindError(
            f"training.hard_negatives: {keys.objective} reads none; take objective: negclip or ceclip, or set the key "
            "to null."
        )
    if device is not None and (module := loss_module(objective)) is not None:
        module.to(device)
    return objective


def make_loss(name: str, options: Mapping[str, Any] | None = None) -> Objective:
    """The loss of a name or a dotted path, with its options; see :func:`rewind.models.registry.make_component`."""
    loss = LOSSES.find(name)
    if not callable(loss) and hasattr(loss, "objective"):  # a module of the user's own, as up to version 0.1
        loss = loss.objective
    loss = make_component(loss, LOSSES, name, options or {}, OPTIONS_KEY)
    if not callable(loss):
        raise RewindError(f"training.objective: {name} is a module: name the class or the function in it.")
    return _as_objective(loss)


def _as_objective(loss: Any) -> Objective:
    if isinstance(loss, Objective):
        return loss
    # Special methods such as __call__ are looked up on the class, so the callable is kept and called explicitly.
    objective = with_default_hooks(loss, _FunctionObjective)
    objective.function = loss
    return objective


# ---- Losses of cosines: vectors of a retriever that compares two ---------------------------------------------------


def unit_vectors(retriever: Any, text: Features, items: Features, loss: str) -> tuple[Tensor, Tensor]:
    """Unit vectors (n, D) of the texts and (m, D) of the items in at least float32, for a loss that needs cosines."""
    require_vectors(retriever, loss)
    text_vectors, item_vectors = retriever.vectors(text, items)
    # Under bf16 autocast a cosine has 8 bits; divided by a temperature of 0.07 its error is too large for a softmax.
    return at_least_float32(text_vectors), at_least_float32(item_vectors)


def pair_logits(retriever: Any, text: Features, items: Features, temperature: float | None, loss: str) -> Tensor:
    """(n, m) in at least float32: cosines divided by ``temperature``, or for None the retriever's own logits."""
    if temperature is None:
        logits: Tensor = retriever.similarity(text, items)
        return logits
    texts, views = unit_vectors(retriever, text, items, loss)
    # Autocast would compute the product of the float32 vectors in bf16 again.
    with torch.autocast(texts.device.type, enabled=False):
        return texts @ views.T / temperature


def require_vectors(retriever: Any, loss: str) -> None:
    """Refuse a retriever that never compares two vectors, naming the method."""
    if retriever.compares_vectors:
        return
    if not is_overridden(retriever.vectors):
        # In the step, SharedPairScores takes the retriever's place; the message names the retriever's own class.
        kind = type(getattr(retriever, "retriever", retriever)).__name__
        raise RewindError(
            f"training.objective: {loss} needs the cosines of captions and items, but {kind} scores them differently "
            "(it has no vectors()). Train this method with infonce, or give it one vector per caption and per item."
        )
    retriever.vectors({}, {})  # it has the method but does not compare vectors: its own error states why


# ---- Pairs of a batch that are not negatives of each other ---------------------------------------------------------

Exclude = Literal["same_text", "twins"]
"""A reason why two pairs are not negatives of each other."""


def exclude_field() -> Any:
    """The configuration field ``exclude: list[Exclude]``, which every loss has."""
    return config_field(
        [],
        "Pairs of a batch that are not negatives of each other besides those of the same item: captions of the same "
        "words, and clips and their twins (which teach the direction of time).",
    )


def temperature_field() -> Any:
    """The configuration field ``temperature: float | None`` of losses that take a retriever's logits or its cosines."""
    return config_field(
        None, "What cosines are divided by; none: the retriever's own logits, with its learnt scale.", gt=0
    )


class Exclusions:
    """Which pairs are not negatives of each other: those of one item, and those that ``exclude`` names.

    >>> pairs = {"items": torch.tensor([7, 7, 9]), "rows": torch.tensor([0, 1, 2])}
    >>> Exclusions([]).batch(pairs).nonzero().tolist()  # two captions of item 7
    [[0, 1], [1, 0]]
    """

    def __init__(self, exclude: Collection[str]) -> None:
        self.exclude = frozenset(exclude)
        self.texts = self.clusters = torch.empty(0)  # per caption of the split: its text's label; per item: its cluster

    def __bool__(self) -> bool:
        """Whether it excludes more than pairs of one item."""
        return bool(self.exclude)

    def prepare(self, data: TrainingData, device: torch.device) -> None:
        """Look up which captions have the same words, and which items are twins; called before :meth:`batch`."""
        if not self.exclude:
            return
        self.texts = torch.from_numpy(same_text_labels(data.captions)).to(device)
        self.clusters = cluster_numbers(data, device)

    def batch(self, batch: Features) -> Tensor:
        """Bool (B, B), False on the diagonal: pairs (caption i, item j) that are neither positive nor negative."""
        excluded = same_item_mask(batch["items"])
        if self.exclude:
            excluded |= self.between(batch["rows"], batch["items"], batch["rows"], batch["items"])
        return excluded

    def between(self, rows: Tensor, items: Tensor, other_rows: Tensor, other_items: Tensor) -> Tensor:
        """Bool (n, m): pairs of different items that ``exclude`` names; the two sides may be of different batches."""
        excluded = torch.zeros(len(rows), len(other_rows), dtype=torch.bool, device=rows.device)
        if "same_text" in self.exclude:
            excluded |= self.texts[rows][:, None] == self.texts[other_rows][None]
        if "twins" in self.exclude:
            excluded |= self.clusters[items][:, None] == self.clusters[other_items][None]
        # The same item is left to the caller: with several positives it counts, as a positive.
        return excluded & (items[:, None] != other_items[None])


def cluster_numbers(data: TrainingData, device: torch.device) -> Tensor:
    """(m,) the cluster of each item: numbered 0, 1, … to be a tensor whatever a data set calls its clusters."""
    return torch.from_numpy(np.unique(data.cluster_of_item, return_inverse=True)[1]).to(device)


def same_item_mask(index: Tensor) -> Tensor:
    """Bool (B, B): another pair of the same item, which is not a negative; ``index`` (B,) is each pair's item.

    >>> same_item_mask(torch.tensor([3, 3])).tolist()
    [[False, True], [True, False]]
    """
    return (index.unsqueeze(0) == index.unsqueeze(1)).fill_diagonal_(False)


# ---- Losses that set clips or captions against captions of the opposite direction ------------------------------------


class HardNegativeObjective(Objective):
    """A loss that is called with hard negatives too: ``(retriever, text, items, batch, negatives) -> Loss``.

    A subclass has ``exclusions``, and finds in ``negatives`` which hard negatives are not negatives of which items.
    """

    reads_hard_negatives: ClassVar[bool] = True
    exclusions: Exclusions
    negatives: NegativePairs

    def check(self, retriever: Retriever, keys: Training) -> None:
        """Refuse a study that does not state where hard negatives come from."""
        if keys.hard_negatives is None:
            raise RewindError(
                f"training.hard_negatives: {keys.objective} sets clips against captions of the opposite direction; "
                "name `twins`, or a CSV file of opposites (docs/direction.md)."
            )

    def prepare(self, retriever: Retriever, data: Any, device: torch.device) -> None:
        self.exclusions.prepare(data, device)
        self.negatives = NegativePairs(data.hard_negatives, device)
