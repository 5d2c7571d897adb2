"""Ranks and metrics of several runs, as the rules ``ranks`` and ``metrics`` make them one after the other."""

from __future__ import annotations

from pathlib import Path

from rewind.evaluation.run_metrics import compute_ranks, join_metrics
from rewind.statistics.rank_files import ranks_path


def evaluate(folder, dataset, settings, directions, similarity, ranks, table) -> None:
    """``similarity``: (method, seed) → its matrix; ``ranks``: folder of rank tables; ``table``: of all metrics."""
    said = {}
    for run, path in similarity.items():
        result = ranks_path(ranks, *run)
        said[run] = str(result.with_suffix(".json"))
        compute_ranks(Path(folder), dataset, settings, directions, path, str(result), said[run])
    join_metrics(said, settings, table)
