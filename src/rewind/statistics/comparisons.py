"""Tables of the statistics stage: intervals, differences of pairs, Origin − Hard gaps, ranks, tests against chance.

Also how much smaller a gap between two methods is in a control experiment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from rewind.config.report import CLAIMED_METRICS, Statistics
from rewind.errors import RewindError
from rewind.ranking_metrics import MEDIAN_RANK_METRIC, METRICS, median_rank_with_ties, tested_metrics
from rewind.statistics import bootstrap, labels
from rewind.statistics.blocks import NotEvaluated, RankBlock, RunRanks, rank_blocks
from rewind.statistics.bootstrap import Resamples, draw_weights, percentile_interval
from rewind.statistics.chance import CHANCE_COLUMNS, chance_rows
from rewind.statistics.inference import contrast_inference, mean_inference, median_rank_interval
from rewind.statistics.pairs import ALL_RANDOM, PAIR_COLUMNS, RandomFactors, pair_rows
from rewind.statistics.ranks import method_ranks
from rewind.statistics.variance import VarianceComponents, variance_components

# ---- Control: the difference of two gaps, with its interval --------------------------------------------------------

SHRINKAGE_COLUMNS = (
    *("method", "baseline", "control", "control_baseline", "setting", "direction", "metric"),
    *("gap", "control_gap", "shrinkage", "low", "high", "p", "procedure", "df"),
)


def gap_shrinkage(
    runs: RunRanks, baseline: str, methods: Sequence[str], control: Mapping[str, str], setting: str, confidence: float
) -> pd.DataFrame:
    """(method − baseline) − (its counterpart − the baseline's counterpart), R@k in percent, in every search direction.

    The four methods answer the same queries, and their training seeds are independent, as in the comparison of pairs.
    ``control`` maps each method and the baseline to its counterpart in the control experiment. One row of
    :data:`SHRINKAGE_COLUMNS` per method, direction and metric.
    """
    needed = dict.fromkeys([baseline, *methods, *control.values()])
    rows: list[dict[str, Any]] = []
    for block in rank_blocks({name: runs[name] for name in needed}):
        if block.setting != setting:
            continue
        components = {
            name: variance_components(block.totals(name, CLAIMED_METRICS), block.clusters.sizes) for name in needed
        }
        for method in methods:
            pair, control_pair = (method, baseline), (control[method], control[baseline])
            key = dict(zip(SHRINKAGE_COLUMNS, (*pair, *control_pair, setting, block.direction), strict=False))
            # A difference of two differences of percentages is at most ±200.
            four = [components[name] for name in (*pair, *control_pair)]
            result = contrast_inference(four, (1, -1, -1, 1), confidence, 200.0)
            gap, control_gap = (components[a].mean - components[b].mean for a, b in (pair, control_pair))
            # The smaller number of seeds of each pair decides what the interval can claim.
            seeds, control_seeds = (min(len(block.higher[name]) for name in names) for names in (pair, control_pair))
            procedure = labels.pair(seeds, control_seeds)
            for k, metric in enumerate(CLAIMED_METRICS):
                rows.append(
                    key
                    | {"metric": metric, "gap": gap[k], "control_gap": control_gap[k], "shrinkage": result.estimate[k]}
                    | {"low": result.low[k], "high": result.high[k], "p": result.p[k]}
                    | {"procedure": procedure, "df": result.df[k]}
                )
    return pd.DataFrame(rows, columns=list(SHRINKAGE_COLUMNS))


# ---- Intervals, pairs, gaps and ranks of a study -------------------------------------------------------------------

INTERVAL_COLUMNS = (
    *("method", "setting", "direction", "metric", "seeds", "queries", "clusters", "estimate", "std", "low", "high"),
    *("procedure", "df", "seed_share", "boot_low", "boot_high", "boot_procedure"),
)
GAP_COLUMNS = (
    *("method", "direction", "metric", "seeds", "queries", "clusters", "gap", "low", "high", "procedure", "df"),
    *("boot_low", "boot_high"),
)


def is_skewed() -> np.ndarray:
    """(K,) whether each of the tested metrics has a long right tail."""
    return np.array([METRICS[metric].skewed for metric in tested_metrics()])


def is_lower_better() -> np.ndarray:
    """(K,) whether lower values of each of the tested metrics are better."""
    return np.array([METRICS[metric].lower_is_better for metric in tested_metrics()])


@dataclass(frozen=True)
class ComparisonTables:
    """The five tables of the statistics stage, one row per method or pair in each setting, direction and metric."""

    intervals: pd.DataFrame
    pairs: pd.DataFrame  # MdR is not tested
    gaps: pd.DataFrame  # Origin − Hard over Origin's queries; empty where one of the settings was not evaluated
    ranks: pd.DataFrame  # of the compared methods: rewind.statistics.ranks.method_ranks
    chance: pd.DataFrame  # accuracy in Binary; empty where it was not evaluated: rewind.statistics.chance.chance_rows


def compare_methods(
    runs: RunRanks,
    pairs: list[tuple[str, str]],
    keys: Statistics,
    random: RandomFactors = ALL_RANDOM,
    compared: Collection[str] = (),
    left_out: NotEvaluated | None = None,
) -> ComparisonTables:
    """Intervals, differences of pairs and gaps, in every setting, direction and metric, and tests against chance.

    Args:
        runs: rank tables that :func:`rewind.statistics.blocks.check_ranks` accepts; all have the same queries.
        pairs: the declared family; Holm's correction runs over those of its pairs whose methods both have results, per
            setting, direction and metric. Each must name methods with runs.
        compared: methods that are ranked among each other, and in Binary tested against chance.
        left_out: where methods were deliberately not evaluated.
    """
    for pair in pairs:
        for name in pair:
            if name not in runs:
                raise RewindError(f"statistics.pairs: method {name!r} has no run; available: {', '.join(runs)}.")
    # Settings with equally many clusters share their draws, which are large and take most of the time.
    weights = cache(lambda clusters: draw_weights(clusters, keys.resamples, keys.seed))
    intervals, differences, gaps, chance = [], [], [], []
    blocks: dict[tuple[str, str], RankBlock] = {}
    for block in rank_blocks(runs, left_out):
        draws = Resamples(weights(len(block.clusters.sizes)), block.clusters)
        totals = {method: block.totals(method) for method in block.higher}
        components = {m: variance_components(t, block.clusters.sizes, m in random.fixed) for m, t in totals.items()}
        for method in totals:
            intervals += _interval_rows(
                block, method, totals[method], components[method], draws, keys.confidence, random
            )
        evaluated_pairs = [pair for pair in pairs if pair[0] in totals and pair[1] in totals]
        differences += pair_rows(block, totals, evaluated_pairs, draws, keys.confidence, random)
        if block.setting == "binary":
            chance += chance_rows(block, keys.confidence, random, compared)
        blocks[block.setting, block.direction] = block
        # Settings may come in either order: the gap is computed with the later of the two.
        counterpart = blocks.get(("hard" if block.setting == "origin" else "origin", block.direction))
        if counterpart is not None and {block.setting, counterpart.setting} == {"origin", "hard"}:
            origin, hard = (block, counterpart) if block.setting == "origin" else (counterpart, block)
            # Gaps are over the queries of Origin, whose clusters are drawn even if the block at hand is Hard.
            draws = Resamples(weights(len(origin.clusters.sizes)), origin.clusters)
            gaps += _gap_rows(origin, hard, draws, keys.confidence, random)
    tables = ((intervals, INTERVAL_COLUMNS), (differences, PAIR_COLUMNS), (gaps, GAP_COLUMNS))
    interval_table, pair_table, gap_table = (pd.DataFrame(rows, columns=list(columns)) for rows, columns in tables)
    ranks = method_ranks(interval_table, pair_table, compared, keys.confidence)
    chance_table = pd.DataFrame(chance, columns=list(CHANCE_COLUMNS))
    return ComparisonTables(interval_table, pair_table, gap_table, ranks, chance_table)


def _interval_rows(
    block: RankBlock,
    method: str,
    totals: np.ndarray,
    components: VarianceComponents,
    draws: Resamples,
    confidence: float,
    random: RandomFactors,
) -> list[dict[str, Any]]:
    fixed = method in random.fixed
    result = mean_inference(components, confidence, is_skewed(), *block.range())
    # Chance is computed, not estimated: its interval is a point.
    exact = random.exact | block.constant
    low, high = (result.estimate,) * 2 if method in exact else (result.low, result.high)
    boot_low, boot_high = _bootstrap_means(totals, draws, confidence)
    key = {"method": method, "setting": block.setting, "direction": block.direction} | _sample_sizes(block, method)
    per_seed = totals.sum(axis=-1) / len(block.queries)  # (K, S)
    rows = [
        key
        | {"metric": metric, "estimate": result.estimate[k], "std": _seed_std(per_seed[k])}
        | {"low": low[k], "high": high[k], "df": result.df[k], "seed_share": result.seed_share[k]}
        | {"procedure": labels.method(per_seed.shape[1], is_skewed()[k], fixed)}
        | {"boot_low": boot_low[k], "boot_high": boot_high[k], "boot_procedure": bootstrap.PROCEDURE}
        for k, metric in enumerate(tested_metrics())
    ]
    return [*rows, key | _median_row(block, method, draws, confidence, random)]


def _median_row(
    block: RankBlock, method: str, draws: Resamples, confidence: float, random: RandomFactors
) -> dict[str, Any]:
    higher, ties, fixed = block.higher[method], block.ties[method], method in random.fixed
    estimate, low, high = median_rank_interval(higher, ties, block.clusters, confidence, fixed)
    low, high = (estimate, estimate) if method in random.exact | block.constant else (low, high)
    boot_low, boot_high = percentile_interval(draws.medians(higher, ties), confidence)
    return {
        "metric": MEDIAN_RANK_METRIC,
        "estimate": estimate,
        "std": _seed_std(np.array([median_rank_with_ties(*seed) for seed in zip(higher, ties, strict=True)])),
        "low": low,
        "high": high,
        "procedure": labels.median(len(higher), fixed),
        "df": np.nan,
        "seed_share": np.nan,
        "boot_low": boot_low,
        "boot_high": boot_high,
        "boot_procedure": bootstrap.PROCEDURE,
    }


def _gap_rows(
    origin: RankBlock, hard: RankBlock, draws: Resamples, confidence: float, random: RandomFactors
) -> list[dict[str, Any]]:
    """Gaps of Origin's queries between the two galleries of the same runs, with the interval of *one* method's mean.

    More clips to search never help a query, so a gap has one sign: R@k cannot rise and mean ranks cannot fall.
    """
    positions = _positions_in_hard(origin, hard)
    least, most = hard.range()
    signs = np.where(is_lower_better(), -1, 1)
    # From 0 to the width of the range, or from minus that to 0 for ranks; sorted, the lower end comes first.
    ends = np.sort([0 * signs, signs * (most - least)], axis=0)
    rows = []
    for method in (name for name in origin.higher if name in hard.higher):
        differences = [
            origin.values(method, metric) - hard.values(method, metric)[:, positions] for metric in tested_metrics()
        ]
        totals = origin.clusters.totals(np.stack(differences))
        result = mean_inference(
            variance_components(totals, origin.clusters.sizes, method in random.fixed), confidence, is_skewed(), *ends
        )
        exact = random.exact | (origin.constant & hard.constant)
        low, high = (result.estimate,) * 2 if method in exact else (result.low, result.high)
        boot_low, boot_high = _bootstrap_means(totals, draws, confidence)
        key = {"method": method, "direction": origin.direction} | _sample_sizes(origin, method)
        for k, metric in enumerate(tested_metrics()):
            rows.append(
                key
                | {"metric": metric, "gap": result.estimate[k], "low": low[k], "high": high[k]}
                | {"procedure": labels.method(totals.shape[1], is_skewed()[k], method in random.fixed)}
                | {"df": result.df[k], "boot_low": boot_low[k], "boot_high": boot_high[k]}
            )
    return rows


def _positions_in_hard(origin: RankBlock, hard: RankBlock) -> np.ndarray:
    """Position of each of Origin's queries among Hard's; both are sorted."""
    positions = np.searchsorted(hard.queries, origin.queries)
    # A query that sorts behind all of Hard gets a position beyond the end.
    present = hard.queries[np.minimum(positions, len(hard.queries) - 1)] == origin.queries
    if not present.all():
        raise RewindError(
            f"hard {hard.direction}: the query {origin.queries[~present][0]!r} of origin is missing there; compute the "
            "metrics again."
        )
    return positions


def _bootstrap_means(totals: np.ndarray, draws: Resamples, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Ends, each (K,), of bootstrap intervals of means over seeds and queries; ``totals`` is (K, S, C)."""
    averaged, sizes = totals.mean(axis=1), draws.clusters.sizes
    mean = averaged.sum(axis=1, keepdims=True) / sizes.sum()
    # Resampled in single precision, which loses fewer digits of large values once their mean is subtracted.
    low, high = percentile_interval(draws.means(averaged - mean * sizes), confidence)
    return low + mean[:, 0], high + mean[:, 0]


def _sample_sizes(block: RankBlock, method: str) -> dict[str, int]:
    return {
        "seeds": len(block.higher[method]),
        "queries": len(block.queries),
        "clusters": len(block.clusters.sizes),
    }


def _seed_std(per_seed: np.ndarray) -> float:
    return float(per_seed.std(ddof=1)) if len(per_seed) > 1 else np.nan
