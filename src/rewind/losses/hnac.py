"""HNAC, the hard-negative-aware contrastive loss: InfoNCE in which closer negatives weigh less (docs/cosine-gap.md).

With s = cos / τ of B pairs, each direction has the loss

    mean_i [ −s_ii + log( e^{s_ii} + Σ_{j≠i} w_ij · e^{s_ij} + B · 1e-8 ) ],   w_ij = 1 − h · σ(5 · cos_ij),

with h the option ``hard_negative_weight``; no gradient flows through w.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from rewind.config import Training
from rewind.config.base import ConfigModel, config_field
from rewind.losses.base import (
    Exclude,
    Exclusions,
    Loss,
    Objective,
    exclude_field,
    require_vectors,
    unit_vectors,
)
from rewind.models.retriever import Features, Retriever
from rewind.registry import LOSSES

SIGMOID_SLOPE = 5.0  # the 5 in σ(5 · cos)
TERM_FLOOR = 1e-8  # the original adds it to each of the B terms of a row's sum, so B · 1e-8 in all


class HnacOptions(ConfigModel):
    """Options of the loss."""

    hard_negative_weight: float = config_field(0.5, "How much the closest negatives lose of their weight.", ge=0, le=1)
    temperature: float = config_field(0.07, "What cosines are divided by.", gt=0)
    reduction: Literal["mean", "sum"] = config_field(
        "mean", "Over the pairs of a batch; of both directions the mean is taken."
    )
    exclude: list[Exclude] = exclude_field()


@LOSSES.register("hnac")
class Hnac(Objective):
    """The loss with its options.

    >>> class Cosines:
    ...     compares_vectors = True
    ...     def vectors(self, text, items):
    ...         return text["text"], items["frames"]
    >>> hnac, pairs = Hnac(HnacOptions()), {"items": torch.arange(3)}
    >>> loss = hnac(Cosines(), {"text": torch.eye(3)}, {"frames": torch.eye(3)}, pairs)
    >>> round(loss.logs["negative_weight"], 2)  # 1 − 0.5 · σ(0)
    0.75
    """

    Options = HnacOptions

    def __init__(self, options: HnacOptions) -> None:
        self.hard_negative_weight, self.temperature = options.hard_negative_weight, options.temperature
        self.reduction, self.exclusions = options.reduction, Exclusions(options.exclude)

    def check(self, retriever: Retriever, keys: Training) -> None:
        require_vectors(retriever, "hnac")

    def prepare(self, retriever: Retriever, data: Any, device: torch.device) -> None:
        self.exclusions.prepare(data, device)

    def __call__(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
        """The formula above, averaged over both directions, and averaged or summed over the batch.

        A hard negative is thus weighted *down*, as in the original, whatever its name suggests. Another pair of the
        same item is left out (the original counts it as a negative), as is what ``exclude`` names.
        """
        texts, views = unit_vectors(retriever, text, items, "hnac")
        with torch.autocast(texts.device.type, enabled=False):
            cosine = texts @ views.T
            excluded = self.exclusions.batch(batch)
            weights = 1 - self.hard_negative_weight * torch.sigmoid(SIGMOID_SLOPE * cosine.detach())
            # w · e^s = e^{log w + s}: the sum is then one logsumexp, which cannot overflow. w is at least 1 − h · σ(5),
            # above 0 for every h up to 1.
            weighted = (weights.log() + cosine / self.temperature).masked_fill(excluded, -math.inf)
            truth = cosine.diagonal() / self.temperature
            losses = [self._rows(part, truth) for part in (weighted, weighted.T)]
        negatives = weights[~(excluded | torch.eye(len(excluded), dtype=torch.bool, device=excluded.device))]
        logs: dict[str, float | Tensor] = {"negative_weight": negatives.mean().item()} if len(negatives) else {}
        per_pair = (losses[0] + losses[1]) / 2
        return Loss(per_pair.sum() if self.reduction == "sum" else per_pair.mean(), logs)

    @staticmethod
    def _rows(weighted: Tensor, truth: Tensor) -> Tensor:
        """(B,) losses of one direction; the diagonal of ``weighted`` is replaced, since a pair itself has no weight."""
        own = torch.eye(len(truth), dtype=torch.bool, device=truth.device)
        terms = torch.where(own, truth.unsqueeze(1), weighted)
        floor = torch.full_like(truth, math.log(len(truth) * TERM_FLOOR)).unsqueeze(1)  # one more term, B · 1e-8
        return torch.cat([terms, floor], dim=1).logsumexp(dim=1) - truth
