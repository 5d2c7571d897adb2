"""How often intervals cover and tests err, on simulated studies whose truth is known."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pandas as pd

from rewind.errors import RewindError
from rewind.metrics import METRICS as ENTRIES
from rewind.metrics import TESTED
from rewind.statistics import rivals
from rewind.statistics.bootstrap import draw_weights
from rewind.statistics.inference import difference, holm, one, paired
from rewind.statistics.parts import parts, stack
from rewind.statistics.simulation import (
    METRICS,
    ONCE,
    PER_SEED,
    Design,
    cluster_totals,
    draw_ranks,
    truth,
    values,
)

OURS = "seeds and queries"
RIVALS = ("query bootstrap", "Multi-Bootstrap", "Fisher", "Student")
TABLE = ("R@1", "R@5", "R@10", "MnR")  # the columns of a table in which letters may stand
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
        metrics: of those that are tested (:mod:`rewind.metrics`).
        procedures: ``OURS`` and names of ``RIVALS``; all see the same studies.
        confidence: of intervals; tests are at 1 − confidence.
        resamples: of the rivals. Their draws are shared by the studies of a batch.

    Returns:
        Columns procedure, metric, measure, rate, error (its standard error over studies, whose methods and pairs are
        not independent), trials. The measures:

        - ``coverage`` of each method's mean, by the interval that a table prints;
        - ``type I`` of pairs that do not differ; ``family-wise``, any such error in a study after Holm;
        - ``letter anywhere``, any such error in any column of a table (``TABLE``, where all of them are asked for and
          no methods differ; metric ``any``), Holm's correction being made within each;
        - ``power`` for pairs that differ; ``kept``, such a pair's worse method is not shown to be worse after Holm, so
          that it keeps what marks the best;
        - ``zero width``, an interval of a mean that is a point; the same of a difference; ``p = 0``.

    Raises:
        RewindError: for a design that cannot be simulated or an unknown name.
    """
    _check(design, metrics, procedures)
    rng = np.random.default_rng(seed)
    pairs = np.array(list(combinations(range(design.methods), 2)))
    counts: dict[tuple[str, str, str], np.ndarray] = {}
    known = {metric: truth(design, metric) for metric in metrics}
    tools = _Tools(design, pairs, 1 - confidence, resamples, rng, procedures)
    for size in _batches(design, replicates, procedures):
        ranks = draw_ranks(design, size, rng)
        letters = []
        for metric in metrics:
            for procedure, found in tools.run(values(ranks, metric), metric):
                for measure, hits in _score(found, known[metric], pairs):
                    _count(counts, (procedure, metric, measure), hits)
                if procedure == OURS and metric in TABLE and _null(known[metric], pairs).all():
                    letters.append(found["after Holm"].any(axis=1))
        if len(letters) == len(TABLE):
            _count(counts, (OURS, "any", "letter anywhere"), np.any(letters, axis=0))
    rows = [_row(key, total) for key, total in counts.items()]
    return pd.DataFrame(rows, columns=["procedure", "metric", "measure", "rate", "error", "trials"])


class _Tools:
    """The procedures with what they share over a simulation."""

    def __init__(self, design: Design, pairs: np.ndarray, level: float, resamples: int, rng, names) -> None:
        self.design, self.pairs, self.level, self.rng, self.names = design, pairs, level, rng, names
        if set(names) & {"query bootstrap", "Multi-Bootstrap"}:
            self.weights = draw_weights(design.clusters, resamples, int(rng.integers(2**31)))
        if "Fisher" in names:
            self.signs = rng.choice(np.array([-1, 1], dtype=np.float32), size=(resamples, design.queries))

    def run(self, per_query: np.ndarray, metric: str) -> Iterator[tuple[str, dict]]:
        """Yield each procedure with what it found: ``called`` (R, P) and perhaps ``ends``, two (R, M).

        Ours has ``after Holm``, ``estimate``, ``p`` and ``apart``, the two ends of differences, all (R, P), too.
        """
        totals = cluster_totals(self.design, per_query)
        if OURS in self.names:
            yield OURS, self._ours(totals.astype(float), metric)
        queries = self.design.queries
        if "query bootstrap" in self.names:
            called, ends = rivals.query_bootstrap(totals, self.pairs, self.weights, queries, self.level)
            yield "query bootstrap", {"called": called, "ends": ends}
        if "Multi-Bootstrap" in self.names:
            called, ends = rivals.multi_bootstrap(totals, self.pairs, self.weights, queries, self.level, self.rng)
            yield "Multi-Bootstrap", {"called": called, "ends": ends}
        if {"Fisher", "Student"} & set(self.names):
            averaged = per_query.mean(axis=2)
            apart = averaged[:, self.pairs[:, 0]] - averaged[:, self.pairs[:, 1]]
            if "Fisher" in self.names:
                yield "Fisher", {"called": rivals.fisher(apart, self.signs, self.level)}
            if "Student" in self.names:
                yield "Student", {"called": rivals.student(apart, self.level)}

    def _ours(self, totals: np.ndarray, metric: str) -> dict:
        sizes = np.full(self.design.clusters, self.design.cluster)
        seeds = self.design.seeds_each
        least, most = ENTRIES[metric].unit.range(self.design.gallery)
        each = [totals[:, method, :n] for method, n in enumerate(seeds)]
        found = stack([parts(part, sizes, fixed=n == 1) for part, n in zip(each, seeds, strict=True)])  # (M, R)
        alone = one(found, 1 - self.level, ENTRIES[metric].skewed, least, most)
        ends = alone.low, alone.high
        if self.design.pretraining_sd and self.design.pretraining == PER_SEED and len(set(seeds)) == 1 < seeds[0]:
            between = stack([parts(each[a] - each[b], sizes) for a, b in self.pairs])
            apart = paired(between, 1 - self.level, most - least)  # (P, R)
        else:
            apart = difference(found[self.pairs[:, 0]], found[self.pairs[:, 1]], 1 - self.level, most - least)
        p = apart.p.T
        return {
            "called": p <= self.level,
            "after Holm": holm(p) <= self.level,
            "ends": tuple(end.T for end in ends),
            "estimate": apart.estimate.T,
            "apart": (apart.low.T, apart.high.T),
            "p": p,
        }


