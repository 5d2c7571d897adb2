"""Intervals and tests whose error has a seed part and a query part, with Student's t (see docs/statistics.md).

The variance between seeds, plus the variance between clusters of queries once seed noise is taken out of it. The
larger the seeds' share, the fewer degrees of freedom. Nothing is resampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from rewind.statistics.parts import ROUNDING, Parts


@dataclass(frozen=True)
class Inference:
    """An estimate with its error; all arrays have one shape.

    Attributes:
        estimate: a mean, or a difference of two.
        variance: V of the estimate.
        df: degrees of freedom of t; NaN where V is 0.
        seed_share: share of the seed part in V; NaN where V is 0 or a run stands alone.
        low, high: ends of the interval; both are the estimate where V is 0.
        p: two-sided; NaN where a method has one seed, 1 or 0 where V is 0.
    """

    estimate: np.ndarray
    variance: np.ndarray
    df: np.ndarray
    seed_share: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p: np.ndarray


def one(found: Parts, confidence: float, skewed: np.ndarray | bool = False) -> Inference:
    """Interval of each method's mean.

    Args:
        found: the methods' parts.
        confidence: of the intervals.
        skewed: where Hall's correction is used (mean ranks, whose values have a long tail); as ``found.mean``.
    """
    seed, df = found.seed[..., None], found.seed_df[..., None]
    result = _infer(found.mean, seed, df, found.overlap, found.residuals, confidence, np.abs(found.mean))
    if not np.any(skewed):
        return result
    low, high = _hall(result, found.residuals, confidence)
    use = np.broadcast_to(skewed, result.low.shape) & (result.variance > 0)
    changed = {"low": np.where(use, low, result.low), "high": np.where(use, high, result.high)}
    return Inference(**(vars(result) | changed))


def difference(first: Parts, second: Parts, confidence: float) -> Inference:
    """Interval and test of first − second, whose queries are the same and whose seeds are independent."""
    return combination([first, second], [1, -1], confidence)


def combination(found: Sequence[Parts], signs: Sequence[int], confidence: float) -> Inference:
    """Interval and test of a sum of methods' means with signs 1 and −1; queries are the same, seeds independent."""
    return _infer(
        sum(sign * part.mean for sign, part in zip(signs, found, strict=True)),
        np.stack([part.seed for part in found], axis=-1),
        np.stack([part.seed_df for part in found], axis=-1),
        sum(part.overlap for part in found),
        sum(sign * part.residuals for sign, part in zip(signs, found, strict=True)),
        confidence,
        sum(np.abs(part.mean) for part in found),
    )


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's adjusted p-values along the last axis: ``max over j ≤ i of min(1, (n − j + 1) · p_(j))`` (Holm, 1979).

    NaN, a pair that cannot be tested, stays NaN and still counts in n: the family is the declared one.
    """
    p = np.asarray(p, dtype=float)
    order = np.argsort(p, axis=-1, kind="stable")  # NaN come last
    factors = p.shape[-1] - np.arange(p.shape[-1])
    ordered = np.minimum(1.0, np.maximum.accumulate(np.take_along_axis(p, order, -1) * factors, axis=-1))
    result = np.empty_like(ordered)
    np.put_along_axis(result, order, ordered, axis=-1)
    return result


def _infer(estimate, seed_parts, seed_dfs, overlap, residuals, confidence: float, size) -> Inference:
    """``seed_parts`` and ``seed_dfs`` have a last axis of the methods that enter."""
    clusters = residuals.shape[-1]
    claims = (seed_dfs > 0).all(axis=-1)  # one run says nothing about other seeds
    seed = np.where(claims, seed_parts.sum(axis=-1), 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        raw = np.square(residuals).sum(axis=-1) / (clusters * (clusters - 1)) if clusters > 1 else seed * np.nan
        variance = seed + np.maximum(raw - np.where(claims, overlap, 0), 0)
        share = seed / variance
        f = np.where(seed > 0, seed**2 / (seed_parts**2 / seed_dfs).sum(axis=-1), 1)
        power = np.maximum(1, 2 - 2 / f)
        df = 1 / (share**power / f + (1 - share) ** power / (clusters - 1))
        error = np.sqrt(variance)
        half = stdtrit(df, (1 + confidence) / 2) * error
        p = 2 * stdtr(df, -np.abs(estimate) / error)
    exact = variance == 0
    half = np.where(exact, 0, half)
    p = np.where(exact, np.where(np.abs(estimate) <= ROUNDING * size, 1.0, 0.0), p)
    return Inference(
        estimate=estimate,
        variance=variance,
        df=np.where(exact, np.nan, df),
        seed_share=np.where(exact | ~claims, np.nan, share),
        low=estimate - half,
        high=estimate + half,
        p=np.where(claims, p, np.nan),
    )


def _hall(found: Inference, residuals: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Ends of Hall's interval for a skewed mean (Hall, 1992): the t quantiles pass through the cubic's inverse."""
    clusters = residuals.shape[-1]
    if clusters < 3:
        return found.low, found.high
    with np.errstate(divide="ignore", invalid="ignore"):
        third = (residuals**3).sum(axis=-1) / (clusters * (clusters - 1) * (clusters - 2))
        skew = third / found.variance**1.5
        t = stdtrit(found.df, (1 + confidence) / 2)
        error = np.sqrt(found.variance)
        return found.estimate - error * _bent(t, skew), found.estimate - error * _bent(-t, skew)


def _bent(x: np.ndarray, skew: np.ndarray) -> np.ndarray:
    """``(3/g) · (cbrt(1 + g · (x − g/6)) − 1)``, which is x at g = 0."""
    small = np.abs(skew) < 1e-8
    g = np.where(small, 1.0, skew)
    return np.where(small, x, 3 / g * (np.cbrt(1 + g * (x - g / 6)) - 1))
