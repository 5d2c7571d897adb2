"""The numbers of a study: checks, significance marks, ranks and the order of methods.

Every table and figure reads them from :class:`Results`. Nothing is printed before :func:`check_results` has found the
metrics, intervals, pairs and gaps complete and consistent with each other. R@k and accuracy are in percent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from rewind.config.report import RANK_COLUMN, SEARCH_DIRECTIONS, Tables, Verdict, split_column
from rewind.errors import RewindError
from rewind.ranking_metrics import (
    ACCURACY_METRIC,
    CHANCE_ACCURACY,
    STRICT_ACCURACY_COLUMN,
    metric_of_column,
    metrics_with_interval,
)
from rewind.statistics.inference import significance_level
from rewind.tables.table import Cell, RowGroup

# ---- Chance in Binary: marks above or below it, and methods that tie every clip with its twin -----------------------

ABOVE_CHANCE, BELOW_CHANCE = "*", "†"


def chance_mark(estimate: float, p_holm: float, level: float) -> str:
    """``*`` significantly above chance, ``†`` below it, empty otherwise (also where nothing was tested).

    Example:
        >>> chance_mark(62.0, 0.01, level=0.05), chance_mark(38.0, 0.01, level=0.05), chance_mark(62.0, 0.2, level=0.05)
        ('*', '†', '')
    """
    if not p_holm < level:  # NaN too
        return ""
    return ABOVE_CHANCE if estimate > CHANCE_ACCURACY else BELOW_CHANCE


def ties_every_query(results: Results, method: str, direction: str) -> bool:
    """Whether a method scores every clip of Binary and its twin exactly the same, in every run.

    Strict accuracy is 0 if no query is right, and accuracy is then 50 only if all are tied. False where the method was
    not evaluated.
    """
    runs = results.runs.get((method, "binary", direction))
    return runs is not None and all_tied(runs)


def all_tied(runs: pd.DataFrame) -> bool:
    """Whether every query of Binary ties in these rows of ``metrics.csv``."""
    return bool((runs[ACCURACY_METRIC] == CHANCE_ACCURACY).all() and (runs[STRICT_ACCURACY_COLUMN] == 0).all())


# ---- Difference of two methods -------------------------------------------------------------------------------------
# A file of pairs contains each pair once; these functions change the sign where its methods are in the other order.


class Difference(NamedTuple):
    """One method minus another; ``p_holm`` is NaN where they were not tested, the others where they are not known."""

    value: float
    low: float
    high: float
    p_holm: float
    detectable: float = float("nan")
    seeds_needed: float = float("nan")
    queries_needed: float = float("nan")


def first_matching_row(table: pd.DataFrame, **values: str) -> pd.Series | None:
    """The first row with these values in its columns; None if there is none."""
    if table.empty:
        return None
    matches = np.logical_and.reduce([table[name] == value for name, value in values.items()])
    return table[matches].iloc[0] if matches.any() else None


def method_difference(table: pd.DataFrame, minuend: str, subtrahend: str, **key: str) -> Difference | None:
    """``minuend`` minus ``subtrahend``; None where they were not compared.

    ``key`` is what else identifies a row, for example the setting; the table may have ``detectable``.

    Example:
        >>> row = {"first": "a", "second": "b", "difference": 3.0, "low": 1.0, "high": 5.0, "p_holm": 0.01}
        >>> method_difference(pd.DataFrame([row]), "b", "a")
        Difference(value=-3.0, low=-5.0, high=-1.0, p_holm=0.01, detectable=nan, seeds_needed=nan, queries_needed=nan)
    """
    for first, second, sign in ((minuend, subtrahend, 1), (subtrahend, minuend, -1)):
        row = first_matching_row(table, first=first, second=second, **key)
        if row is not None:
            low, high = sorted((sign * float(row["low"]), sign * float(row["high"])))
            known = (float(row.get(name, np.nan)) for name in ("detectable", "seeds_needed", "queries_needed"))
            return Difference(sign * float(row["difference"]), low, high, float(row["p_holm"]), *known)
    return None


# ---- Significant differences within a column, and which methods may be called best ---------------------------------


@dataclass(frozen=True)
class ColumnComparison:
    """How the methods compare in one metric, setting and direction.

    The bold methods (``best``) are the one with the best value, and those that are not shown to be worse than it and
    are ahead of all that are; there are none where no method is shown to be worse. ``blind``: for each bold method but
    the best, the smallest difference to the best that the comparison could detect; with too few clusters, for every
    pair.
    """

    beats: Mapping[str, frozenset[str]] = field(default_factory=dict)  # methods that it is significantly better than
    best: frozenset[str] = frozenset()
    tested: bool = False  # whether any two methods were
    few: int | None = None  # number of clusters of queries where there are too few for letters
    blind: tuple[float, ...] = ()


MIN_CLUSTERS_FOR_LETTERS = 20
"""Least number of clusters of queries for letters: with fewer, tests err less often than their level but detect next
to nothing, and intervals of mean ranks cover the true value too rarely (benchmarks/calibration.py)."""


def compare_column(
    results: Results, setting: str, direction: str, metric: str, estimates: Mapping[str, float]
) -> ColumnComparison:
    """The comparisons of one column. Only columns of the deciding metric have letters.

    A method that was never compared with the best one is not bold. ``estimates``: every compared method's value.
    """
    if metric != results.deciding(setting):
        return ColumnComparison()
    table = tested_pairs(results, setting, direction, metric)
    if table.empty:
        return ColumnComparison()
    if table["clusters"].min() < MIN_CLUSTERS_FOR_LETTERS:
        return ColumnComparison(few=int(table["clusters"].min()), blind=tuple(table["detectable"].dropna()))
    sign = -1.0 if metric_of_column(metric).lower_is_better else 1.0
    level = significance_level(results.confidence)
    beats: dict[str, set[str]] = {}
    undecided: dict[str, set[str]] = {}
    for row in table.itertuples():
        if row.p_holm < level and row.difference != 0:
            winner, loser = (row.first, row.second) if sign * row.difference > 0 else (row.second, row.first)
            beats.setdefault(winner, set()).add(loser)
        else:
            undecided.setdefault(row.first, set()).add(row.second)
            undecided.setdefault(row.second, set()).add(row.first)
    frozen = {method: frozenset(others) for method, others in beats.items()}
    leaders, best = _best_methods(estimates, sign, frozen, undecided)
    against_leaders = table[
        (table["first"].isin(leaders) & table["second"].isin(best - leaders))
        | (table["second"].isin(leaders) & table["first"].isin(best - leaders))
    ]
    return ColumnComparison(frozen, best, len(table) > 0, blind=tuple(against_leaders["detectable"].dropna()))


def tested_pairs(results: Results, setting: str, direction: str, metric: str) -> pd.DataFrame:
    """Comparisons between methods that can have letters, as far as they have a p-value."""
    table = results.pairs
    if table.empty:
        return table
    compared = results.compared()
    here = (table["setting"] == setting) & (table["direction"] == direction) & (table["metric"] == metric)
    return table[here & table["first"].isin(compared) & table["second"].isin(compared) & table["p_holm"].notna()]


def _best_methods(
    estimates: Mapping[str, float], sign: float, beats: Mapping[str, frozenset[str]], equals: Mapping[str, set[str]]
) -> tuple[set[str], frozenset[str]]:
    """Methods with the best value, and those that are bold."""
    top = max((sign * value for value in estimates.values()), default=np.nan)
    # Means of equal values may differ in the last bit.
    leaders = {method for method, value in estimates.items() if np.isclose(sign * value, top, rtol=1e-12)}
    beaten = set().union(*(beats.get(method, ()) for method in leaders))
    if not beaten:
        return leaders, frozenset()
    undecided = set().union(*(equals.get(method, ()) for method in leaders))
    # A value behind one that is significantly worse is not significantly worse itself only because its results vary too
    # much between seeds: it is not bold.
    best_beaten = max(sign * estimates[method] for method in beaten)
    return leaders, frozenset(
        leaders | {method for method in undecided - beaten if sign * estimates[method] > best_beaten}
    )


# ---- Order and ranks of methods, and the notes that explain them or say why there are none -------------------------

BEST_FIRST = "primary"
"""Value of the key ``tables.order`` that puts the best method first."""


def shows_ranks(results: Results) -> bool:
    """Whether the study's tables have a column of ranks."""
    return any(split_column(column)[1] == RANK_COLUMN for column in results.columns)


