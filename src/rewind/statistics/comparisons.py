"""Intervals of every method, differences of every pair, gaps between Origin and Hard."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from rewind.errors import RewindError
from rewind.metrics import MEDIAN, METRICS, TESTED, median_of
from rewind.statistics import bootstrap, labels
from rewind.statistics.blocks import Block, Left, Runs, blocks
from rewind.statistics.bootstrap import Resamples, draw_weights, percentile_interval
from rewind.statistics.inference import one
from rewind.statistics.median import median_rank
from rewind.statistics.pairs import NOTHING_SAID, PAIRS, Random, pair_rows
from rewind.statistics.parts import Parts, parts
from rewind.statistics.ranks import method_ranks
from rewind.study.model import Statistics

SKEWED = np.array([METRICS[metric].skewed for metric in TESTED])
LOWER = np.array([METRICS[metric].lower_is_better for metric in TESTED])
INTERVALS = (
    *("method", "setting", "direction", "metric", "seeds", "queries", "clusters", "estimate", "std", "low", "high"),
    *("procedure", "df", "seed_share", "boot_low", "boot_high", "boot_procedure"),
)
GAPS = (
    *("method", "direction", "metric", "seeds", "queries", "clusters", "gap", "low", "high", "procedure", "df"),
    *("boot_low", "boot_high"),
)


@dataclass(frozen=True)
class Comparison:
    """The four tables of the statistics stage.

    Attributes:
        intervals: one row per method, setting, direction and metric.
        pairs: one row per pair, setting, direction and metric; MdR is not tested.
        gaps: Origin − Hard over Origin's queries, one row per method, direction and metric; empty where one of the
            settings was not evaluated.
        ranks: places of the compared methods, one row per method, setting, direction and metric
            (:func:`rewind.statistics.ranks.method_ranks`).
    """

    intervals: pd.DataFrame
    pairs: pd.DataFrame
    gaps: pd.DataFrame
    ranks: pd.DataFrame


def compare(
    runs: Runs,
    pairs: list[tuple[str, str]],
    keys: Statistics,
    random: Random = NOTHING_SAID,
    compared: Collection[str] = (),
    left_out: Left | None = None,
) -> Comparison:
    """Intervals per method, differences per pair and gaps, in every setting, direction and metric.

    Args:
        runs: rank tables (``check_ranks`` accepts them); every run of a study has the same queries.
        pairs: the declared family; Holm's correction runs over those of it whose methods both have results, per
            setting, direction and metric.
        keys: confidence; resamples and seed of the bootstrap beside it.
        random: which methods are fixed models, and whether seeds go in pairs.
        compared: methods that have places among each other.
        left_out: where methods were not evaluated, for a reason that is known.

    Raises:
        RewindError: if two runs have different settings, queries or clusters, or a pair names no run.
    """
    for pair in pairs:
        for name in pair:
            if name not in runs:
                raise RewindError(f"statistics.pairs: method {name!r} has no run; available: {', '.join(runs)}.")
    weights = cache(lambda clusters: draw_weights(clusters, keys.resamples, keys.seed))
    intervals, differences, gaps = [], [], []
    kept: dict[tuple[str, str], Block] = {}
    for block in blocks(runs, left_out):
        draws = Resamples(weights(len(block.clusters.sizes)), block.clusters)
        totals = {method: block.totals(method) for method in block.higher}
        found = {m: parts(t, block.clusters.sizes, m in random.fixed) for m, t in totals.items()}
        for method in totals:
            intervals += _interval_rows(block, method, totals[method], found[method], draws, keys.confidence, random)
        there = [pair for pair in pairs if pair[0] in totals and pair[1] in totals]
        differences += pair_rows(block, totals, there, draws, keys.confidence, random)
        kept[block.setting, block.direction] = block
        other = kept.get(("hard" if block.setting == "origin" else "origin", block.direction))
        if other is not None and {block.setting, other.setting} == {"origin", "hard"}:
            origin, hard = (block, other) if block.setting == "origin" else (other, block)
            draws = Resamples(weights(len(origin.clusters.sizes)), origin.clusters)
            gaps += _gap_rows(origin, hard, draws, keys.confidence, random)
    tables = ((intervals, INTERVALS), (differences, PAIRS), (gaps, GAPS))
    made = [pd.DataFrame(rows, columns=list(columns)) for rows, columns in tables]
    return Comparison(*made, method_ranks(made[0], made[1], compared, keys.confidence))


def _interval_rows(
    block: Block, method: str, totals: np.ndarray, found: Parts, draws: Resamples, confidence: float, random: Random
) -> list[dict[str, Any]]:
    fixed = method in random.fixed
    result = one(found, confidence, SKEWED, *block.range())
    low, high = (result.estimate,) * 2 if method in random.exact else (result.low, result.high)
    boot_low, boot_high = _bootstrap_means(totals, draws, confidence)
    place = {"method": method, "setting": block.setting, "direction": block.direction} | _size(block, method)
    per_seed = totals.sum(axis=-1) / len(block.queries)  # (K, S)
    rows = [
        place
        | {"metric": metric, "estimate": result.estimate[k], "std": _std(per_seed[k])}
        | {"low": low[k], "high": high[k], "df": result.df[k], "seed_share": result.seed_share[k]}
        | {"procedure": labels.method(per_seed.shape[1], SKEWED[k], fixed)}
        | {"boot_low": boot_low[k], "boot_high": boot_high[k], "boot_procedure": bootstrap.PROCEDURE}
        for k, metric in enumerate(TESTED)
    ]
    return [*rows, place | _median_row(block, method, draws, confidence, random)]


def _median_row(block: Block, method: str, draws: Resamples, confidence: float, random: Random) -> dict[str, Any]:
    higher, ties, fixed = block.higher[method], block.ties[method], method in random.fixed
    estimate, low, high = median_rank(higher, ties, block.clusters, confidence, fixed)
    low, high = (estimate, estimate) if method in random.exact else (low, high)
    boot_low, boot_high = percentile_interval(draws.medians(higher, ties), confidence)
    return {
        "metric": MEDIAN,
        "estimate": estimate,
        "std": _std(np.array([median_of(*seed) for seed in zip(higher, ties, strict=True)])),
        "low": low,
        "high": high,
        "procedure": labels.median(len(higher), fixed),
        "df": np.nan,
        "seed_share": np.nan,
        "boot_low": boot_low,
        "boot_high": boot_high,
        "boot_procedure": bootstrap.PROCEDURE,
    }


def _gap_rows(origin: Block, hard: Block, draws: Resamples, confidence: float, random: Random) -> list[dict[str, Any]]:
    """Origin's queries in both galleries of the same runs: their differences have one mean and one error.

    More clips to search never help a query, so a gap is of one sign.
    """
    at = _positions(origin, hard)
    least, most = hard.range()
    signs = np.where(LOWER, -1, 1)
    ends = np.sort([0 * signs, signs * (most - least)], axis=0)
    rows = []
    for method in (name for name in origin.higher if name in hard.higher):
        gap = [origin.values(method, metric) - hard.values(method, metric)[:, at] for metric in TESTED]
        totals = origin.clusters.totals(np.stack(gap))
        result = one(parts(totals, origin.clusters.sizes, method in random.fixed), confidence, SKEWED, *ends)
        low, high = (result.estimate,) * 2 if method in random.exact else (result.low, result.high)
        boot_low, boot_high = _bootstrap_means(totals, draws, confidence)
        place = {"method": method, "direction": origin.direction} | _size(origin, method)
        for k, metric in enumerate(TESTED):
            rows.append(
                place
                | {"metric": metric, "gap": result.estimate[k], "low": low[k], "high": high[k]}
                | {"procedure": labels.method(totals.shape[1], SKEWED[k], method in random.fixed)}
                | {"df": result.df[k], "boot_low": boot_low[k], "boot_high": boot_high[k]}
            )
    return rows


def _positions(origin: Block, hard: Block) -> np.ndarray:
    """Where Origin's queries are among Hard's, both sorted."""
    at = np.searchsorted(hard.queries, origin.queries)
    there = hard.queries[np.minimum(at, len(hard.queries) - 1)] == origin.queries
    if not there.all():
        raise RewindError(
            f"hard {hard.direction}: the query {origin.queries[~there][0]!r} of origin is missing there; compute the "
            "metrics again."
        )
    return at


def _bootstrap_means(totals: np.ndarray, draws: Resamples, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Ends, each (K,), of the means over seeds and queries of (K, S, C) totals."""
    averaged, sizes = totals.mean(axis=1), draws.clusters.sizes
    mean = averaged.sum(axis=1, keepdims=True) / sizes.sum()
    low, high = percentile_interval(draws.means(averaged - mean * sizes), confidence)  # single precision of the rest
    return low + mean[:, 0], high + mean[:, 0]


def _size(block: Block, method: str) -> dict[str, int]:
    return {
        "seeds": len(block.higher[method]),
        "queries": len(block.queries),
        "clusters": len(block.clusters.sizes),
    }


def _std(per_seed: np.ndarray) -> float:
    return float(per_seed.std(ddof=1)) if len(per_seed) > 1 else np.nan
