"""Calibration: how often intervals cover and tests err, measured on simulated studies with known true values.

``rewind power`` checks its formulas this way; ``benchmarks/calibration.py`` measures many designs, and other people's
tests on the same studies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from rewind.errors import RewindError
from rewind.ranking_metrics import METRICS, tested_metrics
from rewind.statistics.inference import difference_inference, family_adjusted, mean_inference, paired_inference
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

OUR_TEST = "seeds and queries"
TABLE_METRICS = ("R@1", "R@5", "R@10", "MnR")  # columns of a table, to see what letters in all of them would do
_MAX_RANKS_PER_BATCH = 3_000_000  # ranks drawn at once
_MAX_COMPARED_PER_BATCH = 200  # studies that other tests get at once: their resamples are arrays of many studies

Outcome = dict[str, Any]
"""What a test finds in R simulated studies of M methods and P pairs: ``called``, significant pairs (R, P), and perhaps
``ends`` of intervals, (R, M) each. Ours also has ``after Holm``, ``estimate``, ``p`` and ``apart``, the two ends of
differences, all (R, P)."""
ComparedTests = Callable[[np.ndarray, np.ndarray], Iterator[tuple[str, Outcome]]]
"""From per-query values (R, M, S, Q) and their sums over clusters (R, M, S, C) to each test's name and outcome."""


def calibrate(
    design: Design,
    replicates: int,
    seed: int = 0,
    metrics: tuple[str, ...] = SIMULATED_METRICS,
    confidence: float = 0.95,
    compared: Callable[[Design, np.ndarray, float, np.random.Generator], ComparedTests] | None = None,
) -> pd.DataFrame:
    """Measure the intervals and tests of this package on simulated studies.

    Args:
        replicates: number of studies.
        metrics: tested ones of :mod:`rewind.ranking_metrics`.
        confidence: of intervals; tests have the level 1 − confidence.
        compared: creates other tests, which get the same studies, from the design, the pairs of methods (P, 2), the
            level and the generator of random numbers.

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
    """
    _check_arguments(design, metrics)
    rng = np.random.default_rng(seed)
    pairs = np.array(list(combinations(range(design.methods), 2)))
    counts: dict[tuple[str, str, str], np.ndarray] = {}
    truth = {metric: true_means(design, metric) for metric in metrics}
    level = 1 - confidence
    other_tests = compared(design, pairs, level, rng) if compared else None
    for size in _batch_sizes(design, replicates, _MAX_COMPARED_PER_BATCH if compared else replicates):
        ranks = draw_ranks(design, size, rng)
        false_letters = []
        for metric in metrics:
            per_query = metric_values(ranks, metric)
            totals = cluster_totals(design, per_query)
            # In double precision: the rounding of single precision would pass for variance where there is none.
            own = _own_outcome(design, pairs, totals.astype(float), metric, level)
            others = other_tests(per_query, totals) if other_tests else ()
            for procedure, outcome in ((OUR_TEST, own), *others):
                for measure, hits in _measure_hits(outcome, truth[metric], pairs):
                    _add_hits(counts, (procedure, metric, measure), hits)
            if metric in TABLE_METRICS and _equal_pairs(truth[metric], pairs).all():
                false_letters.append(own["after Holm"].any(axis=1))
        if len(false_letters) == len(TABLE_METRICS):
            _add_hits(counts, (OUR_TEST, "any", "letter anywhere"), np.any(false_letters, axis=0))
    rows = [_rate_row(key, total) for key, total in counts.items()]
    return pd.DataFrame(rows, columns=["procedure", "metric", "measure", "rate", "error", "trials"])


def _own_outcome(design: Design, pairs: np.ndarray, totals: np.ndarray, metric: str, level: float) -> Outcome:
    sizes = np.full(design.clusters, design.whole_cluster)
    seeds = design.seeds_each
    least, most = METRICS[metric].unit.range(design.gallery)  # of worths: simulated hits are 0 or 1, not percent
    method_totals = [totals[:, method, :n] for method, n in enumerate(seeds)]
    components = stack_components(
        [variance_components(part, sizes, fixed=n == 1) for part, n in zip(method_totals, seeds, strict=True)]
    )  # (M, R)
    means = mean_inference(components, 1 - level, METRICS[metric].skewed, least, most)
    ends = means.low, means.high
    # Seeds are paired, as in a study, if every seed has its own pre-training, which all methods start from.
    if design.pretraining_sd and design.pretraining == PRETRAINED_PER_SEED and len(set(seeds)) == 1 < seeds[0]:
        paired_components = stack_components(
            [variance_components(method_totals[a] - method_totals[b], sizes) for a, b in pairs]
        )
        difference = paired_inference(paired_components, 1 - level, most - least)  # (P, R)
    else:
        difference = difference_inference(components[pairs[:, 0]], components[pairs[:, 1]], 1 - level, most - least)
    p = difference.p.T
    # What is not significant by itself is not after Holm: its p-value in the family need not be computed.
    family = replace(difference, statistic=np.where(difference.p <= level, difference.statistic, np.nan))
    adjusted = family_adjusted([family[at] for at in range(len(pairs))]).T
    return {
        "called": p <= level,
        "after Holm": adjusted <= level,
        "ends": tuple(end.T for end in ends),
        "estimate": difference.estimate.T,
        "apart": (difference.low.T, difference.high.T),
        "p": p,
    }


def _equal_pairs(truth: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """(P,) whether the methods of a pair have equal true values."""
    return np.isclose(truth[pairs[:, 0]], truth[pairs[:, 1]], rtol=1e-12)


def _measure_hits(outcome: Outcome, truth: np.ndarray, pairs: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
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
    # A significant difference in the wrong direction does not show the worse method to be worse.
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
    # Rounding may leave a difference below 0 where all studies have the same rate.
    variance = max(0.0, squares / studies - (rates / studies) ** 2)
    return (*key, hits / trials, float(np.sqrt(variance / studies)), int(trials))


def _batch_sizes(design: Design, replicates: int, largest: int) -> list[int]:
    per_study = design.methods * max(design.seeds_each) * design.queries
    size = max(1, min(largest, _MAX_RANKS_PER_BATCH // per_study, replicates))
    return [min(size, replicates - start) for start in range(0, replicates, size)]


def _check_arguments(design: Design, metrics: tuple[str, ...]) -> None:
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
    if not 0 < design.r1 < 100 or not 0 < design.r1 + design.difference < 100:
        raise RewindError(f"simulation: R@1 of {design.r1} and a difference of {design.difference} go beyond 0–100%.")
    names = (
        (metrics, tested_metrics()),
        ((design.pretraining,), (PRETRAINED_PER_SEED, PRETRAINED_ONCE)),
    )
    for requested, available in names:
        unknown = sorted(set(requested) - set(available))
        if unknown:
            raise RewindError(f"simulation: {unknown[0]!r} is unknown; available: {', '.join(available)}.")
