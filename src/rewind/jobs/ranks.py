"""The rank tables of a study's runs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from rewind.errors import RewindError
from rewind.statistics.blocks import Runs, check_ranks

Run = tuple[str, int]
"""Method and seed."""


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
            raise RewindError(f"{path}: the ranks of method {method!r}, seed {seed} are not there; evaluate it first.")
        table = pd.read_parquet(path)
        check_ranks(table, str(path))
        tables.setdefault(method, {})[seed] = table
    return tables
