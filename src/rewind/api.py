"""Ranks, metrics and comparisons of score matrices in a notebook, as the workflow computes them.

Four lines from two matrices to intervals and tests::

    from rewind.api import compare, metrics, ranks

    mine = [ranks(scores) for scores in my_seeds]          # (n, n) each, query i belonging to item i
    theirs = ranks(their_scores)                           # one model: nothing of it can be trained again
    results = compare({"mine": mine, "theirs": theirs})
    results.intervals, results.pairs                       # DataFrames

Nothing here reads a study or starts a job, and no torch is imported. What these functions take and return stays.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from rewind.config.report import Statistics
from rewind.errors import RewindError
from rewind.evaluation.ranking import compute_metrics, rank_table
from rewind.statistics.blocks import check_ranks
from rewind.statistics.comparisons import ComparisonTables, compare_methods
from rewind.statistics.pairs import RandomFactors

__all__ = ["ComparisonTables", "compare", "metrics", "ranks"]

SETTING, DIRECTION = "test", "text_to_item"


def ranks(
    scores: np.ndarray,
    truth: Sequence[int] | np.ndarray | None = None,
    clusters: Sequence[object] | np.ndarray | None = None,
    queries: Iterable[str] | None = None,
) -> pd.DataFrame:
    """Where each query's item stands among all items, ties counted instead of broken.

    Args:
        scores: (n, m) of query i and item j, the higher the better.
        truth: (n,) the column of each query's item; None: query i belongs to item i.
        clusters: (m,) which items are not independent of each other (a clip and its twin, clips of one film); None:
            each item is its own cluster. Intervals and tests resample clusters.
        queries: (n,) names of the queries, by which runs are matched; None: their row numbers.

    Returns:
        A row per query: query_id, setting, direction, ``higher`` (items scored above), ``ties`` (others scored the
        same), ``rank`` (expected over the orders of ties), cluster_id, gallery.

    Raises:
        RewindError: for scores that are not numbers, or lengths that do not fit.

    >>> scores = np.array([[0.9, 0.1, 0.3], [0.2, 0.8, 0.8], [0.9, 0.5, 0.4]])
    >>> ranks(scores)[["query_id", "higher", "ties", "rank"]].values.tolist()
    [['0', 0, 0, 1.0], ['1', 0, 1, 1.5], ['2', 2, 0, 3.0]]
    """
    scores = np.asarray(scores)
    if scores.ndim != 2:
        raise RewindError(f"scores: a matrix (queries, items) is needed, not an array of {scores.ndim} dimensions.")
    count, width = scores.shape
    columns = np.arange(count) if truth is None else np.asarray(truth)
    names = list(map(str, range(count))) if queries is None else list(map(str, queries))
    groups = np.arange(width) if clusters is None else np.unique(np.asarray(clusters), return_inverse=True)[1].ravel()
    for what, length, wanted in (("truth", len(columns), count), ("queries", len(names), count)):
        if length != wanted:
            raise RewindError(f"{what}: {length} values for {wanted} queries.")
    if len(groups) != width:
        raise RewindError(f"clusters: {len(groups)} values for {width} items; a cluster is given for every item.")
    if not np.issubdtype(columns.dtype, np.integer) or ((columns < 0) | (columns >= width)).any():
        raise RewindError(f"truth: column numbers from 0 to {width - 1} are needed, one per query.")
    items = pd.DataFrame({"item_id": [f"item{column}" for column in range(width)], "cluster_id": groups, "reversed": 0})
    captions = pd.DataFrame({"caption_id": names, "video_id": items["item_id"].to_numpy()[columns]})
    return rank_table(scores, captions, items, [SETTING], [DIRECTION], "scores")


def metrics(ranked: pd.DataFrame) -> dict[str, float]:
    """Every metric of one run: R@1, R@5, R@10, MdR, P75, MnR, MRR, nDCG@10, and R@k with ties won and lost.

    Args:
        ranked: what :func:`ranks` returned.

    >>> found = metrics(ranks(np.array([[0.9, 0.1], [0.8, 0.2]])))
    >>> found["R@1"], found["MnR"]
    (50.0, 1.5)
    """
    return compute_metrics(ranked)


def compare(
    methods: Mapping[str, pd.DataFrame | Sequence[pd.DataFrame]],
    pairs: Iterable[tuple[str, str]] | None = None,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    seeds_are_paired: Iterable[str] = (),
) -> ComparisonTables:
    """Intervals of methods and tests of their differences, over training seeds and queries.

    Args:
        methods: name → what :func:`ranks` returned for each training seed; or for one model that cannot be trained
            again, whose intervals generalise to other queries only.
        pairs: the family of Holm's correction; None: all pairs.
        confidence: of every interval.
        resamples: of the bootstrap over clusters that is reported beside.
        seed: of the bootstrap.
        seeds_are_paired: methods whose seed s starts from the same pre-trained weights.

    Returns:
        DataFrames ``intervals`` (a row per method and metric), ``pairs`` (difference, p, Holm's p and the smallest
        difference that would be detected, ``detectable``), ``ranks`` (of methods) and ``gaps`` (empty here).

    Raises:
        RewindError: for runs of different queries or clusters, or a pair that names no method.

    >>> generator = np.random.default_rng(0)
    >>> def scored(strength):
    ...     return ranks(strength * np.eye(60) + generator.normal(size=(60, 60)))
    >>> results = compare({"strong": [scored(4), scored(4)], "weak": [scored(1), scored(1)]}, resamples=200)
    >>> row = results.pairs.set_index("metric").loc["R@1"]
    >>> bool(row["difference"] > 50 and row["p_holm"] < 0.05)
    True
    """
    runs: dict[str, dict[int, pd.DataFrame]] = {}
    for name, given in methods.items():
        tables = [given] if isinstance(given, pd.DataFrame) else list(given)
        if not tables:
            raise RewindError(f"methods: {name!r} has no run; give what ranks() returned for each of its seeds.")
        for number, table in enumerate(tables):
            check_ranks(table, f"{name}/seed{number}")
        runs[name] = dict(enumerate(tables))
    family = list(itertools.combinations(runs, 2)) if pairs is None else [(first, second) for first, second in pairs]
    fixed = frozenset(name for name, given in methods.items() if isinstance(given, pd.DataFrame))
    random = RandomFactors(fixed=fixed, paired=frozenset(seeds_are_paired))
    keys = Statistics(confidence=confidence, resamples=resamples, seed=seed)
    return compare_methods(runs, family, keys, random, list(runs))
