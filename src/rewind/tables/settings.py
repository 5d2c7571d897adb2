"""The main results table of a setting (Origin, Hard, Binary or Test): method, training data, metrics.

:func:`compare_in_setting` collects means, intervals and significance marks; :func:`format_setting_table` prints them;
:func:`setting_csv_rows` has them at full precision.
"""

from __future__ import annotations

import string
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from rewind.config.report import RANK_COLUMN, split_column
from rewind.errors import RewindError
from rewind.ranking_metrics import ACCURACY_METRIC, METRICS, STRICT_ACCURACY_COLUMN, metric_of_column
from rewind.tables.results import (
    BEST_FIRST,
    ColumnComparison,
    Results,
    check_results,
    compare_column,
    evaluated_directions,
    methods_in_order,
    metric_estimate,
    metric_interval,
    order_sentence,
    rank_of_method,
    rank_sentence,
    shows_ranks,
    ties_every_query,
    values_by_seed,
)
from rewind.tables.table import Cell, Column, RowGroup, Table, number_cell, slug

# ---- Numbers, significance letters and bold for every cell ---------------------------------------------------------

SETTING_TITLES = {"origin": "Origin", "hard": "Hard", "binary": "Binary", "test": "Test"}
TABLE_LETTERS = {"origin": "A", "hard": "B", "test": "A"}


@dataclass(frozen=True)
class MetricColumn:
    """What a column of a setting's table shows: a metric in a search direction, or ranks."""

    title: str
    metric: str
    direction: str
    interval: bool = False  # whether values have their interval in brackets
    group: str = ""  # heading above neighbouring columns where a table shows more than one direction


@dataclass(frozen=True)
class Estimate:
    """A metric of a method (its mean over seeds) with its uncertainty, and whom it beats.

    ``tied``: whether every query is a tie in every run, in other settings than Binary with all that it searches: chance
    by construction, which is printed without an interval.
    """

    estimate: float
    std: float  # over seeds; NaN for a single run and for a closed form
    low: float  # end of the interval, like ``high``; NaN without one
    high: float
    seeds: int  # number of runs; 0 where the method was not evaluated
    beats: tuple[str, ...] = ()  # letters of the methods that it is significantly better than
    best: bool = False  # whether it is bold
    tied: bool = False


@dataclass(frozen=True)
class MethodResults:
    """One method: its row in a setting's table."""

    method: str  # its key
    label: str
    train: str  # text of the Train column
    letter: str  # by which other rows refer to it; empty for a baseline
    baseline: bool
    fixed: bool  # whether it is one model, which cannot be trained again
    cells: tuple[Estimate, ...]  # one per column
    absent: str = ""  # why it has no numbers; empty where it has
    lacking: tuple[tuple[str, str], ...] = ()  # (short name, reason) of directions in which only it has no numbers


@dataclass(frozen=True)
class SettingResults:
    """How the methods of a study compare in a setting, in the order of its table.

    ``blind``: smallest and largest detectable difference, of bold methods to the best of their column, or of all pairs
    where there are too few clusters; None where it is not needed.
    """

    setting: str
    dataset: str  # title of the data, for the caption
    columns: tuple[MetricColumn, ...]
    rows: tuple[MethodResults, ...]
    confidence: float
    deciding: str  # the metric whose columns have letters
    tested: bool  # whether any two methods were compared
    few: int | None = None  # number of clusters of queries where there are too few for letters
    blind: tuple[float, float] | None = None
    ordered: bool = False  # whether rows go from best to worst, not in the order of the study
    said: tuple[str, ...] = ()  # sentences about that order and about ranks
    family: int | None = None  # number of pairs that were compared here, where methods were left out

    @property
    def metrics(self) -> tuple[MetricColumn, ...]:
        """Columns that show a metric, not ranks."""
        return tuple(column for column in self.columns if column.metric != RANK_COLUMN)

    @property
    def evaluated(self) -> tuple[MethodResults, ...]:
        return tuple(row for row in self.rows if not row.absent)

    @property
    def directions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column.direction for column in self.columns))

    @property
    def seeds(self) -> list[int]:
        """Numbers of seeds of trained methods, ascending, each once."""
        counts = {cell.seeds for row in self.evaluated if not (row.baseline or row.fixed) for cell in row.cells}
        return sorted(counts - {0})  # a dash has no seeds

    @property
    def tied(self) -> dict[str, list[str]]:
        """Short name of a direction → methods whose deciding metric has no interval, as all ties; but for chance."""
        names = {
            column.group: [row.label for row in self.rows if row.cells[at].tied and not np.isnan(row.cells[at].low)]
            for at, column in enumerate(self.columns)
            if column.metric == self.deciding
        }
        return {direction: labels for direction, labels in names.items() if labels}

    @property
    def marked(self) -> bool:
        """Whether any two methods differ significantly."""
        return any(cell.beats for row in self.rows for cell in row.cells)


