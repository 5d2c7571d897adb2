"""HNAC, the hard-negative-aware contrastive loss: InfoNCE whose negatives count less the closer they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from rewind.models.retriever import Features, Retriever
from rewind.objectives.exclude import Exclude, Exclusions, exclude_key
from rewind.objectives.interface import OPTIONS, Loss, Objective, check_vectors, unit_vectors
from rewind.study import Training
from rewind.study.keys import Keys, key, read_options

SLOPE = 5.0  # of the sigmoid of a cosine
FLOOR = 1e-8  # added to each of the B terms of a row's sum


class Options(Keys):
    """Options of the loss."""

    hard_negative_weight: float = key(0.5, "How much the closest negatives lose of their weight.", ge=0, le=1)
    temperature: float = key(0.07, "What cosines are divided by.", gt=0)
    reduction: Literal["mean", "sum"] = key("mean", "Over the pairs of a batch; of both directions the mean is taken.")
    exclude: list[Exclude] = exclude_key()


class Hnac(Objective):
    """The loss with its options."""

    def __init__(self, options: Options) -> None:
        self.hard_negative_weight, self.temperature = options.hard_negative_weight, options.temperature
        self.reduction, self.exclusions = options.reduction, Exclusions(options.exclude)

    def check(self, retriever: Retriever, keys: Training) -> None:
        """Refuse a retriever that does not compare vectors."""
        check_vectors(retriever, "hnac")

    def prepare(self, retriever: Retriever, data: Any, device: torch.device) -> None:
        """Which pairs are no negatives."""
        self.exclusions.prepare(data, device)

    def __call__(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
        """Mean over both directions, and mean or sum over the batch, of

        ``-s_ii + log(exp(s_ii) + Σ_{j≠i} w_ij · exp(s_ij) + B · 1e-8)``, ``s = cos / temperature``,
        ``w_ij = 1 - hard_negative_weight · sigmoid(5 · cos_ij)`` without gradient.

        A hard negative is thus weighed *down*, as the original does whatever its name says. ``batch['items']`` (B,)
        tells which item each pair shows; another pair of the same item is left out (the original counts it as a
        negative), as is what ``exclude`` names.

        Raises:
            RewindError: if the retriever does not compare vectors.
        """
        left, right = unit_vectors(retriever, text, items, "hnac")
        with torch.autocast(left.device.type, enabled=False):
            cosine = left @ right.T
            same = self.exclusions.batch(batch)
            weights = 1 - self.hard_negative_weight * torch.sigmoid(SLOPE * cosine.detach())
            weighted = (weights.log() + cosine / self.temperature).masked_fill(same, -math.inf)
            truth = cosine.diagonal() / self.temperature
            losses = [self._rows(part, truth) for part in (weighted, weighted.T)]
        negatives = weights[~(same | torch.eye(len(same), dtype=torch.bool, device=same.device))]
        logs = {"negative_weight": negatives.mean().item()} if len(negatives) else {}
        both = (losses[0] + losses[1]) / 2
        return Loss(both.sum() if self.reduction == "sum" else both.mean(), logs)

    @staticmethod
    def _rows(weighted: Tensor, truth: Tensor) -> Tensor:
        """(B,) losses of one direction; the diagonal is put in by itself, it has no weight."""
        own = torch.eye(len(truth), dtype=torch.bool, device=truth.device)
        terms = torch.where(own, truth.unsqueeze(1), weighted)
        floor = torch.full_like(truth, math.log(len(truth) * FLOOR)).unsqueeze(1)
        return torch.cat([terms, floor], dim=1).logsumexp(dim=1) - truth


def build(options: Mapping[str, Any]) -> Hnac:
    """The loss with ``options: {hard_negative_weight: 0.5, temperature: 0.07, reduction: mean}``.

    Raises:
        RewindError: for another option, a weight outside 0 to 1, or a temperature that is not above 0.
    """
    return Hnac(read_options(Options, options, OPTIONS, "objective: hnac"))
