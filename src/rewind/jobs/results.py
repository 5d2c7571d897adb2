"""From similarities to numbers: ranks and metrics, statistics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from rewind.datasets.captions import load_split
from rewind.evaluation.ranking import metrics, rank_table
from rewind.files import write_csv, write_parquet
from rewind.statistics.comparisons import Runs, compare
from rewind.study.model import Statistics

Run = tuple[str, int]
"""Method and seed."""


def compute_metrics(
    folder: Path,
    dataset: str,
    settings: list[str],
    directions: list[str],
    similarity: dict[Run, str],
    ranks: str,
    table: str,
) -> None:
    """Ranks of every run (``<ranks>/<method>/seed<k>.parquet``) and one table of all metrics."""
    items, captions, _ = load_split(folder, dataset, "test")
    rows = []
    for (method, seed), path in similarity.items():
        with np.load(path, allow_pickle=False) as archive:
            scores, queries, gallery = archive["similarity"], archive["query_ids"], archive["item_ids"]
        run_captions = captions.set_index("caption_id", drop=False).loc[queries]
        run_items = items.set_index("item_id", drop=False).loc[gallery]
        found = rank_table(scores, run_captions, run_items, settings, directions, path)
        write_parquet(ranks_path(ranks, method, seed), found)
        for (setting, direction), part in found.groupby(["setting", "direction"], sort=False):
            place = {"method": method, "seed": seed, "setting": setting, "direction": direction}
            rows.append(place | metrics(part))
    write_csv(table, pd.DataFrame(rows))


def compute_statistics(
    runs: list[Run], ranks: str, pairs: list[tuple[str, str]], keys: Statistics, intervals: str, differences: str
) -> None:
    """Intervals of every method and comparisons of every declared pair."""
    per_method, per_pair = compare(read_ranks(runs, ranks), pairs, keys)
    write_csv(intervals, per_method)
    write_csv(differences, per_pair)


def ranks_path(folder: str, method: str, seed: int) -> Path:
    """The rank table of a run."""
    return Path(folder) / method / f"seed{seed}.parquet"


def read_ranks(runs: list[Run], folder: str) -> Runs:
    """Rank tables of all runs, by method and seed."""
    tables: Runs = {}
    for method, seed in runs:
        tables.setdefault(method, {})[seed] = pd.read_parquet(ranks_path(folder, method, seed))
    return tables
