"""NegCLIP: InfoNCE in which clips also tell their captions from hard negatives (Yuksekgonul et al., ICLR 2023).

With logits S (B, B) of captions and clips, and N (B, B) of hard negatives and clips (arXiv 2210.01936, section 4;
vinid/neg_clip @ e680f8e), the loss is

    ½ (mean_i −log softmax(S_i·)_i + mean_j −log softmax([S_·j; N_·j])_j):

a caption finds its clip among those of the batch, and a clip its caption among all captions and all hard negatives. The
original also adds the clips of the hard negatives to the batch; that is ``training.batch.twins_together`` here.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from rewind.config import Training
from rewind.config.base import ConfigModel
from rewind.losses.base import (
    Exclude,
    Exclusions,
    HardNegativeObjective,
    Loss,
    exclude_field,
    pair_logits,
    require_vectors,
    temperature_field,
)
from rewind.models.retriever import Features, Retriever
from rewind.registry import LOSSES


class NegclipOptions(ConfigModel):
    """Options of the loss."""

    temperature: float | None = temperature_field()
    exclude: list[Exclude] = exclude_field()


@LOSSES.register("negclip")
class Negclip(HardNegativeObjective):
    """The loss with its options."""

    Options = NegclipOptions

    def __init__(self, options: NegclipOptions) -> None:
        self.temperature, self.exclusions = options.temperature, Exclusions(options.exclude)

    def check(self, retriever: Retriever, keys: Training) -> None:
        """Refuse a study without hard negatives, or a retriever without vectors if its cosines are needed."""
        super().check(retriever, keys)
        if self.temperature is not None:
            require_vectors(retriever, "negclip with a temperature")

    def __call__(  # type: ignore[override]  # losses with hard negatives are called with these too
        self, retriever: Retriever, text: Features, items: Features, batch: Features, negatives: Features
    ) -> Loss:
        """The formula above. Hard negative i is left out of item j's sum where it is a caption of it, or there is none.

        That is the case, for example, where the clip's twin is in the batch, whose caption it may be.
        """
        loss = "negclip with a temperature"
        captions = pair_logits(retriever, text, items, self.temperature, loss)
        hard = pair_logits(retriever, negatives, items, self.temperature, loss)
        return contrast_with_negatives(captions, hard, self.exclusions.batch(batch), self.negatives.excluded(batch))


def contrast_with_negatives(captions: Tensor, hard: Tensor, excluded: Tensor, excluded_hard: Tensor) -> Loss:
    """NegCLIP's loss of logits (B, B): ``captions`` with items, and ``hard`` negatives with items.

    >>> zeros, none = torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.bool)
    >>> value = contrast_with_negatives(zeros, zeros, none, none).value  # 2 items; 2 captions and 2 hard negatives
    >>> bool(torch.isclose(value, (torch.tensor(2.0).log() + torch.tensor(4.0).log()) / 2))
    True
    """
    least = torch.finfo(captions.dtype).min  # not −inf: see symmetric_cross_entropy
    captions, hard = captions.masked_fill(excluded, least), hard.masked_fill(excluded_hard, least)
    truth = torch.arange(len(captions), device=captions.device)
    to_items = F.cross_entropy(captions, truth)
    # (2B, B) transposed: each item looks for its caption among B captions and B hard negatives.
    to_texts = F.cross_entropy(torch.cat([captions, hard]).T, truth)
    told = (captions.diagonal() > hard.diagonal())[~excluded_hard.diagonal()]
    logs: dict[str, float | Tensor] = {"above_hard_negative": told.float().mean()} if len(told) else {}
    return Loss((to_items + to_texts) / 2, logs)
