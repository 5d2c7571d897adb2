"""What tables are made from, checked as a whole before anything is printed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from rewind.errors import RewindError
from rewind.metrics import ACCURACY, ESTIMATED, STRICT, known
from rewind.study.report import DIRECTIONS, RANK, Tables, split_column
from rewind.study.verdict import Verdict

_RUN = ["method", "seed", "setting", "direction"]
_ENDS = ("low", "high", "procedure")
_BOOT = ("boot_low", "boot_high")
_PAIR = ("first", "second", "setting", "direction", "metric")
_NEEDED = {
    "metrics.csv": (*_RUN, "queries", "gallery", ACCURACY, STRICT),  # an earlier version wrote fewer metrics
    "intervals.csv": ("method", "setting", "direction", "metric", "estimate", *_ENDS),
    "pairs.csv": (*_PAIR, "difference", *_ENDS, "p", "p_holm", "family", "clusters", "detectable", "effect", *_BOOT),
    "gaps.csv": ("method", "direction", "metric", "queries", "gap", *_ENDS, *_BOOT),
}


@dataclass(frozen=True, eq=False)
class Results:
    """A study's numbers.

    Attributes:
        metrics: one row per method, seed, setting, direction; R@k in percent.
        intervals: one row per method, setting, direction, metric.
        pairs: one row per compared pair, setting, direction, metric; may be empty.
        labels: method → name in the tables, in table order.
        train: method → text of the Train column.
        baselines: methods that come last, are never bold and are not compared.
        fixed: methods that are one model, which cannot be trained again; they are compared over queries alone.
        primary: the metric that earns letters and bold, as the study's key ``statistics.primary``.
        confidence: of the intervals; a pair differs significantly where ``p_holm < 1 - confidence``.
        columns: template of ranked tables, as the study's key ``tables.columns``.
        gaps: Origin − Hard, one row per method, direction, metric; may be empty.
        seeds: method → its training seeds; where given, each must have its row in ``metrics``.
        items: ``videos`` or ``images``, whose initial stands in the short names of search directions.
        zero_shot: accuracy on labelled images, one row per method; may be empty.
        zero_shot_pairs: its differences, one row per compared pair; may be empty.
        verdict: which methods are to win over which; the next two belong to it.
        step_time: one row per method that was timed.
        control: differences between gaps, one row per method, direction, metric; empty without a control.
        places: rank of every compared method, one row per method, setting, direction, metric; may be empty.
        groups: the deciding metric in groups of queries, one row per method, setting, direction, group; may be empty.
        order: of the rows of settings' tables, as the study's key ``tables.order``.
        not_evaluated: method → setting that it has no numbers in, or ``setting direction`` → the reason.
        given: what all numbers are conditional on, for every caption; empty for nothing.
    """

    metrics: pd.DataFrame
    intervals: pd.DataFrame
    pairs: pd.DataFrame
    labels: Mapping[str, str]
    train: Mapping[str, str]
    baselines: Collection[str] = ()
    fixed: Collection[str] = ()
    primary: str = ACCURACY
    confidence: float = 0.95
    columns: Sequence[str] = tuple(Tables().columns)
    gaps: pd.DataFrame = field(default_factory=pd.DataFrame)
    seeds: Mapping[str, Collection[int]] = field(default_factory=dict)
    items: str = "videos"
    zero_shot: pd.DataFrame = field(default_factory=pd.DataFrame)
    zero_shot_pairs: pd.DataFrame = field(default_factory=pd.DataFrame)
    verdict: Verdict | None = None
    step_time: pd.DataFrame = field(default_factory=pd.DataFrame)
    control: pd.DataFrame = field(default_factory=pd.DataFrame)
    places: pd.DataFrame = field(default_factory=pd.DataFrame)
    groups: pd.DataFrame = field(default_factory=pd.DataFrame)
    order: str = "file"
    not_evaluated: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    given: str = ""

    @cached_property
    def runs(self) -> dict[tuple[str, str, str], pd.DataFrame]:
        """(method, setting, direction) → its rows of ``metrics``, one per seed."""
        return dict(iter(self.metrics.groupby(["method", "setting", "direction"], sort=False)))

    @cached_property
    def ends(self) -> dict[tuple[str, str, str, str], list[tuple[int, float, float, float]]]:
        """(method, setting, direction, metric) → rows of (line in the file, estimate, low, high)."""
        found: dict[tuple[str, str, str, str], list[tuple[int, float, float, float]]] = {}
        for row in self.intervals.itertuples():
            key = (row.method, row.setting, row.direction, row.metric)
            found.setdefault(key, []).append((row.Index + 2, row.estimate, row.low, row.high))
        return found

    @cached_property
    def places_of(self) -> dict[tuple[str, str, str, str], tuple[float, float, float]]:
        """(method, setting, direction, metric) → rank and the ends of its interval."""
        return {
            (row.method, row.setting, row.direction, row.metric): (float(row.rank), float(row.low), float(row.high))
            for row in self.places.itertuples()
        }

    def reason(self, method: str, setting: str, direction: str = "") -> str:
        """Why a method has no numbers in a setting, or in one direction of it; empty where it has."""
        reasons = self.not_evaluated.get(method, {})
        return reasons.get(setting) or reasons.get(f"{setting} {direction}", "")

    def lacking(self, method: str, setting: str) -> dict[str, str]:
        """Short name of a direction that a method alone has no numbers in → the reason."""
        if self.reason(method, setting):
            return {}
        ways = {way: self.reason(method, setting, way) for way in directions(self, setting)}
        return {self.short(way): why for way, why in ways.items() if why}

    def short(self, direction: str) -> str:
        """Short name of a search direction: ``T2V`` and ``V2T``, or ``T2I`` and ``I2T``."""
        return short_direction(direction, self.items)

    def trained(self) -> list[str]:
        """Methods that were trained and could be again, in order."""
        return [m for m in self.labels if m not in self.baselines and m not in self.fixed]

    def compared(self) -> list[str]:
        """Methods that earn letters, in table order: trained ones, then fixed models."""
        return self.trained() + [m for m in self.labels if m in self.fixed and m not in self.baselines]

    def ordered(self) -> list[str]:
        """All methods in table order: baselines last."""
        return self.compared() + [method for method in self.labels if method in self.baselines]

    def deciding(self, setting: str) -> str:
        """The metric that earns letters in a setting: the primary one, in Binary accuracy."""
        return ACCURACY if setting == "binary" else self.primary

    def evaluated(self) -> list[str]:
        """Metrics with an interval that ``metrics.csv`` has; a file of an earlier version lacks later ones."""
        return [metric for metric in ESTIMATED if metric in self.metrics]

    def shown(self) -> list[str]:
        """Metrics of the study's columns, each once."""
        shown = dict.fromkeys(split_column(column)[1] for column in self.columns)
        return [metric for metric in shown if metric != RANK]


