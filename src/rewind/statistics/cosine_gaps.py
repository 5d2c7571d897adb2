"""Intervals and tests of cosine gaps over training seeds and clusters of items.

The negatives of a gap are pairs of a caption and an item of another cluster, so every cluster enters the mean twice: by
its captions, and as a candidate of all others. Both are in its residual (the first-order part of a U-statistic,
Hoeffding, 1948); the rest is :mod:`rewind.statistics.inference`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rewind.config.report import Statistics
from rewind.config.study import RunKey
from rewind.data.captions import load_split
from rewind.evaluation.cosine_gap import (
    COSINE_BIN_EDGES,
    GAP_SPLITS,
    INDEPENDENT,
    PAIR_CONDITIONED,
    CosineGap,
    measure_cosine_gap,
)
from rewind.evaluation.ranking import RECALL_CUTOFFS, rank_table, validation_scores
from rewind.io.files import write_csv
from rewind.statistics import labels
from rewind.statistics.inference import family_adjusted, mean_inference
from rewind.statistics.pairs import ALL_RANDOM, RandomFactors, compare_pair
from rewind.statistics.variance import variance_components

QUANTITIES = ("gap", "positive", "negative")
INTERVAL_COLUMNS = (
    *("method", "split", "scoring", "quantity", "seeds", "captions", "clusters", "estimate", "std", "low", "high"),
    *("procedure", "df", "seed_share"),
)
PAIR_COLUMNS = (
    *("first", "second", "split", "scoring", "difference", "low", "high", "p", "p_holm", "procedure", "family", "df"),
)

GapsByScoring = Mapping[tuple[str, str], Mapping[str, list[CosineGap]]]
"""(split, scoring) → method → its gaps, one per seed."""


def gap_totals(
    gap: CosineGap, cluster_of_caption: np.ndarray, cluster_of_item: np.ndarray, clusters: int
) -> np.ndarray:
    """Sums over each cluster of its contributions to gap, positive mean and negative mean of one run, (3, C).

    Clusters of captions, (Q,), and of items, (M,), count from 0.
    """

    def summed(values: np.ndarray, clusters_of_values: np.ndarray) -> np.ndarray:
        return np.bincount(clusters_of_values, values, minlength=clusters)

    # Influences of all items sum to 0: they leave the mean as it is and only move it between clusters' residuals.
    positive = summed(gap.positive, cluster_of_caption)
    negative = summed(gap.negative, cluster_of_caption) + summed(gap.influence, cluster_of_item)
    return np.stack([positive - negative, positive, negative])


def compare_gaps(
    gaps: GapsByScoring,
    clusters: Mapping[str, tuple[np.ndarray, np.ndarray]],
    pairs: list[tuple[str, str]],
    confidence: float,
    random: RandomFactors = ALL_RANDOM,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Intervals of gap, positive and negative mean of every method, and differences in gap of every pair.

    ``clusters``: split → clusters of its captions and of its items, counted from 0. ``pairs`` are the declared family;
    Holm's correction runs over those of its pairs whose methods both have gaps in a split and scoring. The tables have
    :data:`INTERVAL_COLUMNS` and :data:`PAIR_COLUMNS`.
    """
    intervals, differences = [], []
    for (split, scoring), methods in gaps.items():
        captions, items = clusters[split]
        count = int(items.max()) + 1
        sizes = np.bincount(captions, minlength=count)
        key = {"split": split, "scoring": scoring}
        totals = {
            method: np.stack([gap_totals(run, captions, items, count) for run in seeds], axis=1)  # (3, S, C)
            for method, seeds in methods.items()
        }
        for method, each in totals.items():
            intervals += _interval_rows(method, key, each, sizes, confidence, method in random.fixed)
        evaluated = [pair for pair in pairs if pair[0] in methods and pair[1] in methods]
        if evaluated:
            differences += _pair_rows(
                evaluated, key, {m: each[0] for m, each in totals.items()}, sizes, confidence, random
            )
    return pd.DataFrame(intervals, columns=list(INTERVAL_COLUMNS)), pd.DataFrame(
        differences, columns=list(PAIR_COLUMNS)
    )


def _interval_rows(
    method: str, key: dict[str, str], totals: np.ndarray, sizes: np.ndarray, confidence: float, fixed: bool
) -> list[dict[str, Any]]:
    # No bounds are given, so that the interval is that of t: a mean of cosines is no share.
    result, seeds = mean_inference(variance_components(totals, sizes, fixed), confidence), totals.shape[1]
    per_seed = totals.sum(axis=-1) / sizes.sum()
    size = {"seeds": seeds, "captions": int(sizes.sum()), "clusters": len(sizes)}
    return [
        {"method": method, "quantity": quantity}
        | key
        | size
        | {"estimate": result.estimate[k], "low": result.low[k], "high": result.high[k]}
        | {"std": float(per_seed[k].std(ddof=1)) if seeds > 1 else np.nan}
        | {"procedure": labels.method(seeds, fixed=fixed), "df": result.df[k], "seed_share": result.seed_share[k]}
        for k, quantity in enumerate(QUANTITIES)
    ]


