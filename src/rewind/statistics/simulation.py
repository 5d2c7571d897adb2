"""Simulated studies with known true values: ranks of several methods, seeds and queries from a latent normal model.

A query's log rank is normal: ``rank = clip(ceil(exp(a + b·z)), 1, gallery)``, with b such that R@1 = 40% goes with
R@10 = 80% (and a mean rank near 15 in a gallery of 1,000). For method m, seed s and query q

    z = √(d·k)·common[q] + √(d·(1 − k))·own[m, q] + √(1 − d)·retrained[m, s, q] + seed[m, s] + pretrained[m, s]

where d (``shared``) is the correlation between two seeds of a method, k (``alike``) that between two methods of what
their seeds share, and each of the first three terms is a sum of a cluster's part and a query's own. The seed effect
moves all queries of a run. So does the pre-training, which moves all methods that start from it in the same direction,
or nearly so. One seed per method means a fixed model: only queries are random.

Methods whose seeds vary differently have the same true values: z is scaled so that all have one distribution of ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import multivariate_normal

from rewind.ranking_metrics import METRICS

SIMULATED_METRICS = ("R@1", "R@10", "MRR", "MnR")
PRETRAINED_PER_SEED, PRETRAINED_ONCE = "per seed", "once"
# b: P(log rank ≤ 0) = 40% and P(log rank ≤ log 10) = 80% are a distance of log 10 apart.
LOG_RANK_SLOPE = float(np.log(10) / (ndtri(0.8) - ndtri(0.4)))
Number = TypeVar("Number", int, float)
_REFERENCE_R1 = 0.4  # R@1 to which ``disagreement`` refers
_MAX_DISAGREEMENT = 200 * _REFERENCE_R1 * (1 - _REFERENCE_R1)  # percent: 2p(1 − p), of independent hits


@dataclass(frozen=True)
class Design:
    """A study to simulate; spreads are standard deviations in points of R@1.

    Attributes:
        seeds: per method; one number, or one for each method. 1 is a fixed model, tested over queries.
        cluster: queries of each cluster; :mod:`rewind.statistics.power` also takes a mean that is not a whole number.
        seed_sd: effect of a seed on all queries alike; one number, or one for each method. The effect of retraining on
            single queries (``disagreement``) adds to the spread of R@1 over seeds.
        disagreement: percent of queries whose R@1 differs between two seeds of a method (without ``seed_sd``) if R@1
            is 40%. At another R@1 it is in proportion to p·(1 − p): near 0 or 100% seeds cannot differ as often.
        pretraining: ``per seed``, drawn for every seed and shared by the methods' runs with that seed; ``once``,
            drawn for the study, so that no seed redraws it.
    """

    seeds: int | tuple[int, ...] = 3
    queries: int = 1000  # of every method, a multiple of ``cluster``
    cluster: float = 2
    seed_sd: float | tuple[float, ...] = 1.0
    disagreement: float = 10.0
    r1: float = 40.0  # R@1 of the methods in percent
    difference: float = 0.0  # points of R@1 by which the last method is better
    methods: int = 3
    gallery: int = 1000  # largest rank
    alike: float = 0.8  # correlation between two methods of what their seeds share
    together: float = 0.5  # correlation between two queries of a cluster
    pretraining_sd: float = 0.0  # effect of the pre-training on a run
    pretraining: str = PRETRAINED_PER_SEED
    pretraining_alike: float = 1.0  # correlation between two methods of the effects of one pre-training

    @property
    def clusters(self) -> int:
        return self.queries // self.whole_cluster

    @property
    def whole_cluster(self) -> int:
        """Queries of each cluster, which is a whole number in whatever is simulated."""
        if self.cluster != int(self.cluster):
            raise TypeError(f"clusters of {self.cluster} queries cannot be simulated")
        return int(self.cluster)

    @property
    def seeds_each(self) -> tuple[int, ...]:
        return self.seeds if isinstance(self.seeds, tuple) else (self.seeds,) * self.methods

    @property
    def disagreeing(self) -> float:
        """Percent of queries whose R@1 differs between two seeds of a method, at the R@1 of this design."""
        p = self.r1 / 100
        return self.disagreement * p * (1 - p) / (_REFERENCE_R1 * (1 - _REFERENCE_R1))

    def disagreeing_by(self, percent: float) -> Design:
        """The design whose seeds differ on ``percent`` of the queries at its R@1, or on as many as they can."""
        p = self.r1 / 100
        return replace(
            self, disagreement=min(percent * _REFERENCE_R1 * (1 - _REFERENCE_R1) / (p * (1 - p)), _MAX_DISAGREEMENT)
        )

    @property
    def shared(self) -> float:
        """Latent correlation between two seeds, from their disagreement."""
        return seed_correlation(self.r1, self.disagreeing)

    @property
    def shift_sd(self) -> np.ndarray:
        """(M,) standard deviation of the seed effect on the latent scale."""
        each = np.broadcast_to(np.asarray(self.seed_sd, dtype=float), (self.methods,))
        return each / 100 / self._density

    @property
    def pretraining_shift(self) -> float:
        """Standard deviation of the pre-training's effect on the latent scale."""
        return self.pretraining_sd / 100 / self._density

    @property
    def run_sd(self) -> np.ndarray:
        """(M,) standard deviation of z in each method; the terms of queries have a variance of 1."""
        return np.sqrt(1 + self.shift_sd**2 + self.pretraining_shift**2)

    @property
    def spread(self) -> float:
        """Standard deviation of the log rank, the same in all methods."""
        return LOG_RANK_SLOPE * float(np.sqrt(np.mean(self.run_sd**2)))

    @property
    def starts(self) -> np.ndarray:
        """(M,) a of each method: such that R@1 over seeds and queries is ``r1``, plus ``difference`` for the last."""
        r1 = np.full(self.methods, self.r1 / 100)
        r1[-1] += self.difference / 100
        # R@1 = P(log rank ≤ 0) = Φ(−a / spread), solved for a.
        return -self.spread * ndtri(r1)

    @property
    def _density(self) -> float:
        """Change of R@1, as a share of 1, per small shift of z: the normal density at the threshold."""
        return float(np.exp(-(ndtri(self.r1 / 100) ** 2) / 2) / np.sqrt(2 * np.pi))