def short_direction(direction: str, items: str) -> str:
    """``T2V``: from text to videos; the items' initial is that of what they are."""
    initial = items[0].upper()
    return {"text_to_item": f"T2{initial}", "item_to_text": f"{initial}2T"}[direction]


def check(results: Results, setting: str) -> None:
    """Refuse numbers that cannot stand in one table.

    Raises:
        RewindError: a column or a run is missing, a run is there twice, a value is not a number, or methods
            were scored on different numbers of queries or items.
    """
    for name, table in zip(_NEEDED, (results.metrics, results.intervals, results.pairs, results.gaps), strict=True):
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


def interval(results: Results, method: str, setting: str, direction: str, metric: str) -> tuple[float, float]:
    """Low and high end, NaN where a baseline or a metric that is never tested has none."""
    found = results.ends.get((method, setting, direction, metric), [])
    where = f"method {method!r}, {setting}, {direction}, {metric}"
    if not found and metric in ESTIMATED and method not in results.baselines and not results.intervals.empty:
        raise RewindError(f"intervals.csv: no row for {where}; run the statistics again.")
    if len(found) > 1:
        raise RewindError(f"intervals.csv, row {found[1][0]}: {where} is there twice.")
    if not found:
        return np.nan, np.nan
    row, estimate, low, high = found[0]
    mean = values(results, method, setting, direction, metric).mean()
    # The estimate of a pooled metric is that of all seeds' queries, not a mean over seeds.
    if not known(metric).pooled and not np.isclose(mean, estimate, rtol=1e-6, atol=1e-6):
        raise RewindError(
            f"intervals.csv, row {row}: {where} is {estimate}, but its seeds in metrics.csv average {mean}; "
            "the two files are of different runs. Run the statistics again."
        )
    return float(low), float(high)


def estimate(results: Results, method: str, setting: str, direction: str, metric: str) -> float:
    """The number that stands for a method: the mean over seeds; of MdR, the median of all seeds' queries."""
    found = results.ends.get((method, setting, direction, metric), [])
    if found and known(metric).pooled:
        return float(found[0][1])
    return float(values(results, method, setting, direction, metric).mean())


def values(results: Results, method: str, setting: str, direction: str, metric: str) -> np.ndarray:
    """The metric in every seed, [seeds]."""
    rows = results.runs[method, setting, direction]
    if metric not in rows:
        raise RewindError(f"metrics.csv: column {metric!r} is missing; another version wrote it. Evaluate again.")
    return rows[metric].to_numpy(dtype=float)


def directions(results: Results, setting: str) -> list[str]:
    """Search directions that were evaluated in ``setting``, text→item first."""
    there = set(results.metrics.loc[results.metrics["setting"] == setting, "direction"])
    return [direction for direction in DIRECTIONS if direction in there]


def _check_columns(name: str, table: pd.DataFrame) -> None:
    missing = [column for column in _NEEDED[name] if column not in table.columns]
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
        absent = [method for method in expected if method not in set(group["method"])]
        if absent:
            raise RewindError(
                f"metrics.csv: no run of method {absent[0]!r} in {setting}, {direction}; train and evaluate it first."
            )
    twice = rows[rows.duplicated(_RUN)]
    if len(twice):
        run = ", ".join(str(twice.iloc[0][name]) for name in _RUN)
        raise RewindError(f"metrics.csv, row {twice.index[0] + 2}: the run ({run}) is there twice.")


def _check_seeds(rows: pd.DataFrame, results: Results, setting: str) -> None:
    there = set(rows[["method", "seed", "direction"]].itertuples(index=False, name=None))
    for method, wanted in results.seeds.items():
        for direction in dict.fromkeys(rows["direction"]):
            if results.reason(method, setting, direction):
                continue
            absent = [seed for seed in wanted if (method, seed, direction) not in there]
            if absent:
                raise RewindError(
                    f"metrics.csv: no row of method {method!r}, seed {absent[0]} in {rows['setting'].iloc[0]}, "
                    f"{direction}; train and evaluate this run first."
                )


def _check_values(rows: pd.DataFrame) -> None:
    for metric in (name for name in (*ESTIMATED, STRICT) if name in rows):
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
    twice = results.pairs[results.pairs.duplicated(list(_PAIR))]
    if len(twice):
        pair = ", ".join(map(str, twice.iloc[0][list(_PAIR)]))
        raise RewindError(f"pairs.csv, row {twice.index[0] + 2}: the pair ({pair}) is there twice.")
