"""Intervals and tests whose error has a seed part and a query part, with Student's t (see docs/statistics.md).

The variance between seeds, plus the variance between clusters of queries once seed noise is taken out of it. The
larger the seeds' share, the fewer degrees of freedom. Nothing is resampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from rewind.statistics.bounds import hall, unseen, unseen_p, wilson
from rewind.statistics.parts import ROUNDING, Parts

# The query part is what is left of the raw one when the seeds' noise is taken off, which few seeds can overdo. Where
# less than this share of the raw one is left, the noise is not known well enough to be taken off.
LEFT = 0.1


@dataclass(frozen=True)
class Inference:
    """An estimate with its error; all arrays have one shape.

    Attributes:
        estimate: a mean, or a difference of two.
        variance: V of the estimate; 0 where every cluster has the same value in every seed.
        df: degrees of freedom of t; NaN where V is 0.
        seed_share: share of the seed part in V; NaN where V is 0 or seeds are not random.
        low, high: ends of the interval; NaN where V is 0 and nothing bounds the values.
        p: two-sided; NaN where a trained method has one seed.
        claims: whether it speaks of methods, not of one checkpoint.
    """

    estimate: np.ndarray
    variance: np.ndarray
    df: np.ndarray
    seed_share: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p: np.ndarray
    claims: np.ndarray


def one(
    found: Parts,
    confidence: float,
    skewed: np.ndarray | bool = False,
    least: np.ndarray | float = -np.inf,
    most: np.ndarray | float = np.inf,
) -> Inference:
    """Interval of each method's mean.

    Args:
        found: the methods' parts.
        confidence: of the intervals.
        skewed: where Hall's correction is used (mean ranks, whose values have a long tail); as ``found.mean``.
        least, most: what a query's value can be, as ``found.mean``. Where both are finite and the values are not
            skewed, the interval is Wilson's, which holds near the ends too.
    """
    least, most = (np.broadcast_to(np.asarray(end, dtype=float), found.mean.shape) for end in (least, most))
    seed, df = found.seed[..., None], found.seed_df[..., None]
    result = _infer(found.mean, seed, df, found.overlap, found.residuals, confidence, np.abs(found.mean))
    skewed = np.broadcast_to(skewed, result.low.shape)
    share = np.isfinite(least) & np.isfinite(most) & ~skewed & (most > least)
    ends = [result.low, result.high]
    if share.any():
        width = np.where(share, most - least, 1)
        t = stdtrit(result.df, (1 + confidence) / 2)
        scaled = wilson((result.estimate - least) / width, result.variance / width**2, t)
        ends = [np.where(share, least + width * to, end) for to, end in zip(scaled, ends, strict=True)]
    if skewed.any():
        bent = hall(result.estimate, result.variance, result.df, found.residuals, confidence)
        ends = [np.where(skewed, to, end) for to, end in zip(bent, ends, strict=True)]
    constant = unseen(result.estimate, least, most, found.residuals.shape[-1], confidence)
    ends = [np.where(result.variance == 0, to, end) for to, end in zip(constant, ends, strict=True)]
    low, high = (np.clip(end, least, most) for end in ends)
    return Inference(**(vars(result) | {"low": low, "high": high}))


def difference(first: Parts, second: Parts, confidence: float, reach: np.ndarray | float = np.inf) -> Inference:
    """Interval and test of first − second, whose queries are the same and whose seeds are independent.

    Args:
        first, second: the methods' parts.
        confidence: of the intervals.
        reach: the greatest difference that there can be, as ``first.mean``; intervals are cut there.
    """
    return combination([first, second], [1, -1], confidence, reach)


def combination(
    found: Sequence[Parts], signs: Sequence[int], confidence: float, reach: np.ndarray | float = np.inf
) -> Inference:
    """Interval and test of a sum of methods' means with signs 1 and −1; queries are the same, seeds independent.

    ``reach`` as in :func:`difference`.
    """
    result = _infer(
        sum(sign * part.mean for sign, part in zip(signs, found, strict=True)),
        np.stack([part.seed for part in found], axis=-1),
        np.stack([part.seed_df for part in found], axis=-1),
        sum(part.overlap for part in found),
        sum(sign * part.residuals for sign, part in zip(signs, found, strict=True)),
        confidence,
        sum(np.abs(part.mean) for part in found),
    )
    return _cut(result, found[0].residuals.shape[-1], confidence, reach)


def paired(found: Parts, confidence: float, reach: np.ndarray | float = np.inf) -> Inference:
    """Interval and test of a difference whose seeds are paired as its queries are.

    Where seed s of two methods starts from one pre-training, what that does to both cancels, as a hard query does.

    Args:
        found: the parts of the differences of the two methods' values, seed by seed.
        confidence: of the intervals.
        reach: as in :func:`difference`.
    """
    seed, df = found.seed[..., None], found.seed_df[..., None]
    result = _infer(found.mean, seed, df, found.overlap, found.residuals, confidence, np.abs(found.mean))
    return _cut(result, found.residuals.shape[-1], confidence, reach)


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
        left = raw - np.where(claims, overlap, 0)
        variance = np.where(left > LEFT * raw, seed + left, np.maximum(seed, raw))
        share = seed / variance
        f = np.where(seed > 0, _seed_df(seed_parts, seed_dfs), 1)
        power = np.maximum(1, 2 - 2 / f)
        df = 1 / (share**power / f + (1 - share) ** power / (clusters - 1))
        error = np.sqrt(variance)
        half = stdtrit(df, (1 + confidence) / 2) * error
        p = 2 * stdtr(df, -np.abs(estimate) / error)
    exact = variance == 0
    same = np.abs(estimate) <= ROUNDING * size
    random = claims & np.isfinite(seed_dfs).any(axis=-1)
    return Inference(
        estimate=np.where(exact & same, 0.0, estimate),  # rounding is no difference
        variance=variance,
        df=np.where(exact, np.nan, df),
        seed_share=np.where(exact | ~random, np.nan, share),
        low=estimate - half,
        high=estimate + half,
        p=np.where(claims & ~exact, p, np.nan),
        claims=claims,
    )


def _seed_df(parts: np.ndarray, dfs: np.ndarray) -> np.ndarray:
    """Degrees of freedom of a sum of seed parts, over the last axis.

    Methods with equally many seeds: Satterthwaite's ``(Σ A)² / Σ (A² / (S − 1))``. With unequally many the part of
    the fewest, which decides, is the one least known; 1/f is then the mean of 1/(S − 1) with the parts as weights. Two
    seeds show so little of their own spread that beside more of another method f is 1.
    """
    total = parts.sum(axis=-1)
    random = np.isfinite(dfs)  # a fixed model adds no seeds
    most, least = np.where(random, dfs, 0).max(axis=-1), np.where(random, dfs, np.inf).min(axis=-1)
    unequal = np.where(least == 1, 1.0, total / (parts / dfs).sum(axis=-1))
    return np.where(most != least, unequal, total**2 / (parts**2 / dfs).sum(axis=-1))


def _cut(found: Inference, clusters: int, confidence: float, reach: np.ndarray | float) -> Inference:
    """The interval and p of a difference where all clusters agree, and no end beyond what can be."""
    reach = np.broadcast_to(np.asarray(reach, dtype=float), found.estimate.shape)
    exact = found.variance == 0
    low, high = unseen(found.estimate, -reach, reach, clusters, confidence)
    p = np.where(exact, unseen_p(found.estimate, reach, clusters), found.p)
    return Inference(
        **(
            vars(found)
            | {"low": np.clip(np.where(exact, low, found.low), -reach, reach)}
            | {"high": np.clip(np.where(exact, high, found.high), -reach, reach)}
            | {"p": np.where(found.claims, p, np.nan)}
        )
    )
