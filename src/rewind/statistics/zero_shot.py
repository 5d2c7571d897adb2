"""Zero-shot accuracies of all runs: a row per run, an interval per method."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rewind.config.evaluation import ZeroShot
from rewind.config.study import RunKey
from rewind.errors import RewindError
from rewind.io.files import reading_user_file, write_csv
from rewind.statistics.pairs import accuracy_interval


def join_zero_shot(
    runs: dict[RunKey, str], keys: ZeroShot, confidence: float, fixed: list[str], run_table: str, intervals: str
) -> dict[str, np.ndarray]:
    """Write one row per run, and one per method with its interval over seeds and images (for ``fixed``: over images).

    Returns:
        Method → credit of every image in every seed, (S, n).

    Raises:
        RewindError: if two runs classified different images.
    """
    credits_of_run, digests, alike = {}, {}, {}
    for run, path in runs.items():
        with reading_user_file(path, "npz", "run again"), np.load(path, allow_pickle=False) as archive:
            credits_of_run[run], digests[run], alike[run] = (
                archive["credits"],
                str(archive["sha256"]),
                int(archive["alike"]),
            )
    first = next(iter(digests))
    for run, sha256 in digests.items():
        if sha256 != digests[first] or len(credits_of_run[run]) != len(credits_of_run[first]):
            raise RewindError(f"{runs[first]} and {runs[run]} are of different images; delete both and run again.")
    templates = keys.templates if isinstance(keys.templates, str) else "; ".join(keys.templates)
    content = {"data": keys.data, "templates": templates, "images": len(credits_of_run[first])}
    table = [
        {"method": run[0], "seed": run[1]}
        | content
        | {"accuracy": 100 * credits.mean(), "alike": alike[run], "sha256": digests[run]}
        for run, credits in credits_of_run.items()
    ]
    write_csv(run_table, pd.DataFrame(table))
    methods = dict.fromkeys(method for method, _ in credits_of_run)
    grouped = {method: np.stack([c for (m, _), c in credits_of_run.items() if m == method]) for method in methods}
    max_alike = {method: max(count for (m, _), count in alike.items() if m == method) for method in methods}
    table = [
        {"method": m} | content | {"alike": max_alike[m]} | accuracy_interval(c, confidence, m in fixed)
        for m, c in grouped.items()
    ]
    write_csv(intervals, pd.DataFrame(table))
    return grouped
