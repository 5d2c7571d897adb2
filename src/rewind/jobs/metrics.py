"""From similarities to ranks and metrics, and the rank tables of a study's runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from rewind.datasets.captions import load_split
from rewind.errors import RewindError
from rewind.evaluation import ranking
from rewind.evaluation.settings import left_out
from rewind.files import write_csv, write_parquet
from rewind.jobs.given import Given
from rewind.statistics.blocks import Runs, check_ranks

Run = tuple[str, int]
"""Method and seed."""


def metrics(given: Given) -> None:
    """Rule ``metrics``."""
    params = given.params
    runs = [(method, seed) for method, seed in params.runs]
    similarity = dict(zip(runs, given.input.similarity, strict=True))
    folder, output = Path(given.input.item_table).parent, given.output
    compute_metrics(folder, params.dataset, params.settings, params.directions, similarity, output.ranks, output.table)


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
    if "binary" in settings and (count := left_out(captions, items)):
        print(f"binary: {count:,} captions are not used as queries: the twin of their clip has no caption")
    rows = []
    for (method, seed), path in similarity.items():
        with np.load(path, allow_pickle=False) as archive:
            scores, queries, gallery = archive["similarity"], archive["query_ids"], archive["item_ids"]
        run_captions = captions.set_index("caption_id", drop=False).loc[queries]
        run_items = items.set_index("item_id", drop=False).loc[gallery]
        found = ranking.rank_table(scores, run_captions, run_items, settings, directions, path)
        write_parquet(ranks_path(ranks, method, seed), found)
        for (setting, direction), part in found.groupby(["setting", "direction"], sort=False):
            place = {"method": method, "seed": seed, "setting": setting, "direction": direction}
            rows.append(place | ranking.metrics(part))
    write_csv(table, pd.DataFrame(rows))


def ranks_path(folder: str, method: str, seed: int) -> Path:
    """The rank table of a run."""
    return Path(folder) / method / f"seed{seed}.parquet"


def read_ranks(runs: list[Run], folder: str) -> Runs:
    """Rank tables of all runs, by method and seed.

    Raises:
        RewindError: naming the file and row of a run that is missing or broken.
    """
    tables: Runs = {}
    for method, seed in runs:
        path = ranks_path(folder, method, seed)
        if not path.is_file():
            raise RewindError(f"{path}: the ranks of method {method!r}, seed {seed} are missing; evaluate it first.")
        table = pd.read_parquet(path)
        check_ranks(table, str(path))
        tables.setdefault(method, {})[seed] = table
    return tables
