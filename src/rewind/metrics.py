"""Every metric, one entry each. Keys, ``metrics.csv``, statistics, tables, their notes and pictures read it from here.

A query has ``higher`` items scored above its truth and ``ties`` other items scored equal to it. Under a random order of
the tied items its truth stands at each rank from ``higher + 1`` to ``higher + ties + 1`` equally often. Most metrics
say what one rank is *worth*: the value of a query is what it expects, that of a run the mean over queries. The others
are of a run as a whole, like a median.

Validation computes its scores from the functions below and not from the entries (``rewind.evaluation.ranking.scores``),
so that a further entry trains nothing again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

ROUNDING = 1e-9  # a share of exactly one half may be rounded
Worth = Callable[[np.ndarray], np.ndarray]
"""Ranks from 1, of any shape → what each is worth."""


def expected(worth: Worth, higher: np.ndarray, ties: np.ndarray) -> np.ndarray:
    """What each query's rank is worth: the mean over the places that its truth may have; counts of one shape."""
    last = np.asarray(higher + ties + 1, dtype=int)
    summed = np.concatenate([[0.0], np.cumsum(worth(np.arange(1, last.max(initial=0) + 1)))])
    return (summed[last] - summed[np.asarray(higher, dtype=int)]) / (ties + 1)


def hits(k: int) -> Worth:
    """1 among the first k, else 0: recall at k, as a query has one answer."""
    return lambda ranks: ranks <= k


def recall_at(k: np.ndarray | int, higher: np.ndarray, ties: np.ndarray) -> np.ndarray:
    """What :func:`hits` expects, in closed form: for many k at once."""
    return np.clip((k - higher) / (ties + 1), 0, 1)


def reciprocal(ranks: np.ndarray) -> np.ndarray:
    """1 at the first rank, 1/2 at the second, …"""
    return 1 / ranks


def median_of(higher: np.ndarray, ties: np.ndarray) -> float:
    """Median rank over queries and over the orders that tied items can be put in, all equally likely.

    Without ties it is the usual median. It is no mean of expected ranks: a query that ties two items is first or
    second, never 1.5th.

    Args:
        higher, ties: of any shape; several seeds' queries are pooled.

    Returns:
        The smallest r with R@r ≥ ½; where that is exactly ½, the mean of r and the next rank that occurs.
    """
    higher, ties = (np.asarray(part, dtype=int).ravel() for part in (higher, ties))
    last = int((higher + ties).max()) + 1
    weight = 1 / (ties + 1)
    change = np.bincount(higher, weight, last + 1) - np.bincount(higher + ties + 1, weight, last + 1)
    mass = np.cumsum(change)[:last]  # expected number of queries at each rank from 1
    reached = np.cumsum(mass) / len(higher)
    first = int((reached >= 0.5 - ROUNDING).argmax())
    following = int((reached > 0.5 + ROUNDING).argmax())
    return 1 + (first + following) / 2


def third_quartile(higher: np.ndarray, ties: np.ndarray) -> float:
    """Third quartile of expected ranks."""
    return float(np.percentile(1 + higher + ties / 2, 75))


@dataclass(frozen=True)
class Unit:
    """What values are counted in.

    Attributes:
        said: after names of metrics, for example ``in percent``.
        scale: what worths are multiplied by.
        least, most: worth of a query; ``most`` None: the size of the gallery.
        digits: after the point, in tables.
    """

    said: str
    scale: int
    least: float
    most: float | None
    digits: int

    def range(self, gallery: int) -> tuple[float, float]:
        """Least and greatest worth of a query that searches a gallery of this size."""
        return self.least, float(gallery) if self.most is None else self.most


PERCENT = Unit("in percent", 100, 0.0, 1.0, 1)
SHARE = Unit("from 0 to 1", 1, 0.0, 1.0, 3)
RANKS = Unit("in ranks", 1, 1.0, None, 1)


