"""Zero-shot classification: a row for each run, an interval for each method."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rewind.errors import RewindError
from rewind.files import write_csv
from rewind.jobs.ranks import Run
from rewind.statistics.accuracy import accuracy_interval
from rewind.study.zero_shot import ZeroShot


def join_zero_shot(
    runs: dict[Run, str], keys: ZeroShot, confidence: float, fixed: list[str], rows: str, intervals: str
) -> None:
    """One row per run, and one per method with its interval over training seeds and images (of ``fixed``: images).

    Raises:
        RewindError: if two runs classified different images.
    """
    found, digests, alike = {}, {}, {}
    for run, path in runs.items():
        with np.load(path, allow_pickle=False) as archive:
            found[run], digests[run], alike[run] = archive["credits"], str(archive["sha256"]), int(archive["alike"])
    first = next(iter(digests))
    for run, sha256 in digests.items():
        if sha256 != digests[first] or len(found[run]) != len(found[first]):
            raise RewindError(f"{runs[first]} and {runs[run]} are of different images; delete both and run again.")
    templates = keys.templates if isinstance(keys.templates, str) else "; ".join(keys.templates)
    content = {"data": keys.data, "templates": templates, "images": len(found[first])}
    table = [
        {"method": run[0], "seed": run[1]}
        | content
        | {"accuracy": 100 * credits.mean(), "alike": alike[run], "sha256": digests[run]}
        for run, credits in found.items()
    ]
    write_csv(rows, pd.DataFrame(table))
    methods = dict.fromkeys(method for method, _ in found)
    grouped = {method: np.stack([c for (m, _), c in found.items() if m == method]) for method in methods}
    most = {method: max(count for (m, _), count in alike.items() if m == method) for method in methods}
    table = [
        {"method": m} | content | {"alike": most[m]} | accuracy_interval(c, confidence, m in fixed)
        for m, c in grouped.items()
    ]
    write_csv(intervals, pd.DataFrame(table))
