"""Rank tables of all runs as checked arrays, one block per setting and search direction.

All runs of a study must have the same queries in the same clusters: comparisons are paired over queries, so that query
*q* of one method is subtracted from query *q* of the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rewind.errors import RewindError
from rewind.ranking_metrics import METRICS, tested_metrics
from rewind.statistics.variance import Clusters

RunRanks = dict[str, dict[int, pd.DataFrame]]
"""Rank tables by method and seed."""

NotEvaluated = Mapping[str, Collection[str]]
"""Method → settings in which it was deliberately not evaluated, or ``"setting direction"`` for one direction."""

_RANK_COLUMNS = ("query_id", "setting", "direction", "higher", "ties", "rank", "cluster_id", "gallery")
_QUERY_KEY = ["setting", "direction", "query_id"]


@dataclass(frozen=True)
class RankBlock:
    """Ranks of every run in one setting and direction.

    Attributes:
        higher, ties: method → (S, Q) numbers of items above the true item and at its score, seeds in ascending order;
            methods that were not evaluated here are absent.
        constant: methods of which every query ties with all that it searches, in every run: numbers of chance, which no
            other query or seed would change. Binary has none, whose tests look at ties themselves.

    Example:
        >>> higher = np.array([[0, 1, 0, 3]])  # one seed, four queries in two clusters
        >>> block = RankBlock(
        ...     "test", "text_to_item", np.array(["q1", "q2", "q3", "q4"]), Clusters.of(np.array([0, 0, 1, 1])),
        ...     {"meanP": higher}, {"meanP": np.zeros_like(higher)}, gallery=100,
        ... )
        >>> block.values("meanP", "R@1")
        array([[100.,   0., 100.,   0.]])
        >>> block.totals("meanP", ("R@1", "MnR")).tolist()  # [metric][seed][cluster]
        [[[100.0, 100.0]], [[3.0, 5.0]]]
    """

    setting: str
    direction: str
    queries: np.ndarray  # (Q,) ids, sorted
    clusters: Clusters
    higher: dict[str, np.ndarray]
    ties: dict[str, np.ndarray]
    gallery: int  # number of items that a query searches
    constant: frozenset[str] = frozenset()

    def range(self) -> tuple[np.ndarray, np.ndarray]:
        """Least and greatest possible value of each of the K tested metrics, (K,) each."""
        least, most = zip(*(METRICS[metric].range(self.gallery) for metric in tested_metrics()), strict=True)
        return np.array(least), np.array(most)

    def values(self, method: str, metric: str) -> np.ndarray:
        """(S, Q) values of a metric per query, R@k in percent."""
        return METRICS[metric].per_query(self.higher[method], self.ties[method])

    def totals(self, method: str, metrics: tuple[str, ...] | None = None) -> np.ndarray:
        """(K, S, C) sums of metrics, those that are tested if None, over each cluster's queries."""
        values = [self.values(method, metric) for metric in metrics or tested_metrics()]
        return self.clusters.totals(np.stack(values))


def check_ranks(table: pd.DataFrame, where: str) -> None:
    """Refuse a broken rank table of one run; ``where`` is its file, and messages count its rows from 1.

    Raises:
        RewindError: if a column is missing or listed twice, there are no rows, a rank is not a number or impossible, a
            name is missing, or a query is listed twice.
    """
    for column in _RANK_COLUMNS:
        if (count := list(table.columns).count(column)) != 1:
            what = "there twice" if count else "missing"
            raise RewindError(f"{where}: column {column!r} is {what}; compute the metrics again.")
    if table.empty:
        raise RewindError(f"{where}: there are no queries; compute the metrics again.")
    for column in ("query_id", "setting", "direction", "cluster_id"):
        if (missing := table[column].isna().to_numpy()).any():  # grouping would leave out the row, or merge clusters
            raise RewindError(
                f"{where}, row {_describe_row(table, missing)}: {column} is missing; compute the metrics again."
            )
    for column in ("higher", "ties", "rank", "gallery"):
        # What is not a number becomes NaN, which is refused below with its row.
        values = pd.to_numeric(table[column], errors="coerce").to_numpy(dtype=float)
        bad = ~np.isfinite(values) | (values < (1 if column in ("rank", "gallery") else 0))
        bad |= (column != "rank") & (values % 1 != 0)  # an expected rank may end in ½
        if bad.any():
            raise RewindError(
                f"{where}, row {_describe_row(table, bad)}: {column} is {values[bad][0]:g}; look for NaN in the run's "
                "similarity matrix and compute the metrics again."
            )
    duplicated = table.duplicated(_QUERY_KEY).to_numpy()
    if duplicated.any():
        raise RewindError(
            f"{where}, row {_describe_row(table, duplicated)}: the query is listed twice; keep one of the rows."
        )


