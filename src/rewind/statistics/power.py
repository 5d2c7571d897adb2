"""Power analysis: which difference of R@1 a study can detect, from the latent normal model of the simulation.

The model's variances are exact; the test's estimates of them are drawn as χ² variables, and given these the power is a
normal probability. No ranks are simulated, so this takes milliseconds. The minimum detectable effect of a comparison
that was already made needs no model (:func:`rewind.statistics.pairs.minimum_detectable_effect`). How often seeds
disagree and how strongly methods correlate, which the model takes as input, is estimated from the ranks of a study.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.interpolate import RegularGridInterpolator
from scipy.optimize import brentq
from scipy.special import ndtr, stdtrit

from rewind.statistics.blocks import RankBlock
from rewind.statistics.bounds import behrens_fisher_quantile
from rewind.statistics.inference import MAX_FAMILY_OF_TWO_SEEDS, MIN_REMAINING_SHARE, degrees_of_freedom
from rewind.statistics.pairs import minimum_detectable_effect
from rewind.statistics.simulation import Design, joint_hit_probability, shared_number
from rewind.statistics.variance import VarianceComponents, variance_components

# ---- Seed disagreement and between-method correlation, estimated from the ranks of a study -------------------------


class MethodCorrelation(NamedTuple):
    """R@1 of a study's methods: how often seeds differ, and how strongly methods correlate."""

    disagreement: float  # percent of queries on which two seeds of a method differ
    alike: tuple[float, ...]  # latent, of each pair of methods, as in Design; ascending; empty where not estimable


def between_method_correlation(block: RankBlock, cluster: float) -> MethodCorrelation | None:
    """Estimate from every method of a block that has two seeds or more; None if there is none.

    With query parts max(B − E, 0), which are free of seed noise, the correlation of two methods' hits is
    ``1 − (query part of the difference) / (sum of the two query parts)``, because the variance of a difference lacks
    what both share. The model converts it into a correlation of latent values. ``cluster`` is the mean number of
    queries of a cluster.
    """
    hits = {name: block.values(name, "R@1") / 100 for name, runs in block.higher.items() if len(runs) > 1}
    if not hits:
        return None
    components = {
        name: variance_components(block.clusters.totals(method_hits), block.clusters.sizes)
        for name, method_hits in hits.items()
    }
    disagreement = float(np.mean([_seed_disagreement(method_hits) for method_hits in hits.values()]))
    r1 = 100 * float(np.mean([part.mean for part in components.values()]))
    if not 0 < r1 < 100:
        return MethodCorrelation(100 * disagreement, ())
    design = Design(queries=len(block.queries), cluster=cluster, r1=r1).disagreeing_by(100 * disagreement)
    correlations = []
    for first, second in combinations(components.values(), 2):
        both_query_parts = _query_component(first) + _query_component(second)
        if both_query_parts > 0:
            correlations.append(_latent_correlation(1 - _query_component(first, second) / both_query_parts, design))
    return MethodCorrelation(100 * disagreement, tuple(sorted(correlations)))


def _seed_disagreement(hits: np.ndarray) -> float:
    """Share of queries on which two seeds differ, from (S, Q) hits; expected hits of ties differ by a fraction."""
    pairs = combinations(range(len(hits)), 2)
    return float(np.mean([np.abs(hits[a] - hits[b]).mean() for a, b in pairs]))


def _query_component(first: VarianceComponents, second: VarianceComponents | None = None) -> float:
    """max(B − E, 0) of one method, or of the difference of two."""
    residuals = first.residuals if second is None else first.residuals - second.residuals
    overlap = first.overlap if second is None else first.overlap + second.overlap
    clusters = residuals.shape[-1]
    return max(0.0, float(np.square(residuals).sum() / (clusters * max(clusters - 1, 1)) - overlap))


def _latent_correlation(correlation: float, design: Design) -> float:
    """The ``alike`` at which two methods' hits have this correlation over clusters."""
    # Sampling error can lead beyond what the model can reach, where brentq would find no change of sign.
    if correlation >= query_correlation(design, 1.0):
        return 1.0
    if correlation <= 0:
        return 0.0
    return float(brentq(lambda alike: query_correlation(design, alike) - correlation, 0.0, 1.0, xtol=1e-4))


# ---- Power and minimum detectable effects of a planned study -------------------------------------------------------

CHI_SQUARE_DRAWS = 4096
CORRELATION_RANGE = (0.6, 0.95)  # plausible ``alike`` of two methods, before there are results
SEED_SPREAD_RANGE = (0.5, 2.0)  # plausible spread over seeds as a multiple of a typical one
_SEED_COUNTS = (2, 3, 5, 10, 30, 100, 1000)  # numbers of seeds of which the smallest detectable difference is taken


