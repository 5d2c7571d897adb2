"""From numbers to the cells of a setting's table: means, marks of significance, what is bold. No markup here."""

from __future__ import annotations

import string
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rewind.errors import RewindError
from rewind.metrics import ACCURACY, METRICS, STRICT
from rewind.reporting.order import PRIMARY, order_sentence, ordered, rank, rank_sentence, shows_ranks
from rewind.reporting.results import Results, check, directions, estimate, interval, values
from rewind.reporting.significance import Verdict, judge
from rewind.study.report import RANK, split_column

TITLES = {"origin": "Origin", "hard": "Hard", "binary": "Binary", "test": "Test"}
LETTERS = {"origin": "A", "hard": "B", "test": "A"}


@dataclass(frozen=True)
class Column:
    """A column of numbers: a metric in a search direction, with its interval in brackets or not; or ranks.

    ``group`` stands above neighbouring columns where a table shows more than one direction.
    """

    title: str
    metric: str
    direction: str
    interval: bool = False
    group: str = ""


@dataclass(frozen=True)
class Cell:
    """One number and what is known about it.

    ``std`` is NaN for a single run and for a closed form; ``beats`` holds the letters of the methods that it
    is significantly better than; ``best``: nobody is significantly better, and somebody is significantly worse.
    """

    estimate: float
    std: float
    low: float
    high: float
    seeds: int
    beats: tuple[str, ...] = ()
    best: bool = False


@dataclass(frozen=True)
class Row:
    """One method.

    A baseline has no letter; ``fixed``: one model, which cannot be trained again; ``absent``: why it has no numbers;
    ``lacking``: short names of directions that it alone has none in, with the reason.
    """

    method: str
    label: str
    train: str
    letter: str
    baseline: bool
    fixed: bool
    cells: tuple[Cell, ...]
    absent: str = ""
    lacking: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Table:
    """A setting's table before it is printed.

    Attributes:
        dataset: title of the data, for the caption.
        deciding: the metric whose columns have letters.
        tested: whether any two methods were compared.
        few: clusters of queries where there are too few for letters, else None.
        blind: least and greatest of the smallest differences that the study could see, of bold methods of a column to
            the best of it, or of all pairs where there are too few clusters; None where nothing calls for them.
        ordered: whether rows go from best to worst, not in the order of the study.
        said: sentences on that order and on ranks.
        family: pairs that were compared here, where methods were left out of it.
    """

    setting: str
    dataset: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    confidence: float
    deciding: str
    tested: bool
    few: int | None = None
    blind: tuple[float, float] | None = None
    ordered: bool = False
    said: tuple[str, ...] = ()
    family: int | None = None

    @property
    def metrics(self) -> tuple[Column, ...]:
        """Its columns that show a metric."""
        return tuple(column for column in self.columns if column.metric != RANK)

    @property
    def evaluated(self) -> tuple[Row, ...]:
        """Methods that have numbers in it."""
        return tuple(row for row in self.rows if not row.absent)

    @property
    def directions(self) -> tuple[str, ...]:
        """Search directions of its columns, in order."""
        return tuple(dict.fromkeys(column.direction for column in self.columns))

    @property
    def seeds(self) -> list[int]:
        """How many seeds trained methods have, each number once."""
        counts = {cell.seeds for row in self.evaluated if not (row.baseline or row.fixed) for cell in row.cells}
        return sorted(counts - {0})  # of a dash

    @property
    def marked(self) -> bool:
        """Whether any two methods differ significantly in it."""
        return any(cell.beats for row in self.rows for cell in row.cells)