def shared_number(numbers: Number | tuple[Number, ...]) -> Number:
    """The one number that a design has for all methods; power is not computed for methods whose numbers differ."""
    if isinstance(numbers, tuple):
        raise TypeError(f"one number for all methods is needed, not {numbers}")
    return numbers


def joint_hit_probability(p: float, correlation: float) -> float:
    """Probability that two standard normals of this correlation are both below their p-quantile."""
    if correlation >= 1 - 1e-12:  # both are one value, and their covariance matrix is singular
        return p
    bound = float(ndtri(p))
    return float(multivariate_normal.cdf([bound, bound], cov=[[1, correlation], [correlation, 1]]))


@lru_cache
def seed_correlation(r1: float, disagreement: float) -> float:
    """Latent correlation at which two seeds differ in R@1 on ``disagreement`` percent of the queries."""
    p, share = r1 / 100, disagreement / 100
    if share <= 0:
        return 1.0
    if share >= 2 * p * (1 - p):
        return 0.0
    # P(exactly one of two hits) = 2 (p − P(both)).
    return float(brentq(lambda rho: 2 * (p - joint_hit_probability(p, rho)) - share, 0, 1 - 1e-9))


def draw_ranks(design: Design, replicates: int, rng: np.random.Generator) -> np.ndarray:
    """(R, M, S, Q) float32 ranks of ``replicates`` independent studies; the queries of a cluster are neighbours.

    S is the largest number of seeds of a method. A method with fewer uses its first ones, which share their
    pre-training with the same seeds of the others.
    """
    # The order of the draws fixes the results of a seed: do not change it. Sums are computed in place to save memory.
    lead = (replicates, design.methods, max(design.seeds_each))
    shared, alike = design.shared, design.alike
    queries: np.ndarray = np.float32(np.sqrt(shared * alike)) * _clustered_normals(design, (replicates, 1, 1), rng)
    queries = queries + np.float32(np.sqrt(shared * (1 - alike))) * _clustered_normals(design, (*lead[:2], 1), rng)
    shift = design.shift_sd[:, None, None].astype(np.float32)
    z = queries + shift * rng.standard_normal((*lead, 1), dtype=np.float32)
    if shared < 1:
        z += np.float32(np.sqrt(1 - shared)) * _clustered_normals(design, lead, rng)
    if design.pretraining_sd:
        z += _pretraining_effects(design, lead, rng)
    z *= (design.spread / design.run_sd).astype(np.float32)[:, None, None]
    z += design.starts.astype(np.float32)[:, None, None]
    np.ceil(np.exp(z, out=z), out=z)
    return np.clip(z, 1, design.gallery, out=z)


def metric_values(ranks: np.ndarray, metric: str) -> np.ndarray:
    """Value of a metric per query, float32; R@k as 0 or 1."""
    return METRICS[metric].worth_of(ranks).astype(np.float32, copy=False)


def cluster_totals(design: Design, per_query: np.ndarray) -> np.ndarray:
    """Sums over clusters: (…, Q) → (…, C)."""
    return per_query.reshape(*per_query.shape[:-1], design.clusters, design.whole_cluster).sum(axis=-1)


def true_means(design: Design, metric: str) -> np.ndarray:
    """(M,) true mean of each method: over all seeds and queries that could be drawn."""
    cutoffs = np.arange(1, design.gallery)
    below = ndtr((np.log(cutoffs) - design.starts[:, None]) / design.spread)  # P(rank ≤ r), r < gallery
    # P(rank = 1), …, P(rank = gallery); ranks beyond the gallery were clipped to its last.
    probabilities = np.diff(below, prepend=0, append=1, axis=1)
    return probabilities @ METRICS[metric].worth_of(np.arange(1, design.gallery + 1)).astype(float)


def _clustered_normals(design: Design, lead: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """(*lead, Q) standard normals, correlated within clusters."""
    own = rng.standard_normal((*lead, design.queries), dtype=np.float32)
    if design.cluster == 1:
        return own
    common = rng.standard_normal((*lead, design.clusters, 1), dtype=np.float32)
    own = own.reshape(*lead, design.clusters, design.whole_cluster)
    # The squares of both factors add up to 1: the variance stays 1, and queries of a cluster correlate by `together`.
    own *= np.float32(np.sqrt(1 - design.together))
    own += np.float32(np.sqrt(design.together)) * common
    return own.reshape(*lead, design.queries)


def _pretraining_effects(design: Design, lead: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """(R, M, S or 1, 1) what pre-training does to runs, correlated between methods."""
    seeds = 1 if design.pretraining == PRETRAINED_ONCE else lead[2]
    common = rng.standard_normal((lead[0], 1, seeds, 1), dtype=np.float32)
    own = rng.standard_normal((lead[0], lead[1], seeds, 1), dtype=np.float32)
    effects = np.sqrt(design.pretraining_alike) * common + np.sqrt(1 - design.pretraining_alike) * own
    return (design.pretraining_shift * effects).astype(np.float32)
