"""What difference of R@1 a study can detect, from the latent normal model of ``simulation`` on normal theory.

The variances of the model are exact; the test's estimates of them are drawn as χ² variables, and given these the
power is a normal probability. No ranks are simulated, so this takes milliseconds. What a comparison that was made
could have seen needs no model: ``seen``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, stdtrit

from rewind.statistics.inference import LEFT
from rewind.statistics.seen import smallest_seen
from rewind.statistics.simulation import Design, agreement

DRAWS = 4096
ALIKE = (0.6, 0.95)  # what two methods' shared query effects may correlate by, where no result tells
SPREAD = (0.5, 2.0)  # what the seeds' spread may be of a guess
_SEED_NUMBERS = (2, 3, 5, 10, 30, 100, 1000)  # among which the least detectable difference is looked for


@dataclass(frozen=True)
class Variances:
    """Variances of R@1 as a share of 1.

    Attributes:
        shift: of what a seed does to all queries alike.
        retrained: of what retraining one method once does to single queries, averaged over the queries.
        query: of the difference between two methods over draws of queries, their seeds averaged out.
    """

    shift: float
    retrained: float
    query: float

    @property
    def run(self) -> float:
        """Of one run about its method: the spread over seeds that tables print, squared."""
        return self.shift + self.retrained


def variances(design: Design) -> Variances:
    """The model's variances; with a cluster size that does not divide the queries, clusters of that size on average."""
    shared = design.shared
    return Variances(
        shift=(design.seed_sd / 100) ** 2,
        retrained=max(0.0, _within(design, 1.0) - _within(design, shared)) / design.queries,
        query=2 * max(0.0, _within(design, shared) - _within(design, shared * design.alike)) / design.queries,
    )


def query_correlation(design: Design, alike: float) -> float:
    """Correlation over clusters of two methods' hits, seeds averaged out, whose latent correlation is ``alike``."""
    return _within(design, design.shared * alike) / _within(design, design.shared)


def with_spread(design: Design, total: float) -> Design:
    """The design whose runs spread over seeds by ``total`` points of R@1.

    Where the design's disagreement alone would make a greater spread, there is less of it and no common shift.
    """
    retrained = variances(replace(design, seed_sd=0)).retrained
    rest = (total / 100) ** 2 - retrained
    if rest > -1e-9:
        return replace(design, seed_sd=100 * float(np.sqrt(max(rest, 0))))
    wanted = (total / 100) ** 2

    def excess(disagreement: float) -> float:
        return variances(replace(design, seed_sd=0, disagreement=disagreement)).retrained - wanted

    least = 0.01  # percent; below it there is none
    less = brentq(excess, least, design.disagreement) if excess(least) < 0 else 0.0
    return replace(design, seed_sd=0.0, disagreement=float(less))


def power(design: Design, points: float, level: float = 0.05, seed: int = 0) -> float:
    """Probability that a true difference of ``points`` of R@1 gets p ≤ ``level``."""
    return _power(_draws(design, level, seed), points / 100)


def detectable(design: Design, wanted: float = 0.8, level: float = 0.05, seed: int = 0) -> float:
    """Smallest difference in points of R@1 that is detected with probability ``wanted``; inf above 100 points."""
    drawn = _draws(design, level, seed)
    if _power(drawn, 1.0) < wanted:
        return float("inf")
    return 100 * float(brentq(lambda points: _power(drawn, points) - wanted, 0, 1, xtol=1e-6))


def queries_alone(design: Design, wanted: float = 0.8, level: float = 0.05) -> float:
    """Smallest difference in points of R@1 that these queries let be seen, however many seeds there are.

    With one seed (``design.seeds`` is 1) of these two fixed models. Else the limit for many seeds, where nothing but
    the queries is left of the error, or what some number of seeds detects if that is less: with a handful of clusters
    the seeds' part is known better than the queries', so that a few seeds can beat the limit.

    Returns:
        0 where the queries' part of the error is 0 and they set no limit: methods that succeed and fail together, or
        an estimate of that part which is 0. inf above 100 points, and with a single cluster, which tells nothing of
        others.
    """
    found, clusters = variances(design), design.queries / design.cluster
    variance = found.query + (2 * found.retrained if design.seeds == 1 else 0.0)
    if variance <= 0:
        return 0.0
    if clusters <= 1:
        return float("inf")
    limit = 100 * float(smallest_seen(variance, clusters - 1, level, wanted))
    if design.seeds != 1:
        numbers = sorted({*_SEED_NUMBERS, design.seeds})
        limit = min(limit, *(detectable(replace(design, seeds=seeds), wanted, level) for seeds in numbers))
    return limit if limit <= 100 else float("inf")


def seen_with(
    clusters: int, cluster: float = 1, r1: float = 40.0, level: float = 0.05, wanted: float = 0.8
) -> tuple[float, float]:
    """What so few clusters let be seen, in points of R@1: least and greatest over what methods may be like.

    That is how alike they are (``ALIKE``) and how often seeds disagree (never, or on the usual share of queries).

    For a study that has too few clusters to compare anything: how great a difference would have to be, with any number
    of seeds.

    Args:
        clusters: of queries; at least 2.
        cluster: queries of each.
        r1: R@1 of the methods in percent.
        level, wanted: as in :func:`queries_alone`, alone of its family.
    """
    base = Design(queries=round(clusters * cluster), cluster=cluster, r1=r1)
    cases = [replace(base, alike=alike, disagreement=share) for alike in ALIKE for share in (0.0, base.disagreement)]
    found = [queries_alone(case, wanted, level) for case in cases]
    return min(found), max(found)


def _draws(design: Design, level: float, seed: int) -> tuple[float, np.ndarray]:
    """Standard error of the difference, and draws of what it must exceed to be called."""
    found, seeds, clusters = variances(design), design.seeds, design.queries / design.cluster
    rng = np.random.default_rng(seed)
    runs = found.run / seeds * rng.chisquare(seeds - 1, (2, DRAWS)) / (seeds - 1)
    overlap = 2 * found.retrained / seeds
    raw = (found.query + overlap) * rng.chisquare(clusters - 1, DRAWS) / (clusters - 1)
    seed_part = runs.sum(axis=0)
    left = raw - overlap
    variance = np.where(left > LEFT * raw, seed_part + left, np.maximum(seed_part, raw))
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.nan_to_num(seed_part / variance)
        f = np.where(seed_part > 0, seed_part**2 / ((runs**2).sum(axis=0) / (seeds - 1)), 1)
        k = np.maximum(1, 2 - 2 / f)
        df = 1 / (share**k / f + (1 - share) ** k / (clusters - 1))
    return float(np.sqrt(2 * found.run / seeds + found.query)), stdtrit(df, 1 - level / 2) * np.sqrt(variance)


def _power(drawn: tuple[float, np.ndarray], difference: float) -> float:
    error, bar = drawn
    if error == 0:  # neither seeds nor queries move the difference, so that it is seen as it is
        return float((abs(difference) > bar).mean())
    return float((ndtr((difference - bar) / error) + ndtr((-difference - bar) / error)).mean())


def _within(design: Design, correlation: float) -> float:
    """Sum over a cluster of the covariances of one query's hit with the others', per query."""
    p = design.r1 / 100
    other = (design.cluster - 1) * _covariance(p, correlation * design.together) if design.cluster > 1 else 0.0
    return _covariance(p, correlation) + other


def _covariance(p: float, correlation: float) -> float:
    """Of two hits whose latent correlation is given."""
    return agreement(p, correlation) - p * p