def leading_direction(results: Results, setting: str) -> str:
    """The search direction that orders a setting's table: that of the first column with the deciding metric."""
    directions = evaluated_directions(results, setting)
    if setting != "binary":
        for column in results.columns:
            direction, metric, _ = split_column(column)
            if metric == results.deciding(setting):
                return direction or directions[0]
    return directions[0]


def methods_in_order(results: Results, setting: str) -> list[str]:
    """All methods in the order of a setting's table: compared ones, then baselines.

    With ``tables.order: primary`` each of the two parts goes from best to worst in the deciding metric, with methods
    without a result in this setting last; equal methods keep the order of the study.
    """
    methods = [m for m in results.ordered() if setting == "binary" or m not in results.only_in_binary]
    if results.order != BEST_FIRST:
        return methods
    direction, metric = leading_direction(results, setting), results.deciding(setting)
    sign = 1 if metric_of_column(metric).lower_is_better else -1

    def sort_key(method: str) -> tuple[bool, bool, float]:
        absent = bool(results.reason(method, setting, direction))
        value = 0.0 if absent else sign * metric_estimate(results, method, setting, direction, metric)
        return method in results.baselines, absent, value

    return sorted(methods, key=sort_key)


def rank_of_method(results: Results, method: str, setting: str, direction: str) -> tuple[float, float, float] | None:
    """A method's rank by the deciding metric with the ends of its interval; None where it has none."""
    return results.places_of.get((method, setting, direction, results.deciding(setting)))


