"""Channel decorrelation of matched tokens and frames, beside InfoNCE (DRL, Wang et al., 2022, arXiv 2203.07111).

Follows foolwood/DRL @475f96c: its ``cdcr`` 3 for a head with learnt weights, 2 for one with uniform weights. One thing
differs: a channel that does not vary correlates with nothing, where upstream divides by its deviation of 0 and the loss
is not a number. That happens where all frames of a batch meet the token that begins every caption.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rewind.errors import RewindError
from rewind.models.retriever import Features, Retriever
from rewind.models.wti import Wti
from rewind.objectives.exclude import Exclude, Exclusions, exclude_key
from rewind.objectives.infonce import symmetric
from rewind.objectives.interface import OPTIONS, Loss, Objective
from rewind.study import Training
from rewind.study.keys import Keys, key, read_options

STILL = 1e-6  # deviation of a channel of unit vectors below which it does not vary, but for rounding


class Options(Keys):
    """Options of the loss."""

    strength: float = key(0.001, "What the regulariser is multiplied by (upstream's `cdcr_lambda`).", ge=0)
    diagonal: float = key(0.11, "Weight of channels that disagree with themselves (`cdcr_alpha1`).", ge=0)
    off_diagonal: float = key(0.0, "Weight of channels that agree with others (`cdcr_alpha2`).", ge=0)
    exclude: list[Exclude] = exclude_key()


def build(options: Mapping[str, Any]) -> Objective:
    """InfoNCE and the regulariser.

    Raises:
        RewindError: for another option.
    """
    return Cdcr(read_options(Options, options, OPTIONS, "objective: cdcr"))


class Cdcr(Objective):
    """InfoNCE, plus how far channels of a caption's tokens and of the frames that they meet are from being the same.

    Each token of a caption is matched with the closest frame of its own clip, and each frame with the closest token.
    """

    def __init__(self, options: Options) -> None:
        self.options, self.exclusions = options, Exclusions(options.exclude)

    def check(self, retriever: Retriever, keys: Training) -> None:
        """Refuse a retriever whose head does not match tokens with frames."""
        _head(retriever)

    def prepare(self, retriever: Retriever, data: Any, device: torch.device) -> None:
        """Which pairs are no negatives."""
        self.exclusions.prepare(data, device)

    def __call__(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
        """The loss of a global batch; ``cdcr`` is logged without its strength.

        The regulariser sees each caption with its own clip alone, so that ``exclude`` changes InfoNCE only.
        """
        contrast = symmetric(retriever.similarity(text, items), self.exclusions.batch(batch)).value
        extra = self.regulariser(_head(retriever), text, items)
        return Loss(contrast + self.options.strength * extra, {"infonce": contrast.detach(), "cdcr": extra.detach()})

    def regulariser(self, head: Wti, text: Features, items: Features) -> Tensor:
        """``a1 · sum (C_dd - 1)² + a2 · sum over d ≠ e of C_de²`` with C the correlation of matched channels."""
        with torch.autocast(text["text"].device.type, enabled=False):
            frame, word = head.matches(text, items)
            at_words, at_frames = text["words"].bool(), items["mask"].bool()
            own_words, own_frames = text["text"][at_words], items["video"][at_frames]
            met_frames, met_words = _picked(items["video"], frame)[at_words], _picked(text["text"], word)[at_frames]
            weights = [text["weight"][at_words], items["weight"][at_frames]]
            if head.uniform:  # places count the same, as upstream; captions of more tokens then count more
                weights = [torch.ones_like(some) for some in weights]
            # As upstream: token's channel by frame's, plus frame's by token's.
            by_word = _correlation(own_words, met_frames, weights[0])
            by_frame = _correlation(own_frames, met_words, weights[1])
            both = (by_word + by_frame) / 2
            own = both.diagonal()
            others = both.square().sum() - own.square().sum()
            return self.options.diagonal * (own - 1).square().sum() + self.options.off_diagonal * others


def _head(retriever: Retriever) -> Wti:
    head = getattr(getattr(retriever, "retriever", retriever), "head", None)
    if isinstance(head, Wti):
        return head
    raise RewindError(
        "training.objective: cdcr decorrelates the tokens and frames that a head matches: set methods.*.head: wti, or "
        "another objective."
    )


def _picked(vectors: Tensor, places: Tensor) -> Tensor:
    """(B, P, D) at places (B, Q) → (B, Q, D)."""
    return vectors.gather(1, places.unsqueeze(-1).expand(-1, -1, vectors.shape[-1]))


def _correlation(one: Tensor, other: Tensor, weight: Tensor) -> Tensor:
    """(D, D) correlation of the channels of two sides, (R, D) both; ``weight`` (R,) counts rows."""
    return (_scored(one) * (weight / weight.sum()).unsqueeze(-1)).T @ _scored(other)


def _scored(rows: Tensor) -> Tensor:
    """Each channel with mean 0 and deviation 1; all 0, and without gradient, where it does not vary."""
    deviation = rows.std(dim=0)
    still = ~(deviation >= STILL)
    return (rows - rows.mean(dim=0)).masked_fill(still, 0) / deviation.masked_fill(still, 1)
