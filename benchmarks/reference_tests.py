"""Tests that others use, on the studies on which the calibration measures ours: bootstraps, Fisher's randomisation, t.

All are vectorised over studies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from scipy.special import stdtr

from rewind.errors import RewindError
from rewind.statistics import calibration
from rewind.statistics.bootstrap import draw_weights
from rewind.statistics.calibration import OUR_TEST, ComparedTests, Outcome
from rewind.statistics.simulation import SIMULATED_METRICS, Design

REFERENCE_TESTS = ("query bootstrap", "Multi-Bootstrap", "Fisher", "Student")


def calibrate(
    design: Design,
    replicates: int,
    seed: int = 0,
    metrics: tuple[str, ...] = SIMULATED_METRICS,
    procedures: tuple[str, ...] = (OUR_TEST,),
    confidence: float = 0.95,
    resamples: int = 1000,
) -> pd.DataFrame:
    """:func:`rewind.statistics.calibration.calibrate`, of reference tests too.

    Args:
        procedures: ``OUR_TEST`` and names of :data:`REFERENCE_TESTS`; all get the same studies.
        resamples: of the reference tests. Their draws are shared by the studies of a batch.

    Raises:
        RewindError: for a design that cannot be simulated or an unknown name.

    >>> rates = calibrate(Design(queries=40), replicates=5, metrics=("R@1",), procedures=("Student",))
    >>> rates[["procedure", "measure"]].values.tolist()
    [['Student', 'type I']]
    """
    available = (OUR_TEST, *REFERENCE_TESTS)
    if unknown := sorted(set(procedures) - set(available)):
        raise RewindError(f"simulation: {unknown[0]!r} is unknown; available: {', '.join(available)}.")
    names = [name for name in procedures if name != OUR_TEST]
    if names and len(set(design.seeds_each)) > 1:
        raise RewindError(f"simulation: with unequal seeds the only procedure is {OUR_TEST!r}.")

    def prepare(design: Design, pairs: np.ndarray, level: float, rng: np.random.Generator) -> ComparedTests:
        return _prepare_tests(names, resamples, design, pairs, level, rng)

    rates = calibration.calibrate(design, replicates, seed, metrics, confidence, prepare if names else None)
    return rates[rates["procedure"].isin(procedures)].reset_index(drop=True)


def _prepare_tests(
    names: Sequence[str],
    resamples: int,
    design: Design,
    pairs: np.ndarray,
    level: float,
    rng: np.random.Generator,
) -> ComparedTests:
    """Draw what all batches of a simulation share."""
    queries = design.queries
    if set(names) & {"query bootstrap", "Multi-Bootstrap"}:
        weights = draw_weights(design.clusters, resamples, int(rng.integers(2**31)))
    if "Fisher" in names:
        signs = rng.choice(np.array([-1, 1], dtype=np.float32), size=(resamples, queries))

    def outcomes(per_query: np.ndarray, totals: np.ndarray) -> Iterator[tuple[str, Outcome]]:
        if "query bootstrap" in names:
            significant, ends = query_bootstrap(totals, pairs, weights, queries, level)
            yield "query bootstrap", {"called": significant, "ends": ends}
        if "Multi-Bootstrap" in names:
            significant, ends = multi_bootstrap(totals, pairs, weights, queries, level, rng)
            yield "Multi-Bootstrap", {"called": significant, "ends": ends}
        averaged = per_query.mean(axis=2)
        differences = averaged[:, pairs[:, 0]] - averaged[:, pairs[:, 1]]
        if "Fisher" in names:
            yield "Fisher", {"called": fisher_randomisation_test(differences, signs, level)}
        if "Student" in names:
            yield "Student", {"called": paired_t_test(differences, level)}

    return outcomes


# All take one metric of R studies with M methods and S seeds each. They return whether the methods of a pair are called
# different, (R, P), and, where the test has intervals, their ends for each method, (R, M).

IntervalEnds = tuple[np.ndarray, np.ndarray]


def query_bootstrap(
    totals: np.ndarray, pairs: np.ndarray, weights: np.ndarray, queries: int, level: float
) -> tuple[np.ndarray, IntervalEnds]:
    """Percentile bootstrap over clusters of queries, seeds held fixed.

    Args:
        totals: (R, M, S, C) sums over each cluster's queries.
        pairs: (P, 2) methods.
        weights: (B, C) counts of the clusters in each resample; all clusters are of one size.
        queries: Q.
        level: of the tests; intervals have a confidence of 1 − level.
    """
    means = _resampled_sums(totals.mean(axis=2), weights) / queries  # (B, R, M)
    return _percentile_tests(means, pairs, level)


def multi_bootstrap(
    totals: np.ndarray,
    pairs: np.ndarray,
    weights: np.ndarray,
    queries: int,
    level: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, IntervalEnds]:
    """The unpaired Multi-Bootstrap (Sellam et al., 2022): each method's seeds and the clusters of queries are redrawn.

    Arguments as in :func:`query_bootstrap`; ``rng`` draws the seeds.
    """
    seeds = totals.shape[2]
    means = _resampled_sums(totals, weights) / queries  # (B, R, M, S)
    # How often each seed is drawn, by resample and method; the average over drawn seeds is then a weighted mean.
    draws = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=(len(weights), totals.shape[1]))
    means = np.einsum("brms,bms->brm", means, draws.astype(np.float32) / seeds)
    return _percentile_tests(means, pairs, level)


def fisher_randomisation_test(differences: np.ndarray, signs: np.ndarray, level: float) -> np.ndarray:
    """Fisher's randomisation test as ranx computes it.

    On each query the two methods are swapped or not, at random; p is the share of such draws whose mean difference is
    as extreme as the observed one.

    Args:
        differences: (R, P, Q) of per-query values averaged over seeds.
        signs: (N, Q) of −1 and 1.
        level: of the test.
    """
    shape = differences.shape
    sums = signs @ differences.reshape(-1, shape[-1]).T.astype(np.float32)  # (N, R·P)
    observed = np.abs(differences.sum(axis=-1)).ravel()
    # Sums of hits that are equally extreme differ by rounding.
    return ((np.abs(sums) >= observed * (1 - 1e-6)).mean(axis=0) <= level).reshape(shape[:-1])


def paired_t_test(differences: np.ndarray, level: float) -> np.ndarray:
    """Student's paired t over queries, on per-query values averaged over seeds (R, P, Q)."""
    queries = differences.shape[-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        t = differences.mean(axis=-1) / (differences.std(axis=-1, ddof=1) / np.sqrt(queries))
    # Without any difference t is 0/0, and p is 1.
    return np.nan_to_num(2 * stdtr(queries - 1, -np.abs(t)), nan=1) <= level


def _resampled_sums(totals: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(…, C) → (B, …) sums over the drawn clusters."""
    flat = totals.reshape(-1, totals.shape[-1]).astype(np.float32)
    return (weights @ flat.T).reshape(len(weights), *totals.shape[:-1])


def _percentile_tests(means: np.ndarray, pairs: np.ndarray, level: float) -> tuple[np.ndarray, IntervalEnds]:
    tails = [level / 2, 1 - level / 2]
    low, high = np.quantile(means[..., pairs[:, 0]] - means[..., pairs[:, 1]], tails, axis=0)
    ends = np.quantile(means, tails, axis=0)
    return (low > 0) | (high < 0), (ends[0], ends[1])