def trusted_ranks(results: Results) -> pd.DataFrame:
    """Rows of ``ranks.csv`` in settings with enough clusters of queries for letters."""
    if results.places.empty or results.pairs.empty:
        return results.places
    clusters = results.pairs.groupby("setting")["clusters"].min()
    return results.places[results.places["setting"].map(clusters) >= MIN_CLUSTERS_FOR_LETTERS]


def order_sentence(results: Results, setting: str) -> str:
    """How rows are ordered; empty if as in the study's file."""
    if results.order != BEST_FIRST:
        return ""
    direction = leading_direction(results, setting)
    direction_name = f" {results.short(direction)}" if len(evaluated_directions(results, setting)) > 1 else ""
    metric = "accuracy" if setting == "binary" else results.deciding(setting)
    return f"Ordered by{direction_name} {metric}"


def rank_sentence(results: Results, setting: str, few: bool) -> str:
    """What ranks and their intervals mean, or why there are none; empty for tables without the column."""
    if not shows_ranks(results):
        return ""
    if few:
        return "No ranks: like letters, they need more clusters of queries"
    metric = "accuracy" if setting == "binary" else results.deciding(setting)
    keys = [key for key in results.places_of if key[1] == setting and key[3] == results.deciding(setting)]
    if keys:
        count = max(sum(key[2] == direction for key in keys) for direction in {key[2] for key in keys})
        return (
            f"Rank: the place by {metric} among the {count} compared methods. In brackets its "
            f"{100 * results.confidence:g}% interval, which holds for all places at once: methods that are shown to be "
            "better are above it and methods that are shown to be worse below it; how the others compare with this one "
            "is open"
        )
    tested = results.pairs
    tested = tested[tested["setting"] == setting] if len(tested) else tested
    if not len(tested) or tested["p_holm"].isna().all():
        return "No ranks: no two methods were tested"
    return (
        "No ranks: they need a comparison of every two methods, and statistics.pairs names only some; name all pairs, "
        "or leave the key out"
    )


# ---- The study's numbers and their checks --------------------------------------------------------------------------

_RUN_COLUMNS = ["method", "seed", "setting", "direction"]
_INTERVAL_COLUMNS = ("low", "high", "procedure")
_BOOTSTRAP_COLUMNS = ("boot_low", "boot_high")
_PAIR_COLUMNS = ("first", "second", "setting", "direction", "metric")
_REQUIRED_COLUMNS = {
    # Only the metrics that every version of the file has.
    "metrics.csv": (*_RUN_COLUMNS, "queries", "gallery", ACCURACY_METRIC, STRICT_ACCURACY_COLUMN),
    "intervals.csv": ("method", "setting", "direction", "metric", "estimate", *_INTERVAL_COLUMNS),
    "pairs.csv": (
        *_PAIR_COLUMNS,
        "difference",
        *_INTERVAL_COLUMNS,
        "p",
        "p_holm",
        "family",
        "clusters",
        "detectable",
        "effect",
        *_BOOTSTRAP_COLUMNS,
    ),
    "gaps.csv": ("method", "direction", "metric", "queries", "gap", *_INTERVAL_COLUMNS, *_BOOTSTRAP_COLUMNS),
}


