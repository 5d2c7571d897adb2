"""The ranks of all runs in one setting and direction, checked, as arrays."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rewind.errors import RewindError
from rewind.metrics import METRICS, TESTED
from rewind.statistics.parts import Clusters

Runs = dict[str, dict[int, pd.DataFrame]]
"""Rank tables by method and seed."""

Left = Mapping[str, Collection[str]]
"""Method → settings in which it was not evaluated, for a reason that is known; ``setting direction`` of one alone."""

_COLUMNS = ("query_id", "setting", "direction", "higher", "ties", "rank", "cluster_id", "gallery")
_KEY = ["setting", "direction", "query_id"]


@dataclass(frozen=True)
class Block:
    """Ranks of every run in one setting and direction.

    Attributes:
        setting, direction: which.
        queries: (Q,) ids, sorted.
        clusters: of these queries.
        higher, ties: method → (S, Q), seeds in ascending order; methods that were not evaluated here are not in them.
        gallery: items that a query searches.
    """

    setting: str
    direction: str
    queries: np.ndarray
    clusters: Clusters
    higher: dict[str, np.ndarray]
    ties: dict[str, np.ndarray]
    gallery: int

    def range(self) -> tuple[np.ndarray, np.ndarray]:
        """(K,) least and (K,) greatest value that each metric that is tested can have."""
        least, most = zip(*(METRICS[metric].range(self.gallery) for metric in TESTED), strict=True)
        return np.array(least), np.array(most)

    def values(self, method: str, metric: str) -> np.ndarray:
        """(S, Q) values of a metric per query, R@k in percent."""
        return METRICS[metric].per_query(self.higher[method], self.ties[method])

    def totals(self, method: str, metrics: tuple[str, ...] = TESTED) -> np.ndarray:
        """(K, S, C) sums of metrics over each cluster's queries."""
        return self.clusters.totals(np.stack([self.values(method, metric) for metric in metrics]))


def check_ranks(table: pd.DataFrame, where: str) -> None:
    """Refuse a rank table that is broken.

    Args:
        table: of one run.
        where: its file, for messages; rows count from 1.

    Raises:
        RewindError: if a column is missing, there are no rows, a rank is not a number or impossible, or a query is
            there twice.
    """
    missing = [column for column in _COLUMNS if column not in table.columns]
    if missing:
        raise RewindError(f"{where}: column {missing[0]!r} is missing; compute the metrics again.")
    if table.empty:
        raise RewindError(f"{where}: there are no queries; compute the metrics again.")
    for column in ("higher", "ties", "rank"):
        values = table[column].to_numpy(dtype=float)
        bad = ~np.isfinite(values) | (values < (1 if column == "rank" else 0))
        if bad.any():
            raise RewindError(
                f"{where}, row {_place(table, bad)}: {column} is {values[bad][0]:g}; look for NaN in the run's "
                "similarity matrix and compute the metrics again."
            )
    twice = table.duplicated(_KEY).to_numpy()
    if twice.any():
        raise RewindError(f"{where}, row {_place(table, twice)}: the query is there twice; keep one of the rows.")


def blocks(runs: Runs, left_out: Left | None = None) -> Iterator[Block]:
    """Every setting and direction that a run has, in the order of the run that has most.

    Args:
        runs: rank tables of all runs.
        left_out: where methods may have no rank table.

    Raises:
        RewindError: if there is no run, or two runs have other settings, queries or clusters.
    """
    tables = [(m, s, _places(table)) for m, seeds in runs.items() for s, table in seeds.items()]
    if not tables:
        raise RewindError("statistics: there are no runs; train and evaluate one first.")
    in_order = sorted(tables, key=lambda table: len(table[2]), reverse=True)  # the first of those that have most
    first = {place: f"{method}/seed{seed}" for method, seed, there in reversed(in_order) for place in there}
    every = dict.fromkeys(place for *_, there in in_order for place in there)
    for method, seed, there in tables:
        odd = sorted(place for place in every.keys() - set(there) if not _left(left_out, method, *place))
        if odd:
            raise RewindError(
                f"runs {first[odd[0]]} and {method}/seed{seed}: only one of them was evaluated in "
                f"{' '.join(odd[0])}; compute the metrics of both again."
            )
    for setting, direction in every:
        named = {m: seeds for m, seeds in runs.items() if not _left(left_out, m, setting, direction)}
        if named:
            yield _block(named, setting, direction)


def _left(left_out: Left | None, method: str, setting: str, direction: str) -> bool:
    known = (left_out or {}).get(method, ())
    return setting in known or f"{setting} {direction}" in known


def _places(table: pd.DataFrame) -> list[tuple[str, str]]:
    return list(table[["setting", "direction"]].drop_duplicates().itertuples(index=False, name=None))


def _block(runs: Runs, setting: str, direction: str) -> Block:
    chosen = {m: {s: _select(seeds[s], setting, direction) for s in sorted(seeds)} for m, seeds in runs.items()}
    _check_same_queries(chosen, f"{setting} {direction}")
    first = next(iter(next(iter(chosen.values())).values()))
    return Block(
        setting,
        direction,
        first["query_id"].to_numpy(),
        Clusters.of(first["cluster_id"].to_numpy()),
        {m: np.stack([t["higher"].to_numpy() for t in seeds.values()]) for m, seeds in chosen.items()},
        {m: np.stack([t["ties"].to_numpy() for t in seeds.values()]) for m, seeds in chosen.items()},
        int(first["gallery"].max()),
    )


def _select(table: pd.DataFrame, setting: str, direction: str) -> pd.DataFrame:
    rows = table[(table["setting"] == setting) & (table["direction"] == direction)]
    return rows.sort_values("query_id", kind="stable")


def _check_same_queries(chosen: Runs, where: str) -> None:
    first: tuple[str, np.ndarray, np.ndarray] | None = None
    for method, seeds in chosen.items():
        for seed, table in seeds.items():
            name, ids, clusters = f"{method}/seed{seed}", table["query_id"].to_numpy(), table["cluster_id"].to_numpy()
            if first is None:
                first = (name, ids, clusters)
                continue
            if not np.array_equal(ids, first[1]):
                odd = sorted(set(ids) ^ set(first[1]))[0]
                raise RewindError(
                    f"{where}: runs {first[0]} and {name} have different queries, first {odd!r}; compute their "
                    "similarity on the same data."
                )
            if not np.array_equal(clusters, first[2]):
                odd = ids[clusters != first[2]][0]
                raise RewindError(
                    f"{where}: runs {first[0]} and {name} put query {odd!r} into different clusters; compute their "
                    "metrics from the same items.csv."
                )


def _place(table: pd.DataFrame, bad: np.ndarray) -> str:
    row = int(bad.argmax())
    found = table.iloc[row]
    return f"{row + 1} (query {found['query_id']!r}, {found['setting']}, {found['direction']})"
