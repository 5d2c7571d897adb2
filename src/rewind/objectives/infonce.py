"""Symmetric InfoNCE over the batch, as CLIP and CLIP4Clip train."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rewind.models.retriever import Features, Retriever
from rewind.objectives.exclude import Exclude, Exclusions, exclude_key
from rewind.objectives.interface import OPTIONS, Loss, Objective, check_vectors, same_items, unit_vectors
from rewind.study import Training
from rewind.study.keys import Keys, key, read_options

__all__ = ["Loss", "build", "infonce"]


class Options(Keys):
    """Options of the loss."""

    temperature: float | None = key(
        None, "What cosines are divided by; none: the retriever's own logits, with its learnt scale.", gt=0
    )
    exclude: list[Exclude] = exclude_key()


def infonce(retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
    """``(CE(S) + CE(Sᵀ)) / 2`` with S the (B, B) logits, row i belonging to column i.

    ``batch['items']`` (B,) tells which item each pair shows: another pair of the same item is not a negative and is
    left out of the denominator (upstream counts it as one).
    """
    return symmetric(retriever.similarity(text, items), same_items(batch["items"]))


def build(options: Mapping[str, Any]) -> Callable[..., Loss]:
    """InfoNCE on the retriever's own logits, or with ``temperature`` on cosines divided by that fixed number.

    Raises:
        RewindError: for another option, or a temperature that is not above 0.
    """
    chosen = read_options(Options, options, OPTIONS, "objective: infonce")
    return Infonce(chosen) if chosen.temperature is not None or chosen.exclude else infonce


class Infonce(Objective):
    """InfoNCE at a temperature that is not learnt, or without some negatives."""

    def __init__(self, options: Options) -> None:
        self.temperature, self.exclusions = options.temperature, Exclusions(options.exclude)

    def check(self, retriever: Retriever, keys: Training) -> None:
        """Refuse a retriever that does not compare vectors, where its cosines are needed."""
        if self.temperature is not None:
            check_vectors(retriever, "infonce with a temperature")

    def prepare(self, retriever: Retriever, data: Any, device: torch.device) -> None:
        """Which captions say the same, and which items are twins."""
        self.exclusions.prepare(data, device)

    def __call__(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
        """See :func:`infonce`."""
        none = self.exclusions.batch(batch)
        if self.temperature is None:
            return symmetric(retriever.similarity(text, items), none)
        left, right = unit_vectors(retriever, text, items, "infonce with a temperature")
        with torch.autocast(left.device.type, enabled=False):
            return symmetric(left @ right.T / self.temperature, none)


def symmetric(logits: Tensor, none: Tensor) -> Loss:
    """Cross entropy of both directions, row i belonging to column i; ``none`` bool (B, B) are no negatives."""
    if none.any():
        logits = logits.masked_fill(none, torch.finfo(logits.dtype).min)
    truth = torch.arange(len(logits), device=logits.device)
    return Loss((F.cross_entropy(logits, truth) + F.cross_entropy(logits.T, truth)) / 2)