def build(results: Results, setting: str, dataset: str = "") -> Table:
    """The table of one setting.

    Trained methods come in the study's order, then fixed models, then baselines; or from best to worst, see
    :func:`rewind.reporting.order.ordered`. Letters and bold stand in the columns
    of the deciding metric: bold are the best value and, above the first that is shown to be worse, those that are not;
    nothing is bold where no method is.

    Raises:
        RewindError: from :func:`rewind.reporting.results.check`, for a setting without a table, or for a column of
            ``results.columns`` that was not evaluated.
    """
    if setting not in TITLES:
        raise RewindError(f"tables: no table for setting {setting!r}; available: {', '.join(TITLES)}.")
    check(results, setting)
    ways = directions(results, setting)
    columns = binary_columns(results, ways) if setting == "binary" else ranked_columns(results, ways)
    order = ordered(results, setting)
    compared = [m for m in order if m not in results.baselines and not results.reason(m, setting)]
    letters = dict(zip(compared, letter_names(len(compared)), strict=True))
    judged = [_column_cells(results, setting, column, letters) for column in columns]
    rows = tuple(
        Row(
            method,
            results.labels[method],
            results.train[method],
            letters.get(method, ""),
            method in results.baselines,
            method in results.fixed,
            tuple(cells[method] for cells, _ in judged),
            results.reason(method, setting),
            tuple(results.lacking(method, setting).items()),
        )
        for method in order
    )
    verdicts = [verdict for _, verdict in judged]
    few = [verdict.few for verdict in verdicts if verdict.few is not None]
    blind = [size for verdict in verdicts for size in verdict.blind]
    return Table(
        setting,
        dataset,
        columns,
        rows,
        results.confidence,
        results.deciding(setting),
        any(verdict.tested for verdict in verdicts),
        min(few) if few else None,
        (min(blind), max(blind)) if blind else None,
        results.order == PRIMARY,
        (order_sentence(results, setting), rank_sentence(results, setting, bool(few))),
        pairs_compared(results, setting),
    )


def ranked_columns(results: Results, ways: list[str]) -> tuple[Column, ...]:
    """The columns of the study's template; a direction is named only where it is not the first alone.

    Raises:
        RewindError: for a metric that is not known, or a direction that was not evaluated.
    """
    columns = []
    for template in results.columns:
        direction, metric, shown = split_column(template)
        if metric != RANK and metric not in METRICS:
            raise RewindError(f"tables.columns: {template!r}: unknown metric; available: {', '.join(METRICS)}.")
        if direction and direction not in ways:
            raise RewindError(
                f"tables.columns: {template!r}: {direction} was not evaluated; add it to evaluation.directions, or "
                "take the column out."
            )
        columns.append(Column(metric, metric, direction or ways[0], shown == "interval" or metric == RANK))
    if {column.direction for column in columns} == {ways[0]}:
        return tuple(columns)
    return tuple(Column(c.title, c.metric, c.direction, c.interval, results.short(c.direction)) for c in columns)


def binary_columns(results: Results, ways: list[str]) -> tuple[Column, ...]:
    """Accuracy (a tie counts half) with its interval, and strict (a tie is wrong), per direction; ranks if shown."""
    kinds = (("accuracy", ACCURACY, True), ("strict", STRICT, False))
    kinds = ((RANK, RANK, True), *kinds) if shows_ranks(results) else kinds
    return tuple(Column(name, metric, way, ci, results.short(way)) for way in ways for name, metric, ci in kinds)


