"""Differences of declared pairs of methods: interval, test, effect size, and the bootstrap beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from rewind.metrics import METRICS, TESTED
from rewind.statistics import bootstrap, labels
from rewind.statistics.blocks import Block
from rewind.statistics.bootstrap import Resamples, percentile_interval, two_sided_p
from rewind.statistics.inference import Inference, difference, holm, paired
from rewind.statistics.parts import parts
from rewind.statistics.seen import smallest_seen

POWER = 0.8  # of the column ``detectable``
PAIRS = (
    *("first", "second", "setting", "direction", "metric", "difference", "low", "high", "p", "p_holm", "procedure"),
    *("family", "clusters", "df", "detectable", "effect"),
    *("boot_low", "boot_high", "boot_p", "boot_p_holm", "boot_procedure"),
)


@dataclass(frozen=True)
class Random:
    """What is random in a study's runs.

    Attributes:
        fixed: methods that are one model, which cannot be trained again.
        exact: methods whose values are known and not estimated (chance).
        paired: methods whose seeds go together: seed s of each starts from one pre-training.
    """

    fixed: frozenset[str] = frozenset()
    exact: frozenset[str] = frozenset()
    paired: frozenset[str] = frozenset()

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Random:
        """From plain values."""
        return cls(frozenset(given["fixed"]), frozenset(given["exact"]), frozenset(given["paired"]))


NOTHING_SAID = Random()


def compare_pair(
    totals: Mapping[str, np.ndarray],
    pair: tuple[str, str],
    sizes: np.ndarray,
    confidence: float,
    random: Random,
    reach: np.ndarray | float = np.inf,
) -> tuple[Inference, str]:
    """Interval and test of first − second, and over what it generalises.

    Args:
        totals: method → (…, S, C) sums over clusters, seeds in ascending order.
        pair: first and second.
        sizes: (C,) queries of each cluster.
        confidence: of the interval.
        random: what is.
        reach: the greatest difference that there can be, (…).
    """
    first, second = (totals[name] for name in pair)
    counts, fixed = (first.shape[-2], second.shape[-2]), [name in random.fixed for name in pair]
    if random.paired >= set(pair) and counts[0] == counts[1] > 1:
        return paired(parts(first - second, sizes), confidence, reach), labels.pair(*counts, paired=True)
    found = (parts(total, sizes, one) for total, one in zip((first, second), fixed, strict=True))
    return difference(*found, confidence, reach), labels.pair(*counts, fixed=sum(fixed))


def pair_rows(
    block: Block,
    totals: dict[str, np.ndarray],
    pairs: list[tuple[str, str]],
    draws: Resamples,
    confidence: float,
    random: Random,
) -> list[dict[str, Any]]:
    """Rows of ``PAIRS`` for one setting and direction.

    Args:
        block: ranks of all runs.
        totals: method → (K, S, C) of the metrics.
        pairs: the declared family, as far as both methods have results here.
        draws: of the bootstrap.
        confidence: of the intervals.
        random: what is.
    """
    if not pairs:
        return []
    least, most = block.range()
    results = [compare_pair(totals, pair, block.clusters.sizes, confidence, random, most - least) for pair in pairs]
    together = {
        name: np.stack([getattr(result, name) for result, _ in results])
        for name in ("estimate", "variance", "low", "high", "p", "df")
    }
    low, high, p = _bootstrap([_whole(totals[a], totals[b]) for a, b in pairs], draws, confidence)
    adjusted, boot_adjusted = holm(together["p"].T).T, holm(p.T).T
    seen = smallest_seen(together["variance"], together["df"], (1 - confidence) / len(pairs), POWER)
    rows = []
    for at, (a, b) in enumerate(pairs):
        for k, metric in enumerate(TESTED):
            rows.append(
                {"first": a, "second": b, "setting": block.setting, "direction": block.direction, "metric": metric}
                | {"difference": together["estimate"][at, k]}
                | {"low": together["low"][at, k], "high": together["high"][at, k]}
                | {"p": together["p"][at, k], "p_holm": adjusted[at, k], "procedure": results[at][1]}
                | {"family": len(pairs), "clusters": len(block.clusters.sizes), "df": together["df"][at, k]}
                | {"detectable": seen[at, k], "effect": net_share(block, a, b, metric)}
                | {"boot_low": low[at, k], "boot_high": high[at, k]}
                | {"boot_p": p[at, k], "boot_p_holm": boot_adjusted[at, k]}
                | {"boot_procedure": f"paired {bootstrap.PROCEDURE}"}
            )
    return rows


def net_share(block: Block, first: str, second: str, metric: str) -> float:
    """Effect size: the share of queries where ``first`` does better minus the share where it does worse, −1 to 1.

    A query's value is its mean over seeds. Lower mean ranks are better, so that a positive effect always speaks for
    ``first``.
    """
    a, b = (block.values(method, metric).mean(axis=0) for method in (first, second))
    gain = (b - a) if METRICS[metric].lower_is_better else (a - b)
    small = 1e-9 * np.maximum(np.abs(a), np.abs(b))  # rounding decides nothing
    return float((gain > small).mean() - (gain < -small).mean())


def _bootstrap(
    columns: list[tuple[np.ndarray, int]], draws: Resamples, confidence: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ends and p, each (P, K), of P pairs' (K, C) totals and the numbers that these are divided by."""
    scale = np.array([number for _, number in columns], dtype=float)
    found = []
    for totals in np.stack([total for total, _ in columns], axis=1):  # by itself: a further metric moves no last digit
        samples = draws.means(totals)
        ends = (end.astype(float) / scale for end in percentile_interval(samples, confidence))
        found.append((*ends, two_sided_p(samples)))
    low, high, p = (np.stack(part, axis=1) for part in zip(*found, strict=True))
    return low, high, p


def _whole(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, int]:
    """(K, C) totals of first − second as whole multiples, so that hits stay whole numbers, and their divisor."""
    a, b = first.shape[1], second.shape[1]
    common = gcd(a, b)
    return (b // common) * first.sum(axis=1) - (a // common) * second.sum(axis=1), a * b // common