def compare_in_setting(results: Results, setting: str, dataset: str = "") -> SettingResults:
    """The table of one setting; numbers that cannot stand in one table and unknown settings or columns are refused.

    Trained methods come in the study's order, then fixed models, then baselines; or from best to worst, see
    :func:`rewind.tables.results.methods_in_order`. Only columns of the deciding metric have letters and bold
    (:func:`rewind.tables.results.compare_column`).
    """
    if setting not in SETTING_TITLES:
        raise RewindError(f"tables: no table for setting {setting!r}; available: {', '.join(SETTING_TITLES)}.")
    check_results(results, setting)
    directions = evaluated_directions(results, setting)
    columns = binary_columns(results, directions) if setting == "binary" else ranked_columns(results, directions)
    order = methods_in_order(results, setting)
    compared = [m for m in order if m not in results.baselines and not results.reason(m, setting)]
    letters = dict(zip(compared, letter_names(len(compared)), strict=True))
    cells_of_columns = [_cells_of_column(results, setting, column, letters) for column in columns]
    rows = tuple(
        MethodResults(
            method,
            results.labels[method],
            results.train[method],
            letters.get(method, ""),
            method in results.baselines,
            method in results.fixed,
            tuple(cells[method] for cells, _ in cells_of_columns),
            results.reason(method, setting),
            tuple(results.lacking(method, setting).items()),
        )
        for method in order
    )
    comparisons = [comparison for _, comparison in cells_of_columns]
    few = [comparison.few for comparison in comparisons if comparison.few is not None]
    detectable = [difference for comparison in comparisons for difference in comparison.blind]
    return SettingResults(
        setting,
        dataset,
        columns,
        rows,
        results.confidence,
        results.deciding(setting),
        any(comparison.tested for comparison in comparisons),
        min(few) if few else None,
        (min(detectable), max(detectable)) if detectable else None,
        results.order == BEST_FIRST,
        (order_sentence(results, setting), rank_sentence(results, setting, bool(few))),
        reduced_family_size(results, setting),
    )


def ranked_columns(results: Results, directions: list[str]) -> tuple[MetricColumn, ...]:
    """The columns of the study's template; directions are named unless all columns show the first.

    Raises:
        RewindError: for a metric that is not known, or a direction that was not evaluated.
    """
    columns = []
    for template in results.columns:
        direction, metric, display = split_column(template)
        if metric != RANK_COLUMN and metric not in METRICS:
            raise RewindError(f"tables.columns: {template!r}: unknown metric; available: {', '.join(METRICS)}.")
        if direction and direction not in directions:
            raise RewindError(
                f"tables.columns: {template!r}: {direction} was not evaluated; add it to evaluation.directions, or "
                "remove the column."
            )
        columns.append(
            MetricColumn(metric, metric, direction or directions[0], display == "interval" or metric == RANK_COLUMN)
        )
    if {column.direction for column in columns} == {directions[0]}:
        return tuple(columns)
    return tuple(MetricColumn(c.title, c.metric, c.direction, c.interval, results.short(c.direction)) for c in columns)


def binary_columns(results: Results, directions: list[str]) -> tuple[MetricColumn, ...]:
    """Per direction: ranks if shown, accuracy (a tie counts half) with its interval, strict (a tie is wrong)."""
    kinds: tuple[tuple[str, str, bool], ...]
    kinds = (("accuracy", ACCURACY_METRIC, True), ("strict", STRICT_ACCURACY_COLUMN, False))
    kinds = ((RANK_COLUMN, RANK_COLUMN, True), *kinds) if shows_ranks(results) else kinds
    return tuple(
        MetricColumn(name, metric, direction, interval, results.short(direction))
        for direction in directions
        for name, metric, interval in kinds
    )