@dataclass(frozen=True)
class ModelVariances:
    """Variances of R@1 as a share of 1."""

    shift: float  # of the effect of a seed on all queries alike
    retrained: float  # of the effect of retraining one method once on single queries, averaged over the queries
    query: float  # of the difference between two methods over draws of queries, with their seeds averaged out

    @property
    def run(self) -> float:
        """Variance of one run around its method: the spread over seeds that tables print, squared."""
        return self.shift + self.retrained


def model_variances(design: Design) -> ModelVariances:
    """The model's variances; a cluster size that does not divide the queries is meant as an average.

    A query's latent value correlates by 1 with itself, by ``shared`` with that of another seed and by
    ``shared · alike`` with that of another method. What the covariance of hits loses from one step to the next is the
    variance that seeds, or methods, do not share.
    """
    shared = design.shared
    return ModelVariances(
        shift=(shared_number(design.seed_sd) / 100) ** 2,
        retrained=max(0.0, _cluster_covariance(design, 1.0) - _cluster_covariance(design, shared)) / design.queries,
        query=2
        * max(0.0, _cluster_covariance(design, shared) - _cluster_covariance(design, shared * design.alike))
        / design.queries,
    )


def query_correlation(design: Design, alike: float) -> float:
    """Correlation over clusters of two methods' hits, seeds averaged out, at a latent correlation of ``alike``."""
    return _cluster_covariance(design, design.shared * alike) / _cluster_covariance(design, design.shared)


def with_seed_spread(design: Design, total: float) -> Design:
    """The design whose runs have a standard deviation over seeds of ``total`` points of R@1.

    Where the design's disagreement by itself would give a larger one, the disagreement is reduced and no common shift
    is left.
    """
    retrained = model_variances(replace(design, seed_sd=0)).retrained
    shift_variance = (total / 100) ** 2 - retrained
    if shift_variance > -1e-9:
        return replace(design, seed_sd=100 * float(np.sqrt(max(shift_variance, 0))))
    total_variance = (total / 100) ** 2

    def excess(disagreement: float) -> float:
        return model_variances(replace(design, seed_sd=0, disagreement=disagreement)).retrained - total_variance

    smallest = 0.01  # percent; disagreement that would have to be less counts as none
    reduced = brentq(excess, smallest, design.disagreement) if excess(smallest) < 0 else 0.0
    return replace(design, seed_sd=0.0, disagreement=float(reduced))


def detection_power(design: Design, points: float, level: float = 0.05, seed: int = 0) -> float:
    """Probability that a true difference of ``points`` of R@1 gets p ≤ ``level``."""
    return _mean_power(_draw_thresholds(design, level, seed), points / 100)


def design_detectable_effect(
    design: Design, power: float = 0.8, level: float = 0.05, seed: int = 0, family: int = 1
) -> float:
    """Smallest difference in points of R@1 that is detected with probability ``power``; inf above 100 points.

    With a ``family`` of tests, at the strictest level of Holm's correction and with its p-values
    (:func:`~rewind.statistics.inference.family_p_value`).

    Example:
        >>> three, ten = (design_detectable_effect(Design(seeds=seeds)) for seeds in (3, 10))
        >>> three > ten  # more seeds detect smaller differences
        True
    """
    if family > MAX_FAMILY_OF_TWO_SEEDS and shared_number(design.seeds) == 2:
        return float("inf")
    thresholds = _draw_thresholds(design, level, seed, family)
    if _mean_power(thresholds, 1.0) < power:
        return float("inf")
    return 100 * float(brentq(lambda points: _mean_power(thresholds, points) - power, 0, 1, xtol=1e-6))


def query_limited_effect(design: Design, power: float = 0.8, level: float = 0.05) -> float:
    """Smallest difference in points of R@1 that can be detected with these queries, however many seeds there are.

    If ``design.seeds`` is 1, that of two fixed models. Otherwise the limit for many seeds, when only the queries are
    left of the error, or what some number of seeds detects if that is less: with a handful of clusters the seeds' part
    is known better than the queries', so that a few seeds can beat the limit.

    The effect is 0 where the queries' part of the error is 0 and they set no limit: methods that succeed and fail
    together, or an estimate of that part which is 0. It is inf above 100 points, and with a single cluster, which tells
    nothing about others.
    """
    variances, clusters = model_variances(design), design.queries / design.cluster
    # Of two fixed models, what one training did to single queries stays: no further seeds average it out.
    variance = variances.query + (2 * variances.retrained if design.seeds == 1 else 0.0)
    if variance <= 0:
        return 0.0
    if clusters <= 1:
        return float("inf")
    limit = 100 * float(minimum_detectable_effect(variance, clusters - 1, level, power))
    if design.seeds != 1:
        seed_counts = sorted({*_SEED_COUNTS, shared_number(design.seeds)})
        limit = min(
            limit, *(design_detectable_effect(replace(design, seeds=seeds), power, level) for seeds in seed_counts)
        )
    return limit if limit <= 100 else float("inf")