@dataclass(frozen=True, eq=False)
class Results:
    """A study's numbers, as all tables and figures read them; tables other than ``metrics`` may be empty.

    Attributes:
        baselines: methods that come last, are never bold and are not compared.
        fixed: methods that are one model, which cannot be trained again; they are compared only over queries.
        primary: the metric that has letters and bold, as the study's key ``statistics.primary``.
        confidence: of the intervals; a pair differs significantly where ``p_holm < 1 - confidence``.
        columns: template of ranked tables, as the study's key ``tables.columns``.
        seeds: method → its training seeds; where given, each must have its row in ``metrics``.
        not_evaluated: method → setting that it has no numbers in, or ``setting direction`` → the reason.
    """

    metrics: pd.DataFrame  # one row per method, seed, setting, direction; R@k in percent
    intervals: pd.DataFrame  # one row per method, setting, direction, metric
    pairs: pd.DataFrame  # one row per compared pair, setting, direction, metric
    labels: Mapping[str, str]  # method → name in the tables, in table order
    train: Mapping[str, str]  # method → text of the Train column
    baselines: Collection[str] = ()
    fixed: Collection[str] = ()
    primary: str = ACCURACY_METRIC
    confidence: float = 0.95
    columns: Sequence[str] = tuple(Tables().columns)
    gaps: pd.DataFrame = field(default_factory=pd.DataFrame)  # Origin − Hard, one row per method, direction, metric
    seeds: Mapping[str, Collection[int]] = field(default_factory=dict)
    items: str = "videos"  # or ``images``; the initial is in the short names of search directions
    verdict: Verdict | None = None  # which methods are to win over which baseline
    analyses: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # name of a result (rewind.analyses) → its rows
    only_in_binary: Collection[str] = ()  # methods that other settings' tables do not mention
    places: pd.DataFrame = field(default_factory=pd.DataFrame)  # ranks, one row per method, setting, direction, metric
    chance: pd.DataFrame = field(default_factory=pd.DataFrame)  # accuracy in Binary, one row per method, direction
    trials: pd.DataFrame = field(default_factory=pd.DataFrame)  # keys that each method tried: analyses.trials
    order: str = "file"  # of the rows of settings' tables, as the study's key ``tables.order``
    not_evaluated: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    given: str = ""  # what all numbers are conditional on, for every caption

    @cached_property
    def runs(self) -> dict[tuple[str, str, str], pd.DataFrame]:
        """(method, setting, direction) → its rows of ``metrics``, one per seed."""
        return dict(iter(self.metrics.groupby(["method", "setting", "direction"], sort=False)))

    @cached_property
    def ends(self) -> dict[tuple[str, str, str, str], list[tuple[int, float, float, float]]]:
        """(method, setting, direction, metric) → rows of ``intervals``: line in the file, estimate, low, high."""
        rows: dict[tuple[str, str, str, str], list[tuple[int, float, float, float]]] = {}
        for row in self.intervals.itertuples():
            key = (row.method, row.setting, row.direction, row.metric)
            rows.setdefault(key, []).append((row.Index + 2, row.estimate, row.low, row.high))
        return rows

    @cached_property
    def places_of(self) -> dict[tuple[str, str, str, str], tuple[float, float, float]]:
        """(method, setting, direction, metric) → rank and the ends of its interval."""
        return {
            (row.method, row.setting, row.direction, row.metric): (float(row.rank), float(row.low), float(row.high))
            for row in self.places.itertuples()
        }

    def of(self, analysis: str) -> pd.DataFrame:
        """The rows of an analysis, methods in table order and with their names; empty where it was not asked for."""
        return self._ordered_analyses.get(analysis, pd.DataFrame())

    @cached_property
    def _ordered_analyses(self) -> dict[str, pd.DataFrame]:
        return {
            name: in_table_order(rows, self.ordered(), self.labels) if "method" in rows else rows
            for name, rows in self.analyses.items()
        }

    def reason(self, method: str, setting: str, direction: str = "") -> str:
        """Why a method has no numbers in a setting, or in one direction of it; empty where it has."""
        if setting != "binary" and method in self.only_in_binary:
            return "it sees too little to search"
        reasons = self.not_evaluated.get(method, {})
        return reasons.get(setting) or reasons.get(f"{setting} {direction}", "")

    def lacking(self, method: str, setting: str) -> dict[str, str]:
        """Short name of a direction in which this method has no numbers, though others have → the reason."""
        if self.reason(method, setting):
            return {}
        reasons = {
            direction: self.reason(method, setting, direction) for direction in evaluated_directions(self, setting)
        }
        return {self.short(direction): reason for direction, reason in reasons.items() if reason}

    def short(self, direction: str) -> str:
        """Short name of a search direction: ``T2V`` and ``V2T``, or ``T2I`` and ``I2T``."""
        return short_direction(direction, self.items)

    def trained(self) -> list[str]:
        """Methods that were trained and could be again, in order."""
        return [m for m in self.labels if m not in self.baselines and m not in self.fixed]

    def seed_counts(self) -> list[int]:
        """How many seeds trained methods have: each number once, in order."""
        rows = self.metrics[self.metrics["method"].isin(self.trained())]
        return sorted(set(rows.groupby("method")["seed"].nunique()))

    def compared(self) -> list[str]:
        """Methods that can have letters, in table order: trained ones, then fixed models."""
        return self.trained() + [m for m in self.labels if m in self.fixed and m not in self.baselines]

    def ordered(self) -> list[str]:
        """All methods in table order: baselines last."""
        return self.compared() + [method for method in self.labels if method in self.baselines]

    def deciding(self, setting: str) -> str:
        """The metric that has letters in a setting: the primary one, in Binary accuracy."""
        return ACCURACY_METRIC if setting == "binary" else self.primary

    def evaluated(self) -> list[str]:
        """Metrics with an interval that ``metrics.csv`` has; a file of an earlier version lacks later ones."""
        return [metric for metric in metrics_with_interval() if metric in self.metrics]

    def shown(self) -> list[str]:
        """Metrics of the study's columns, each once."""
        shown = dict.fromkeys(split_column(column)[1] for column in self.columns)
        return [metric for metric in shown if metric != RANK_COLUMN]


