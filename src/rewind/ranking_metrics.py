"""Retrieval metrics: the registry that configuration, ``metrics.csv``, statistics, tables and figures read.

A query has ``higher`` items scored above its true item and ``ties`` other items with an equal score. If tied items
are ordered at random, the true item has each rank from ``higher + 1`` to ``higher + ties + 1`` with equal
probability. Most metrics define what one rank is *worth*: the value of a query is its expectation, the value of a
run the mean over queries. The others, such as the median rank, are properties of a whole run.

Validation during training computes its scores from the functions below and not from the registry
(``rewind.evaluation.ranking.validation_scores``), so that adding a metric does not make trained models stale. To add a
metric, see docs/add-a-metric.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

ROUNDING_TOLERANCE = 1e-9  # sums of 1 / (ties + 1) reach exactly one half only up to rounding

# ---- The worth of a rank, and statistics of a run's ranks ----------------------------------------------------------

Worth = Callable[[np.ndarray], np.ndarray]
"""Ranks from 1, of any shape → what each is worth."""


def expected_worth(worth: Worth, higher: np.ndarray, ties: np.ndarray) -> np.ndarray:
    """The expected worth of each query's rank: the mean of ``worth`` over the ranks that its true item may have.

    It is (W(higher + ties + 1) − W(higher)) / (ties + 1), with W(r) the sum of the worths of ranks 1 to r. ``higher``
    and ``ties`` count other items above and at the true item's score; they have one shape.

    >>> expected_worth(reciprocal_rank, np.array([0, 1]), np.array([0, 1])).round(3).tolist()
    [1.0, 0.417]
    """
    last = np.asarray(higher + ties + 1, dtype=int)
    # Worths are computed once for all ranks and summed up; each query takes a difference of two sums.
    summed = np.concatenate([[0.0], np.cumsum(worth(np.arange(1, last.max(initial=0) + 1)))])
    return (summed[last] - summed[np.asarray(higher, dtype=int)]) / (ties + 1)


def hits(k: int) -> Worth:
    """Worth 1 for ranks up to k, else 0: its mean is recall at k, as every query has one answer.

    >>> hits(5)(np.array([1, 5, 6])).tolist()
    [True, True, False]
    """
    return lambda ranks: ranks <= k


def recall_at(k: np.ndarray | int, higher: np.ndarray, ties: np.ndarray) -> np.ndarray:
    """The expected worth of :func:`hits` in closed form, for many k at once: ``k`` broadcasts against the counts.

    >>> recall_at(np.array([1, 2, 3]), np.array(1), np.array(1)).tolist()
    [0.0, 0.5, 1.0]
    """
    return np.clip((k - higher) / (ties + 1), 0, 1)


def reciprocal_rank(ranks: np.ndarray) -> np.ndarray:
    """Worth 1 / rank."""
    return 1 / ranks


def median_rank_with_ties(higher: np.ndarray, ties: np.ndarray) -> float:
    """Median rank over queries and over the orders that tied items can be put in, all equally likely.

    It is the smallest r with R@r ≥ ½; where that is exactly ½, the mean of r and the next rank that occurs. Without
    ties it is the usual median. It is not computed from expected ranks: a query whose true item ties with one other is
    first or second, never 1.5th. To pool the queries of several seeds, give counts of shape (seeds, queries).

    >>> median_rank_with_ties(np.array([0, 2, 9]), np.array([0, 0, 0]))
    3.0
    >>> median_rank_with_ties(np.array([0]), np.array([1]))
    1.5
    """
    higher, ties = (np.asarray(counts, dtype=int).ravel() for counts in (higher, ties))
    last = int((higher + ties).max()) + 1
    # Each query spreads a weight of 1 evenly over its ranks: add its share where they begin, subtract it behind the
    # last one, and sum up.
    weight = 1 / (ties + 1)
    change = np.bincount(higher, weight, last + 1) - np.bincount(higher + ties + 1, weight, last + 1)
    mass = np.cumsum(change)[:last]  # expected number of queries at each rank from 1
    reached = np.cumsum(mass) / len(higher)
    first = int((reached >= 0.5 - ROUNDING_TOLERANCE).argmax())
    following = int((reached > 0.5 + ROUNDING_TOLERANCE).argmax())
    return 1 + (first + following) / 2


def third_quartile_rank(higher: np.ndarray, ties: np.ndarray) -> float:
    """Third quartile (75th percentile) of the expected ranks 1 + higher + ties / 2."""
    return float(np.percentile(1 + higher + ties / 2, 75))


# ---- Metrics and their registry ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MetricUnit:
    """The unit of a metric's values.

    >>> RANKS.range(gallery=1000)
    (1.0, 1000.0)
    """

    said: str  # in words, written after names of metrics: "in percent"
    scale: int  # factor from worths to values
    least: float  # smallest worth of a query
    most: float | None  # largest worth; None: the size of the gallery
    digits: int  # decimals in tables

    def range(self, gallery: int) -> tuple[float, float]:
        """Smallest and largest worth of a query that searches a gallery of this size."""
        return self.least, float(gallery) if self.most is None else self.most


PERCENT = MetricUnit("in percent", 100, 0.0, 1.0, 1)
FRACTION = MetricUnit("from 0 to 1", 1, 0.0, 1.0, 3)
RANKS = MetricUnit("in ranks", 1, 1.0, None, 1)


@dataclass(frozen=True)
class Metric:
    """A metric; either ``worth`` or ``of_run`` is given.

    Attributes:
        name: in configuration keys, columns and files; without blanks and ``_``.
        sentence: what it is, in the notes below tables; metrics of one family share theirs.
        worth: of a query's rank. Such a metric is a mean over queries: it has intervals and is tested, by Wilson's
            interval and Student's t on its unit's range.
        of_run: (n,) higher and ties of a run's queries → its value. It is not tested.
        pooled: for a metric with ``of_run``: several seeds' queries are pooled, and it has an interval; this is
            implemented for the median rank only.
        skewed: its values have a long right tail, so Hall's interval is used.
        bounds: ``metrics.csv`` also has ``<name>_optimistic`` and ``<name>_pessimistic``, where ties count as won or
            as lost.
        usual: shown in the appendix of runs even where the study's tables do not show it.
        family: what notes call the metrics of its kind, for example ``R@k``; its name if empty.

    >>> metric = METRICS["R@1"]
    >>> metric.value(higher=np.array([0, 0, 3]), ties=np.array([0, 1, 0]))
    50.0
    >>> metric.per_query(np.array([0, 0, 3]), np.array([0, 1, 0])).tolist()
    [100.0, 50.0, 0.0]
    """

    name: str
    sentence: str
    unit: MetricUnit
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

    def worth_of(self, ranks: np.ndarray) -> np.ndarray:
        """What each rank is worth; only for metrics with ``worth``."""
        assert self.worth is not None  # others are not tested, and have an ``of_run``
        return self.worth(ranks)

    def per_query(self, higher: np.ndarray, ties: np.ndarray) -> np.ndarray:
        """The values of queries, in the metric's unit and the shape of the counts; only for metrics with ``worth``."""
        return self.unit.scale * expected_worth(self.worth_of, higher, ties)

    def value(self, higher: np.ndarray, ties: np.ndarray) -> float:
        """The value of a run, from the counts of its queries."""
        if self.of_run is not None:
            return self.of_run(higher, ties)
        return self.unit.scale * float(expected_worth(self.worth_of, higher, ties).mean())

    def range(self, gallery: int) -> tuple[float, float]:
        """Smallest and largest value in a gallery of this size, in the metric's unit."""
        least, most = self.unit.range(gallery)
        return self.unit.scale * least, self.unit.scale * most


