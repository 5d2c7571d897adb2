"""How often intervals cover and tests err, on simulated studies whose truth is known."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd

from rewind.errors import RewindError
from rewind.statistics import rivals
from rewind.statistics.bootstrap import draw_weights
from rewind.statistics.inference import difference, holm, one
from rewind.statistics.parts import parts
from rewind.statistics.simulation import METRICS, Design, cluster_totals, draw_ranks, truth, values

OURS = "seeds and queries"
RIVALS = ("query bootstrap", "Multi-Bootstrap", "Fisher", "Student")
MEASURES = ("coverage", "type I", "family-wise", "power")
_BATCH = 3_000_000  # ranks drawn at once


def calibrate(
    design: Design,
    replicates: int,
    seed: int = 0,
    metrics: tuple[str, ...] = METRICS,
    procedures: tuple[str, ...] = (OURS,),
    confidence: float = 0.95,
    resamples: int = 1000,
) -> pd.DataFrame:
    """Measure procedures on simulated studies.

    Args:
        design: the studies.
        replicates: how many of them.
        seed: the same seed gives the same figures.
        metrics: of ``METRICS``.
        procedures: ``OURS`` and names of ``RIVALS``; all see the same studies.
        confidence: of intervals; tests are at 1 − confidence.
        resamples: of the rivals. Their draws are shared by the studies of a batch.

    Returns:
        Columns procedure, metric, measure, rate, trials. ``coverage`` of each method's mean; ``type I`` of pairs that
        do not differ; ``family-wise``, any such error in a study after Holm; ``power`` for pairs that differ.

    Raises:
        RewindError: for a design that cannot be simulated or an unknown name.
    """
    _check(design, metrics, procedures)
    rng = np.random.default_rng(seed)
    pairs = np.array(list(combinations(range(design.methods), 2)))
    counts: dict[tuple[str, str, str], np.ndarray] = {}
    tools = _Tools(design, pairs, 1 - confidence, resamples, rng, procedures)
    for size in _batches(design, replicates, procedures):
        ranks = draw_ranks(design, size, rng)
        for metric in metrics:
            known = truth(design, metric)
            null = np.isclose(known[pairs[:, 0]], known[pairs[:, 1]], rtol=1e-12)
            per_query = values(ranks, metric)
            for procedure, found in tools.run(per_query, metric):
                for measure, hits in _score(*found, known, null):
                    total = counts.setdefault((procedure, metric, measure), np.zeros(2))
                    total += (hits.sum(), hits.size)
    rows = [(*key, total[0] / total[1], int(total[1])) for key, total in counts.items() if total[1]]
    return pd.DataFrame(rows, columns=["procedure", "metric", "measure", "rate", "trials"])


class _Tools:
    """The procedures with what they share over a simulation."""

    def __init__(self, design: Design, pairs: np.ndarray, level: float, resamples: int, rng, names) -> None:
        self.design, self.pairs, self.level, self.rng, self.names = design, pairs, level, rng, names
        if set(names) & {"query bootstrap", "Multi-Bootstrap"}:
            self.weights = draw_weights(design.clusters, resamples, int(rng.integers(2**31)))
        if "Fisher" in names:
            self.signs = rng.choice(np.array([-1, 1], dtype=np.float32), size=(resamples, design.queries))

    def run(self, per_query: np.ndarray, metric: str):
        """Yield (procedure, (rejected (R, P), rejected after Holm or None, ends (R, M) or None))."""
        totals = cluster_totals(self.design, per_query)
        if OURS in self.names:
            yield OURS, self._ours(totals, metric)
        queries = self.design.queries
        if "query bootstrap" in self.names:
            called, ends = rivals.query_bootstrap(totals, self.pairs, self.weights, queries, self.level)
            yield "query bootstrap", (called, None, ends)
        if "Multi-Bootstrap" in self.names:
            called, ends = rivals.multi_bootstrap(totals, self.pairs, self.weights, queries, self.level, self.rng)
            yield "Multi-Bootstrap", (called, None, ends)
        if {"Fisher", "Student"} & set(self.names):
            averaged = per_query.mean(axis=2)
            apart = averaged[:, self.pairs[:, 0]] - averaged[:, self.pairs[:, 1]]
            if "Fisher" in self.names:
                yield "Fisher", (rivals.fisher(apart, self.signs, self.level), None, None)
            if "Student" in self.names:
                yield "Student", (rivals.student(apart, self.level), None, None)

    def _ours(self, totals: np.ndarray, metric: str):
        found = parts(totals, np.full(self.design.clusters, self.design.cluster))
        interval = one(found, 1 - self.level, metric == "MnR")
        first, second = (found[:, self.pairs[:, side]] for side in (0, 1))
        p = difference(first, second, 1 - self.level).p
        return p <= self.level, holm(p) <= self.level, (interval.low, interval.high)


def _score(called: np.ndarray, after_holm: np.ndarray | None, ends, known: np.ndarray, null: np.ndarray):
    """Yield (measure, hits) of a batch."""
    if ends is not None:
        yield "coverage", (ends[0] <= known) & (known <= ends[1])
    yield "type I", called[:, null]
    yield "power", called[:, ~null]
    if after_holm is not None and null.any():
        yield "family-wise", after_holm[:, null].any(axis=1)


def _batches(design: Design, replicates: int, procedures: tuple[str, ...]) -> list[int]:
    per_study = design.methods * design.seeds * design.queries
    # A resampled array is (B, R, M, S), which bounds the studies of a batch too.
    most = 200 if set(procedures) & set(RIVALS) else replicates
    size = max(1, min(most, _BATCH // per_study, replicates))
    return [min(size, replicates - start) for start in range(0, replicates, size)]


def _check(design: Design, metrics: tuple[str, ...], procedures: tuple[str, ...]) -> None:
    if design.queries % design.cluster or design.clusters < 3:
        raise RewindError(
            f"simulation: {design.queries} queries are no 3 or more whole clusters of {design.cluster}; choose a "
            "multiple."
        )
    if design.seeds < 2 or design.methods < 2:
        raise RewindError("simulation: claims about methods need at least 2 methods with 2 seeds each.")
    if not 0 < design.r1 < 100 or not 0 < design.r1 + design.difference < 100:
        raise RewindError(f"simulation: R@1 of {design.r1} and a difference of {design.difference} leave 0–100%.")
    for name, known in ((metrics, METRICS), (procedures, (OURS, *RIVALS))):
        odd = sorted(set(name) - set(known))
        if odd:
            raise RewindError(f"simulation: {odd[0]!r} is unknown; there are {', '.join(known)}.")
