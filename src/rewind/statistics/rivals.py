"""Other procedures, to be measured beside ours on simulated studies; vectorised over the studies.

All take one metric of R studies with M methods and S seeds each, and return whether a pair is called different (R, P)
and, where the procedure has intervals, the ends for each method (R, M).
"""

from __future__ import annotations

import numpy as np
from scipy.special import stdtr

Ends = tuple[np.ndarray, np.ndarray]


def query_bootstrap(
    totals: np.ndarray, pairs: np.ndarray, weights: np.ndarray, queries: int, level: float
) -> tuple[np.ndarray, Ends]:
    """Percentile bootstrap over clusters of queries, seeds held fixed.

    Args:
        totals: (R, M, S, C) sums over each cluster's queries.
        pairs: (P, 2) methods.
        weights: (B, C) counts of the clusters in each resample; all clusters are of one size.
        queries: Q.
        level: of the tests; intervals have 1 − level.
    """
    means = _resampled(totals.mean(axis=2), weights) / queries  # (B, R, M)
    return _percentiles(means, pairs, level)


def multi_bootstrap(
    totals: np.ndarray,
    pairs: np.ndarray,
    weights: np.ndarray,
    queries: int,
    level: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, Ends]:
    """The Multi-Bootstrap (Sellam et al., 2022), unpaired: seeds of each method and clusters of queries are redrawn.

    Arguments as in :func:`query_bootstrap`; ``rng`` draws the seeds.
    """
    seeds = totals.shape[2]
    means = _resampled(totals, weights) / queries  # (B, R, M, S)
    drawn = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=(len(weights), totals.shape[1]))
    means = np.einsum("brms,bms->brm", means, drawn.astype(np.float32) / seeds)
    return _percentiles(means, pairs, level)


def fisher(differences: np.ndarray, signs: np.ndarray, level: float) -> np.ndarray:
    """Fisher's randomisation test as ranx runs it: per query the two methods are swapped, p is the share as extreme.

    Args:
        differences: (R, P, Q) of per-query values averaged over seeds.
        signs: (N, Q) of −1 and 1.
        level: of the test.
    """
    shape = differences.shape
    sums = signs @ differences.reshape(-1, shape[-1]).T.astype(np.float32)  # (N, R·P)
    observed = np.abs(differences.sum(axis=-1)).ravel()
    # As-extreme sums of hits are equal but for rounding.
    return ((np.abs(sums) >= observed * (1 - 1e-6)).mean(axis=0) <= level).reshape(shape[:-1])


def student(differences: np.ndarray, level: float) -> np.ndarray:
    """Student's paired t over queries, on per-query values averaged over seeds (R, P, Q)."""
    queries = differences.shape[-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        t = differences.mean(axis=-1) / (differences.std(axis=-1, ddof=1) / np.sqrt(queries))
    return np.nan_to_num(2 * stdtr(queries - 1, -np.abs(t)), nan=1) <= level


def _resampled(totals: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(…, C) → (B, …) sums over the drawn clusters."""
    flat = totals.reshape(-1, totals.shape[-1]).astype(np.float32)
    return (weights @ flat.T).reshape(len(weights), *totals.shape[:-1])


def _percentiles(means: np.ndarray, pairs: np.ndarray, level: float) -> tuple[np.ndarray, Ends]:
    tails = [level / 2, 1 - level / 2]
    low, high = np.quantile(means[..., pairs[:, 0]] - means[..., pairs[:, 1]], tails, axis=0)
    ends = np.quantile(means, tails, axis=0)
    return (low > 0) | (high < 0), (ends[0], ends[1])
