"""InfoNCE with several positives, and the terms beside it, as functions of vectors; nothing here remembers anything."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Debias = Literal["none", "chuang", "seed"]
SMALLEST = 1e-8


def multi_positive(
    logits: Tensor, positive: Tensor, negative: Tensor, tau: float, debias: Debias = "none", prior: float = 0.01
) -> Tensor:
    """``log Σ_all e^logit − log Σ_positive e^logit`` of every row, (n,).

    The sum over positives is inside the logarithm: it is enough that one of them is near.

    Args:
        logits: (n, c), cosines over ``tau``.
        positive, negative: bool (n, c); a column that is neither does not count. Every row has a positive.
        tau: the temperature in ``logits``; ``chuang`` needs it for its lower bound.
        debias: ``chuang``: the negatives are taken for a mixture with ``prior`` positives (Chuang et al. 2020, eq. 8):
            ``max((Σneg − prior · N · pos) / (1 − prior), N e^(−1/tau))`` with N negatives and ``pos`` the mean over
            positives. ``seed``: the original's ``log max(Z − prior · Σpos, 1e-8)``, which only takes a part of the
            positives out of the denominator and can be negative.
        prior: chance that a negative is a positive.
    """
    good, bad = (_log_sum(logits, mask) for mask in (positive, negative))
    if debias == "none":
        return torch.logaddexp(good, bad) - good
    top = logits.detach().masked_fill(~(positive | negative), -math.inf).amax(dim=1)
    good_sum, bad_sum = (good - top).exp(), (bad - top).exp()
    if debias == "seed":
        whole = (good_sum + bad_sum - prior * good_sum).clamp(min=0)
        return torch.maximum(whole, SMALLEST * (-top).exp()).log() + top - good
    count = negative.sum(dim=1).to(logits.dtype)
    mean = good_sum / positive.sum(dim=1)
    corrected = (bad_sum - prior * count * mean) / (1 - prior)
    least = count * (-1 / tau - top).exp()
    return (good_sum + torch.maximum(corrected, least)).log() + top - good


def hardest(logits: Tensor, allowed: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Every row's own ``count`` largest logits (n, h) among ``allowed`` columns, and whether each is one (bool)."""
    masked = logits.masked_fill(~allowed, -math.inf)
    values = masked.topk(min(count, logits.shape[1]), dim=1).values
    there = torch.isfinite(values)
    return values.masked_fill(~there, 0.0), there


def moment_distance(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean squared difference of the means, plus that of the (biased) standard deviations, over a batch (n, D)."""
    means = F.mse_loss(outputs.mean(dim=0), targets.mean(dim=0))
    return means + F.mse_loss(_deviation(outputs), _deviation(targets))


def agreement(unit: Tensor, ids: Tensor) -> Tensor:
    """How far captions of one item are apart: variance of their unit vectors (n, D) within each item that has two or
    more, mean over dimensions and items; 0 where there is none."""
    _, code, sizes = torch.unique(ids, return_inverse=True, return_counts=True)
    sums = unit.new_zeros(len(sizes), unit.shape[1]).index_add(0, code, unit)
    means = sums / sizes[:, None]
    spread = unit.new_zeros(len(sizes)).index_add(0, code, ((unit - means[code]) ** 2).mean(dim=1)) / sizes
    groups = sizes > 1
    return spread[groups].mean() if groups.any() else unit.sum() * 0.0


def _deviation(values: Tensor) -> Tensor:
    """Biased; where there is none its gradient is 0."""
    variance = values.var(dim=0, unbiased=False)
    flat = variance == 0
    return variance.masked_fill(flat, 1.0).sqrt().masked_fill(flat, 0.0)


def _log_sum(logits: Tensor, mask: Tensor) -> Tensor:
    """(n,); very small where a row of ``mask`` is empty, with gradient 0."""
    return logits.masked_fill(~mask, torch.finfo(logits.dtype).min).logsumexp(dim=1)
