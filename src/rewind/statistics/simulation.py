"""Studies whose truth is known: ranks of several methods, seeds and queries from a latent normal model.

A query's log rank is normal: ``rank = clip(ceil(exp(a + b·z)), 1, gallery)``, with b such that R@1 = 40% goes with
R@10 = 80% (and a mean rank near 15 in a gallery of 1,000). With one method m, seed s and query q

    z = √(d·m)·shared[q] + √(d·(1 − m))·own[m, q] + √(1 − d)·retrained[m, s, q] + seed[m, s]

where d is what two seeds of a method share, m what two methods share of that, and each of the first three is a sum of
a cluster's part and a query's own. The seed effect moves all queries of a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import multivariate_normal

METRICS = ("R@1", "R@10", "MRR", "MnR")
SLOPE = float(np.log(10) / (ndtri(0.8) - ndtri(0.4)))


@dataclass(frozen=True)
class Design:
    """A study to simulate.

    Attributes:
        seeds, queries: per method; queries are a multiple of ``cluster``.
        cluster: queries of each cluster.
        seed_sd: standard deviation in points of R@1 of what a seed does to all queries alike. What retraining does to
            single queries (``disagreement``) comes on top of it in the spread of R@1 over seeds.
        disagreement: percent of queries whose R@1 differs between two seeds of a method (without ``seed_sd``).
        r1: R@1 of the methods in percent.
        difference: points of R@1 by which the last method is better.
        methods: how many.
        gallery: largest rank.
        alike: correlation between two methods of what their seeds share.
        together: correlation between two queries of a cluster.
    """

    seeds: int = 3
    queries: int = 1000
    cluster: int = 2
    seed_sd: float = 1.0
    disagreement: float = 10.0
    r1: float = 40.0
    difference: float = 0.0
    methods: int = 3
    gallery: int = 1000
    alike: float = 0.8
    together: float = 0.5

    @property
    def clusters(self) -> int:
        """Number of clusters."""
        return self.queries // self.cluster

    @property
    def shared(self) -> float:
        """Latent correlation between two seeds, from their disagreement."""
        return shared_correlation(self.r1, self.disagreement)

    @property
    def shift_sd(self) -> float:
        """Standard deviation of the seed effect on the latent scale: the threshold's density turns it into points."""
        threshold = ndtri(self.r1 / 100)
        return self.seed_sd / 100 / float(np.exp(-(threshold**2) / 2) / np.sqrt(2 * np.pi))

    @property
    def starts(self) -> np.ndarray:
        """(M,) a of each method, so that R@1 over seeds and queries is as asked."""
        r1 = np.full(self.methods, self.r1 / 100)
        r1[-1] += self.difference / 100
        return -SLOPE * np.hypot(1, self.shift_sd) * ndtri(r1)


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
    """(R, M, S, Q) float32 ranks of ``replicates`` independent studies; the queries of a cluster lie side by side."""
    lead = (replicates, design.methods, design.seeds)
    shared, alike = design.shared, design.alike
    queries = np.float32(np.sqrt(shared * alike)) * _effects(design, (replicates, 1, 1), rng)
    queries = queries + np.float32(np.sqrt(shared * (1 - alike))) * _effects(design, (*lead[:2], 1), rng)
    shift = np.float32(design.shift_sd) * rng.standard_normal((*lead, 1), dtype=np.float32)
    ranks = queries + shift
    if shared < 1:
        ranks += np.float32(np.sqrt(1 - shared)) * _effects(design, lead, rng)
    ranks *= np.float32(SLOPE)
    ranks += design.starts.astype(np.float32)[:, None, None]
    np.ceil(np.exp(ranks, out=ranks), out=ranks)
    return np.clip(ranks, 1, design.gallery, out=ranks)


def values(ranks: np.ndarray, metric: str) -> np.ndarray:
    """A metric's value per query, float32; R@k as 0 or 1."""
    if metric == "MnR":
        return ranks
    if metric == "MRR":
        return 1 / ranks
    return (ranks <= float(metric.removeprefix("R@"))).astype(np.float32)


def cluster_totals(design: Design, per_query: np.ndarray) -> np.ndarray:
    """Sums over clusters: (…, Q) → (…, C)."""
    return per_query.reshape(*per_query.shape[:-1], design.clusters, design.cluster).sum(axis=-1)


def truth(design: Design, metric: str) -> np.ndarray:
    """(M,) the mean over all seeds and queries that the simulated samples are drawn from."""
    cutoffs = np.arange(1, design.gallery)
    spread = SLOPE * np.hypot(1, design.shift_sd)
    below = ndtr((np.log(cutoffs) - design.starts[:, None]) / spread)  # P(rank ≤ r), r < gallery
    if metric.startswith("R@"):
        return below[:, int(metric.removeprefix("R@")) - 1]
    at = np.diff(below, prepend=0, append=1, axis=1)
    ranks = np.arange(1, design.gallery + 1)
    return at @ (1 / ranks if metric == "MRR" else ranks)


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
