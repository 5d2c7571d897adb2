"""Calibration: how often intervals cover and tests err, measured on simulated studies with known true values.

Rewind's own procedure and reference tests (bootstraps, Fisher's randomisation test, paired t) get the same studies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtr

from rewind.errors import RewindError
from rewind.metrics import METRICS, tested_metrics
from rewind.statistics.bootstrap import draw_weights
from rewind.statistics.inference import difference_inference, holm_adjusted, mean_inference, paired_inference
from rewind.statistics.simulation import (
    PRETRAINED_ONCE,
    PRETRAINED_PER_SEED,
    SIMULATED_METRICS,
    Design,
    cluster_totals,
    draw_ranks,
    metric_values,
    true_means,
)
from rewind.statistics.variance import stack_components, variance_components

# ---- Reference tests, vectorised over studies ----------------------------------------------------------------------
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


# ---- Calibration on simulated studies ------------------------------------------------------------------------------

OUR_TEST = "seeds and queries"
REFERENCE_TESTS = ("query bootstrap", "Multi-Bootstrap", "Fisher", "Student")
TABLE_METRICS = ("R@1", "R@5", "R@10", "MnR")  # columns of a table, to see what letters in all of them would do
_MAX_RANKS_PER_BATCH = 3_000_000  # ranks drawn at once


def calibrate(
    design: Design,
    replicates: int,
    seed: int = 0,
    metrics: tuple[str, ...] = SIMULATED_METRICS,
    procedures: tuple[str, ...] = (OUR_TEST,),
    confidence: float = 0.95,
    resamples: int = 1000,
) -> pd.DataFrame:
    """Measure procedures on simulated studies.

    Args:
        design: the studies.
        replicates: how many of them.
        seed: of the random numbers.
        metrics: tested ones of :mod:`rewind.metrics`.
        procedures: :data:`OUR_TEST` and names of :data:`REFERENCE_TESTS`; all get the same studies.
        confidence: of intervals; tests have the level 1 − confidence.
        resamples: of the reference tests. Their draws are shared by the studies of a batch.

    Returns:
        Columns procedure, metric, measure, rate, error (its standard error over studies, whose methods and pairs are
        not independent), trials. The measures:

        - ``coverage`` of each method's mean, by the interval that a table prints;
        - ``type I`` of pairs that do not differ; ``family-wise``, any such error in a study after Holm;
        - ``letter anywhere``, any such error in any column of a table (:data:`TABLE_METRICS`, if all of them are
          measured and no methods differ; metric ``any``), with Holm's correction within each column;
        - ``power`` for pairs that differ; ``kept``, such a pair's worse method is not shown to be worse after Holm, so
          that it may stay bold;
        - ``zero width``, an interval of a mean that is a point; the same for a difference; ``p = 0``.

    Raises:
        RewindError: for a design that cannot be simulated or an unknown name.

    Example:
        >>> rates = calibrate(Design(queries=40), replicates=5, metrics=("R@1",))
        >>> rates["measure"].tolist()[:2]
        ['coverage', 'type I']
    """
    _check_arguments(design, metrics, procedures)
    rng = np.random.default_rng(seed)
    pairs = np.array(list(combinations(range(design.methods), 2)))
    counts: dict[tuple[str, str, str], np.ndarray] = {}
    truth = {metric: true_means(design, metric) for metric in metrics}
    tested = _TestedProcedures(design, pairs, 1 - confidence, resamples, rng, procedures)
    for size in _batch_sizes(design, replicates, procedures):
        ranks = draw_ranks(design, size, rng)
        false_letters = []
        for metric in metrics:
            for procedure, outcome in tested.run(metric_values(ranks, metric), metric):
                for measure, hits in _measure_hits(outcome, truth[metric], pairs):
                    _add_hits(counts, (procedure, metric, measure), hits)
                if procedure == OUR_TEST and metric in TABLE_METRICS and _equal_pairs(truth[metric], pairs).all():
                    false_letters.append(outcome["after Holm"].any(axis=1))
        if len(false_letters) == len(TABLE_METRICS):
            _add_hits(counts, (OUR_TEST, "any", "letter anywhere"), np.any(false_letters, axis=0))
    rows = [_rate_row(key, total) for key, total in counts.items()]
    return pd.DataFrame(rows, columns=["procedure", "metric", "measure", "rate", "error", "trials"])


class _TestedProcedures:
    """The procedures, with the random draws that all batches of a simulation share."""

    def __init__(
        self,
        design: Design,
        pairs: np.ndarray,
        level: float,
        resamples: int,
        rng: np.random.Generator,
        names: Sequence[str],
    ) -> None:
        self.design, self.pairs, self.level, self.rng, self.names = design, pairs, level, rng, names
        if set(names) & {"query bootstrap", "Multi-Bootstrap"}:
            self.weights = draw_weights(design.clusters, resamples, int(rng.integers(2**31)))
        if "Fisher" in names:
            self.signs = rng.choice(np.array([-1, 1], dtype=np.float32), size=(resamples, design.queries))

    def run(self, per_query: np.ndarray, metric: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each procedure with its outcome.

        That is ``called``, significant pairs (R, P), and perhaps ``ends`` of intervals, (R, M) each. Ours also has
        ``after Holm``, ``estimate``, ``p`` and ``apart``, the two ends of differences, all (R, P).
        """
        totals = cluster_totals(self.design, per_query)
        if OUR_TEST in self.names:
            yield OUR_TEST, self._ours(totals.astype(float), metric)
        queries = self.design.queries
        if "query bootstrap" in self.names:
            significant, ends = query_bootstrap(totals, self.pairs, self.weights, queries, self.level)
            yield "query bootstrap", {"called": significant, "ends": ends}
        if "Multi-Bootstrap" in self.names:
            significant, ends = multi_bootstrap(totals, self.pairs, self.weights, queries, self.level, self.rng)
            yield "Multi-Bootstrap", {"called": significant, "ends": ends}
        if {"Fisher", "Student"} & set(self.names):
            averaged = per_query.mean(axis=2)
            differences = averaged[:, self.pairs[:, 0]] - averaged[:, self.pairs[:, 1]]
            if "Fisher" in self.names:
                yield "Fisher", {"called": fisher_randomisation_test(differences, self.signs, self.level)}
            if "Student" in self.names:
                yield "Student", {"called": paired_t_test(differences, self.level)}

    def _ours(self, totals: np.ndarray, metric: str) -> dict[str, Any]:
        sizes = np.full(self.design.clusters, self.design.whole_cluster)
        seeds = self.design.seeds_each
        least, most = METRICS[metric].unit.range(self.design.gallery)
        method_totals = [totals[:, method, :n] for method, n in enumerate(seeds)]
        components = stack_components(
            [variance_components(part, sizes, fixed=n == 1) for part, n in zip(method_totals, seeds, strict=True)]
        )  # (M, R)
        means = mean_inference(components, 1 - self.level, METRICS[metric].skewed, least, most)
        ends = means.low, means.high
        # Seeds are paired, as in a study, if every seed has its own pre-training, which all methods start from.
        if (
            self.design.pretraining_sd
            and self.design.pretraining == PRETRAINED_PER_SEED
            and len(set(seeds)) == 1 < seeds[0]
        ):
            paired_components = stack_components(
                [variance_components(method_totals[a] - method_totals[b], sizes) for a, b in self.pairs]
            )
            difference = paired_inference(paired_components, 1 - self.level, most - least)  # (P, R)
        else:
            difference = difference_inference(
                components[self.pairs[:, 0]], components[self.pairs[:, 1]], 1 - self.level, most - least
            )
        p = difference.p.T
        return {
            "called": p <= self.level,
            "after Holm": holm_adjusted(p) <= self.level,
            "ends": tuple(end.T for end in ends),
            "estimate": difference.estimate.T,
            "apart": (difference.low.T, difference.high.T),
            "p": p,
        }


