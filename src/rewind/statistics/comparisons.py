"""Intervals of every method, differences of every pair, gaps between Origin and Hard."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import gcd

import numpy as np
import pandas as pd

from rewind.errors import RewindError
from rewind.statistics import bootstrap, labels
from rewind.statistics.blocks import MEAN_METRICS, Block, Runs, blocks
from rewind.statistics.bootstrap import Resamples, draw_weights, percentile_interval, two_sided_p
from rewind.statistics.inference import difference, holm, one
from rewind.statistics.median import median_rank
from rewind.statistics.parts import Parts, parts, stack
from rewind.study.model import Statistics

GAP_METRICS = ("R@1", "R@5", "R@10", "MRR", "MnR")
LOWER_IS_BETTER = frozenset({"MnR"})
INTERVALS = (
    *("method", "setting", "direction", "metric", "seeds", "queries", "clusters", "estimate", "std", "low", "high"),
    *("procedure", "df", "seed_share", "boot_low", "boot_high", "boot_procedure"),
)
PAIRS = (
    *("first", "second", "setting", "direction", "metric", "difference", "low", "high", "p", "p_holm", "procedure"),
    *("family", "df", "effect", "boot_low", "boot_high", "boot_p", "boot_p_holm", "boot_procedure"),
)
GAPS = (
    *("method", "direction", "metric", "seeds", "queries", "clusters", "gap", "low", "high", "procedure", "df"),
    *("boot_low", "boot_high"),
)


@dataclass(frozen=True)
class Comparison:
    """The three tables of the statistics stage.

    Attributes:
        intervals: one row per method, setting, direction and metric.
        pairs: one row per pair, setting, direction and metric; MdR is not tested.
        gaps: Origin − Hard over Origin's queries, one row per method, direction and metric; empty where one of the
            settings was not evaluated.
    """

    intervals: pd.DataFrame
    pairs: pd.DataFrame
    gaps: pd.DataFrame


def compare(runs: Runs, pairs: list[tuple[str, str]], keys: Statistics) -> Comparison:
    """Intervals per method, differences per pair and gaps, in every setting, direction and metric.

    Args:
        runs: rank tables (``check_ranks`` accepts them); every run of a study has the same queries.
        pairs: the declared family; Holm's correction runs over it, per setting, direction and metric.
        keys: confidence; resamples and seed of the bootstrap beside it.

    Raises:
        RewindError: if two runs have different settings, queries or clusters, or a pair names no run.
    """
    for pair in pairs:
        for name in pair:
            if name not in runs:
                raise RewindError(f"statistics.pairs: method {name!r} has no run; there are {', '.join(runs)}.")
    weights = cache(lambda clusters: draw_weights(clusters, keys.resamples, keys.seed))
    intervals, differences, gaps = [], [], []
    kept: dict[tuple[str, str], Block] = {}
    for block in blocks(runs):
        draws = Resamples(weights(len(block.clusters.sizes)), block.clusters)
        totals = {method: block.totals(method) for method in block.higher}
        found = stack([parts(t, block.clusters.sizes) for t in totals.values()])
        intervals += _interval_rows(block, totals, found, draws, keys.confidence)
        differences += _pair_rows(block, totals, found, pairs, draws, keys.confidence)
        kept[block.setting, block.direction] = block
        other = kept.get(("hard" if block.setting == "origin" else "origin", block.direction))
        if other is not None and {block.setting, other.setting} == {"origin", "hard"}:
            origin, hard = (block, other) if block.setting == "origin" else (other, block)
            draws = Resamples(weights(len(origin.clusters.sizes)), origin.clusters)
            gaps += _gap_rows(origin, hard, draws, keys.confidence)
    tables = ((intervals, INTERVALS), (differences, PAIRS), (gaps, GAPS))
    return Comparison(*(pd.DataFrame(rows, columns=list(columns)) for rows, columns in tables))


def _interval_rows(
    block: Block, totals: dict[str, np.ndarray], found: Parts, draws: Resamples, confidence: float
) -> list[dict]:
    result = one(found, confidence, np.array([metric == "MnR" for metric in MEAN_METRICS]))
    boot_low, boot_high = _bootstrap_means(list(totals.values()), draws, confidence)
    rows = []
    for at, (method, total) in enumerate(totals.items()):
        place = {"method": method, "setting": block.setting, "direction": block.direction} | _size(block, method)
        per_seed = total.sum(axis=-1) / len(block.queries)  # (K, S)
        for k, metric in enumerate(MEAN_METRICS):
            low, high = np.clip([result.low[at, k], result.high[at, k]], *_range(metric))
            rows.append(
                place
                | {"metric": metric, "estimate": result.estimate[at, k], "std": _std(per_seed[k])}
                | {"low": low, "high": high, "df": result.df[at, k], "seed_share": result.seed_share[at, k]}
                | {"procedure": labels.method(per_seed.shape[1], skewed=metric == "MnR")}
                | {"boot_low": boot_low[at, k], "boot_high": boot_high[at, k]}
                | {"boot_procedure": bootstrap.PROCEDURE}
            )
        rows.append(place | _median_row(block, method, draws, confidence))
    return rows


def _median_row(block: Block, method: str, draws: Resamples, confidence: float) -> dict:
    higher, ties = block.higher[method], block.ties[method]
    estimate, low, high = median_rank(higher, ties, block.clusters, confidence)
    ranks = 1 + higher + ties / 2
    boot_low, boot_high = percentile_interval(draws.medians(ranks), confidence)
    return {
        "metric": "MdR",
        "estimate": estimate,
        "std": _std(np.median(ranks, axis=1)),
        "low": low,
        "high": high,
        "procedure": labels.median(len(ranks)),
        "df": np.nan,
        "seed_share": np.nan,
        "boot_low": boot_low,
        "boot_high": boot_high,
        "boot_procedure": bootstrap.PROCEDURE,
    }


def _pair_rows(
    block: Block, totals: dict[str, np.ndarray], found: Parts, pairs, draws: Resamples, confidence: float
) -> list[dict]:
    if not pairs:
        return []
    names = list(totals)
    first, second = ([names.index(pair[side]) for pair in pairs] for side in (0, 1))
    result = difference(found[first], found[second], confidence)
    columns = [_difference(totals[a], totals[b]) for a, b in pairs]
    low, high, p = _bootstrap_differences(columns, draws, confidence)
    adjusted, boot_adjusted = holm(result.p.T).T, holm(p.T).T
    rows = []
    for at, (a, b) in enumerate(pairs):
        counts = totals[a].shape[1], totals[b].shape[1]
        for k, metric in enumerate(MEAN_METRICS):
            rows.append(
                {"first": a, "second": b, "setting": block.setting, "direction": block.direction, "metric": metric}
                | {"difference": result.estimate[at, k], "low": result.low[at, k], "high": result.high[at, k]}
                | {"p": result.p[at, k], "p_holm": adjusted[at, k], "procedure": labels.pair(*counts)}
                | {"family": len(pairs), "df": result.df[at, k], "effect": net_share(block, a, b, metric)}
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
    gain = (b - a) if metric in LOWER_IS_BETTER else (a - b)
    small = 1e-9 * np.maximum(np.abs(a), np.abs(b))  # rounding decides nothing
    return float((gain > small).mean() - (gain < -small).mean())


def _gap_rows(origin: Block, hard: Block, draws: Resamples, confidence: float) -> list[dict]:
    """Origin's queries in both galleries of the same runs: their differences have one mean and one error."""
    at = _positions(origin, hard)
    skewed = np.array([metric == "MnR" for metric in GAP_METRICS])
    rows = []
    for method in origin.higher:
        gap = [origin.values(method, metric) - hard.values(method, metric)[:, at] for metric in GAP_METRICS]
        totals = origin.clusters.totals(np.stack(gap))
        result = one(parts(totals, origin.clusters.sizes), confidence, skewed)
        boot_low, boot_high = _bootstrap_means([totals], draws, confidence)
        place = {"method": method, "direction": origin.direction} | _size(origin, method)
        for k, metric in enumerate(GAP_METRICS):
            rows.append(
                place
                | {"metric": metric, "gap": result.estimate[k], "low": result.low[k], "high": result.high[k]}
                | {"procedure": labels.method(totals.shape[1], skewed=metric == "MnR"), "df": result.df[k]}
                | {"boot_low": boot_low[0, k], "boot_high": boot_high[0, k]}
            )
    return rows