def with_labels(rows: pd.DataFrame, labels: Mapping[str, str]) -> pd.DataFrame:
    """Rows of methods with the methods' names in front."""
    rows = rows.copy()
    rows.insert(0, "label", rows["method"].map(labels))
    return rows


def with_pair_labels(rows: pd.DataFrame, labels: Mapping[str, str]) -> pd.DataFrame:
    """Rows of pairs with the names of both methods in front."""
    rows = rows.reset_index(drop=True)
    for column in ("second", "first"):
        rows.insert(0, f"{column}_label", rows[column].map(labels))
    return rows


def in_table_order(rows: pd.DataFrame, methods: Sequence[str], labels: Mapping[str, str]) -> pd.DataFrame:
    """Rows of methods in the order of ``methods``, with the methods' names in front."""
    order = {method: at for at, method in enumerate(methods)}
    rows = rows.sort_values("method", key=lambda m: m.map(order), kind="stable", ignore_index=True)
    return with_labels(rows, labels)


def short_direction(direction: str, items: str) -> str:
    """``T2V`` for text to videos, ``I2T`` for images to text; ``items`` is ``videos`` or ``images``."""
    initial = items[0].upper()
    return {"text_to_item": f"T2{initial}", "item_to_text": f"{initial}2T"}[direction]


def check_results(results: Results, setting: str) -> None:
    """Refuse numbers that cannot stand in one table.

    Raises:
        RewindError: a column or a run is missing, a run is listed twice, a value is not a number, or methods
            were scored on different numbers of queries or items.
    """
    for name, table in zip(
        _REQUIRED_COLUMNS, (results.metrics, results.intervals, results.pairs, results.gaps), strict=True
    ):
        _check_columns(name, table)
    rows = results.metrics[results.metrics["setting"] == setting]
    _check_runs(rows, results, setting)
    _check_seeds(rows, results, setting)
    _check_values(rows)
    _check_same_queries(rows)
    _check_pairs(results)
    for method in results.labels:
        if method not in results.train:
            raise RewindError(f"tables: method {method!r} has no text for the Train column.")


