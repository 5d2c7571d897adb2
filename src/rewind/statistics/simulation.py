"""Studies whose truth is known: ranks of several methods, seeds and queries from a latent normal model.

A query's log rank is normal: ``rank = clip(ceil(exp(a + b·z)), 1, gallery)``, with b such that R@1 = 40% goes with
R@10 = 80% (and a mean rank near 15 in a gallery of 1,000). With one method m, seed s and query q

    z = √(d·m)·shared[q] + √(d·(1 − m))·own[m, q] + √(1 − d)·retrained[m, s, q] + seed[m, s] + pretrained[m, s]

where d is what two seeds of a method share, m what two methods share of that, and each of the first three is a sum of
a cluster's part and a query's own. The seed effect moves all queries of a run. What the pre-training does moves them
too: all methods that start from it go the same way, or nearly so. One seed each is a fixed model, which nothing but
other queries can move.

Methods whose seeds spread differently have the same truth: z is scaled so that all have one distribution of ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import multivariate_normal

from rewind.metrics import METRICS as ENTRIES

METRICS = ("R@1", "R@10", "MRR", "MnR")
PER_SEED, ONCE = "per seed", "once"
SLOPE = float(np.log(10) / (ndtri(0.8) - ndtri(0.4)))
_REFERENCE = 0.4  # R@1 at which ``disagreement`` is meant
_MOST = 200 * _REFERENCE * (1 - _REFERENCE)  # percent of independent hits that differ there


@dataclass(frozen=True)
class Design:
    """A study to simulate.

    Attributes:
        seeds: per method; one number, or one for each method. 1 is a fixed model, tested over queries.
        queries: of every method, a multiple of ``cluster``.
        cluster: queries of each cluster; ``power`` also takes a mean that is no whole number.
        seed_sd: standard deviation in points of R@1 of what a seed does to all queries alike; one number, or one for
            each method. What retraining does to single queries (``disagreement``) comes on top of it in the spread of
            R@1 over seeds.
        disagreement: percent of queries whose R@1 differs between two seeds of a method (without ``seed_sd``) if R@1
            is 40%. At another R@1 it is so much less as p·(1 − p) is: near 0 or 100% seeds cannot differ so often.
        r1: R@1 of the methods in percent.
        difference: points of R@1 by which the last method is better.
        methods: how many.
        gallery: largest rank.
        alike: correlation between two methods of what their seeds share.
        together: correlation between two queries of a cluster.
        pretraining_sd: standard deviation in points of R@1 of what the pre-training does to a run.
        pretraining: ``per seed``, drawn for every seed and shared by the methods' runs with that seed; ``once``,
            drawn for the study, so that no seed redraws it.
        pretraining_alike: correlation between two methods of what one pre-training does to them.
    """

    seeds: int | tuple[int, ...] = 3
    queries: int = 1000
    cluster: int = 2
    seed_sd: float | tuple[float, ...] = 1.0
    disagreement: float = 10.0
    r1: float = 40.0
    difference: float = 0.0
    methods: int = 3
    gallery: int = 1000
    alike: float = 0.8
    together: float = 0.5
    pretraining_sd: float = 0.0
    pretraining: str = PER_SEED
    pretraining_alike: float = 1.0

    @property
    def clusters(self) -> int:
        """Number of clusters."""
        return self.queries // self.cluster

    @property
    def seeds_each(self) -> tuple[int, ...]:
        """Seeds of each method."""
        return self.seeds if isinstance(self.seeds, tuple) else (self.seeds,) * self.methods

    @property
    def disagreeing(self) -> float:
        """Percent of queries whose R@1 differs between two seeds of a method, at the R@1 of this design."""
        p = self.r1 / 100
        return self.disagreement * p * (1 - p) / (_REFERENCE * (1 - _REFERENCE))

    def disagreeing_by(self, percent: float) -> Design:
        """The design whose seeds differ on so many percent of the queries, or on as many as they can, at its R@1."""
        p = self.r1 / 100
        return replace(self, disagreement=min(percent * _REFERENCE * (1 - _REFERENCE) / (p * (1 - p)), _MOST))

    @property
    def shared(self) -> float:
        """Latent correlation between two seeds, from their disagreement."""
        return shared_correlation(self.r1, self.disagreeing)

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
        """(M,) standard deviation of z in each method; the query's parts make 1 of its variance."""
        return np.sqrt(1 + self.shift_sd**2 + self.pretraining_shift**2)

    @property
    def spread(self) -> float:
        """Standard deviation of the log rank, the same in all methods."""
        return SLOPE * float(np.sqrt(np.mean(self.run_sd**2)))

    @property
    def starts(self) -> np.ndarray:
        """(M,) a of each method, so that R@1 over seeds and queries is as asked."""
        r1 = np.full(self.methods, self.r1 / 100)
        r1[-1] += self.difference / 100
        return -self.spread * ndtri(r1)

    @property
    def _density(self) -> float:
        """Points of R@1, as a share, that a small shift of z moves: the normal density at the threshold."""
        return float(np.exp(-(ndtri(self.r1 / 100) ** 2) / 2) / np.sqrt(2 * np.pi))


