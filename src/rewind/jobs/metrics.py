"""From similarities to ranks and metrics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from rewind.datasets.captions import load_split
from rewind.evaluation.ranking import metrics, rank_table
from rewind.evaluation.settings import left_out
from rewind.files import write_csv, write_parquet

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
    if "binary" in settings and (count := left_out(captions, items)):
        print(f"binary: {count:,} captions of clips whose twin has no caption are not asked")
    rows = []
    for (method, seed), path in similarity.items():
        with np.load(path, allow_pickle=False) as archive:
            scores, queries, gallery = archive["similarity"], archive["query_ids"], archive["item_ids"]
        run_captions = captions.set_index("caption_id", drop=False).loc[queries]
        run_items = items.set_index("item_id", drop=False).loc[gallery]
        found = rank_table(scores, run_captions, run_items, settings, directions, path)
        write_parquet(Path(ranks) / method / f"seed{seed}.parquet", found)
        for (setting, direction), part in found.groupby(["setting", "direction"], sort=False):
            place = {"method": method, "seed": seed, "setting": setting, "direction": direction}
            rows.append(place | metrics(part))
    write_csv(table, pd.DataFrame(rows))
