"""How alike methods, and seeds of a method, answer the same queries: from the ranks of a study."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from rewind.statistics.blocks import Block
from rewind.statistics.parts import Parts, parts
from rewind.statistics.power import query_correlation
from rewind.statistics.simulation import Design


class Likeness(NamedTuple):
    """What the ranks of a study say on R@1.

    Attributes:
        disagreement: percent of queries on which two seeds of a method differ.
        alike: the latent correlation of ``simulation`` of each pair of methods, ascending; empty where it cannot be
            told.
    """

    disagreement: float
    alike: tuple[float, ...]


def likeness(block: Block, cluster: float) -> Likeness | None:
    """From every method of a block that has two seeds or more; None without one.

    What two methods share of the queries is what is left of their query parts when seed noise is taken out of both:
    1 − (query part of the difference) / (sum of the two query parts). The model turns this correlation of hits into
    one of latent values.

    Args:
        block: the ranks in one setting and direction.
        cluster: queries of a cluster.
    """
    hits = {name: block.values(name, "R@1") / 100 for name, runs in block.higher.items() if len(runs) > 1}
    if not hits:
        return None
    found = {name: parts(block.clusters.totals(own), block.clusters.sizes) for name, own in hits.items()}
    apart = float(np.mean([_apart(own) for own in hits.values()]))
    r1 = 100 * float(np.mean([part.mean for part in found.values()]))
    if not 0 < r1 < 100:
        return Likeness(100 * apart, ())
    design = Design(queries=len(block.queries), cluster=cluster, r1=r1).disagreeing_by(100 * apart)
    values = []
    for first, second in combinations(found.values(), 2):
        both = _query_part(first) + _query_part(second)
        if both > 0:
            values.append(_latent(1 - _query_part(first, second) / both, design))
    return Likeness(100 * apart, tuple(sorted(values)))


def _apart(hits: np.ndarray) -> float:
    """Share of queries on which two seeds differ, (S, Q) hits; a tie differs by a part."""
    pairs = combinations(range(len(hits)), 2)
    return float(np.mean([np.abs(hits[a] - hits[b]).mean() for a, b in pairs]))


def _query_part(first: Parts, second: Parts | None = None) -> float:
    """max(B − E, 0) of one method, or of the difference of two."""
    residuals = first.residuals if second is None else first.residuals - second.residuals
    overlap = first.overlap if second is None else first.overlap + second.overlap
    clusters = residuals.shape[-1]
    return max(0.0, float(np.square(residuals).sum() / (clusters * max(clusters - 1, 1)) - overlap))


def _latent(correlation: float, design: Design) -> float:
    """``alike`` at which two methods' hits correlate so over clusters."""
    if correlation >= query_correlation(design, 1.0):
        return 1.0
    if correlation <= 0:
        return 0.0
    return float(brentq(lambda alike: query_correlation(design, alike) - correlation, 0.0, 1.0, xtol=1e-4))
