"""Interval ends and p-values where Student's t does not fit: shares (Wilson), skewed means (Hall), zero variance, and
the far tails that corrections for several comparisons look at (Behrens and Fisher).

Zero variance means that all clusters have the same value in all seeds, so that there is no error to estimate.
"""

from __future__ import annotations

import numpy as np
import scipy


def wilson_interval(share: np.ndarray, variance: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of Wilson's interval of a share p (Wilson, 1927), for a variance V of p and a quantile t of Student's t.

    ``(p + t²/2n ∓ t √(p (1 − p)/n + t²/4n²)) / (1 + t²/n)``, where n is the effective number of independent queries:
    the one that would give this variance, ``n = p (1 − p) / V`` (as for surveys in clusters: Korn and Graubard, 1998).
    Near 0 and 1 the interval leans to the middle, where the symmetric interval of t covers the true value too rarely.
    Where p is 0 or 1, n is not defined and the ends are those of t.

    Example:
        >>> low, high = wilson_interval(np.array(0.9), np.array(0.9 * 0.1 / 50), np.array(1.96))  # 45 of 50
        >>> f"{low:.2f} {high:.2f}"
        '0.79 0.96'
    """
    binomial = share * (1 - share)
    inside = binomial > 0
    t2_over_n = t**2 * variance / np.where(inside, binomial, 1)
    middle = (share + t2_over_n / 2) / (1 + t2_over_n)
    # p (1 − p)/n is V itself.
    half = np.sqrt(t**2 * variance + t2_over_n**2 / 4) / (1 + t2_over_n)
    plain = t * np.sqrt(variance)
    low, high = (np.where(inside, middle + sign * half, share + sign * plain) for sign in (-1, 1))
    # Rounding must not put an end on the wrong side of the estimate where V is tiny.
    return np.minimum(low, share), np.maximum(high, share)


def wilson_statistic(share: np.ndarray, variance: np.ndarray, null: float) -> np.ndarray:
    """Student's t, without its sign, at which :func:`wilson_interval` just excludes ``null`` (p₀, between 0 and 1).

    So the standard error is that of a share of ``null``: ``t = |p − p₀| / √(V · p₀ (1 − p₀) / (p (1 − p)))``. With V
    itself (above 0), which is small where p is near 0 or 1, the test would reject far too often.
    """
    binomial = share * (1 - share)
    # Where p is 0 or 1 the interval is that of t, and so is the test.
    null_variance = np.where(binomial > 0, variance * null * (1 - null) / np.where(binomial > 0, binomial, 1), variance)
    return np.abs(share - null) / np.sqrt(null_variance)


_POINTS = 48  # of the integral over each χ² variable: p-values above 1e-14 have a relative error of at most 0.1%


def behrens_fisher_p_value(t: np.ndarray, seed_share: np.ndarray, seed_df: np.ndarray, query_df: float) -> np.ndarray:
    """Two-sided p-value of a statistic whose variance is a sum of two parts that are known unequally well.

    Behrens' and Fisher's fiducial solution (Fisher, 1935; a generalised p-value: Tsui and Weerahandi, 1989):
    ``P(|√w T + √(1 − w) T'| > t)`` with independent T and T' of Student's distribution, which have each part's own
    degrees of freedom (``seed_df`` and ``query_df``; w is ``seed_share``). In the far tail the part with fewer of them
    decides, even if its *estimated* share w happens to be small; one t distribution with some mean of both gives
    p-values there that are several times too small. ``t`` has no sign.

    Example:
        >>> behrens_fisher_p_value(np.array([9.925]), np.array([1.0]), np.array([2.0]), 119).round(4).tolist()
        [0.01]
    """
    t, seed_share, seed_df = (np.asarray(value, float)[..., None, None] for value in (t, seed_share, seed_df))
    # Given χ² variables U and U', the sum is normal with the variance w/U + (1 − w)/U'.
    seeds, seed_weights = _inverse_chi_square(seed_df)
    queries, query_weights = _inverse_chi_square(np.full((1, 1), query_df))
    variance = seed_share * np.swapaxes(seeds, -1, -2) + (1 - seed_share) * queries
    weights = np.swapaxes(seed_weights, -1, -2) * query_weights
    # The lower tail: 1 − ndtr(t) would have no digits left where p is small.
    return 2 * (weights * scipy.special.ndtr(-t / np.sqrt(variance))).sum(axis=(-1, -2))


def behrens_fisher_quantile(level: float, seed_share: np.ndarray, seed_df: np.ndarray, query_df: float) -> np.ndarray:
    """(n,) the statistic at which :func:`behrens_fisher_p_value` is ``level``, to three digits.

    >>> behrens_fisher_quantile(0.05, np.array([0.0, 1.0]), np.array([2.0, 2.0]), 1e6).round(2).tolist()
    [1.96, 4.3]
    """
    # The quantile is at most that of the part with the fewest degrees of freedom, and at least half the normal one.
    low = np.full(seed_share.shape, np.log(-scipy.special.ndtri(level / 2) / 2))
    high = np.log(-scipy.special.stdtrit(np.minimum(seed_df, query_df), level / 2) * 1.01)
    while (high - low).max(initial=0) > 1e-3:  # of logarithms: a relative precision of 0.1%
        middle = (low + high) / 2
        too_low = behrens_fisher_p_value(np.exp(middle), seed_share, seed_df, query_df) > level
        low, high = np.where(too_low, middle, low), np.where(too_low, high, middle)
    return np.exp((low + high) / 2)


def _inverse_chi_square(df: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(…, 48) values of 1/U with their probabilities, where U is χ² divided by its ``df`` (…, 1).

    Equal steps of log U, in which the trapezoidal rule converges faster than any power of the step.
    """
    deviation = np.sqrt(2 / df)
    # Nine standard deviations of U, √(2/df), to either side, and farther where df is small and tails are long: with
    # df = 1 the density of log U has fallen below e⁻²⁴ of its maximum at −50.
    low, high = -np.maximum(50 / df, 9 * deviation), np.log1p(9 * deviation + 20 / df)
    logs = low + (high - low) * np.linspace(0, 1, _POINTS)
    # Density of log U: the factor U of the change of variables raises the power of U from df/2 − 1 to df/2.
    log_density = df / 2 * (logs - np.exp(logs))
    # The largest becomes 1, so that nothing overflows; constant factors cancel in the probabilities.
    density = np.exp(log_density - log_density.max(axis=-1, keepdims=True))
    return np.exp(-logs), density / density.sum(axis=-1, keepdims=True)


def zero_variance_interval(
    estimate: np.ndarray, least: np.ndarray, most: np.ndarray, clusters: int, confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of an interval for a value that all clusters of queries share in all seeds.

    With this confidence (1 − α), at most a share ``u = 1 − (α/2)^(1/C)`` of all clusters differs from the C that were
    seen (Clopper and Pearson, 1934), and there the value may be as low (``least``) or as high (``most``) as possible;
    where that is not finite, the end is NaN. At 0% and 100% these are Clopper's and Pearson's ends.

    Example:
        >>> low, high = zero_variance_interval(np.array(100.0), np.array(0.0), np.array(100.0), 120, 0.95)
        >>> f"{low:.1f} {high:.1f}"  # 120 of 120 clusters right
        '97.0 100.0'
    """
    unseen = 1 - ((1 - confidence) / 2) ** (1 / clusters)
    low, high = (
        np.where(np.isfinite(end), (1 - unseen) * estimate + unseen * np.where(np.isfinite(end), end, 0), np.nan)
        for end in (least, most)
    )
    return low, high


def zero_variance_p_value(estimate: np.ndarray, reach: np.ndarray, clusters: int) -> np.ndarray:
    """Two-sided p-value of a difference d that all clusters share: the α at which its interval just excludes 0.

    Solving the ends of :func:`zero_variance_interval` for 0 gives ``p = min(1, 2 · (reach / (reach + |d|))^C)``. At the
    greatest possible difference (``reach``) this is the sign test over clusters, ``2 · 2^(−C)``. NaN where ``reach`` is
    not finite, 1 for no difference.
    """
    size = np.abs(estimate)
    bounded = np.isfinite(reach)
    safe = np.where(bounded, reach, 1)
    p = np.minimum(1.0, 2 * (safe / (safe + size)) ** clusters)
    return np.where(size == 0, 1.0, np.where(bounded, p, np.nan))


def hall_interval(
    estimate: np.ndarray, variance: np.ndarray, df: np.ndarray, residuals: np.ndarray, confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of Hall's interval for the mean y of a skewed distribution (Hall, 1992).

    ``y − √V · h(t)`` and ``y − √V · h(−t)``, where h is the inverse of Hall's cubic transformation, which makes the
    t statistic symmetric, and the skewness of the mean is ``g = Σ r_c³ / (C (C − 1) (C − 2) V^1.5)``, with (…, C)
    residuals r of the clusters.
    """
    clusters = residuals.shape[-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        # The unbiased estimate of the mean's third central moment; it needs three clusters.
        third_moment = (residuals**3).sum(axis=-1) / max(clusters * (clusters - 1) * (clusters - 2), 1)
        # With a skewness of 0, h is the identity and the interval that of t.
        skew = third_moment / variance**1.5 if clusters > 2 else np.zeros_like(estimate)
        t = scipy.special.stdtrit(df, (1 + confidence) / 2)
        error = np.sqrt(variance)
        return estimate - error * _hall_inverse(t, skew), estimate - error * _hall_inverse(-t, skew)


def _hall_inverse(x: np.ndarray, skew: np.ndarray) -> np.ndarray:
    """``h(x) = (3/g) · (cbrt(1 + g · (x − g/6)) − 1)`` with g the skewness; its limit at g = 0 is x."""
    small = np.abs(skew) < 1e-8  # below it the difference of nearly equal numbers would lose all digits
    g = np.where(small, 1.0, skew)
    return np.where(small, x, 3 / g * (np.cbrt(1 + g * (x - g / 6)) - 1))