def letter_names(n: int) -> list[str]:
    """``a`` … ``z``, then ``aa``, ``ab``, …"""
    single = string.ascii_lowercase
    return [single[i] if i < 26 else single[i // 26 - 1] + single[i % 26] for i in range(n)]


def setting_csv_rows(results: Results, setting: str) -> pd.DataFrame:
    """The table's CSV: one row per method, direction and metric at full precision, including metrics not shown.

    Columns: method, label, setting, direction, metric, queries, gallery, seeds, estimate (mean over seeds), std (over
    seeds, empty for one run), low, high (empty where there is no interval), beats (keys of the methods that it is
    significantly better than, separated by spaces), bold (1 or 0); in a study that shows ranks also rank, rank_low,
    rank_high, in the rows of the deciding metric.
    """
    check_results(results, setting)
    order = [method for method in methods_in_order(results, setting) if not results.reason(method, setting)]
    keys = {method: method for method in results.compared() if method in order}
    rows = []
    for direction in evaluated_directions(results, setting):
        is_here = (results.metrics["setting"] == setting) & (results.metrics["direction"] == direction)
        first_run = results.metrics[is_here].iloc[0]
        for metric in (*results.evaluated(), STRICT_ACCURACY_COLUMN):
            cells, _ = _cells_of_column(results, setting, MetricColumn(metric, metric, direction), keys)
            for method in (name for name in order if not results.reason(name, setting, direction)):
                cell = cells[method]
                rows.append(
                    {"method": method, "label": results.labels[method], "setting": setting, "direction": direction}
                    | {"metric": metric, "queries": int(first_run["queries"]), "gallery": int(first_run["gallery"])}
                    | {"seeds": cell.seeds, "estimate": cell.estimate, "std": cell.std}
                    | {"low": cell.low, "high": cell.high, "beats": " ".join(cell.beats), "bold": int(cell.best)}
                    | (_rank_csv_columns(results, method, setting, direction, metric) if shows_ranks(results) else {})
                )
    position = {method: i for i, method in enumerate(order)}
    return pd.DataFrame(rows).sort_values("method", key=lambda m: m.map(position), kind="stable", ignore_index=True)


def _rank_csv_columns(results: Results, method: str, setting: str, direction: str, metric: str) -> dict[str, float]:
    rank = rank_of_method(results, method, setting, direction) if metric == results.deciding(setting) else None
    return dict(zip(("rank", "rank_low", "rank_high"), rank or (np.nan,) * 3, strict=True))


def reduced_family_size(results: Results, setting: str) -> int | None:
    """Number of compared pairs in a setting that lacks some methods; None if it lacks none, or nothing was compared."""
    asked = methods_in_order(results, setting)
    complete = not any(results.reason(m, setting) or results.lacking(m, setting) for m in asked)
    if complete or results.pairs.empty:
        return None
    families = results.pairs.loc[results.pairs["setting"] == setting, "family"]
    return int(families.max()) if len(families) else None


def _cells_of_column(
    results: Results, setting: str, column: MetricColumn, letters: dict[str, str]
) -> tuple[dict[str, Estimate], ColumnComparison]:
    """Every method's cell, and how the methods compare; ``letters`` are those of methods that may be marked."""
    if column.metric == RANK_COLUMN:
        few = compare_column(results, setting, column.direction, results.deciding(setting), {}).few is not None
        return {
            method: _rank_cell(results, method, setting, column, few) for method in results.labels
        }, ColumnComparison()
    cells_without_marks = {method: _metric_cell(results, method, setting, column) for method in results.labels}
    estimates = {
        m: cells_without_marks[m].estimate for m in letters if not results.reason(m, setting, column.direction)
    }
    comparison = compare_column(results, setting, column.direction, column.metric, estimates)
    cells = {}
    for method, cell in cells_without_marks.items():
        beaten = comparison.beats.get(method, frozenset())
        beats = tuple(letters[other] for other in letters if other in beaten)
        cells[method] = replace(cell, beats=beats, best=method in comparison.best)
    return cells, comparison


def _rank_cell(results: Results, method: str, setting: str, column: MetricColumn, few: bool) -> Estimate:
    rank = None if few else rank_of_method(results, method, setting, column.direction)
    estimate, low, high = rank or (np.nan,) * 3
    absent = results.reason(method, setting, column.direction)
    seeds = 0 if absent else len(results.runs[method, setting, column.direction])
    return Estimate(estimate, np.nan, low, high, seeds)


def _metric_cell(results: Results, method: str, setting: str, column: MetricColumn) -> Estimate:
    if results.reason(method, setting, column.direction):
        return Estimate(*(np.nan,) * 4, seeds=0)
    seeds = values_by_seed(results, method, setting, column.direction, column.metric)
    low, high = metric_interval(results, method, setting, column.direction, column.metric)
    std = float(seeds.std(ddof=1)) if len(seeds) > 1 else np.nan
    if method in results.baselines:  # a closed form has no seeds that vary, and chance has no queries that do
        std = std if std > 1e-9 else np.nan
        low, high = (low, high) if high > low else (np.nan, np.nan)
    estimate = metric_estimate(results, method, setting, column.direction, column.metric)
    is_accuracy = setting == "binary" and column.metric == ACCURACY_METRIC
    tied = is_accuracy and ties_every_query(results, method, column.direction)
    tied |= low == high and method not in results.baselines and metric_of_column(column.metric).tested
    return Estimate(estimate, std, low, high, len(seeds), tied=tied)


# ---- The table as it is printed ------------------------------------------------------------------------------------


def format_setting_table(table: SettingResults, searched: str) -> Table:
    """The table as it is printed, independent of markup.

    ``searched`` is the task in words for the caption, for example ``text→video retrieval``.
    """
    columns = (Column("Method", number=False), Column("Train", number=False), *map(_column, table.columns))
    fixed_apart = not table.ordered  # a table of ranks is one list
    parts: tuple[tuple[str, list[MethodResults]], ...] = (
        ("", [row for row in table.rows if not (row.baseline or (row.fixed and fixed_apart))]),
        ("Fixed models", [row for row in table.rows if row.fixed and not row.baseline and fixed_apart]),
        ("Baselines", [row for row in table.rows if row.baseline]),
    )
    # Only the first group that has rows goes without a title.
    parts = tuple(
        (title if any(rows for _, rows in parts[:at]) else "", rows) for at, (title, rows) in enumerate(parts)
    )
    groups = tuple(RowGroup(title, tuple(_table_row(row, table) for row in rows)) for title, rows in parts if rows)
    title = f"{_table_title(table)}: {searched}"
    return Table(_table_number(table), title, slug(table.dataset, table.setting), columns, groups)


def file_letter(setting: str) -> str:
    """What stands before a setting in the name of its table's files: ``A_``; nothing where the table has no letter."""
    return f"{TABLE_LETTERS[setting]}_" if setting in TABLE_LETTERS else ""


def better_arrow(metric: str) -> str:
    """``↑`` if higher values are better, else ``↓``."""
    return "↓" if metric_of_column(metric).lower_is_better else "↑"


def metric_decimals(metric: str) -> int:
    return metric_of_column(metric).unit.digits


def setting_title(dataset: str, setting: str) -> str:
    """``RTime, Hard``."""
    return ", ".join(part for part in (dataset, SETTING_TITLES[setting]) if part)


def accuracy_name(setting: str, metric: str) -> str:
    """A deciding metric as columns name it: accuracy in Binary.

    >>> accuracy_name("binary", "R@1"), accuracy_name("hard", "R@1")
    ('accuracy', 'R@1')
    """
    return "accuracy" if setting == "binary" and metric == ACCURACY_METRIC else metric


def _table_number(table: SettingResults) -> str:
    return f"Table {TABLE_LETTERS.get(table.setting, SETTING_TITLES[table.setting])}"


def _table_title(table: SettingResults) -> str:
    # "Table Binary" already names the setting.
    return setting_title(table.dataset, table.setting) if table.setting in TABLE_LETTERS else table.dataset or "Twins"


def _column(column: MetricColumn) -> Column:
    return Column(column.title, "" if column.metric == RANK_COLUMN else better_arrow(column.metric), column.group)


def _table_row(row: MethodResults, table: SettingResults) -> tuple[Cell, ...]:
    cells = (_table_cell(cell, column, table) for cell, column in zip(row.cells, table.columns, strict=True))
    return (Cell(row.label, marks=row.letter), Cell(row.train), *cells)


def _table_cell(cell: Estimate, column: MetricColumn, table: SettingResults) -> Cell:
    decimals = 0 if column.metric == RANK_COLUMN else metric_decimals(column.metric)
    marks = ",".join(_letter_ranges(cell.beats) if table.ordered else cell.beats)
    printed = number_cell(cell.estimate, decimals, cell.std, cell.low, cell.high, marks=marks, bold=cell.best)
    return printed if column.interval and not cell.tied else replace(printed, interval=None)


def _letter_ranges(letters: tuple[str, ...]) -> list[str]:
    """Three neighbours or more as ``c–f``: in a table from best to worst, a method mostly beats all below some row."""
    names = letter_names(26 * 27)
    runs: list[list[int]] = []
    for position in map(names.index, letters):
        if runs and runs[-1][-1] == position - 1:
            runs[-1].append(position)
        else:
            runs.append([position])
    pieces = (
        [f"{names[run[0]]}–{names[run[-1]]}"] if len(run) > 2 else [names[position] for position in run] for run in runs
    )
    return [piece for group in pieces for piece in group]
