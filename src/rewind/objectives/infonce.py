"""Symmetric InfoNCE over the batch, as CLIP and CLIP4Clip train."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rewind.models.retriever import Features, Retriever
from rewind.objectives.interface import OPTIONS, Loss, Objective, check_vectors, same_items, unit_vectors
from rewind.study import Training
from rewind.study.keys import Keys, key, read_options

__all__ = ["Loss", "build", "infonce"]


class Options(Keys):
    """Options of the loss."""

    temperature: float | None = key(
        None, "What cosines are divided by; none: the retriever's own logits, with its learnt scale.", gt=0
    )


def infonce(retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
    """``(CE(S) + CE(Sᵀ)) / 2`` with S the (B, B) logits, row i belonging to column i.

    ``batch['items']`` (B,) tells which item each pair shows: another pair of the same item is not a negative and is
    left out of the denominator (upstream counts it as one).
    """
    return _symmetric(retriever.similarity(text, items), batch["items"])


def build(options: Mapping[str, Any]) -> Callable[..., Loss]:
    """InfoNCE on the retriever's own logits, or with ``temperature`` on cosines divided by that fixed number.

    Raises:
        RewindError: for another option, or a temperature that is not above 0.
    """
    temperature = read_options(Options, options, OPTIONS, "objective: infonce").temperature
    if temperature is None:
        return infonce

    return FixedTemperature(temperature)


class FixedTemperature(Objective):
    """InfoNCE on cosines divided by a number that is not learnt."""

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature

    def check(self, retriever: Retriever, keys: Training) -> None:
        """Refuse a retriever that does not compare vectors."""
        check_vectors(retriever, "infonce with a temperature")

    def __call__(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
        """See :func:`infonce`."""
        left, right = unit_vectors(retriever, text, items, "infonce with a temperature")
        with torch.autocast(left.device.type, enabled=False):
            return _symmetric(left @ right.T / self.temperature, batch["items"])


def _symmetric(logits: Tensor, index: Tensor) -> Loss:
    same = same_items(index)
    if same.any():
        logits = logits.masked_fill(same, torch.finfo(logits.dtype).min)
    truth = torch.arange(len(logits), device=logits.device)
    return Loss((F.cross_entropy(logits, truth) + F.cross_entropy(logits.T, truth)) / 2)