def _pair_rows(
    pairs: list[tuple[str, str]],
    key: dict[str, str],
    totals: dict[str, np.ndarray],
    sizes: np.ndarray,
    confidence: float,
    random: RandomFactors,
) -> list[dict[str, Any]]:
    """Rows of :data:`PAIR_COLUMNS`; ``totals``: method → (S, C) of the gap."""
    results = [compare_pair(totals, pair, sizes, confidence, random) for pair in pairs]
    adjusted = family_adjusted([result for result, _ in results])
    return [
        {"first": a, "second": b, "difference": float(result.estimate)}
        | {"low": float(result.low), "high": float(result.high)}
        | key
        | {"p": float(result.p), "p_holm": adjusted[at], "procedure": procedure}
        | {"family": len(pairs), "df": float(result.df)}
        for at, ((a, b), (result, procedure)) in enumerate(zip(pairs, results, strict=True))
    ]


# ---- Gaps of a study's runs, from their cosines --------------------------------------------------------------------


RUN_COLUMNS = (
    "method",
    "seed",
    "split",
    "scoring",
    "captions",
    "items",
    "gap",
    "positive",
    "negative",
    *RECALL_CUTOFFS,
)


COUNT_COLUMNS = ("method", "seed", "split", "scoring", "low", "high", "positives", "negatives")


def compute_cosine_gap(
    folder: Path,
    dataset: str,
    files: dict[RunKey, str],
    pairs: list[tuple[str, str]],
    keys: Statistics,
    random: RandomFactors,
    table: str,
    intervals: str,
    pair_table: str,
    counts: str,
) -> None:
    """Write the gap of every run, intervals of every method, differences of every declared pair, and counts of cosines.

    Each row of a run also has R@k: captions search all items of the split by the same cosines. ``files`` are the runs'
    npz of :func:`compute_cosines`; ``table``, ``intervals``, ``pair_table`` and ``counts`` are CSV files that are
    written.
    """
    run_rows, histograms = [], []
    gaps: dict[tuple[str, str], dict[str, list[CosineGap]]] = {}  # (split, scoring) → method → a gap for each seed
    clusters = {}
    for split in GAP_SPLITS:
        items, captions, _ = load_split(folder, dataset, split)
        items, captions = items.set_index("item_id", drop=False), captions.set_index("caption_id", drop=False)
        for run, path, scoring, matrix, queries, gallery in _read_matrices(files, split):
            split_captions, split_items = captions.loc[queries], items.loc[gallery]
            item_of_caption, cluster_of_item = _item_clusters(split_captions, split_items)
            clusters[split] = cluster_of_item[item_of_caption], cluster_of_item
            gap = measure_cosine_gap(matrix, item_of_caption, cluster_of_item, f"{path}: {split}, {scoring}")
            gaps.setdefault((split, scoring), {}).setdefault(run[0], []).append(gap)
            run_columns = {"method": run[0], "seed": run[1], "split": split, "scoring": scoring}
            run_rows.append(run_columns | _gap_row(gap, matrix, split_captions, split_items, path))
            histograms.append(_cosine_histogram(gap, run_columns))
    intervals_table, pairs_table = compare_gaps(gaps, clusters, pairs, keys.confidence, random)
    write_csv(table, pd.DataFrame(run_rows, columns=list(RUN_COLUMNS)))
    write_csv(intervals, intervals_table)
    write_csv(pair_table, pairs_table)
    write_csv(counts, pd.concat(histograms) if histograms else pd.DataFrame(columns=list(COUNT_COLUMNS)))


def _read_matrices(files: dict[RunKey, str], split: str) -> Iterator[tuple[Any, ...]]:
    """Every run's matrices of a split, with its query and item ids; one at a time in memory."""
    for scoring in (INDEPENDENT, PAIR_CONDITIONED):
        for run, path in files.items():
            with np.load(path, allow_pickle=False) as archive:
                if f"{split}_{scoring}" in archive.files:
                    names = (f"{split}_{scoring}", f"{split}_query_ids", f"{split}_item_ids")
                    yield run, path, scoring, *(archive[name] for name in names)


def _item_clusters(captions: pd.DataFrame, items: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Row of each caption's item, and cluster of each item counted from 0."""
    row = pd.Series(np.arange(len(items)), index=items["item_id"])
    return row[captions["video_id"]].to_numpy(), pd.factorize(items["cluster_id"])[0]


def _gap_row(
    gap: CosineGap, matrix: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, path: str
) -> dict[str, Any]:
    # The setting `test` is all captions by all items, of the validation split too.
    ranks = rank_table(matrix, captions, items, ["test"], ["text_to_item"], path)
    scores = validation_scores(ranks)
    means = {"gap": gap.gap, "positive": gap.positive.mean(), "negative": gap.negative.mean()}
    return {"captions": len(captions), "items": len(items)} | means | {name: scores[name] for name in RECALL_CUTOFFS}


def _cosine_histogram(gap: CosineGap, run_columns: dict[str, Any]) -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "low": COSINE_BIN_EDGES[:-1],
            "high": COSINE_BIN_EDGES[1:],
            "positives": gap.counts[0],
            "negatives": gap.counts[1],
        }
    )
    # Bins are 0.01 wide; rounding takes away the last digits that np.linspace leaves.
    table = table[(table["positives"] > 0) | (table["negatives"] > 0)].round({"low": 2, "high": 2})
    return table.assign(**run_columns)[list(COUNT_COLUMNS)]
