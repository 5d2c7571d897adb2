"""Sigmoid loss: every pair of the batch is its own yes-or-no question (SigLIP, Zhai et al., 2023, arXiv 2303.15343).

With logits S (B, B) of B pairs, a learnt bias b, and z_ij = 1 where caption i belongs to item j, else −1,

    loss = −1/B · Σ_i Σ_j log σ( z_ij · (S_ij + b) ),

which is equation 1 there. No softmax runs over the batch, so a batch of few pairs loses less than with InfoNCE.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rewind.config import Training
from rewind.config.base import ConfigModel, config_field
from rewind.losses.base import (
    Exclude,
    Exclusions,
    Loss,
    Objective,
    exclude_field,
    pair_logits,
    require_vectors,
    temperature_field,
)
from rewind.models.retriever import Features, Retriever, at_least_float32
from rewind.registry import LOSSES


class SigmoidOptions(ConfigModel):
    """Options of the loss."""

    initial_bias: float = config_field(
        -10.0,
        "Where the bias begins. A batch of B pairs has B − 1 wrong items for every right one: without a strongly "
        "negative bias the first steps would only correct that.",
    )
    temperature: float | None = temperature_field()
    exclude: list[Exclude] = exclude_field()


@LOSSES.register("sigmoid")
class Sigmoid(nn.Module, Objective):
    """The sigmoid loss with its bias, a parameter that is trained next to the retriever's.

    The learnt scale is the retriever's own (``logit_scale``): the paper's t′. Ranks do not depend on the bias, which
    is therefore not kept with the finished model; ``history.csv`` has its course.
    """

    Options = SigmoidOptions

    def __init__(self, options: SigmoidOptions) -> None:
        super().__init__()
        self.temperature, self.exclusions = options.temperature, Exclusions(options.exclude)
        self.bias = nn.Parameter(torch.tensor(options.initial_bias))

    def check(self, retriever: Retriever, keys: Training) -> None:
        if self.temperature is not None:
            require_vectors(retriever, "sigmoid with a temperature")

    def prepare(self, retriever: Retriever, data: Any, device: torch.device) -> None:
        self.exclusions.prepare(data, device)

    def forward(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
        """The loss of a global batch; the bias is logged."""
        logits = pair_logits(retriever, text, items, self.temperature, "sigmoid with a temperature")
        loss = sigmoid_loss(logits, self.bias, self.exclusions.batch(batch))
        return Loss(loss, {"bias": self.bias.detach()})


def sigmoid_loss(logits: Tensor, bias: Tensor, excluded: Tensor) -> Tensor:
    """``−1/B · Σ log σ(z · (logits + bias))`` over the pairs of logits (B, B) that are not excluded.

    Excluded pairs count neither as right nor as wrong; the diagonal is not excluded.

    >>> round(sigmoid_loss(torch.zeros(1, 1), torch.tensor(0.0), torch.zeros(1, 1, dtype=torch.bool)).item(), 4)  # ln 2
    0.6931
    """
    # In float32 whatever autocast does: bf16 has steps of 1/16 at 10, where the bias begins.
    logits = at_least_float32(logits)
    signs = 2 * torch.eye(len(logits), dtype=logits.dtype, device=logits.device) - 1
    terms = F.logsigmoid(signs * (logits + bias))
    return -terms.masked_fill(excluded, 0.0).sum() / len(logits)