def few_clusters_effect(
    clusters: int, cluster: float = 1, r1: float = 40.0, level: float = 0.05, power: float = 0.8
) -> tuple[float, float]:
    """Detectable difference in points of R@1 with few clusters (at least 2) and any number of seeds: smallest, largest.

    The range is over how alike methods may be (:data:`CORRELATION_RANGE`) and how often seeds may disagree (never, or
    on the usual share of queries). For a study with too few clusters for letters: how large a difference would have to
    be. ``cluster`` is the queries of each, ``r1`` the methods' R@1 in percent, and the comparison a single one.
    """
    base = Design(queries=round(clusters * cluster), cluster=cluster, r1=r1)
    cases = [
        replace(base, alike=alike, disagreement=disagreement)
        for alike in CORRELATION_RANGE
        for disagreement in (0.0, base.disagreement)
    ]
    effects = [query_limited_effect(case, power, level) for case in cases]
    return min(effects), max(effects)


def _draw_thresholds(design: Design, level: float, seed: int, family: int = 1) -> tuple[float, np.ndarray]:
    """Standard error of the difference, and draws of the threshold that it must exceed to be significant.

    The estimates A, B and E of :mod:`rewind.statistics.inference` are drawn, and turned into V and df by its formulas.
    """
    variances, seeds = model_variances(design), shared_number(design.seeds)
    clusters = design.queries / design.cluster
    rng = np.random.default_rng(seed)
    # A₁ and A₂ are scaled χ² variables with S − 1 degrees of freedom each, B is one with C − 1; E is taken as known.
    seed_parts = variances.run / seeds * rng.chisquare(seeds - 1, (2, CHI_SQUARE_DRAWS)) / (seeds - 1)
    overlap = 2 * variances.retrained / seeds
    raw_query_part = (variances.query + overlap) * rng.chisquare(clusters - 1, CHI_SQUARE_DRAWS) / (clusters - 1)
    seed_sum = seed_parts.sum(axis=0)
    query_part = raw_query_part - overlap
    variance = np.where(
        query_part > MIN_REMAINING_SHARE * raw_query_part, seed_sum + query_part, np.maximum(seed_sum, raw_query_part)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.nan_to_num(seed_sum / variance)
        f = np.where(seed_sum > 0, seed_sum**2 / ((seed_parts**2).sum(axis=0) / (seeds - 1)), 1)
        df = degrees_of_freedom(share, f, clusters - 1)
    level /= family  # Holm compares the smallest p-value of n with level / n
    critical = stdtrit(df, 1 - level / 2)
    if family > 1:
        critical = np.maximum(critical, _family_quantiles(level, share, f, seeds - 1, clusters - 1))
    return float(np.sqrt(2 * variances.run / seeds + variances.query)), critical * np.sqrt(variance)


def _family_quantiles(level: float, share: np.ndarray, f: np.ndarray, seed_df: int, query_df: float) -> np.ndarray:
    """Critical values of tests in a family, interpolated: f is between that of one method and that of two."""
    # Each quantile takes a bisection over double sums, so that 105 on a grid stand for those of thousands of draws.
    shares, dfs = np.linspace(0, 1, 21), np.linspace(seed_df, 2 * seed_df, 5)
    grid = [array.ravel() for array in np.meshgrid(shares, dfs, indexing="ij")]
    quantiles = behrens_fisher_quantile(level, grid[0], grid[1], query_df).reshape(len(shares), len(dfs))
    points = np.stack([share.clip(0, 1), f.clip(seed_df, 2 * seed_df)], axis=-1)
    return RegularGridInterpolator((shares, dfs), quantiles)(points)


def _mean_power(thresholds: tuple[float, np.ndarray], difference: float) -> float:
    error, threshold = thresholds
    if error == 0:  # neither seeds nor queries move the difference: the estimate is the true value
        return float((abs(difference) > threshold).mean())
    # A test is two-sided: a significant difference of the wrong sign counts as detected too.
    return float((ndtr((difference - threshold) / error) + ndtr((-difference - threshold) / error)).mean())


def _cluster_covariance(design: Design, correlation: float) -> float:
    """Sum of the covariances of one query's hit in a run with the hits of its cluster in another run.

    ``correlation`` is the latent one of the two runs on one query, 1 for a run with itself. Divided by the number of
    queries, the sum is the covariance of the two runs' R@1 over draws of clusters.
    """
    p = design.r1 / 100
    from_others = (
        (design.cluster - 1) * _hit_covariance(p, correlation * design.together) if design.cluster > 1 else 0.0
    )
    return _hit_covariance(p, correlation) + from_others


def _hit_covariance(p: float, correlation: float) -> float:
    """Covariance of two hits with probability ``p`` whose latent values have this correlation."""
    return joint_hit_probability(p, correlation) - p * p
