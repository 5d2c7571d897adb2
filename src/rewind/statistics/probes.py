"""Intervals and tests of what probes measure of every run, from one table of values per run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rewind.config.evaluation import BY_CHANCE, PROBE_KEYS, VALUE_COLUMNS
from rewind.config.study import RunKey
from rewind.errors import RewindError
from rewind.io.files import reading_user_file
from rewind.ranking_metrics import ROUNDING_TOLERANCE
from rewind.statistics import labels
from rewind.statistics.inference import family_adjusted, holm_adjusted, mean_inference
from rewind.statistics.pairs import RandomFactors, compare_pair
from rewind.statistics.variance import Clusters, variance_components

PROBE_COLUMNS = (
    *("method", *PROBE_KEYS, "seeds", "queries", "clusters", "estimate", "std", "low", "high", "procedure", "df"),
    *("constant", "p", "p_holm"),
)
PROBE_PAIR_COLUMNS = (
    *("first", "second", *PROBE_KEYS, "difference", "low", "high", "p", "p_holm", "family", "procedure", "df"),
)

FOLDS_FACTOR = 1.3
"""What errors of cross-validated values are multiplied by: folds share most of what they are fitted on, so that queries
of different clusters are right and wrong together. Nadeau and Bengio (Machine Learning 52, 2003) multiply the variance
of k folds by 1 + k / (k − 1), an error by 1.5 for five folds, which is too much here; with this, intervals of the
direction's probe cover in 94% of simulated studies or more (benchmarks/direction_probe.py)."""
CROSS_VALIDATED = ("direction",)
"""Probes whose values are of queries left out in turn."""

RunValues = Mapping[str, Mapping[int, pd.DataFrame]]
"""Method → seed → its table of values, see :data:`rewind.config.evaluation.VALUE_COLUMNS`."""


