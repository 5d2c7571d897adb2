"""InfoNCE with the ranking term of CE-CLIP, whose threshold moves with the model (Zhang et al., CVPR 2024).

With s(v, t) the logit of a clip and a text, t⁻ the hard negative of caption t, and θ a threshold (arXiv 2306.08832,
section 3.3; lezhang7/Enhance-FineGrained @ 2d07821, ``get_cmr_loss``):

    L = InfoNCE + w · mean_i max(0, θ + s(v_i, t⁻_i) − s(v_i, t_i)),

and after each step θ becomes the mean of s(v_i, t_i) minus the mean of s(v_i, t⁻_i) of that step: 0 before the first.

What differs from their code: the mean is over captions that have a hard negative (theirs divides by all, which shrinks
the term); one kind of hard negatives has one threshold. Their other term (IMC) has no column for the positive caption,
and is not here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rewind.config import Training
from rewind.config.base import ConfigModel, config_field
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
from rewind.losses.infonce import symmetric_cross_entropy
from rewind.losses.negclip import contrast_with_negatives
from rewind.models.retriever import Features, Retriever, at_least_float32
from rewind.registry import LOSSES


class CeclipOptions(ConfigModel):
    """Options of the loss."""

    rank_weight: float = config_field(0.2, "Weight w of the ranking term.", ge=0)
    hard_columns: bool = config_field(
        False, "Whether clips also tell their captions from hard negatives in the first term, as in `negclip`."
    )
    temperature: float | None = temperature_field()
    exclude: list[Exclude] = exclude_field()


@LOSSES.register("ceclip")
class Ceclip(HardNegativeObjective):
    """The loss with its options, and ``threshold``, the θ of the next step."""

    Options = CeclipOptions

    def __init__(self, options: CeclipOptions) -> None:
        self.options, self.exclusions, self.threshold = options, Exclusions(options.exclude), 0.0
        self._seen: tuple[Tensor, float] | None = None  # rows of the last step, and the threshold that it began with

    def check(self, retriever: Retriever, keys: Training) -> None:
        """Refuse a study without hard negatives, or a retriever without vectors if its cosines are needed."""
        super().check(retriever, keys)
        if self.options.temperature is not None:
            require_vectors(retriever, "ceclip with a temperature")

    def state_dict(self) -> dict[str, Any]:
        return {"threshold": self.threshold}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.threshold = state["threshold"]

    def __call__(  # type: ignore[override]  # losses with hard negatives are called with these too
        self, retriever: Retriever, text: Features, items: Features, batch: Features, negatives: Features
    ) -> Loss:
        """The formula above. Missing hard negatives, and those true of their clip, have no part in the term."""
        options, name = self.options, "ceclip with a temperature"
        captions = pair_logits(retriever, text, items, options.temperature, name)
        # Row i is the hard negative of caption i, column j an item; the diagonal is s(v_i, t⁻_i).
        hard = pair_logits(retriever, negatives, items, options.temperature, name)
        excluded, excluded_hard = self.exclusions.batch(batch), self.negatives.excluded(batch)
        if options.hard_columns:
            contrast = contrast_with_negatives(captions, hard, excluded, excluded_hard)
        else:
            contrast = symmetric_cross_entropy(captions, excluded)
        usable = ~excluded_hard.diagonal()
        gaps = at_least_float32(captions.diagonal() - hard.diagonal())[usable]
        threshold = self._threshold_of(batch["rows"])
        if not len(gaps):
            return Loss(contrast.value, contrast.logs | {"threshold": threshold})
        ranking = (threshold - gaps).clamp(min=0).mean()
        self.threshold = float(gaps.detach().mean())
        logs: dict[str, float | Tensor] = {
            "ranking": ranking.detach(),
            "threshold": threshold,
            "above_hard_negative": (gaps > 0).float().mean(),
        }
        return Loss(contrast.value + options.rank_weight * ranking, contrast.logs | logs)

    def _threshold_of(self, rows: Tensor) -> float:
        """The threshold with which a step begins: the same again if it is repeated because memory ran out."""
        if self._seen is None or not torch.equal(self._seen[0], rows):
            self._seen = rows.clone(), self.threshold
        return self._seen[1]