def metric_family(cutoffs: Iterable[int], make_metric: Callable[[int], Metric]) -> list[Metric]:
    """Metrics that differ only in their cut-off k."""
    return [make_metric(k) for k in cutoffs]


def metrics_by_name(*entries: Metric) -> dict[str, Metric]:
    """Entries by name, in order.

    Raises:
        ValueError: for a name that is listed twice, is empty or has a blank or ``_``; an entry with neither or both of
            ``worth`` and ``of_run``; or a pooled metric other than the median rank.
    """
    registry: dict[str, Metric] = {}
    for entry in entries:
        if entry.name in registry or not entry.name or any(sign in entry.name for sign in " _"):
            raise ValueError(f"metric {entry.name!r}: a name is there once, without blank and `_`")
        if (entry.worth is None) == (entry.of_run is None):
            raise ValueError(f"metric {entry.name}: give worth (of a rank) or of_run (of all queries), one of the two")
        if entry.pooled and entry.of_run is not median_rank_with_ties:
            raise ValueError(f"metric {entry.name}: intervals of pooled queries are implemented for the median alone")
        registry[entry.name] = entry
    return registry


METRICS: dict[str, Metric] = metrics_by_name(
    *metric_family(
        (1, 5, 10),
        lambda k: Metric(f"R@{k}", "R@k in percent", PERCENT, hits(k), bounds=True, usual=True, family="R@k"),
    ),
    Metric(
        "MdR",
        "MdR is the median rank",
        RANKS,
        of_run=median_rank_with_ties,
        pooled=True,
        lower_is_better=True,
        usual=True,
    ),
    Metric(
        "P75",
        "P75 is the third quartile of the ranks",
        RANKS,
        of_run=third_quartile_rank,
        lower_is_better=True,
    ),
    Metric("MnR", "MnR is the mean rank", RANKS, lambda ranks: ranks, lower_is_better=True, skewed=True, usual=True),
    Metric("MRR", "MRR is the mean reciprocal rank", FRACTION, reciprocal_rank, usual=True),
    # A query has one answer, so the ideal DCG is 1 and DCG needs no normalising (Järvelin and Kekäläinen, 2002; the
    # discount 1/log₂(1 + rank) is that of Burges et al., 2005, and of trec_eval).
    *metric_family(
        (10,),
        lambda k: Metric(
            f"nDCG@{k}",
            "nDCG@k is the mean of 1/log₂(1 + rank) of the ranks up to k, and of 0 beyond",
            FRACTION,
            lambda ranks: (ranks <= k) / np.log2(1 + ranks),
            family="nDCG@k",
        ),
    ),
)
"""Name → entry, in the order of files and messages; a study's own (``metrics``) follow, see :func:`add_metric`."""