def _equal_pairs(truth: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """(P,) whether the methods of a pair have equal true values."""
    return np.isclose(truth[pairs[:, 0]], truth[pairs[:, 1]], rtol=1e-12)


def _measure_hits(outcome: dict[str, Any], truth: np.ndarray, pairs: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (measure, hits) of a batch; hits are bool, (R,) or (R, …)."""
    is_equal = _equal_pairs(truth, pairs)
    if "ends" in outcome:
        low, high = outcome["ends"]
        yield "coverage", (low <= truth) & (truth <= high)
    yield "type I", outcome["called"][:, is_equal]
    yield "power", outcome["called"][:, ~is_equal]
    if "after Holm" not in outcome:
        return
    yield "zero width", low == high
    yield "zero width, difference", outcome["apart"][0] == outcome["apart"][1]
    yield "p = 0", outcome["p"] == 0
    if is_equal.any():
        yield "family-wise", outcome["after Holm"][:, is_equal].any(axis=1)
    true_sign = np.sign(truth[pairs[:, 0]] - truth[pairs[:, 1]])
    shown = outcome["after Holm"] & (np.sign(outcome["estimate"]) == true_sign)
    yield "kept", ~shown[:, ~is_equal]


def _add_hits(counts: dict[tuple[str, str, str], np.ndarray], key: tuple[str, str, str], hits: np.ndarray) -> None:
    """Add up a batch's hits (R,) or (R, …): hits, trials, studies, and sums of each study's rate and of its square."""
    if hits.size:
        rates = hits.reshape(len(hits), -1).mean(axis=1)
        total = counts.setdefault(key, np.zeros(5))
        total += (hits.sum(), hits.size, len(hits), rates.sum(), np.square(rates).sum())


def _rate_row(key: tuple[str, str, str], total: np.ndarray) -> tuple[Any, ...]:
    hits, trials, studies, rates, squares = total
    # Over studies, which are independent; methods and pairs within one are not.
    variance = max(0.0, squares / studies - (rates / studies) ** 2)
    return (*key, hits / trials, float(np.sqrt(variance / studies)), int(trials))


def _batch_sizes(design: Design, replicates: int, procedures: tuple[str, ...]) -> list[int]:
    per_study = design.methods * max(design.seeds_each) * design.queries
    # A resampled array is (B, R, M, S), which bounds the studies of a batch too.
    largest = 200 if set(procedures) & set(REFERENCE_TESTS) else replicates
    size = max(1, min(largest, _MAX_RANKS_PER_BATCH // per_study, replicates))
    return [min(size, replicates - start) for start in range(0, replicates, size)]


def _check_arguments(design: Design, metrics: tuple[str, ...], procedures: tuple[str, ...]) -> None:
    if design.queries % design.cluster or design.clusters < 3:
        raise RewindError(
            f"simulation: {design.queries} queries do not make 3 or more whole clusters of {design.cluster}; choose "
            "a multiple."
        )
    for name, values in (("seeds", design.seeds), ("seed_sd", design.seed_sd)):
        if isinstance(values, tuple) and len(values) != design.methods:
            raise RewindError(f"simulation: {name} {values} must be one number for each of {design.methods} methods.")
    seeds = design.seeds_each
    if design.methods < 2 or min(seeds) < 1:
        raise RewindError("simulation: at least 2 methods with one seed each are needed.")
    if min(seeds) == 1 and (max(seeds) > 1 or np.any(design.shift_sd) or design.pretraining_sd):
        raise RewindError(
            "simulation: one seed means a fixed model: set seeds to 1 for every method, and seed_sd and pretraining_sd "
            "to 0."
        )
    if set(procedures) & set(REFERENCE_TESTS) and len(set(seeds)) > 1:
        raise RewindError(f"simulation: with unequal seeds the only procedure is {OUR_TEST!r}.")
    if not 0 < design.r1 < 100 or not 0 < design.r1 + design.difference < 100:
        raise RewindError(f"simulation: R@1 of {design.r1} and a difference of {design.difference} go beyond 0–100%.")
    names = (
        (metrics, tested_metrics()),
        (procedures, (OUR_TEST, *REFERENCE_TESTS)),
        ((design.pretraining,), (PRETRAINED_PER_SEED, PRETRAINED_ONCE)),
    )
    for requested, available in names:
        unknown = sorted(set(requested) - set(available))
        if unknown:
            raise RewindError(f"simulation: {unknown[0]!r} is unknown; available: {', '.join(available)}.")