def _null(known: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """(P,) pairs that do not differ."""
    return np.isclose(known[pairs[:, 0]], known[pairs[:, 1]], rtol=1e-12)


def _score(found: dict, known: np.ndarray, pairs: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (measure, hits) of a batch."""
    null = _null(known, pairs)
    if "ends" in found:
        low, high = found["ends"]
        yield "coverage", (low <= known) & (known <= high)
    yield "type I", found["called"][:, null]
    yield "power", found["called"][:, ~null]
    if "after Holm" not in found:
        return
    yield "zero width", low == high
    yield "zero width, difference", found["apart"][0] == found["apart"][1]
    yield "p = 0", found["p"] == 0
    if null.any():
        yield "family-wise", found["after Holm"][:, null].any(axis=1)
    true = np.sign(known[pairs[:, 0]] - known[pairs[:, 1]])
    shown = found["after Holm"] & (np.sign(found["estimate"]) == true)
    yield "kept", ~shown[:, ~null]


def _count(counts: dict, key: tuple[str, str, str], hits: np.ndarray) -> None:
    """Add a batch's hits, (R,) or (R, …): hits, trials, studies, and the sums of a study's rate and of its square."""
    if hits.size:
        rates = hits.reshape(len(hits), -1).mean(axis=1)
        total = counts.setdefault(key, np.zeros(5))
        total += (hits.sum(), hits.size, len(hits), rates.sum(), np.square(rates).sum())


def _row(key: tuple[str, str, str], total: np.ndarray) -> tuple:
    hits, trials, studies, rates, squares = total
    variance = max(0.0, squares / studies - (rates / studies) ** 2)
    return (*key, hits / trials, float(np.sqrt(variance / studies)), int(trials))


def _batches(design: Design, replicates: int, procedures: tuple[str, ...]) -> list[int]:
    per_study = design.methods * max(design.seeds_each) * design.queries
    # A resampled array is (B, R, M, S), which bounds the studies of a batch too.
    most = 200 if set(procedures) & set(RIVALS) else replicates
    size = max(1, min(most, _BATCH // per_study, replicates))
    return [min(size, replicates - start) for start in range(0, replicates, size)]


def _check(design: Design, metrics: tuple[str, ...], procedures: tuple[str, ...]) -> None:
    if design.queries % design.cluster or design.clusters < 3:
        raise RewindError(
            f"simulation: {design.queries} queries do not make 3 or more whole clusters of {design.cluster}; choose "
            "a multiple."
        )
    for name, given in (("seeds", design.seeds), ("seed_sd", design.seed_sd)):
        if isinstance(given, tuple) and len(given) != design.methods:
            raise RewindError(f"simulation: {name} {given} must be one number for each of {design.methods} methods.")
    seeds = design.seeds_each
    if design.methods < 2 or min(seeds) < 1:
        raise RewindError("simulation: at least 2 methods with one seed each are needed.")
    if min(seeds) == 1 and (max(seeds) > 1 or np.any(design.shift_sd) or design.pretraining_sd):
        raise RewindError(
            "simulation: one seed means a fixed model: set seeds to 1 for every method, and seed_sd and pretraining_sd "
            "to 0."
        )
    if set(procedures) & set(RIVALS) and len(set(seeds)) > 1:
        raise RewindError(f"simulation: with unequal seeds the only procedure is {OURS!r}.")
    if not 0 < design.r1 < 100 or not 0 < design.r1 + design.difference < 100:
        raise RewindError(f"simulation: R@1 of {design.r1} and a difference of {design.difference} go beyond 0–100%.")
    names = ((metrics, TESTED), (procedures, (OURS, *RIVALS)), ((design.pretraining,), (PER_SEED, ONCE)))
    for name, known in names:
        odd = sorted(set(name) - set(known))
        if odd:
            raise RewindError(f"simulation: {odd[0]!r} is unknown; available: {', '.join(known)}.")
