"""Intervals and tests by Student's t, with training seeds and clusters of queries as random factors.

The variance is that between seeds, plus that between clusters of queries once seed noise is taken out of it. The larger
the seeds' share, the fewer the degrees of freedom. Nothing is resampled. Arrays may have leading axes (metric,
replicate, …); the last ones are seed (S) and cluster (C). A cluster is a group of queries that tend to succeed or fail
together; clusters may differ in size. The symbols A, B, E, V, f, k and r are those of docs/statistics.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from rewind.ranking_metrics import ROUNDING_TOLERANCE, median_rank_with_ties, recall_at
from rewind.statistics.bounds import (
    behrens_fisher_p_value,
    hall_interval,
    wilson_interval,
    zero_variance_interval,
    zero_variance_p_value,
)
from rewind.statistics.variance import (
    RELATIVE_ROUNDING,
    Clusters,
    VarianceComponents,
    variance_components,
)

# The query part is B − E, and few seeds may overestimate E: where less than this share of B would remain, E is not
# known well enough to be subtracted.
MIN_REMAINING_SHARE = 0.1

MAX_FAMILY_OF_TWO_SEEDS = 3
"""Largest family of tests in which methods with two seeds are tested. Two seeds often agree by chance, and no test
holds its level in the tail then (benchmarks/families.py)."""


@dataclass(frozen=True)
class Inference:
    """An estimate with its error; all arrays have one shape."""

    estimate: np.ndarray  # a mean, or a difference of two
    variance: np.ndarray  # V of the estimate; 0 where every cluster has the same value in every seed
    df: np.ndarray  # degrees of freedom of t; NaN where V is 0
    seed_share: np.ndarray  # share of the seed part in V; NaN where V is 0 or seeds are not random
    low: np.ndarray  # end of the interval, like ``high``; NaN where V is 0 and nothing bounds the values
    high: np.ndarray
    p: np.ndarray  # two-sided; NaN where a trained method has one seed
    claims: np.ndarray  # whether it is a claim about methods, not about one checkpoint
    statistic: np.ndarray  # Student's t, without its sign; NaN where V is 0
    seed_df: np.ndarray  # f, the degrees of freedom of the seed part of V; 1 where there is none
    query_df: np.ndarray  # C − 1
    two_seeds: np.ndarray  # whether a method has two seeds

    def __getitem__(self, at: Any) -> Inference:
        """The results at an index of the axes of ``estimate``."""
        return Inference(**{name: value[at] for name, value in vars(self).items()})


def mean_inference(
    components: VarianceComponents,
    confidence: float,
    skewed: np.ndarray | bool = False,
    least: np.ndarray | float = -np.inf,
    most: np.ndarray | float = np.inf,
) -> Inference:
    """Interval of each method's mean.

    Args:
        skewed: where Hall's correction is used (mean ranks, whose values have a long tail); shape of
            ``components.mean``.
        least, most: possible range of a query's value, shape of ``components.mean``. Where both are finite and the
            values are not skewed, the interval is Wilson's, which holds near the ends too.
    """
    least, most = (np.broadcast_to(np.asarray(end, dtype=float), components.mean.shape) for end in (least, most))
    seed, df = components.seed[..., None], components.seed_df[..., None]
    result = _infer(
        components.mean, seed, df, components.overlap, components.residuals, confidence, np.abs(components.mean)
    )
    skewed = np.broadcast_to(skewed, result.low.shape)
    is_share = np.isfinite(least) & np.isfinite(most) & ~skewed & (most > least)
    ends = [result.low, result.high]
    if is_share.any():
        # Any bounded mean is a share p of its range, which lets one formula serve percent, MRR and nDCG.
        width = np.where(is_share, most - least, 1)
        t = scipy.special.stdtrit(result.df, (1 + confidence) / 2)
        wilson_ends = wilson_interval((result.estimate - least) / width, result.variance / width**2, t)
        ends = [np.where(is_share, least + width * to, end) for to, end in zip(wilson_ends, ends, strict=True)]
    if skewed.any():
        hall_ends = hall_interval(result.estimate, result.variance, result.df, components.residuals, confidence)
        ends = [np.where(skewed, to, end) for to, end in zip(hall_ends, ends, strict=True)]
    constant_ends = zero_variance_interval(result.estimate, least, most, components.residuals.shape[-1], confidence)
    # V = 0 leaves t no error to work with: other queries may still give other results.
    ends = [np.where(result.variance == 0, to, end) for to, end in zip(constant_ends, ends, strict=True)]
    # No true value is beyond the range, so that cutting ends off costs no coverage.
    low, high = (np.clip(end, least, most) for end in ends)
    return Inference(**(vars(result) | {"low": low, "high": high}))


def difference_inference(
    first: VarianceComponents, second: VarianceComponents, confidence: float, reach: np.ndarray | float = np.inf
) -> Inference:
    """Interval and test of first − second, whose queries are the same and whose seeds are independent.

    Intervals are cut off at ``reach``, the greatest possible difference (shape of ``first.mean``).
    """
    return contrast_inference([first, second], [1, -1], confidence, reach)


def contrast_inference(
    methods: Sequence[VarianceComponents], signs: Sequence[int], confidence: float, reach: np.ndarray | float = np.inf
) -> Inference:
    """Interval and test of a sum of methods' means with signs 1 and −1; queries are the same, seeds independent.

    ``reach`` is that of :func:`difference_inference`.
    """
    # Seeds are independent, so their parts A and E add up whatever the sign. Queries are shared, so their residuals are
    # subtracted before they are squared in B: the difficulty of a query cancels. (Any: sum() may also return an int.)
    estimate: Any = sum(sign * part.mean for sign, part in zip(signs, methods, strict=True))
    overlap: Any = sum(part.overlap for part in methods)
    residuals: Any = sum(sign * part.residuals for sign, part in zip(signs, methods, strict=True))
    # Rounding errors of a difference are as large as those of what is subtracted, however small the difference is.
    scale: Any = sum(np.abs(part.mean) for part in methods)
    seed_parts = np.stack([part.seed for part in methods], axis=-1)
    seed_dfs = np.stack([part.seed_df for part in methods], axis=-1)
    result = _infer(estimate, seed_parts, seed_dfs, overlap, residuals, confidence, scale)
    return _bound_difference(result, methods[0].residuals.shape[-1], confidence, reach)


def paired_inference(
    components: VarianceComponents, confidence: float, reach: np.ndarray | float = np.inf
) -> Inference:
    """Interval and test of a difference whose seeds are paired as its queries are.

    If seed s of both methods starts from the same pre-trained backbone, its common effect cancels like the difficulty
    of a query. ``components`` are those of the differences of the two methods' values, seed by seed, as if they were
    one method's; ``reach`` is that of :func:`difference_inference`.
    """
    seed, df = components.seed[..., None], components.seed_df[..., None]
    result = _infer(
        components.mean, seed, df, components.overlap, components.residuals, confidence, np.abs(components.mean)
    )
    return _bound_difference(result, components.residuals.shape[-1], confidence, reach)


def significance_level(confidence: float) -> float:
    """α = 1 − confidence, rounded because 1 − 0.95 is slightly more than 0.05 in binary: p = 0.05 is not below 0.05."""
    return round(1 - confidence, 12)


def family_p_value(result: Inference, family: int) -> np.ndarray:
    """The p-value of a test that is one of ``family``, for :func:`holm_adjusted`, which looks far into the tail.

    ``p`` is calibrated at the usual levels. Where few seeds happen to agree, its degrees of freedom explode, and at the
    20th or 45th part of 5% it is several times too small; this one is Behrens' and Fisher's
    (:func:`~rewind.statistics.bounds.behrens_fisher_p_value`), and never below ``p``. A single test has ``p`` itself.
    NaN where ``p`` is, and where one of the methods has two seeds in a family of more than
    :data:`MAX_FAMILY_OF_TWO_SEEDS`.
    """
    if family == 1:
        return result.p
    is_tested = np.isfinite(result.p)
    if family > MAX_FAMILY_OF_TWO_SEEDS:
        is_tested &= ~result.two_seeds
    p = np.where(is_tested, result.p, np.nan)
    mixed = is_tested & np.isfinite(result.statistic)
    if mixed.any():
        # NaN is the share of seeds that are not random: 0. All tests of a result are over the same clusters.
        parts = np.nan_to_num(result.seed_share[mixed]), result.seed_df[mixed], float(result.query_df.flat[0])
        p[mixed] = np.maximum(p[mixed], behrens_fisher_p_value(result.statistic[mixed], *parts))
    return p


def family_adjusted(family: Sequence[Inference]) -> np.ndarray:
    """(n, …) Holm's adjusted p-values of n tests of one shape (…): whatever is starred together comes here."""
    if not family:
        return np.empty(0)
    p = np.stack([family_p_value(result, len(family)) for result in family], axis=-1)
    return np.moveaxis(holm_adjusted(p), -1, 0)


