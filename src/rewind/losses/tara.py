"""TARA's loss of texts only: a caption finds another caption of its clip among those of others and hard negatives.

With unit vectors of captions, a_i of caption i, p_i of another caption of the same clip, n_j of hard negatives, and
τ = 0.05 (Bagad and Zisserman, arXiv 2512.13511; bpiyush/TARA @ 4e9791b, ``training/finetuning.py``):

    mean_i −log( e^{a_i·p_i/τ} / (Σ_j e^{a_i·p_j/τ} + Σ_j e^{a_i·n_j/τ}) ).

No clip is looked at: the visual side stays as it is (``training.freeze: [visual]``), and the text tower learns to tell
opposites apart. So it can only help where the vectors of clips and their reversals differ already. Their anchors and
positives are two lists; here two captions of a clip come in one batch (sampler ``pk``), and each is an anchor once.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from rewind.config import Training
from rewind.config.base import ConfigModel, config_field
from rewind.errors import RewindError
from rewind.losses.base import (
    Exclude,
    Exclusions,
    HardNegativeObjective,
    Loss,
    exclude_field,
    require_vectors,
    unit_vectors,
)
from rewind.models.retriever import Features, Retriever
from rewind.registry import LOSSES


class TaraOptions(ConfigModel):
    """Options of the loss."""

    temperature: float = config_field(0.05, "What cosines are divided by.", gt=0)
    exclude: list[Exclude] = exclude_field()


@LOSSES.register("tara")
class Tara(HardNegativeObjective):
    """The loss with its options."""

    Options = TaraOptions

    def __init__(self, options: TaraOptions) -> None:
        self.temperature, self.exclusions = options.temperature, Exclusions(options.exclude)

    def check(self, retriever: Retriever, keys: Training) -> None:
        """Refuse a study without hard negatives or two captions of a clip, or a retriever without vectors."""
        super().check(retriever, keys)
        require_vectors(retriever, "tara")
        if keys.batch.sampler == "uniform":
            raise RewindError(
                "training.batch.sampler: tara compares captions of one clip, which must be in one batch; set it to pk."
            )

    def __call__(  # type: ignore[override]  # losses with hard negatives are called with these too
        self, retriever: Retriever, text: Features, items: Features, batch: Features, negatives: Features
    ) -> Loss:
        """The formula above, over captions with another one of their clip in the batch, of which there must be some."""
        texts, _ = unit_vectors(retriever, text, items, "tara")
        hard, _ = unit_vectors(retriever, negatives, items, "tara")
        partner = next_of_same_item(batch["items"])
        anchors = partner >= 0
        if not anchors.any():
            raise RewindError(
                "training.batch.sampler: no two captions of a batch are of one clip, which tara compares; set it to pk."
            )
        # Neither a caption itself nor another one of its clip is a negative; the partner is the positive.
        same = batch["items"][:, None] == batch["items"][None]
        same[anchors, partner[anchors]] = False
        # `&` binds before `|`. The batch's exclusions hold all other captions of a clip, so the partner is taken out
        # there too.
        excluded = same | self.exclusions.batch(batch) & ~_at(partner, len(same))
        excluded_hard = self.negatives.excluded(batch)
        with torch.autocast(texts.device.type, enabled=False):
            least = torch.finfo(texts.dtype).min
            captions = (texts @ texts.T / self.temperature).masked_fill(excluded, least)
            # excluded_hard is (hard negatives, items), and caption i stands for its item.
            opposites = (texts @ hard.T / self.temperature).masked_fill(excluded_hard.T, least)
            value = F.cross_entropy(torch.cat([captions, opposites], dim=1)[anchors], partner[anchors])
        own = ~excluded_hard.diagonal() & anchors
        told = captions[own, partner[own]] > opposites.diagonal()[own]
        return Loss(value, {"above_hard_negative": told.float().mean()} if len(told) else {})


def next_of_same_item(items: Tensor) -> Tensor:
    """(B,) for each pair the next one of the same item, the first again after the last; -1 if it is the only one.

    >>> next_of_same_item(torch.tensor([5, 9, 5, 7, 5])).tolist()
    [2, -1, 4, -1, 0]
    """
    count = len(items)
    # How many places behind pair i pair j comes, in a circle: (B, B).
    order = (torch.arange(count, device=items.device)[None] - torch.arange(count, device=items.device)[:, None]) % count
    same = (items[:, None] == items[None]) & (order > 0)
    nearest = torch.where(same, order, count).min(dim=1)
    return torch.where(nearest.values < count, nearest.indices, -1)


def _at(partner: Tensor, count: int) -> Tensor:
    """Bool (B, B): the column of each row's partner."""
    return partner[:, None] == torch.arange(count, device=partner.device)[None]