@dataclass(frozen=True)
class Metric:
    """A metric; either ``worth`` or ``of_run`` is given.

    Attributes:
        name: in keys, columns and files; no blank, no ``_``.
        sentence: what it is, in the notes below tables; those of a family have one.
        unit: of its values.
        worth: of a query's rank. Such a metric is a mean over queries: it has intervals and is tested, by Wilson's
            interval and Student's t on its unit's range.
        of_run: (n,) higher and ties of a run's queries → its value. It is not tested.
        pooled: of one with ``of_run``: several seeds' queries are taken together, and there is an interval; that is
            implemented for the median rank.
        lower_is_better: arrows, letters and effects follow it.
        skewed: its values have a long tail to the right, so Hall's interval is used.
        bounds: ``metrics.csv`` also has ``<name>_optimistic`` and ``<name>_pessimistic``, where ties count as won or
            as lost.
        usual: in the appendix of runs even where the study's tables do not show it.
        family: what notes call it and its kind, for example ``R@k``; its name if empty.
    """

    name: str
    sentence: str
    unit: Unit
    worth: Worth | None = None
    of_run: Callable[[np.ndarray, np.ndarray], float] | None = None
    pooled: bool = False
    lower_is_better: bool = False
    skewed: bool = False
    bounds: bool = False
    usual: bool = False
    family: str = ""

    @property
    def tested(self) -> bool:
        """Whether pairs of methods are compared in it."""
        return self.worth is not None

    @property
    def interval(self) -> bool:
        """Whether it has an interval."""
        return self.tested or self.pooled

    @property
    def percent(self) -> bool:
        """Whether differences are points of a percentage."""
        return self.unit is PERCENT

    def per_query(self, higher: np.ndarray, ties: np.ndarray) -> np.ndarray:
        """Values of queries in this unit, of the shape of the counts; for metrics that are tested."""
        return self.unit.scale * expected(self.worth, higher, ties)

    def value(self, higher: np.ndarray, ties: np.ndarray) -> float:
        """The value of a run, from its queries' counts."""
        if self.of_run is not None:
            return self.of_run(higher, ties)
        return self.unit.scale * float(expected(self.worth, higher, ties).mean())

    def range(self, gallery: int) -> tuple[float, float]:
        """Least and greatest value in this unit."""
        least, most = self.unit.range(gallery)
        return self.unit.scale * least, self.unit.scale * most


def each(cutoffs: Iterable[int], made: Callable[[int], Metric]) -> list[Metric]:
    """A family: one entry for several cut-offs."""
    return [made(k) for k in cutoffs]


def by_name(*entries: Metric) -> dict[str, Metric]:
    """Entries by name, in order.

    Raises:
        ValueError: for a name that is there twice or cannot be one, an entry with neither or both of ``worth`` and
            ``of_run``, or one that nobody can pool.
    """
    found: dict[str, Metric] = {}
    for entry in entries:
        if entry.name in found or not entry.name or any(sign in entry.name for sign in " _"):
            raise ValueError(f"metric {entry.name!r}: a name is there once, without blank and `_`")
        if (entry.worth is None) == (entry.of_run is None):
            raise ValueError(f"metric {entry.name}: give worth (of a rank) or of_run (of all queries), one of the two")
        if entry.pooled and entry.of_run is not median_of:
            raise ValueError(f"metric {entry.name}: intervals of pooled queries are implemented for the median alone")
        found[entry.name] = entry
    return found


METRICS = by_name(
    *each(
        (1, 5, 10),
        lambda k: Metric(f"R@{k}", "R@k in percent", PERCENT, hits(k), bounds=True, usual=True, family="R@k"),
    ),
    Metric("MdR", "MdR is the median rank", RANKS, of_run=median_of, pooled=True, lower_is_better=True, usual=True),
    Metric(
        "P75",
        "P75 is the third quartile of the ranks",
        RANKS,
        of_run=third_quartile,
        lower_is_better=True,
    ),
    Metric("MnR", "MnR is the mean rank", RANKS, lambda ranks: ranks, lower_is_better=True, skewed=True, usual=True),
    Metric("MRR", "MRR is the mean reciprocal rank", SHARE, reciprocal, usual=True),
    # A query has one answer, so the best ranking is worth 1 and nothing is left to divide by (Järvelin and Kekäläinen,
    # 2002, with the discount of Burges et al., 2005, as trec_eval has it).
    *each(
        (10,),
        lambda k: Metric(
            f"nDCG@{k}",
            "nDCG@k is the mean of 1/log₂(1 + rank) of the ranks up to k, and of 0 beyond",
            SHARE,
            lambda ranks: (ranks <= k) / np.log2(1 + ranks),
            family="nDCG@k",
        ),
    ),
)
"""Name → entry, in the order of files and messages."""

TESTED = tuple(name for name, entry in METRICS.items() if entry.tested)
ESTIMATED = tuple(name for name, entry in METRICS.items() if entry.interval)
"""Those with an interval."""
MEDIAN = next(name for name, entry in METRICS.items() if entry.pooled)
ACCURACY = "R@1"
"""What accuracy is in Binary, whose gallery has two items."""
STRICT = f"{ACCURACY}_pessimistic"
"""Accuracy with ties counted as lost."""


def known(column: str) -> Metric:
    """The entry of a column of ``metrics.csv``, bounds under ties included."""
    return METRICS[column.partition("_")[0]]
