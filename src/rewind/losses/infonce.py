"""Symmetric InfoNCE over the batch (van den Oord et al., 2018, arXiv 1807.03748, eq. 4), as in CLIP and CLIP4Clip.

With logits S (B, B) of B pairs, the loss is ``½ (mean_i −log softmax(S_i·)_i + mean_j −log softmax(S_·j)_j)``: each
caption finds its item among those of the batch, and each item its caption.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rewind.config import Training
from rewind.config.base import ConfigModel
from rewind.losses.base import (
    Exclude,
    Exclusions,
    Loss,
    Objective,
    exclude_field,
    pair_logits,
    require_vectors,
    same_item_mask,
    temperature_field,
)
from rewind.models.retriever import Features, Retriever
from rewind.registry import LOSSES


class InfonceOptions(ConfigModel):
    """Options of the loss."""

    temperature: float | None = temperature_field()
    exclude: list[Exclude] = exclude_field()


def infonce(retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
    """``(CE(S) + CE(Sᵀ)) / 2`` with S the (B, B) logits, row i belonging to column i.

    Another pair of the same item is not a negative and is left out of the denominator (CLIP4Clip counts it as one).
    """
    return symmetric_cross_entropy(retriever.similarity(text, items), same_item_mask(batch["items"]))


@LOSSES.register("infonce")
class Infonce(Objective):
    """InfoNCE at a fixed temperature, or without some negatives."""

    Options = InfonceOptions

    def __init__(self, options: InfonceOptions) -> None:
        self.temperature, self.exclusions = options.temperature, Exclusions(options.exclude)

    def check(self, retriever: Retriever, keys: Training) -> None:
        if self.temperature is not None:
            require_vectors(retriever, "infonce with a temperature")

    def prepare(self, retriever: Retriever, data: Any, device: torch.device) -> None:
        self.exclusions.prepare(data, device)

    def __call__(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
        """See :func:`infonce`."""
        logits = pair_logits(retriever, text, items, self.temperature, "infonce with a temperature")
        return symmetric_cross_entropy(logits, self.exclusions.batch(batch))


def symmetric_cross_entropy(logits: Tensor, excluded: Tensor) -> Loss:
    """Mean cross entropy of both directions of logits (B, B) without excluded pairs; the truth of row i is column i.

    >>> symmetric_cross_entropy(torch.zeros(2, 2), torch.eye(2) == 0).value.item()  # no negatives
    0.0
    """
    if excluded.any():
        # The least finite number, not −inf: exp() of it is 0 all the same, and no inf − inf can make a gradient NaN.
        logits = logits.masked_fill(excluded, torch.finfo(logits.dtype).min)
    truth = torch.arange(len(logits), device=logits.device)
    return Loss((F.cross_entropy(logits, truth) + F.cross_entropy(logits.T, truth)) / 2)
