"""What SANW's weights did in an epoch: sums of every batch, from which the epoch's statistics follow exactly.

Means of batch statistics would not do: a correlation over an epoch is no mean of correlations.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LOW, HIGH = 1e-3, 0.8  # upstream's
TINY = 1e-12  # upstream's, inside the logarithm of a weight
COLUMNS = ("w_mean", "w_low_pct", "w_high_pct", "w_sim_corr", "unweighted_margin", "weighted_margin")
_CONSTANT = 1e-12  # a variance below this share of the square is rounding


@torch.no_grad()
def moments(logits: Tensor, s: Tensor, w: Tensor, same: Tensor) -> dict[str, Tensor]:
    """Sums over a batch's negatives, and over its rows of the margins (double precision).

    Args:
        logits: (B, B), row i belonging to column i.
        s, w: similarities and weights of the pairs, (B, B).
        same: bool (B, B), True for other pairs of the same item.
    """
    negative = ~same & ~torch.eye(len(w), dtype=torch.bool, device=w.device)
    sums = _products(w, s, negative)
    sums |= {"low": (negative & (w < LOW)).sum(), "high": (negative & (w > HIGH)).sum()}
    margins = [_margins(logits, others, negative) for others in (logits, logits + (w + TINY).log())]
    sums |= {"rows": negative.any(1).sum(), "unweighted": margins[0].sum(), "weighted": margins[1].sum()}
    return sums


def _products(w: Tensor, s: Tensor, chosen: Tensor) -> dict[str, Tensor]:
    x, y = ((side * chosen).double().flatten() for side in (w, s))
    return {"n": chosen.sum(), "w": x.sum(), "s": y.sum(), "ww": x.dot(x), "ss": y.dot(y), "ws": x.dot(y)}


def _margins(logits: Tensor, others: Tensor, negative: Tensor) -> Tensor:
    """ℓ_ii − log Σ over the row's negatives of exp(others_ij), of the rows that have any."""
    some = negative.any(1)
    return (logits.diagonal() - others.masked_fill(~negative, -math.inf).logsumexp(1))[some].double()


def summary(sums: dict[str, float]) -> dict[str, float]:
    """The epoch's statistics from the means of its batches' :func:`moments` (their common factor cancels)."""
    n, rows = sums["n"], sums["rows"]
    if not n:
        return dict.fromkeys(COLUMNS, math.nan)
    values = (
        sums["w"] / n,
        100 * sums["low"] / n,
        100 * sums["high"] / n,
        _correlation(sums),
        sums["unweighted"] / rows,
        sums["weighted"] / rows,
    )
    return dict(zip(COLUMNS, values, strict=True))


def _correlation(sums: dict[str, float]) -> float:
    """Pearson's r; not a number where one side is constant."""
    n = sums["n"]
    w, s = sums["w"] / n, sums["s"] / n
    first, second = sums["ww"] / n - w * w, sums["ss"] / n - s * s
    if first <= _CONSTANT * sums["ww"] / n or second <= _CONSTANT * sums["ss"] / n:
        return math.nan
    return (sums["ws"] / n - w * s) / math.sqrt(first * second)


@torch.no_grad()
def last_batch(logits: Tensor, s: Tensor, w: Tensor, same: Tensor) -> dict[str, float]:
    """Upstream's statistics of one batch, to the number: the diagonal counts, with s_ii = 0.

    Both margins set the diagonal to 0 instead of leaving it out, and so count one exp(0) more.

    Args:
        logits, s, w, same: as for :func:`moments`; ``w`` with the weight of s = 0 on its diagonal.
    """
    sums = {name: float(value) for name, value in _products(w, s, ~same).items()}
    found = {
        "w_mean": sums["w"] / sums["n"],
        "w_low_pct": 100 * float((w[~same] < LOW).double().mean()),
        "w_high_pct": 100 * float((w[~same] > HIGH).double().mean()),
        "w_sim_corr": _correlation(sums),
    }
    sides = (logits, logits + (w + TINY).log())
    margins = [float((logits.diagonal() - _upstream_others(side, same)).mean()) for side in sides]
    return found | {"unweighted_margin": margins[0], "weighted_margin": margins[1]}


def _upstream_others(logits: Tensor, same: Tensor) -> Tensor:
    shown = torch.diagonal_scatter(logits.masked_fill(same, -math.inf), torch.zeros_like(logits.diagonal()))
    return shown.logsumexp(1)
