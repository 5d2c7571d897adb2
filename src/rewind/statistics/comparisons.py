"""Intervals of every method and paired comparisons of every pair, Holm-adjusted."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rewind.errors import RewindError
from rewind.evaluation.ranking import query_values
from rewind.statistics.bootstrap import PROCEDURE, Resamples, percentile_interval, two_sided_p
from rewind.study.model import METRICS, Statistics

Runs = dict[str, dict[int, pd.DataFrame]]
"""Rank tables by method and seed."""

MEAN_METRICS = tuple(metric for metric in METRICS if metric != "MdR")


def compare(runs: Runs, pairs: list[tuple[str, str]], keys: Statistics) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Intervals per method and differences per pair, for every setting, direction and metric.

    Args:
        runs: rank tables; every run of a study has the same queries.
        pairs: the declared family; Holm's correction runs over it, per setting, direction and metric.
        keys: resamples, confidence, seed.

    Returns:
        intervals (method, setting, direction, metric, seeds, queries, clusters, estimate, std, low, high, procedure)
        and pairs (first, second, setting, direction, metric, difference, low, high, p, p_holm, procedure, family).

    Raises:
        RewindError: if two runs have different queries.
    """
    intervals, differences = [], []
    for setting, direction in _blocks(runs):
        block = {m: {s: _select(t, setting, direction) for s, t in seeds.items()} for m, seeds in runs.items()}
        _check_same_queries(block, setting, direction)
        any_table = next(iter(next(iter(block.values())).values()))
        draws = Resamples.draw(any_table["cluster_id"].to_numpy(), keys.resamples, keys.seed)
        values = {m: _values(seeds) for m, seeds in block.items()}
        samples = {m: draws.means(v.mean(axis=1)) for m, v in values.items()}  # (B, metrics)
        place = {"setting": setting, "direction": direction}
        size = {"queries": len(any_table), "clusters": draws.weights.shape[1]}
        for method, seeds in block.items():
            intervals += [
                {"method": method} | place | size | row
                for row in _method_rows(values[method], samples[method], seeds, draws, keys.confidence)
            ]
        differences += [place | row for row in _pair_rows(values, samples, pairs, keys.confidence)]
    return _tidy_intervals(intervals), _tidy_pairs(differences)


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's adjusted p-values: the running maximum of ``(n − i + 1) · p_(i)``, at most 1 (Holm, 1979)."""
    order = np.argsort(p, kind="stable")
    factors = len(p) - np.arange(len(p))
    adjusted = np.minimum(1.0, np.maximum.accumulate(p[order] * factors))
    result = np.empty_like(adjusted)
    result[order] = adjusted
    return result


def scale(metric: str) -> float:
    """R@k is reported in percent."""
    return 100.0 if metric.startswith("R@") else 1.0


def _blocks(runs: Runs) -> list[tuple[str, str]]:
    table = next(iter(next(iter(runs.values())).values()))
    return list(dict.fromkeys(zip(table["setting"], table["direction"], strict=True)))


def _select(table: pd.DataFrame, setting: str, direction: str) -> pd.DataFrame:
    return table[(table["setting"] == setting) & (table["direction"] == direction)].sort_values(
        "query_id", kind="stable"
    )


def _check_same_queries(block: Runs, setting: str, direction: str) -> None:
    first: tuple[str, int, np.ndarray] | None = None
    for method, seeds in block.items():
        for seed, table in seeds.items():
            ids = table["query_id"].to_numpy()
            if first is None:
                first = (method, seed, ids)
            elif not np.array_equal(ids, first[2]):
                odd = sorted(set(ids) ^ set(first[2]))[:1] or ["(order)"]
                raise RewindError(
                    f"{setting} {direction}: runs {first[0]}/seed{first[1]} and {method}/seed{seed} have different "
                    f"queries, first {odd[0]!r}; compute their similarity on the same data."
                )


def _values(seeds: dict[int, pd.DataFrame]) -> np.ndarray:
    """(metrics, seeds, queries) per-query values of the metrics that are means over queries."""
    return np.stack(
        [[scale(metric) * query_values(table, metric) for table in seeds.values()] for metric in MEAN_METRICS]
    )


def _method_rows(values, samples, seeds, draws: Resamples, confidence: float):
    low, high = percentile_interval(samples, confidence)
    per_seed = values.mean(axis=2)
    for at, metric in enumerate(MEAN_METRICS):
        yield _interval_row(metric, per_seed[at], per_seed[at].mean(), low[at], high[at])
    ranks = np.stack([table["rank"].to_numpy(dtype=float) for table in seeds.values()])
    low_median, high_median = percentile_interval(draws.medians(ranks), confidence)
    medians = np.median(ranks, axis=1)
    yield _interval_row("MdR", medians, medians.mean(), low_median, high_median)


def _interval_row(metric: str, per_seed: np.ndarray, estimate: float, low: float, high: float) -> dict:
    std = per_seed.std(ddof=1) if len(per_seed) > 1 else np.nan
    return {"metric": metric, "seeds": len(per_seed), "estimate": estimate, "std": std, "low": low, "high": high}


def _pair_rows(values, samples, pairs, confidence: float):
    if not pairs:
        return
    differences = np.stack([samples[a] - samples[b] for a, b in pairs], axis=1)  # (B, pairs, metrics)
    low, high = percentile_interval(differences, confidence)
    p = two_sided_p(differences)
    for at, metric in enumerate(MEAN_METRICS):
        adjusted = holm(p[:, at])
        for row, (a, b) in enumerate(pairs):
            yield {
                "first": a,
                "second": b,
                "metric": metric,
                "difference": values[a][at].mean() - values[b][at].mean(),
                "low": low[row, at],
                "high": high[row, at],
                "p": p[row, at],
                "p_holm": adjusted[row],
                "family": len(pairs),
            }


def _tidy_intervals(rows: list[dict]) -> pd.DataFrame:
    columns = [
        "method",
        "setting",
        "direction",
        "metric",
        "seeds",
        "queries",
        "clusters",
        "estimate",
        "std",
        "low",
        "high",
        "procedure",
    ]
    return pd.DataFrame([row | {"procedure": PROCEDURE} for row in rows], columns=columns)


def _tidy_pairs(rows: list[dict]) -> pd.DataFrame:
    columns = [
        "first",
        "second",
        "setting",
        "direction",
        "metric",
        "difference",
        "low",
        "high",
        "p",
        "p_holm",
        "procedure",
        "family",
    ]
    return pd.DataFrame([row | {"procedure": f"paired {PROCEDURE}"} for row in rows], columns=columns)
