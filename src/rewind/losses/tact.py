"""TACT: InfoNCE over clips and their time-reversed twins, whose pairs are weighted (Bagad et al., CVPR 2023).

Clips of a batch run forward or reversed. With logits S (B, B), log α is added where row and column are of different
directions: α_same for a clip's own twin, α_cross for all others (arXiv 2301.02074, eq. 3 and 4; bpiyush/TestOfTime @
5dce55d, ``package/losses/weighted_contrastive.py``). Each direction of search has the loss

    Σ_i w_i · −log softmax(S_i· + log α_i·)_i / Σ_i w_i,   w_i = 1, or β of a reversed clip,

and the loss is the mean of both. α = 1 and β = 1 is InfoNCE. α_cross = 0 leaves of the reversed negatives little but
a clip's own twin: as the authors' code takes log(α + 1e-8), the others keep a factor of 1e-8, so that one whose
cosine is ahead of the pair's by 18.4 divided by the scale counts as a whole negative: by .18 at scale 100, by .92 at
20, and never at scales below 9.2. Their code reverses the order of two events within a batch; here twins come together
(``training.batch.twins_together``), with the captions that people wrote for them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rewind.config import Training
from rewind.config.base import ConfigModel, config_field
from rewind.errors import RewindError
from rewind.losses.base import (
    Exclude,
    Exclusions,
    Loss,
    Objective,
    cluster_numbers,
    exclude_field,
    pair_logits,
    require_vectors,
    temperature_field,
)
from rewind.models.retriever import Features, Retriever
from rewind.registry import LOSSES

ALPHA_FLOOR = 1e-8
"""Added to α before its logarithm, as in the original: α = 0 is then a factor of e^−18.4, and not 0."""


class TactOptions(ConfigModel):
    """Options of the loss."""

    alpha_same: float = config_field(1.0, "Factor α of a clip's own twin in the sum over negatives.", ge=0)
    alpha_cross: float = config_field(1.0, "Factor α of all other clips of the opposite direction.", ge=0)
    beta: float = config_field(1.0, "Weight of reversed clips, whose own losses are left out with 0.", ge=0)
    temperature: float | None = temperature_field()
    exclude: list[Exclude] = exclude_field()


@LOSSES.register("tact")
class Tact(Objective):
    """The loss with its options."""

    Options = TactOptions

    def __init__(self, options: TactOptions) -> None:
        self.options, self.exclusions = options, Exclusions(options.exclude)
        self.clusters = self.reversed = torch.empty(0)  # of each item of the split

    def check(self, retriever: Retriever, keys: Training) -> None:
        """Refuse batches in which clips and twins do not meet, or a retriever without vectors if it needs them."""
        if not keys.batch.twins_together:
            raise RewindError("training.batch.twins_together: tact compares clips with their twins; set it to true.")
        if self.options.temperature is not None:
            require_vectors(retriever, "tact with a temperature")

    def prepare(self, retriever: Retriever, data: Any, device: torch.device) -> None:
        """Look up which items are reversed, and which are twins; a training split without twins is refused."""
        if data.reversed_items is None or not data.reversed_items.any():
            raise RewindError("training.objective: tact needs reversed twins with captions in the training split.")
        self.exclusions.prepare(data, device)
        self.reversed = torch.from_numpy(data.reversed_items).to(device)
        self.clusters = cluster_numbers(data, device)

    def __call__(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
        """The formula above; pairs of one item are not negatives of each other."""
        options = self.options
        logits = pair_logits(retriever, text, items, options.temperature, "tact with a temperature")
        is_reversed, clusters = self.reversed[batch["items"]], self.clusters[batch["items"]]
        factors = log_factors(is_reversed, clusters, options.alpha_same, options.alpha_cross)
        weights = torch.where(is_reversed, options.beta, 1.0)
        return weighted_contrast(logits + factors, self.exclusions.batch(batch), weights)


def log_factors(is_reversed: Tensor, clusters: Tensor, same: float, cross: float) -> Tensor:
    """log α of all pairs, (B, B): 0 within a direction; ``clusters`` (B,) is the same for a clip and its twin.

    ``same`` is the α of a clip and its twin, ``cross`` that of other clips of different directions.

    >>> log_factors(torch.tensor([False, True]), torch.tensor([3, 3]), same=1.0, cross=0.0).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    across = is_reversed[:, None] != is_reversed[None]
    twins = across & (clusters[:, None] == clusters[None])
    # log1p(x − 1 + floor) would be exact too; α of 1 must give 0, so that InfoNCE comes out to the bit.
    own, other = (math.log(alpha + ALPHA_FLOOR) if alpha != 1 else 0.0 for alpha in (same, cross))
    factors = torch.zeros(across.shape, device=across.device)
    return factors.masked_fill(across, other).masked_fill(twins, own)


def weighted_contrast(logits: Tensor, excluded: Tensor, weights: Tensor) -> Loss:
    """Mean of both directions' cross entropies of logits (B, B), row i belonging to column i, without excluded pairs.

    Each row is weighted; ``weights`` (B,) are not all 0.

    >>> weighted_contrast(torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.bool), torch.tensor([1.0, 0.0])).value.exp()
    tensor(2.)
    """
    logits = logits.masked_fill(excluded, torch.finfo(logits.dtype).min)
    truth = torch.arange(len(logits), device=logits.device)
    rows = F.cross_entropy(logits, truth, reduction="none") + F.cross_entropy(logits.T, truth, reduction="none")
    return Loss((weights * rows).sum() / weights.sum() / 2)
