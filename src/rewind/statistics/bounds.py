"""Ends of intervals where t is too symmetric, and where nothing varied that it could be computed from."""

from __future__ import annotations

import numpy as np
from scipy.special import stdtr, stdtrit


def wilson(share: np.ndarray, variance: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of Wilson's interval of a share (Wilson, 1927), for a variance that is known otherwise.

    The number of independent queries is the one that would give this variance, ``n = p (1 − p) / V`` (as for surveys
    in clusters: Korn and Graubard, 1998). Near 0 and 1 the interval leans to the middle, where plain t covers too
    seldom.

    Args:
        share: p, from 0 to 1.
        variance: V of p.
        t: quantile of Student's t.

    Returns:
        Both ends; those of t where p is 0 or 1.
    """
    spread = share * (1 - share)
    inner = spread > 0
    shrink = t**2 * variance / np.where(inner, spread, 1)  # t²/n
    middle = (share + shrink / 2) / (1 + shrink)
    half = np.sqrt(t**2 * variance + shrink**2 / 4) / (1 + shrink)
    plain = t * np.sqrt(variance)
    low, high = (np.where(inner, middle + sign * half, share + sign * plain) for sign in (-1, 1))
    return np.minimum(low, share), np.maximum(high, share)


def wilson_p(share: np.ndarray, variance: np.ndarray, df: np.ndarray, null: float) -> np.ndarray:
    """Two-sided p of a share against ``null``: the α at which :func:`wilson`'s interval begins to leave it out.

    So the variance is that of a share of ``null``, ``V · p₀ (1 − p₀) / (p (1 − p))``: near 0 and 1, where V itself is
    small, plain t would reject far too often.

    Args:
        share: p, from 0 to 1.
        variance: V of p, above 0.
        df: degrees of freedom of Student's t.
        null: p₀, between 0 and 1.
    """
    spread = share * (1 - share)
    under = np.where(spread > 0, variance * null * (1 - null) / np.where(spread > 0, spread, 1), variance)
    return 2 * stdtr(df, -np.abs(share - null) / np.sqrt(under))


def unseen(
    estimate: np.ndarray, least: np.ndarray, most: np.ndarray, clusters: int, confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of an interval for a value that all clusters of queries share in all seeds.

    What was not seen in C clusters is, with this confidence, no more than ``u = 1 − (α/2)^(1/C)`` of all clusters
    (Clopper and Pearson, 1934), and may there be as bad, or as good, as can be. At 0% and 100% these are Clopper's and
    Pearson's ends.

    Args:
        estimate: the value.
        least, most: what a value can be; where that is not finite, the end is NaN.
        clusters: C.
        confidence: 1 − α.
    """
    share = 1 - ((1 - confidence) / 2) ** (1 / clusters)
    low, high = (
        np.where(np.isfinite(end), (1 - share) * estimate + share * np.where(np.isfinite(end), end, 0), np.nan)
        for end in (least, most)
    )
    return low, high


def unseen_p(estimate: np.ndarray, reach: np.ndarray, clusters: int) -> np.ndarray:
    """Two-sided p of a difference that all clusters share: the α at which :func:`unseen` begins to leave out 0.

    Where it is as great as can be (``reach``), this is the sign test over clusters, ``2 · 2^(−C)``. NaN where ``reach``
    is not finite, 1 for no difference.
    """
    size = np.abs(estimate)
    bounded = np.isfinite(reach)
    safe = np.where(bounded, reach, 1)
    p = np.minimum(1.0, 2 * (safe / (safe + size)) ** clusters)
    return np.where(size == 0, 1.0, np.where(bounded, p, np.nan))


def hall(
    estimate: np.ndarray, variance: np.ndarray, df: np.ndarray, residuals: np.ndarray, confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of Hall's interval for a skewed mean (Hall, 1992): the t quantiles pass through the cubic's inverse.

    Args:
        estimate, variance, df: of the mean.
        residuals: (…, C) of the clusters.
        confidence: of the interval.
    """
    clusters = residuals.shape[-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        third = (residuals**3).sum(axis=-1) / max(clusters * (clusters - 1) * (clusters - 2), 1)
        skew = third / variance**1.5 if clusters > 2 else np.zeros_like(estimate)
        t = stdtrit(df, (1 + confidence) / 2)
        error = np.sqrt(variance)
        return estimate - error * _bent(t, skew), estimate - error * _bent(-t, skew)


def _bent(x: np.ndarray, skew: np.ndarray) -> np.ndarray:
    """``(3/g) · (cbrt(1 + g · (x − g/6)) − 1)``, which is x at g = 0."""
    small = np.abs(skew) < 1e-8
    g = np.where(small, 1.0, skew)
    return np.where(small, x, 3 / g * (np.cbrt(1 + g * (x - g / 6)) - 1))
