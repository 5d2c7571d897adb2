"""Ranks of queries as the statistics read them."""

from __future__ import annotations

import numpy as np
import pandas as pd


def ranks(higher, clusters=None, setting="test", ties=0):
    higher = np.asarray(higher)
    n = len(higher)
    table = pd.DataFrame(
        {
            "query_id": [f"q{i:04}" for i in range(n)],
            "setting": setting,
            "direction": "text_to_item",
            "higher": higher,
            "ties": ties,
            "cluster_id": [f"c{i // 2:04}" for i in range(n)] if clusters is None else clusters,
            "gallery": n,
        }
    )
    return table.assign(rank=1 + table["higher"] + table["ties"] / 2)