def probe_tables(
    runs: RunValues, pairs: Sequence[tuple[str, str]], confidence: float, random: RandomFactors
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Intervals of every method, and differences of every declared pair, in every measure of every probe.

    Measures with a value per query (percent, from 0 to 100) have intervals over training seeds and clusters of queries,
    as metrics have. Those of whole runs, such as the modality gap, have a mean and a standard deviation over seeds.

    Args:
        runs: values of all runs; a method may lack a probe.
        pairs: the declared family. Holm's correction runs over those of its pairs whose methods both have a measure.
        confidence: of the intervals.
        random: which factors are random.

    Returns:
        Tables with :data:`PROBE_COLUMNS` and :data:`PROBE_PAIR_COLUMNS`. ``constant`` is 1 where every query of every
        run has one and the same value other than 0 and 100, as where all tie: that is no estimate. ``p`` is that of a
        permutation test of "more than by chance", where a probe has one, and ``p_holm`` with Holm's correction over all
        of the probe's.

    Raises:
        RewindError: if two runs have different queries in a measure.

    >>> values = pd.DataFrame({"probe": "pairs", "part": "", "direction": "", "metric": "group", "query_id": ["a", "b"],
    ...                        "cluster_id": ["a", "b"], "value": [100.0, 0.0]})
    >>> intervals, _ = probe_tables({"meanP": {0: values, 1: values}}, [], 0.95, RandomFactors())
    >>> intervals[["method", "metric", "estimate", "seeds"]].values.tolist()
    [['meanP', 'group', 50.0, 2]]
    """
    intervals, differences = [], []
    measures = dict(_measures(runs))
    for key, methods in measures.items():
        if key[-1].endswith(BY_CHANCE):
            continue
        by_chance = measures.get((*key[:-1], key[-1] + BY_CHANCE), {})
        names = dict(zip(PROBE_KEYS, key, strict=True))
        queries = _same_queries(methods, " ".join(filter(None, key)))
        if queries is None:
            intervals += [_whole_run_row(method, seeds) | names for method, seeds in methods.items()]
            continue
        clusters = Clusters.of(queries["cluster_id"].to_numpy())
        values = {
            method: np.stack([table["value"].to_numpy() for table in seeds.values()])
            for method, seeds in methods.items()
        }
        totals = {method: clusters.totals(each) for method, each in values.items()}
        if key[0] in CROSS_VALIDATED:
            totals = {method: _spread(each, clusters.sizes) for method, each in totals.items()}
        for method, each in values.items():
            row = _interval_row(method, totals[method], clusters, confidence, method in random.fixed)
            constant = np.ptp(each) == 0 and 0 < each.flat[0] < 100
            p = _permutation_p(each, by_chance.get(method, {}))
            intervals.append(row | names | {"constant": int(constant), "p": p})
        family = [pair for pair in pairs if pair[0] in totals and pair[1] in totals]
        results = [compare_pair(totals, pair, clusters.sizes, confidence, random, 100.0) for pair in family]
        adjusted = family_adjusted([result for result, _ in results])
        for (first, second), (result, procedure), p_holm in zip(family, results, adjusted, strict=True):
            differences.append(
                {"first": first, "second": second, "difference": float(result.estimate)}
                | names
                | {"low": float(result.low), "high": float(result.high), "p": float(result.p), "p_holm": p_holm}
                | {"family": len(family), "procedure": procedure, "df": float(result.df)}
            )
    table = pd.DataFrame(intervals, columns=list(PROBE_COLUMNS))
    tested = table[table["p"].notna()].groupby("probe", sort=False)["p"]
    table["p_holm"] = tested.transform(lambda p: holm_adjusted(p.to_numpy(dtype=float))).astype(float)
    return (
        table,
        pd.DataFrame(differences, columns=list(PROBE_PAIR_COLUMNS)),
    )


def _measures(runs: RunValues) -> Iterator[tuple[tuple[str, ...], dict[str, dict[int, pd.DataFrame]]]]:
    """(probe, part, direction, metric) → method → seed → its rows, sorted by query."""
    found: dict[tuple[str, ...], dict[str, dict[int, pd.DataFrame]]] = {}
    for method, seeds in runs.items():
        for seed in sorted(seeds):
            for key, rows in seeds[seed].groupby(list(PROBE_KEYS), sort=False):
                of_method = found.setdefault(tuple(map(str, key)), {}).setdefault(method, {})
                of_method[seed] = rows.sort_values("query_id", kind="stable")
    yield from found.items()


def _same_queries(methods: Mapping[str, Mapping[int, pd.DataFrame]], where: str) -> pd.DataFrame | None:
    """The queries of a measure, which all runs share; None for a measure of whole runs."""
    first: pd.DataFrame | None = None
    for method, seeds in methods.items():
        for seed, table in seeds.items():
            ids = table[["query_id", "cluster_id"]].astype(str).reset_index(drop=True)
            if first is None:
                first = ids
            elif not ids.equals(first):
                raise RewindError(
                    f"probes, {where}: {method}/seed{seed} has other queries than the run before it; compute the "
                    "probes of both again."
                )
    return None if first is None or list(first["query_id"]) == [""] else first


def _spread(totals: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Totals (S, C) of clusters, farther from their seed's mean by :data:`FOLDS_FACTOR`; the mean stays as it is."""
    expected = totals.sum(axis=-1, keepdims=True) / sizes.sum() * sizes
    return expected + FOLDS_FACTOR * (totals - expected)


def _permutation_p(values: np.ndarray, by_chance: Mapping[int, pd.DataFrame]) -> float:
    """One-sided p of the mean of all seeds' values (S, Q) among permutations, which are the same for all seeds.

    The true directions count as one of the draws (Phipson and Smyth, 2010): p is never 0.
    """
    if not by_chance:
        return np.nan
    draws = np.mean([table["value"].to_numpy() for table in by_chance.values()], axis=0)
    return float((1 + (draws >= values.mean() - ROUNDING_TOLERANCE).sum()) / (1 + len(draws)))


def _whole_run_row(method: str, seeds: Mapping[int, pd.DataFrame]) -> dict[str, Any]:
    values = np.array([table["value"].iloc[0] for table in seeds.values()])
    return {
        "method": method,
        "seeds": len(values),
        "estimate": float(values.mean()),
        "std": float(values.std(ddof=1)) if len(values) > 1 else np.nan,
    }


def _interval_row(
    method: str, totals: np.ndarray, clusters: Clusters, confidence: float, fixed: bool
) -> dict[str, Any]:
    result = mean_inference(variance_components(totals, clusters.sizes, fixed), confidence, least=0, most=100)
    per_seed = totals.sum(axis=-1) / clusters.sizes.sum()
    return {
        "method": method,
        "seeds": len(per_seed),
        "queries": int(clusters.sizes.sum()),
        "clusters": len(clusters.sizes),
        "estimate": float(result.estimate),
        "std": float(per_seed.std(ddof=1)) if len(per_seed) > 1 else np.nan,
        "low": float(result.low),
        "high": float(result.high),
        "procedure": labels.method(len(per_seed), fixed=fixed),
        "df": float(result.df),
    }


def read_probe_values(runs: Sequence[RunKey], files: Sequence[str]) -> dict[str, dict[int, pd.DataFrame]]:
    """Method → seed → table of values, from the files of :func:`rewind.evaluation.probes.compute_probes`.

    Raises:
        RewindError: for a file that is none of those.
    """
    found: dict[str, dict[int, pd.DataFrame]] = {}
    for (method, seed), path in zip(runs, files, strict=True):
        with reading_user_file(path, "Parquet file", "remake it"):
            table = pd.read_parquet(path)
        if missing := [column for column in VALUE_COLUMNS if column not in table]:
            raise RewindError(f"{path}: no column {missing[0]!r}; delete it and run again.")
        found.setdefault(method, {})[seed] = table
    return found