def setting_sizes(results: Results) -> dict[str, dict[str, int]]:
    """Setting → numbers of caption queries, searched items and clusters.

    The files count queries and gallery by direction; in a study without text→item search the two are swapped.
    """
    clusters = results.intervals.groupby("setting")["clusters"].first()
    sizes = {}
    for setting, rows in results.metrics.groupby("setting"):
        forward = rows[rows["direction"] == "text_to_item"]
        row = (forward if len(forward) else rows).iloc[0]
        captions, items = (row["queries"], row["gallery"]) if len(forward) else (row["gallery"], row["queries"])
        if setting == "binary":  # each query has a gallery of its own: the clip and its twin
            captions, items = row["queries"], 2 * row["queries"]
        sizes[setting] = {"queries": int(captions), "items": int(items), "clusters": int(clusters[setting])}
    return sizes


def interval_procedures(results: Results) -> dict[str, list[str]]:
    """How intervals were computed → names of the compared methods; of all methods where none are compared."""
    rows = results.intervals[results.intervals["metric"] == "R@1"].drop_duplicates("method").set_index("method")
    labels_by_procedure: dict[str, list[str]] = {}
    for method in results.compared() or results.ordered():
        labels_by_procedure.setdefault(rows.loc[method, "procedure"], []).append(results.labels[method])
    return labels_by_procedure


def metric_interval(results: Results, method: str, setting: str, direction: str, metric: str) -> tuple[float, float]:
    """Low and high end of an interval; NaN for a baseline or a metric that has none.

    Raises:
        RewindError: if the interval is missing or listed twice, or its estimate is not the mean of the runs.
    """
    rows = results.ends.get((method, setting, direction, metric), [])
    where = f"method {method!r}, {setting}, {direction}, {metric}"
    if (
        not rows
        and metric in metrics_with_interval()
        and method not in results.baselines
        and not results.intervals.empty
    ):
        raise RewindError(f"intervals.csv: no row for {where}; run the statistics again.")
    if len(rows) > 1:
        raise RewindError(f"intervals.csv, row {rows[1][0]}: {where} is listed twice.")
    if not rows:
        return np.nan, np.nan
    row, estimate, low, high = rows[0]
    mean = values_by_seed(results, method, setting, direction, metric).mean()
    # The estimate of a pooled metric (MdR) is the value of all seeds' queries together, not a mean over seeds.
    if not metric_of_column(metric).pooled and not np.isclose(mean, estimate, rtol=1e-6, atol=1e-6):
        raise RewindError(
            f"intervals.csv, row {row}: {where} is {estimate}, but its seeds in metrics.csv average {mean}; "
            "the two files are of different runs. Run the statistics again."
        )
    return float(low), float(high)


def metric_estimate(results: Results, method: str, setting: str, direction: str, metric: str) -> float:
    """A method's value in tables: the mean over seeds; of MdR, the median of all seeds' queries."""
    rows = results.ends.get((method, setting, direction, metric), [])
    if rows and metric_of_column(metric).pooled:
        return float(rows[0][1])
    return float(values_by_seed(results, method, setting, direction, metric).mean())


def values_by_seed(results: Results, method: str, setting: str, direction: str, metric: str) -> np.ndarray:
    """Values of a metric, (S,)."""
    rows = results.runs[method, setting, direction]
    if metric not in rows:
        raise RewindError(f"metrics.csv: column {metric!r} is missing; another version wrote it. Evaluate again.")
    return rows[metric].to_numpy(dtype=float)


def evaluated_directions(results: Results, setting: str) -> list[str]:
    """Search directions that were evaluated in ``setting``, text→item first."""
    present = set(results.metrics.loc[results.metrics["setting"] == setting, "direction"])
    return [direction for direction in SEARCH_DIRECTIONS if direction in present]


def shown_directions(rows: pd.DataFrame) -> list[str]:
    """Search directions of rows, text→item first."""
    return [direction for direction in SEARCH_DIRECTIONS if direction in set(rows["direction"])]


