"""The median rank: its estimate from all seeds' ranks pooled, its interval by inversion (Woodruff, 1952).

A median of whole numbers has no useful standard error, so it is not tested.
"""

from __future__ import annotations

import numpy as np

from rewind.evaluation.ranking import recall_at
from rewind.statistics.inference import one
from rewind.statistics.parts import Clusters, parts

BLOCK = 64  # cut-offs looked at together
_HALF = 0.5 - 1e-9  # a share of exactly one half may be rounded below it


def median_rank(
    higher: np.ndarray, ties: np.ndarray, clusters: Clusters, confidence: float
) -> tuple[float, float, float]:
    """Median rank with the ends of its interval.

    Args:
        higher, ties: (S, Q) of all seeds.
        clusters: of the queries.
        confidence: of the interval.

    Returns:
        The smallest r with pooled R@r ≥ ½; the smallest r where the upper, and where the lower, end of the interval
        of R@r is ≥ ½. With one cluster the ends are NaN.
    """
    last = int((higher + ties).max()) + 1
    found: list[float | None] = [None, None, None]
    for start in range(1, last + 1, BLOCK):
        cutoffs = np.arange(start, min(start + BLOCK, last + 1))
        hits = recall_at(cutoffs[:, None, None], higher[None], ties[None])
        shares = one(parts(clusters.totals(hits), clusters.sizes), confidence)
        for place, share in enumerate((shares.estimate, shares.high, shares.low)):
            reached = share >= _HALF
            if found[place] is None and reached.any():
                found[place] = float(cutoffs[reached.argmax()])
        if None not in found:
            break
    estimate, low, high = (np.nan if value is None else value for value in found)
    return estimate, low, high