def add_metric(entry: Metric) -> None:
    """Make a metric known to this process, after the known ones.

    Raises:
        ValueError: for what :func:`metrics_by_name` refuses, or another metric of this name.
    """
    known = METRICS.get(entry.name)
    if known is not None and known is not entry:
        raise ValueError(f"metric {entry.name!r}: another metric has this name")
    METRICS.update(metrics_by_name(entry))


def tested_metrics() -> tuple[str, ...]:
    """Names of the metrics in which pairs of methods are compared.

    >>> tested_metrics()
    ('R@1', 'R@5', 'R@10', 'MnR', 'MRR', 'nDCG@10')
    """
    return tuple(name for name, entry in METRICS.items() if entry.tested)


def metrics_with_interval() -> tuple[str, ...]:
    """Names of the metrics that have an interval: those that are tested, and the median rank."""
    return tuple(name for name, entry in METRICS.items() if entry.interval)


MEDIAN_RANK_METRIC = next(name for name, entry in METRICS.items() if entry.pooled)
ACCURACY_METRIC = "R@1"
"""The accuracy of Binary, whose galleries have two items."""
BINARY_GALLERY = 2
"""Candidates of every query in Binary: a clip and its twin, or their two captions."""
CHANCE_ACCURACY = 100 / BINARY_GALLERY
"""Chance level of Binary, an accuracy in percent: 50, as there are two candidates.

A method that cannot tell a clip from its twin scores both the same; metrics are expectations over the order of ties, so
its accuracy is exactly this. In other settings chance is a method of the study (``model: chance``), whose numbers come
from its ties too: no other formula computes it.
"""
STRICT_ACCURACY_COLUMN = f"{ACCURACY_METRIC}_pessimistic"
"""Accuracy with ties counted as lost."""


def metric_of_column(column: str) -> Metric:
    """The metric of a column of ``metrics.csv``, whose bounds under ties have columns too.

    >>> metric_of_column("R@5_pessimistic").name
    'R@5'
    """
    return METRICS[column.partition("_")[0]]