def direction_groups(
    results: Results,
    rows: pd.DataFrame,
    directions: Sequence[str],
    lines: Callable[[pd.DataFrame], Iterable[tuple[Cell, ...]]],
) -> tuple[RowGroup, ...]:
    """A table's groups of rows, one for each search direction that has any, under its name where there are several."""
    several = len(directions) > 1
    parts = {direction: rows[rows["direction"] == direction] for direction in directions}
    return tuple(
        RowGroup(results.short(direction) if several else "", tuple(lines(part)))
        for direction, part in parts.items()
        if len(part)
    )


def _check_columns(name: str, table: pd.DataFrame) -> None:
    missing = [column for column in _REQUIRED_COLUMNS[name] if column not in table.columns]
    if missing and not (name != "metrics.csv" and table.empty):
        raise RewindError(f"{name}: column {missing[0]!r} is missing; available: {', '.join(map(str, table.columns))}.")


def _check_runs(rows: pd.DataFrame, results: Results, setting: str) -> None:
    if rows.empty:
        raise RewindError(f"metrics.csv: no row of setting {setting!r}; evaluate it first.")
    for index, method in rows["method"].items():
        if method not in results.labels:
            raise RewindError(f"metrics.csv, row {index + 2}: method {method!r} is not in the study.")
    for direction, group in rows.groupby("direction"):
        expected = [method for method in results.labels if not results.reason(method, setting, str(direction))]
        missing = [method for method in expected if method not in set(group["method"])]
        if missing:
            raise RewindError(
                f"metrics.csv: no run of method {missing[0]!r} in {setting}, {direction}; train and evaluate it first."
            )
    duplicates = rows[rows.duplicated(_RUN_COLUMNS)]
    if len(duplicates):
        run = ", ".join(str(duplicates.iloc[0][name]) for name in _RUN_COLUMNS)
        raise RewindError(f"metrics.csv, row {duplicates.index[0] + 2}: the run ({run}) is listed twice.")


def _check_seeds(rows: pd.DataFrame, results: Results, setting: str) -> None:
    present = set(rows[["method", "seed", "direction"]].itertuples(index=False, name=None))
    for method, seeds in results.seeds.items():
        for direction in dict.fromkeys(rows["direction"]):
            if results.reason(method, setting, direction):
                continue
            missing = [seed for seed in seeds if (method, seed, direction) not in present]
            if missing:
                raise RewindError(
                    f"metrics.csv: no row of method {method!r}, seed {missing[0]} in {rows['setting'].iloc[0]}, "
                    f"{direction}; train and evaluate this run first."
                )


def _check_values(rows: pd.DataFrame) -> None:
    for metric in (name for name in (*metrics_with_interval(), STRICT_ACCURACY_COLUMN) if name in rows):
        bad = rows[~np.isfinite(rows[metric].astype(float))]
        if len(bad):
            row = bad.iloc[0]
            raise RewindError(
                f"metrics.csv, row {bad.index[0] + 2}: {metric} of method {row['method']!r}, "
                f"seed {row['seed']} is not a number; look for NaN in its similarity matrix."
            )


def _check_same_queries(rows: pd.DataFrame) -> None:
    for direction, group in rows.groupby("direction"):
        for column in ("queries", "gallery"):
            first = group.iloc[0]
            other = group[group[column] != first[column]]
            if len(other):
                row = other.iloc[0]
                raise RewindError(
                    f"metrics.csv, row {other.index[0] + 2}: {column} of method {row['method']!r} is "
                    f"{row[column]}, of {first['method']!r} {first[column]} ({row['setting']}, {direction}); "
                    "they cannot be compared."
                )


def _check_pairs(results: Results) -> None:
    for name, table, columns in (("pairs", results.pairs, ("first", "second")), ("gaps", results.gaps, ("method",))):
        for column in columns if len(table) else ():
            for index, method in table[column].items():
                if method not in results.labels:
                    raise RewindError(f"{name}.csv, row {index + 2}: method {method!r} is not in the study.")
    if results.pairs.empty:
        return
    duplicates = results.pairs[results.pairs.duplicated(list(_PAIR_COLUMNS))]
    if len(duplicates):
        pair = ", ".join(map(str, duplicates.iloc[0][list(_PAIR_COLUMNS)]))
        raise RewindError(f"pairs.csv, row {duplicates.index[0] + 2}: the pair ({pair}) is listed twice.")