def rank_blocks(runs: RunRanks, left_out: NotEvaluated | None = None) -> Iterator[RankBlock]:
    """Every setting and direction that some run has, in the order of the run that has the most.

    Runs must have the same settings (but for ``left_out``), queries and clusters.
    """
    tables = [(m, s, _settings_and_directions(table)) for m, seeds in runs.items() for s, table in seeds.items()]
    if not tables:
        raise RewindError("statistics: there are no runs; train and evaluate one first.")
    # Stable: among the runs with the most settings the study's first decides the order.
    longest_first = sorted(tables, key=lambda entry: len(entry[2]), reverse=True)
    # Reversed, so that the run that comes first overwrites the others; it is named in the message below.
    first = {key: f"{method}/seed{seed}" for method, seed, keys in reversed(longest_first) for key in keys}
    all_keys = dict.fromkeys(key for *_, keys in longest_first for key in keys)
    for method, seed, keys in tables:
        missing = sorted(key for key in all_keys.keys() - set(keys) if not _is_not_evaluated(left_out, method, *key))
        if missing:
            raise RewindError(
                f"runs {first[missing[0]]} and {method}/seed{seed}: only one of them was evaluated in "
                f"{' '.join(missing[0])}; compute the metrics of both again."
            )
    for setting, direction in all_keys:
        evaluated = {m: seeds for m, seeds in runs.items() if not _is_not_evaluated(left_out, m, setting, direction)}
        if evaluated:
            yield _make_block(evaluated, setting, direction)


def _is_not_evaluated(left_out: NotEvaluated | None, method: str, setting: str, direction: str) -> bool:
    reasons = (left_out or {}).get(method, ())
    return setting in reasons or f"{setting} {direction}" in reasons


def _settings_and_directions(table: pd.DataFrame) -> list[tuple[str, str]]:
    return list(table[["setting", "direction"]].drop_duplicates().itertuples(index=False, name=None))


def _make_block(runs: RunRanks, setting: str, direction: str) -> RankBlock:
    # Sorting by seed and by query puts row s, q of every method's arrays at the same seed and query.
    tables = {m: {s: _select_rows(seeds[s], setting, direction) for s in sorted(seeds)} for m, seeds in runs.items()}
    _check_same_queries(tables, f"{setting} {direction}")
    first = next(iter(next(iter(tables.values())).values()))
    higher, ties = (
        {m: np.stack([t[count].to_numpy() for t in seeds.values()]) for m, seeds in tables.items()}
        for count in ("higher", "ties")
    )
    gallery = int(first["gallery"].max())
    # Whether all tie: a caption ties with all other items; an item with the captions of all others, and each caption is
    # of one item, so that the items together tie with the gallery once less than there are items.
    all_ties = len(first) * (gallery - 1) if direction == "text_to_item" else gallery * (len(first) - 1)
    constant = frozenset(m for m, counts in ties.items() if (counts.sum(axis=1) == all_ties).all())
    return RankBlock(
        setting,
        direction,
        first["query_id"].to_numpy(),
        Clusters.of(first["cluster_id"].to_numpy()),
        higher,
        ties,
        gallery,
        constant if setting != "binary" else frozenset(),
    )


def _select_rows(table: pd.DataFrame, setting: str, direction: str) -> pd.DataFrame:
    rows = table[(table["setting"] == setting) & (table["direction"] == direction)]
    return rows.sort_values("query_id", kind="stable")


def _check_same_queries(tables: RunRanks, where: str) -> None:
    first: tuple[str, np.ndarray, np.ndarray] | None = None
    for method, seeds in tables.items():
        for seed, table in seeds.items():
            name, ids, clusters = f"{method}/seed{seed}", table["query_id"].to_numpy(), table["cluster_id"].to_numpy()
            if first is None:
                first = (name, ids, clusters)
                continue
            if not np.array_equal(ids, first[1]):
                example = sorted(set(ids) ^ set(first[1]))[0]
                raise RewindError(
                    f"{where}: runs {first[0]} and {name} have different queries, first {example!r}; compute their "
                    "similarity on the same data."
                )
            if not np.array_equal(clusters, first[2]):
                example = ids[clusters != first[2]][0]
                raise RewindError(
                    f"{where}: runs {first[0]} and {name} put query {example!r} into different clusters; compute their "
                    "metrics from the same items.csv."
                )


def _describe_row(table: pd.DataFrame, bad: np.ndarray) -> str:
    row = int(bad.argmax())
    query = table.iloc[row]
    return f"{row + 1} (query {query['query_id']!r}, {query['setting']}, {query['direction']})"