def _positions(origin: Block, hard: Block) -> np.ndarray:
    """Where Origin's queries are among Hard's, both sorted."""
    at = np.searchsorted(hard.queries, origin.queries)
    there = hard.queries[np.minimum(at, len(hard.queries) - 1)] == origin.queries
    if not there.all():
        raise RewindError(
            f"hard {hard.direction}: the query {origin.queries[~there][0]!r} of origin is not asked there; compute "
            "the metrics again."
        )
    return at


def _bootstrap_means(totals: list[np.ndarray], draws: Resamples, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Ends, each (M, K), of the means over seeds and queries of M methods' (K, S, C) totals."""
    averaged = np.concatenate([total.mean(axis=1) for total in totals])
    sizes = draws.clusters.sizes
    mean = averaged.sum(axis=1, keepdims=True) / sizes.sum()
    low, high = percentile_interval(draws.means(averaged - mean * sizes), confidence)  # single precision of the rest
    shape = (len(totals), -1)
    return (low + mean[:, 0]).reshape(shape), (high + mean[:, 0]).reshape(shape)


def _bootstrap_differences(
    columns: list[tuple[np.ndarray, int]], draws: Resamples, confidence: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ends and p, each (P, K), of P pairs' (K, C) totals and the numbers that these are divided by."""
    samples = draws.means(np.concatenate([total for total, _ in columns]))
    shape, scale = (len(columns), -1), np.array([[number] for _, number in columns], dtype=float)
    low, high = (ends.astype(float).reshape(shape) / scale for ends in percentile_interval(samples, confidence))
    return low, high, two_sided_p(samples).reshape(shape)


def _difference(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, int]:
    """(K, C) totals of first − second as whole multiples, so that hits stay whole numbers, and their divisor."""
    a, b = first.shape[1], second.shape[1]
    common = gcd(a, b)
    return (b // common) * first.sum(axis=1) - (a // common) * second.sum(axis=1), a * b // common


def _size(block: Block, method: str) -> dict[str, int]:
    return {
        "seeds": len(block.higher[method]),
        "queries": len(block.queries),
        "clusters": len(block.clusters.sizes),
    }


def _range(metric: str) -> tuple[float, float]:
    """What a metric can be; an interval cut there covers as often."""
    return {"MRR": (0.0, 1.0), "MnR": (1.0, np.inf)}.get(metric, (0.0, 100.0))


def _std(per_seed: np.ndarray) -> float:
    return float(per_seed.std(ddof=1)) if len(per_seed) > 1 else np.nan