def letter_names(n: int) -> list[str]:
    """``a`` … ``z``, then ``aa``, ``ab``, …"""
    single = string.ascii_lowercase
    return [single[i] if i < 26 else single[i // 26 - 1] + single[i % 26] for i in range(n)]


def numbers(results: Results, setting: str) -> pd.DataFrame:
    """The table's CSV: one row per method, direction and metric, at full precision, those included that
    the study does not show.

    Columns: method, label, setting, direction, metric, queries, gallery, seeds, estimate (mean over seeds),
    std (over seeds, empty for one run), low, high (empty where there is no interval), beats (keys of the
    methods that it is significantly better than, separated by blanks), bold (1 or 0); in a study that shows ranks also
    rank, rank_low, rank_high, in the rows of the deciding metric.
    """
    check(results, setting)
    order = [method for method in ordered(results, setting) if not results.reason(method, setting)]
    keys = {method: method for method in results.compared() if method in order}
    rows = []
    for direction in directions(results, setting):
        chosen = (results.metrics["setting"] == setting) & (results.metrics["direction"] == direction)
        first = results.metrics[chosen].iloc[0]
        for metric in (*results.evaluated(), STRICT):
            cells, _ = _column_cells(results, setting, Column(metric, metric, direction), keys)
            for method in (name for name in order if not results.reason(name, setting, direction)):
                cell = cells[method]
                rows.append(
                    {"method": method, "label": results.labels[method], "setting": setting, "direction": direction}
                    | {"metric": metric, "queries": int(first["queries"]), "gallery": int(first["gallery"])}
                    | {"seeds": cell.seeds, "estimate": cell.estimate, "std": cell.std}
                    | {"low": cell.low, "high": cell.high, "beats": " ".join(cell.beats), "bold": int(cell.best)}
                    | (_rank_numbers(results, method, setting, direction, metric) if shows_ranks(results) else {})
                )
    at = {method: i for i, method in enumerate(order)}
    return pd.DataFrame(rows).sort_values("method", key=lambda m: m.map(at), kind="stable", ignore_index=True)


def _rank_numbers(results: Results, method: str, setting: str, direction: str, metric: str) -> dict[str, float]:
    found = rank(results, method, setting, direction) if metric == results.deciding(setting) else None
    return dict(zip(("rank", "rank_low", "rank_high"), found or (np.nan,) * 3, strict=True))


def pairs_compared(results: Results, setting: str) -> int | None:
    """Pairs of the family in a setting from which methods were left out."""
    whole = not any(results.reason(m, setting) or results.lacking(m, setting) for m in results.labels)
    if whole or results.pairs.empty:
        return None
    here = results.pairs.loc[results.pairs["setting"] == setting, "family"]
    return int(here.max()) if len(here) else None


def _column_cells(
    results: Results, setting: str, column: Column, letters: dict[str, str]
) -> tuple[dict[str, Cell], Verdict]:
    """Every method's cell, and how the methods compare."""
    if column.metric == RANK:
        few = judge(results, setting, column.direction, results.deciding(setting), {}).few is not None
        return {method: _rank_cell(results, method, setting, column, few) for method in results.labels}, Verdict()
    plain = {method: _cell(results, method, setting, column) for method in results.labels}
    estimates = {m: plain[m].estimate for m in letters if not results.reason(m, setting, column.direction)}
    verdict = judge(results, setting, column.direction, column.metric, estimates)
    cells = {}
    for method, cell in plain.items():
        won = verdict.beats.get(method, frozenset())
        beats = tuple(letters[other] for other in letters if other in won)
        best = method in verdict.best
        cells[method] = Cell(cell.estimate, cell.std, cell.low, cell.high, cell.seeds, beats, best)
    return cells, verdict


def _rank_cell(results: Results, method: str, setting: str, column: Column, few: bool) -> Cell:
    """A place with its interval; a dash where there is none."""
    found = None if few else rank(results, method, setting, column.direction)
    place, low, high = found or (np.nan,) * 3
    absent = results.reason(method, setting, column.direction)
    seeds = 0 if absent else len(results.runs[method, setting, column.direction])
    return Cell(place, np.nan, low, high, seeds)


def _cell(results: Results, method: str, setting: str, column: Column) -> Cell:
    if results.reason(method, setting, column.direction):
        return Cell(*(np.nan,) * 4, seeds=0)
    seeds = values(results, method, setting, column.direction, column.metric)
    low, high = interval(results, method, setting, column.direction, column.metric)
    std = float(seeds.std(ddof=1)) if len(seeds) > 1 else np.nan
    if method in results.baselines:  # a closed form has no seeds to vary, and chance no queries either
        std = std if std > 1e-9 else np.nan
        low, high = (low, high) if high > low else (np.nan, np.nan)
    return Cell(estimate(results, method, setting, column.direction, column.metric), std, low, high, len(seeds))