def agreement(p: float, correlation: float) -> float:
    """Probability that two standard normals of this correlation are both below their p-quantile."""
    if correlation >= 1 - 1e-12:
        return p
    bound = float(ndtri(p))
    return float(multivariate_normal.cdf([bound, bound], cov=[[1, correlation], [correlation, 1]]))


@lru_cache
def shared_correlation(r1: float, disagreement: float) -> float:
    """Latent correlation at which two seeds differ in R@1 on ``disagreement`` percent of the queries."""
    p, wanted = r1 / 100, disagreement / 100
    if wanted <= 0:
        return 1.0
    if wanted >= 2 * p * (1 - p):
        return 0.0
    return float(brentq(lambda rho: 2 * (p - agreement(p, rho)) - wanted, 0, 1 - 1e-9))


def draw_ranks(design: Design, replicates: int, rng: np.random.Generator) -> np.ndarray:
    """(R, M, S, Q) float32 ranks of ``replicates`` independent studies; the queries of a cluster lie side by side.

    S is the most seeds of a method. One that has fewer uses its first, which share their pre-training with the same
    seeds of the others.
    """
    lead = (replicates, design.methods, max(design.seeds_each))
    shared, alike = design.shared, design.alike
    queries = np.float32(np.sqrt(shared * alike)) * _effects(design, (replicates, 1, 1), rng)
    queries = queries + np.float32(np.sqrt(shared * (1 - alike))) * _effects(design, (*lead[:2], 1), rng)
    shift = design.shift_sd[:, None, None].astype(np.float32)
    ranks = queries + shift * rng.standard_normal((*lead, 1), dtype=np.float32)
    if shared < 1:
        ranks += np.float32(np.sqrt(1 - shared)) * _effects(design, lead, rng)
    if design.pretraining_sd:
        ranks += _pretrained(design, lead, rng)
    ranks *= (design.spread / design.run_sd).astype(np.float32)[:, None, None]
    ranks += design.starts.astype(np.float32)[:, None, None]
    np.ceil(np.exp(ranks, out=ranks), out=ranks)
    return np.clip(ranks, 1, design.gallery, out=ranks)


def values(ranks: np.ndarray, metric: str) -> np.ndarray:
    """A metric's worth per query, float32; R@k as 0 or 1."""
    return ENTRIES[metric].worth(ranks).astype(np.float32, copy=False)


def cluster_totals(design: Design, per_query: np.ndarray) -> np.ndarray:
    """Sums over clusters: (…, Q) → (…, C)."""
    return per_query.reshape(*per_query.shape[:-1], design.clusters, design.cluster).sum(axis=-1)


def truth(design: Design, metric: str) -> np.ndarray:
    """(M,) the mean over all seeds and queries that the simulated samples are drawn from."""
    cutoffs = np.arange(1, design.gallery)
    below = ndtr((np.log(cutoffs) - design.starts[:, None]) / design.spread)  # P(rank ≤ r), r < gallery
    at = np.diff(below, prepend=0, append=1, axis=1)
    return at @ ENTRIES[metric].worth(np.arange(1, design.gallery + 1)).astype(float)


def _effects(design: Design, lead: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """(*lead, Q) standard normals, correlated within clusters."""
    own = rng.standard_normal((*lead, design.queries), dtype=np.float32)
    if design.cluster == 1:
        return own
    common = rng.standard_normal((*lead, design.clusters, 1), dtype=np.float32)
    own = own.reshape(*lead, design.clusters, design.cluster)
    own *= np.float32(np.sqrt(1 - design.together))
    own += np.float32(np.sqrt(design.together)) * common
    return own.reshape(*lead, design.queries)


def _pretrained(design: Design, lead: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """(R, M, S or 1, 1) what pre-training does to runs, correlated between methods."""
    seeds = 1 if design.pretraining == ONCE else lead[2]
    common = rng.standard_normal((lead[0], 1, seeds, 1), dtype=np.float32)
    own = rng.standard_normal((lead[0], lead[1], seeds, 1), dtype=np.float32)
    both = np.sqrt(design.pretraining_alike) * common + np.sqrt(1 - design.pretraining_alike) * own
    return (design.pretraining_shift * both).astype(np.float32)
