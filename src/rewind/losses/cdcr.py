"""CDCR: channel decorrelation of matched tokens and frames, added to InfoNCE.

Source: DRL, Wang et al., 2022, arXiv 2203.07111.
With C (D, D) the correlations of the channels of captions' tokens with the channels of the frames they match,

    loss = InfoNCE + strength · [ diagonal · Σ_d (C_dd − 1)² + off_diagonal · Σ_{d≠e} C_de² ].

Follows foolwood/DRL @475f96c: its ``cdcr`` 3 for a head with learnt weights, 2 for one with uniform weights. One thing
differs: a channel that does not vary correlates with nothing, where upstream divides by its standard deviation of 0 and
the loss is NaN. That happens if all frames of a batch are matched with the token that begins every caption.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rewind.config import Training
from rewind.config.base import ConfigModel, config_field
from rewind.errors import RewindError
from rewind.losses.base import Exclude, Exclusions, Loss, Objective, exclude_field
from rewind.losses.infonce import symmetric_cross_entropy
from rewind.models.heads.wti import Wti
from rewind.models.retriever import Features, Retriever
from rewind.registry import LOSSES

MIN_STD = 1e-6  # standard deviation of a channel of unit vectors below which only rounding varies


class CdcrOptions(ConfigModel):
    """Options of the loss."""

    strength: float = config_field(0.001, "What the regulariser is multiplied by (upstream's `cdcr_lambda`).", ge=0)
    diagonal: float = config_field(0.11, "Weight of channels that disagree with themselves (`cdcr_alpha1`).", ge=0)
    off_diagonal: float = config_field(0.0, "Weight of channels that agree with others (`cdcr_alpha2`).", ge=0)
    exclude: list[Exclude] = exclude_field()


@LOSSES.register("cdcr")
class Cdcr(Objective):
    """InfoNCE, plus how far the channels of tokens and of the frames they match are from being the same.

    Each token of a caption is matched with the closest frame of its own clip, and each frame with the closest token.
    """

    Options = CdcrOptions

    def __init__(self, options: CdcrOptions) -> None:
        self.options, self.exclusions = options, Exclusions(options.exclude)

    def check(self, retriever: Retriever, keys: Training) -> None:
        """Refuse a retriever whose head does not match tokens with frames."""
        _require_wti_head(retriever)

    def prepare(self, retriever: Retriever, data: Any, device: torch.device) -> None:
        self.exclusions.prepare(data, device)

    def __call__(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
        """The loss of a global batch; ``cdcr`` is logged before it is multiplied by its strength.

        The regulariser sees each caption with its own clip only, so ``exclude`` changes only InfoNCE.
        """
        contrast = symmetric_cross_entropy(retriever.similarity(text, items), self.exclusions.batch(batch)).value
        penalty = self.regulariser(_require_wti_head(retriever), text, items)
        return Loss(
            contrast + self.options.strength * penalty, {"infonce": contrast.detach(), "cdcr": penalty.detach()}
        )

    def regulariser(self, head: Wti, text: Features, items: Features) -> Tensor:
        """The penalty, without the strength.

        ``text`` has ``text`` (B, L, D) of unit length, the mask ``words`` (B, L) and ``weight`` (B, L); ``items`` has
        ``video`` (B, T, D) of unit length, ``mask`` (B, T) and ``weight`` (B, T).
        """
        with torch.autocast(text["text"].device.type, enabled=False):
            best_frame, best_word = head.matches(text, items)  # (B, L) of every token, (B, T) of every frame
            # From here on only real tokens and frames, of all pairs in one list: (R, D).
            is_word, is_frame = text["words"].bool(), items["mask"].bool()
            words, frames = text["text"][is_word], items["video"][is_frame]
            frames_of_words = _gather_rows(items["video"], best_frame)[is_word]
            words_of_frames = _gather_rows(text["text"], best_word)[is_frame]
            weights = [text["weight"][is_word], items["weight"][is_frame]]
            # With uniform weights every token counts the same, as upstream; captions of more tokens then count more.
            if head.uniform:
                weights = [torch.ones_like(weight) for weight in weights]
            # As upstream: token's channel by frame's, plus frame's by token's. The second is not transposed, so entry
            # (d, e) off the diagonal adds token channel d with frame channel e to frame channel d with token channel e.
            by_word = _correlation(words, frames_of_words, weights[0])
            by_frame = _correlation(frames, words_of_frames, weights[1])
            correlation = (by_word + by_frame) / 2
            diagonal = correlation.diagonal()
            off_diagonal = correlation.square().sum() - diagonal.square().sum()
            return self.options.diagonal * (diagonal - 1).square().sum() + self.options.off_diagonal * off_diagonal


def _require_wti_head(retriever: Retriever) -> Wti:
    # In the step, SharedPairScores takes the retriever's place and holds it as ``retriever``.
    head = getattr(getattr(retriever, "retriever", retriever), "head", None)
    if isinstance(head, Wti):
        return head
    raise RewindError(
        "training.objective: cdcr decorrelates the tokens and frames that a head matches: set methods.*.head: wti, or "
        "another objective."
    )


def _gather_rows(vectors: Tensor, index: Tensor) -> Tensor:
    """Vectors (B, P, D) at positions ``index`` (B, Q) → (B, Q, D)."""
    return vectors.gather(1, index.unsqueeze(-1).expand(-1, -1, vectors.shape[-1]))


def _correlation(rows: Tensor, matches: Tensor, weight: Tensor) -> Tensor:
    """(D, D) correlations of the channels of two sides, both (R, D); ``weight`` (R,) weights the rows.

    As upstream, means and deviations are not weighted; only the sum of products is.
    """
    return (_standardise(rows) * (weight / weight.sum()).unsqueeze(-1)).T @ _standardise(matches)


def _standardise(rows: Tensor) -> Tensor:
    """Each channel with mean 0 and deviation 1; all 0, and without gradient, where it does not vary."""
    deviation = rows.std(dim=0)
    constant = ~(deviation >= MIN_STD)  # not `<`: a single row has a deviation of NaN
    return (rows - rows.mean(dim=0)).masked_fill(constant, 0) / deviation.masked_fill(constant, 1)
