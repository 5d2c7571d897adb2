"""Differences between declared pairs of methods: interval, test, effect size, and the bootstrap.

Also the ratio of two methods' standard deviations over seeds, the minimum detectable effect of a comparison that was
made, and accuracies (shares of images classified correctly) with their differences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
import pandas as pd
import scipy

from rewind.ranking_metrics import METRICS, tested_metrics
from rewind.statistics import bootstrap, labels
from rewind.statistics.blocks import RankBlock
from rewind.statistics.bootstrap import Resamples, bootstrap_p_value, percentile_interval
from rewind.statistics.bounds import behrens_fisher_quantile
from rewind.statistics.inference import (
    MAX_FAMILY_OF_TWO_SEEDS,
    Inference,
    degrees_of_freedom,
    difference_inference,
    family_adjusted,
    holm_adjusted,
    mean_inference,
    paired_inference,
)
from rewind.statistics.variance import variance_components

# ---- Ratio of two methods' standard deviations over training seeds -------------------------------------------------


def spread_ratio(first: Sequence[float], second: Sequence[float], confidence: float) -> tuple[float, float, float]:
    """Standard deviation over seeds of the first, divided by that of the second, with the interval of Fisher's F.

    Seeds are assumed to be independent and their scores normally distributed, which three seeds can neither show nor
    refute.

    Returns:
        Ratio, low and high: below 1, the first varies less. NaN where either has one seed or does not vary, as may
        happen with few queries: such a zero is not a measurement of a spread.

    Example:
        >>> ratio, low, high = spread_ratio([40.0, 41.0, 42.0], [39.0, 41.0, 43.0], 0.95)
        >>> ratio, low < ratio < high
        (0.5, True)
    """
    numerator, denominator = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    df = len(numerator) - 1, len(denominator) - 1
    if min(df) < 1 or not (np.ptp(numerator) and np.ptp(denominator)):
        return (np.nan,) * 3
    ratio = numerator.std(ddof=1) / denominator.std(ddof=1)
    # (s₁²/s₂²) / (σ₁²/σ₂²) has Fisher's F distribution with S₁ − 1 and S₂ − 1 degrees of freedom; its upper quantile
    # gives the lower end.
    ends = (scipy.special.fdtri(*df, (1 + sign * confidence) / 2) for sign in (1, -1))
    low, high = (float(ratio / np.sqrt(end)) for end in ends)
    return float(ratio), low, high


# ---- Minimum detectable effect of a comparison that was made -------------------------------------------------------


def minimum_detectable_effect(
    variance: np.ndarray | float,
    df: np.ndarray | float,
    level: float,
    power: float = 0.8,
    critical: np.ndarray | None = None,
) -> np.ndarray:
    """δ √V, the smallest true difference that a two-sided t test detects with probability ``power``.

    V is the ``variance`` of the difference; NaN where it is 0 or not known.

    Args:
        level: of the test; at the strictest level of Holm's correction the family's level divided by its size.
        critical: the statistic that is significant; None: that of Student's t at ``level``.

    Example:
        >>> round(float(minimum_detectable_effect(np.array(1.0), np.array(1e6), level=0.05)), 2)  # z: 1.96 + 0.84
        2.8
    """
    variance, df = np.broadcast_arrays(np.asarray(variance, dtype=float), np.asarray(df, dtype=float))
    is_known = (variance > 0) & (df > 0)
    effects = np.full(variance.shape, np.nan)
    critical = scipy.special.stdtrit(df, 1 - level / 2) if critical is None else critical
    # δ is the noncentrality of the t distribution that exceeds the critical value with this probability.
    # The other tail, a significant difference of the wrong sign, is left out: at usual powers it has next to no weight.
    effects[is_known] = scipy.special.nctdtrinc(df[is_known], 1 - power, critical[is_known]) * np.sqrt(
        variance[is_known]
    )
    return effects


# Numbers of seeds, and multiples of the queries: what users could still run, in steps as coarse as such an estimate.
_SEED_CANDIDATES = np.array([*range(2, 21), 25, 30, 40, 50, 75, 100])
_QUERY_MULTIPLES = np.array([1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100])


def needed_samples(
    result: Inference, seeds: int, queries: int, confidence: float, family: int
) -> tuple[np.ndarray, np.ndarray]:
    """How many seeds of each method, or how many queries, would find the differences that were seen, in 80% of studies.

    The seed part of V shrinks with the seeds, the other with the queries; both are taken as estimated, and tested as
    ``detectable`` is: at the strictest level of Holm's correction (``family`` is the number of pairs). ``seeds`` is the
    smaller number of the two methods. Both are (K,), for K metrics; NaN where neither 100 seeds nor 100 times the
    queries suffice, where there is no seed part, and of queries where two seeds cannot be tested in such a family.
    """
    level, share = (1 - confidence) / family, np.nan_to_num(result.seed_share)
    few = family > MAX_FAMILY_OF_TWO_SEEDS

    def is_enough(seed_factor: np.ndarray, query_factor: np.ndarray) -> np.ndarray:
        seed_part, query_part = result.variance * share / seed_factor, result.variance * (1 - share) / query_factor
        # S − 1 becomes factor · S − 1; for the f of two methods this is an approximation.
        f = np.maximum(seed_factor * (result.seed_df + 1) - 1, 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            w = np.nan_to_num(seed_part / (seed_part + query_part))
            df = degrees_of_freedom(w, f, query_factor * (result.query_df + 1) - 1)
        variance = np.where(result.variance > 0, seed_part + query_part, np.nan)
        # With the clusters that there are: with more of them the critical value could only be smaller.
        critical = _critical_value(level, family, variance, w, f, float(result.query_df.flat[0]))
        return minimum_detectable_effect(variance, df, level, TARGET_POWER, critical) <= np.abs(result.estimate)

    ones = np.ones_like(share)
    # Two seeds are no candidate where a family is too large to test them.
    candidates = _SEED_CANDIDATES[max(seeds, 3 if few else 2) <= _SEED_CANDIDATES]
    by_seeds = _first(lambda at: is_enough(candidates[at] / seeds, ones), candidates, share.shape)
    by_queries = _first(lambda at: is_enough(ones, _QUERY_MULTIPLES[at]), queries * _QUERY_MULTIPLES, share.shape)
    return np.where(share > 0, by_seeds, np.nan), np.where(few & result.two_seeds, np.nan, by_queries)


def _first(is_enough: Callable[[np.ndarray], np.ndarray], numbers: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The first of ascending numbers from which on it is enough, by bisection; NaN where none is."""
    low, high = np.zeros(shape, int), np.full(shape, len(numbers))
    while (low < high).any():
        # Searches that found nothing end at len(numbers), which is no index.
        middle = np.minimum((low + high) // 2, len(numbers) - 1)
        enough = is_enough(middle)
        low, high = np.where((low < high) & ~enough, middle + 1, low), np.where((low < high) & enough, middle, high)
    return np.where(low < len(numbers), np.append(numbers.astype(float), np.nan)[low], np.nan)


# ---- Pairs of methods ----------------------------------------------------------------------------------------------

TARGET_POWER = 0.8  # for the column ``detectable``
PAIR_COLUMNS = (
    *("first", "second", "setting", "direction", "metric", "difference", "low", "high", "p", "p_holm", "procedure"),
    *("family", "clusters", "df", "detectable", "seeds_needed", "queries_needed", "effect"),
    *("boot_low", "boot_high", "boot_p", "boot_p_holm", "boot_procedure"),
)


@dataclass(frozen=True)
class RandomFactors:
    """What is random in a study's runs; all are names of methods."""

    fixed: frozenset[str] = frozenset()  # one model, which cannot be trained again
    exact: frozenset[str] = frozenset()  # values are computed and not estimated (chance)
    paired: frozenset[str] = frozenset()  # seed s of each starts from the same pre-trained backbone

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> RandomFactors:
        """From lists of method names under the names of the attributes, as workflow parameters have them."""
        return cls(frozenset(values["fixed"]), frozenset(values["exact"]), frozenset(values["paired"]))


ALL_RANDOM = RandomFactors()


def compare_pair(
    totals: Mapping[str, np.ndarray],
    pair: tuple[str, str],
    sizes: np.ndarray,
    confidence: float,
    random: RandomFactors,
    reach: np.ndarray | float = np.inf,
) -> tuple[Inference, str]:
    """Interval and test of first − second, and the label of what it generalises to (:mod:`rewind.statistics.labels`).

    Args:
        totals: method → (…, S, C) sums over clusters, seeds in ascending order.
        sizes: (C,) queries of each cluster.
        reach: the greatest possible difference, (…).
    """
    first, second = (totals[name] for name in pair)
    counts, fixed = (first.shape[-2], second.shape[-2]), [name in random.fixed for name in pair]
    # Seeds of unequal number have no counterparts, and a single pair of runs no variance over seeds.
    if random.paired >= set(pair) and counts[0] == counts[1] > 1:
        return paired_inference(variance_components(first - second, sizes), confidence, reach), labels.pair(
            *counts, paired=True
        )
    minuend, subtrahend = (
        variance_components(total, sizes, is_fixed) for total, is_fixed in zip((first, second), fixed, strict=True)
    )
    return difference_inference(minuend, subtrahend, confidence, reach), labels.pair(*counts, fixed=sum(fixed))


def pair_rows(
    block: RankBlock,
    totals: dict[str, np.ndarray],
    pairs: list[tuple[str, str]],
    draws: Resamples,
    confidence: float,
    random: RandomFactors,
) -> list[dict[str, Any]]:
    """Rows of :data:`PAIR_COLUMNS` for one setting and direction.

    ``totals``: method → (K, S, C) of the metrics. ``pairs`` are the declared family, as far as both methods have
    results here.
    """
    if not pairs:
        return []
    least, most = block.range()
    results = [compare_pair(totals, pair, block.clusters.sizes, confidence, random, most - least) for pair in pairs]
    stacked = {
        name: np.stack([getattr(result, name) for result, _ in results])
        for name in ("estimate", "variance", "low", "high", "p", "df")
    }
    exact = random.exact | block.constant
    for i in (i for i, pair in enumerate(pairs) if exact.issuperset(pair)):
        stacked["low"][i] = stacked["high"][i] = stacked["estimate"][i]  # a difference of numbers without an error
    boot_low, boot_high, boot_p = _bootstrap_differences(
        [_whole_number_totals(totals[a], totals[b]) for a, b in pairs], draws, confidence
    )
    # Holm runs over the pairs of each metric: the axis of pairs must be the last one.
    p_holm, boot_p_holm = family_adjusted([result for result, _ in results]), holm_adjusted(boot_p.T).T
    detectable = _detectable_differences([result for result, _ in results], np.isfinite(p_holm), confidence)
    needed = [
        needed_samples(
            result, min(len(block.higher[name]) for name in pair), len(block.queries), confidence, len(pairs)
        )
        for pair, (result, _) in zip(pairs, results, strict=True)
    ]
    rows = []
    for i, (a, b) in enumerate(pairs):
        for k, metric in enumerate(tested_metrics()):
            rows.append(
                {"first": a, "second": b, "setting": block.setting, "direction": block.direction, "metric": metric}
                | {"difference": stacked["estimate"][i, k]}
                | {"low": stacked["low"][i, k], "high": stacked["high"][i, k]}
                | {"p": stacked["p"][i, k], "p_holm": p_holm[i, k], "procedure": results[i][1]}
                | {"family": len(pairs), "clusters": len(block.clusters.sizes), "df": stacked["df"][i, k]}
                | {"detectable": detectable[i, k]}
                | {"seeds_needed": needed[i][0][k], "queries_needed": needed[i][1][k]}
                | {"effect": net_win_share(block, a, b, metric)}
                | {"boot_low": boot_low[i, k], "boot_high": boot_high[i, k]}
                | {"boot_p": boot_p[i, k], "boot_p_holm": boot_p_holm[i, k]}
                | {"boot_procedure": f"paired {bootstrap.PROCEDURE}"}
            )
    return rows


def _detectable_differences(family: list[Inference], tested: np.ndarray, confidence: float) -> np.ndarray:
    """(P, K) smallest true differences that tests at Holm's strictest level detect; NaN: not tested."""
    level = (1 - confidence) / len(family)
    variance, df, share, seed_df, query_df = (
        np.stack([getattr(result, name) for result in family])
        for name in ("variance", "df", "seed_share", "seed_df", "query_df")
    )
    variance = np.where(tested, variance, np.nan)
    critical = _critical_value(level, len(family), variance, np.nan_to_num(share), seed_df, float(query_df.flat[0]))
    return minimum_detectable_effect(variance, df, level, TARGET_POWER, critical)


def _critical_value(
    level: float, family: int, variance: np.ndarray, share: np.ndarray, seed_df: np.ndarray, query_df: float
) -> np.ndarray | None:
    """The statistic that is significant at ``level`` in a family of tests; None: Student's, of a single one."""
    if family == 1:
        return None
    critical, known = np.full(variance.shape, np.nan), variance > 0
    critical[known] = behrens_fisher_quantile(level, share[known], seed_df[known], query_df)
    return critical


def net_win_share(block: RankBlock, first: str, second: str, metric: str) -> float:
    """Effect size: the share of queries where ``first`` does better minus the share where it does worse, −1 to 1.

    A query's value is its mean over seeds. A positive effect always means that ``first`` is better, also for metrics
    of which lower values are better.
    """
    a, b = (block.values(method, metric).mean(axis=0) for method in (first, second))
    gain = (b - a) if METRICS[metric].lower_is_better else (a - b)
    tolerance = 1e-9 * np.maximum(np.abs(a), np.abs(b))  # a difference in the last bits does not count
    return float((gain > tolerance).mean() - (gain < -tolerance).mean())


def _bootstrap_differences(
    columns: list[tuple[np.ndarray, int]], draws: Resamples, confidence: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ends and p-values, each (P, K), of P pairs' (K, C) totals, each with the divisor of its totals."""
    divisors = np.array([number for _, number in columns], dtype=float)
    results = []
    # One matrix product for each metric: a product of another size may round differently, and a further metric must not
    # change the last digits of the others.
    for totals in np.stack([total for total, _ in columns], axis=1):
        samples = draws.means(totals)
        ends = (end.astype(float) / divisors for end in percentile_interval(samples, confidence))
        results.append((*ends, bootstrap_p_value(samples)))
    low, high, p = (np.stack(part, axis=1) for part in zip(*results, strict=True))
    return low, high, p


def _whole_number_totals(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, int]:
    """(K, C) totals of first − second, multiplied so that hits stay whole numbers, and their divisor.

    With S₁ and S₂ seeds, ``Σ₁/S₁ − Σ₂/S₂ = (S₂ Σ₁ − S₁ Σ₂) / (S₁ S₂)``, reduced by the greatest common divisor. Whole
    numbers are exact in single precision, so that resampled differences of 0 are exactly 0.
    """
    a, b = first.shape[1], second.shape[1]
    common = gcd(a, b)
    return (b // common) * first.sum(axis=1) - (a // common) * second.sum(axis=1), a * b // common


# ---- Accuracy over seeds and images: intervals and differences -----------------------------------------------------

ACCURACY_PAIR_COLUMNS = ("first", "second", "difference", "low", "high", "p", "p_holm", "procedure", "family", "df")


def accuracy_interval(credits: np.ndarray, confidence: float, fixed: bool = False) -> dict[str, Any]:
    """Mean accuracy in percent with its interval by :func:`rewind.statistics.inference.mean_inference`.

    ``credits``: (S, n) credit for each of n images with each of S seeds, 0 to 1 (a tie earns a part). ``std`` is over
    seeds; NaN for one.

    Example:
        >>> row = accuracy_interval(np.array([[1, 1, 0, 1], [1, 0, 0, 1]]), confidence=0.95)
        >>> row["seeds"], row["estimate"]
        (2, 62.5)
    """
    percent = 100 * np.asarray(credits, dtype=float)
    # Each image is a cluster of its own.
    result = mean_inference(
        variance_components(percent, np.ones(percent.shape[1], dtype=int), fixed), confidence, least=0, most=100
    )
    seeds, estimate = percent.mean(axis=1), float(result.estimate)
    # Every image is right in part: its classes tie, as they do wherever all images have the same vector. No estimate.
    constant = np.ptp(percent) == 0 and 0 < percent.flat[0] < 100
    return {
        "seeds": len(seeds),
        "estimate": estimate,
        "std": float(seeds.std(ddof=1)) if len(seeds) > 1 else np.nan,
        "low": estimate if constant else float(result.low),
        "high": estimate if constant else float(result.high),
        "procedure": labels.accuracy(len(seeds), fixed),
        "df": float(result.df),
    }


def accuracy_pairs(
    credits: Mapping[str, np.ndarray], pairs: Sequence[tuple[str, str]], confidence: float, random: RandomFactors
) -> pd.DataFrame:
    """Differences of accuracy, in percentage points, paired over the images, as those of ranks are over queries.

    ``credits``: method → (S, n), see :func:`accuracy_interval`; the same images in the same order. ``pairs`` are the
    declared family of Holm's correction; pairs of which a method is missing are left out. One row of
    :data:`ACCURACY_PAIR_COLUMNS` per pair.
    """
    percent = {name: 100 * np.asarray(values, dtype=float) for name, values in credits.items()}
    family = [(first, second) for first, second in pairs if first in percent and second in percent]
    ones = np.ones(next(iter(percent.values())).shape[1], dtype=int)
    results = [compare_pair(percent, pair, ones, confidence, random, 100.0) for pair in family]
    p_holm = family_adjusted([result for result, _ in results])
    rows = [
        {"first": first, "second": second, "difference": float(result.estimate)}
        | {"low": float(result.low), "high": float(result.high), "p": float(result.p), "p_holm": p_holm[i]}
        | {"procedure": labels.for_images(procedure), "family": len(family), "df": float(result.df)}
        for i, ((first, second), (result, procedure)) in enumerate(zip(family, results, strict=True))
    ]
    return pd.DataFrame(rows, columns=list(ACCURACY_PAIR_COLUMNS))
