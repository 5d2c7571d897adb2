"""The median rank: of all seeds' queries pooled, its interval by inversion (Woodruff, 1952).

A median of whole numbers has no useful standard error, so it is not tested.
"""

from __future__ import annotations

import numpy as np

from rewind.metrics import ROUNDING, median_of, recall_at
from rewind.statistics.inference import one
from rewind.statistics.parts import Clusters, parts

BLOCK = 64  # cut-offs looked at together
_HALF = 0.5 - ROUNDING


def median_rank(
    higher: np.ndarray, ties: np.ndarray, clusters: Clusters, confidence: float, fixed: bool = False
) -> tuple[float, float, float]:
    """Median rank with the ends of its interval.

    Args:
        higher, ties: (S, Q) of all seeds.
        clusters: of the queries.
        confidence: of the interval.
        fixed: as for :func:`rewind.statistics.parts.parts`.

    Returns:
        The pooled median (:func:`rewind.metrics.median_of`); the smallest r where the upper, and where the
        lower, end of the interval of R@r is ≥ ½. An end that no r reaches (few clusters) is NaN.
    """
    last = int((higher + ties).max()) + 1
    found: list[float | None] = [None, None]
    for start in range(1, last + 1, BLOCK):
        cutoffs = np.arange(start, min(start + BLOCK, last + 1))
        hits = recall_at(cutoffs[:, None, None], higher[None], ties[None])
        shares = one(parts(clusters.totals(hits), clusters.sizes, fixed), confidence, least=0, most=1)
        for place, share in enumerate((shares.high, shares.low)):
            reached = share >= _HALF
            if found[place] is None and reached.any():
                found[place] = float(cutoffs[reached.argmax()])
        if None not in found:
            break
    low, high = (np.nan if value is None else value for value in found)
    return median_of(higher, ties), low, high