def holm_adjusted(p: np.ndarray) -> np.ndarray:
    """Holm's adjusted p-values along the last axis: ``max over j ≤ i of min(1, (n − j + 1) · p_(j))`` (Holm, 1979).

    A pair that cannot be tested has NaN, which stays NaN and still counts in n: the family is the declared one.

    Example:
        >>> holm_adjusted(np.array([0.01, 0.04, 0.03, np.nan])).tolist()
        [0.04, 0.09, 0.09, nan]
    """
    p = np.asarray(p, dtype=float)
    order = np.argsort(p, axis=-1, kind="stable")  # NaN come last
    # n, n − 1, …, 1 for the smallest to the largest p; the running maximum keeps the order of the p-values.
    factors = p.shape[-1] - np.arange(p.shape[-1])
    ordered = np.minimum(1.0, np.maximum.accumulate(np.take_along_axis(p, order, -1) * factors, axis=-1))
    result = np.empty_like(ordered)
    np.put_along_axis(result, order, ordered, axis=-1)
    return result


def _infer(
    estimate: np.ndarray,
    seed_parts: np.ndarray,
    seed_dfs: np.ndarray,
    overlap: np.ndarray,
    residuals: np.ndarray,
    confidence: float,
    scale: np.ndarray,
) -> Inference:
    """Symmetric t interval and test from the parts of the variance.

    Args:
        estimate: (…) a mean, or a difference of means.
        seed_parts, seed_dfs: (…, M) A and S − 1 of each of the M methods that enter it.
        overlap: (…) E, summed over methods.
        residuals: (…, C) r of the estimate.
        scale: (…) size of the means, against which rounding errors are judged.
    """
    clusters = residuals.shape[-1]
    claims: Any = (seed_dfs > 0).all(axis=-1)  # a trained method with one run says nothing about other seeds
    seed = np.where(claims, seed_parts.sum(axis=-1), 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        # B = Σ_c r_c² / (C (C − 1)); a single cluster has no variance between clusters.
        raw_query_part = (
            np.square(residuals).sum(axis=-1) / (clusters * (clusters - 1)) if clusters > 1 else seed * np.nan
        )
        query_part = raw_query_part - np.where(claims, overlap, 0)
        # V = A + B − E. If nearly all of B seems to be seed noise, max(A, B), which does not depend on E.
        variance = np.where(
            query_part > MIN_REMAINING_SHARE * raw_query_part, seed + query_part, np.maximum(seed, raw_query_part)
        )
        seed_share = seed / variance
        # Without a seed part any f will do: w is 0, and df is C − 1.
        f = np.where(seed > 0, _seed_df(seed_parts, seed_dfs), 1)
        df = degrees_of_freedom(seed_share, f, clusters - 1)
        error = np.sqrt(variance)
        half_width = scipy.special.stdtrit(df, (1 + confidence) / 2) * error
        statistic = np.abs(estimate) / error
        p = 2 * scipy.special.stdtr(
            df, -statistic
        )  # the lower tail: 1 − stdtr(df, t) has no digits left where p is small
    no_variance = variance == 0
    is_zero = np.abs(estimate) <= RELATIVE_ROUNDING * scale
    has_random_seeds = claims & np.isfinite(seed_dfs).any(axis=-1)
    return Inference(
        estimate=np.where(no_variance & is_zero, 0.0, estimate),  # rounding is not a difference
        variance=variance,
        df=np.where(no_variance, np.nan, df),
        seed_share=np.where(no_variance | ~has_random_seeds, np.nan, seed_share),
        low=estimate - half_width,
        high=estimate + half_width,
        p=np.where(claims & ~no_variance, p, np.nan),
        claims=claims,
        statistic=np.where(no_variance, np.nan, statistic),
        seed_df=np.broadcast_to(f, variance.shape),
        query_df=np.full(variance.shape, clusters - 1.0),
        two_seeds=np.broadcast_to((seed_dfs == 1).any(axis=-1), variance.shape),
    )


def degrees_of_freedom(seed_share: np.ndarray, seed_df: np.ndarray, query_df: np.ndarray | float) -> np.ndarray:
    """Degrees of freedom of t: 1/df = w^k/f + (1 − w)^k/(C − 1).

    Satterthwaite's k = 2 treats the seeds' share w of V as known; since it is estimated from few seeds, intervals would
    be too short.
    """
    # 1 up to f = 2, three seeds of one method, and nearly 2 with many seeds, whose share of V is known well.
    k = np.maximum(1, 2 - 2 / seed_df)
    df: np.ndarray = 1 / (seed_share**k / seed_df + (1 - seed_share) ** k / query_df)
    return df


def _seed_df(parts: np.ndarray, dfs: np.ndarray) -> np.ndarray:
    """Degrees of freedom of a sum of seed parts, over the last axis.

    Methods with equal numbers of seeds: Satterthwaite's ``f = (Σ A)² / Σ (A² / (S − 1))``. That relies on the variance
    of the method with the fewest seeds, which is the least certain, so with unequal numbers 1/f is the mean of
    1/(S − 1) with the parts as weights: ``f = Σ A / Σ (A / (S − 1))``. If one method has two seeds only and another has
    more, f is 1.
    """
    total = parts.sum(axis=-1)
    is_random = np.isfinite(dfs)  # a fixed model adds no seeds
    most, least = np.where(is_random, dfs, 0).max(axis=-1), np.where(is_random, dfs, np.inf).min(axis=-1)
    unequal = np.where(least == 1, 1.0, total / (parts / dfs).sum(axis=-1))
    return np.where(most != least, unequal, total**2 / (parts**2 / dfs).sum(axis=-1))


def _bound_difference(result: Inference, clusters: int, confidence: float, reach: np.ndarray | float) -> Inference:
    """Fill in the interval and p of a difference where all clusters agree, and cut ends off at what is possible."""
    reach = np.broadcast_to(np.asarray(reach, dtype=float), result.estimate.shape)
    no_variance = result.variance == 0
    low, high = zero_variance_interval(result.estimate, -reach, reach, clusters, confidence)
    p = np.where(no_variance, zero_variance_p_value(result.estimate, reach, clusters), result.p)
    return Inference(
        **(
            vars(result)
            | {"low": np.clip(np.where(no_variance, low, result.low), -reach, reach)}
            | {"high": np.clip(np.where(no_variance, high, result.high), -reach, reach)}
            | {"p": np.where(result.claims, p, np.nan)}
        )
    )


# ---- Median rank: all seeds' queries pooled, its interval by inversion (Woodruff, 1952) ----------------------------
# A median of whole numbers has no useful standard error, so it has no p-value.

CUTOFFS_PER_BLOCK = 64  # cut-offs r whose intervals are computed together; memory is S × Q values for each
_HALF = 0.5 - ROUNDING_TOLERANCE  # an interval that ends at exactly ½ must count as reaching it


def median_rank_interval(
    higher: np.ndarray, ties: np.ndarray, clusters: Clusters, confidence: float, fixed: bool = False
) -> tuple[float, float, float]:
    """Median rank of all seeds' queries pooled, with the ends of its interval; ``higher`` and ``ties`` are (S, Q).

    The estimate is :func:`rewind.ranking_metrics.median_rank_with_ties`. Low is the smallest r where the upper end of
    the interval of R@r is ≥ ½; high is the smallest where the lower end is. An end that no r reaches (few clusters) is
    NaN.
    """
    last = int((higher + ties).max()) + 1  # R@r is 1 from there on, so that no larger r can move an end
    ends: list[float | None] = [None, None]
    for start in range(1, last + 1, CUTOFFS_PER_BLOCK):
        cutoffs = np.arange(start, min(start + CUTOFFS_PER_BLOCK, last + 1))
        hits = recall_at(cutoffs[:, None, None], higher[None], ties[None])
        intervals = mean_inference(
            variance_components(clusters.totals(hits), clusters.sizes, fixed), confidence, least=0, most=1
        )
        # R@r grows with r, and its upper end reaches ½ first: it gives the lower end of the median.
        for end, bound in enumerate((intervals.high, intervals.low)):
            reached = bound >= _HALF
            if ends[end] is None and reached.any():
                ends[end] = float(cutoffs[reached.argmax()])
        if None not in ends:
            break
    low, high = (np.nan if value is None else value for value in ends)
    return median_rank_with_ties(higher, ties), low, high
