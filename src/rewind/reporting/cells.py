"""From numbers to the cells of a table: means, marks of significance, what is bold. No markup here."""

from __future__ import annotations

import string
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rewind.errors import RewindError
from rewind.reporting.results import LOWER_IS_BETTER, Results, check, directions, interval, values

TITLES = {"origin": "Origin", "hard": "Hard", "binary": "Binary", "test": "Test"}
LETTERS = {"origin": "A", "hard": "B", "test": "A"}


@dataclass(frozen=True)
class Column:
    """A column of numbers: a metric in a search direction, with its interval in brackets or not."""

    title: str
    metric: str
    direction: str
    interval: bool = False


@dataclass(frozen=True)
class Cell:
    """One number and what is known about it.

    ``std`` is NaN for a single run and for a closed form; ``beats`` holds the letters of the methods that it
    is significantly better than.
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
    """One method. A baseline has no letter."""

    method: str
    label: str
    train: str
    letter: str
    baseline: bool
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """A table before it is written in any markup; ``dataset`` is the title of the data, for the caption."""

    setting: str
    dataset: str
    direction: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    confidence: float
    tested: bool

    @property
    def heading(self) -> str:
        """``Table B. RTime, Hard: text→video``-like heading without the direction's nouns."""
        letter = LETTERS.get(self.setting)
        name = ", ".join(part for part in (self.dataset, TITLES[self.setting]) if part)
        return f"Table {letter}. {name}" if letter else f"Table {TITLES[self.setting]}. {self.dataset or 'Twins'}"

    @property
    def marked(self) -> bool:
        """Whether any two methods differ significantly in it."""
        return any(cell.beats for row in self.rows for cell in row.cells)


def build(results: Results, setting: str, dataset: str = "") -> Table:
    """The table of one setting.

    Trained methods come in the study's order, then baselines. The best value of a column is bold where at
    least one pair of methods differs significantly in that column; nothing is bold elsewhere.

    Raises:
        RewindError: from :func:`rewind.reporting.results.check`, or for a setting without a table.
    """
    if setting not in TITLES:
        raise RewindError(f"tables: no table for setting {setting!r}; there are {', '.join(TITLES)}.")
    check(results, setting)
    ways = directions(results, setting)
    columns = binary_columns(ways) if setting == "binary" else ranked_columns(ways[0])
    letters = dict(zip(results.trained(), letter_names(len(results.trained())), strict=True))
    by_column = [_column_cells(results, setting, column, letters) for column in columns]
    rows = tuple(
        Row(
            method,
            results.labels[method],
            results.train[method],
            letters.get(method, ""),
            method in results.baselines,
            tuple(cells[method] for cells in by_column),
        )
        for method in results.ordered()
    )
    tested = any(len(_tests(results, setting, c.metric, c.direction)) for c in columns)
    return Table(setting, dataset, ways[0], columns, rows, results.confidence, tested)


def ranked_columns(direction: str) -> tuple[Column, ...]:
    """R@1, R@5, R@10, MdR, MnR."""
    return tuple(Column(metric, metric, direction) for metric in ("R@1", "R@5", "R@10", "MdR", "MnR"))


def binary_columns(ways: list[str]) -> tuple[Column, ...]:
    """Accuracy (a tie counts one half) with its interval, and strict (a tie is wrong), per direction."""
    short = {"text_to_item": "T2V", "item_to_text": "V2T"}
    kinds = (("accuracy", "R@1", True), ("strict", "R@1_pessimistic", False))
    return tuple(Column(f"{short[way]} {name}", metric, way, ci) for way in ways for name, metric, ci in kinds)


def letter_names(n: int) -> list[str]:
    """``a`` … ``z``, then ``aa``, ``ab``, …"""
    single = string.ascii_lowercase
    return [single[i] if i < 26 else single[i // 26 - 1] + single[i % 26] for i in range(n)]


def numbers(results: Results, setting: str) -> pd.DataFrame:
    """The table's CSV: one row per method, direction and metric, at full precision, MRR included.

    Columns: method, label, setting, direction, metric, queries, gallery, seeds, estimate (mean over seeds),
    std (over seeds, empty for one run), low, high (empty where there is no interval), beats (keys of the
    methods that it is significantly better than, separated by blanks).
    """
    check(results, setting)
    keys = {method: method for method in results.trained()}
    rows = []
    for direction in directions(results, setting):
        chosen = (results.metrics["setting"] == setting) & (results.metrics["direction"] == direction)
        first = results.metrics[chosen].iloc[0]
        for metric in ("R@1", "R@5", "R@10", "MdR", "MnR", "MRR", "R@1_pessimistic"):
            cells = _column_cells(results, setting, Column(metric, metric, direction), keys)
            for method in results.ordered():
                cell = cells[method]
                rows.append(
                    {
                        "method": method,
                        "label": results.labels[method],
                        "setting": setting,
                        "direction": direction,
                        "metric": metric,
                        "queries": int(first["queries"]),
                        "gallery": int(first["gallery"]),
                        "seeds": cell.seeds,
                        "estimate": cell.estimate,
                        "std": cell.std,
                        "low": cell.low,
                        "high": cell.high,
                        "beats": " ".join(cell.beats),
                    }
                )
    order = {method: i for i, method in enumerate(results.ordered())}
    return pd.DataFrame(rows).sort_values("method", key=lambda m: m.map(order), kind="stable", ignore_index=True)


def _column_cells(results: Results, setting: str, column: Column, letters: dict[str, str]) -> dict[str, Cell]:
    won = _beaten(results, setting, column)
    plain = {method: _cell(results, method, setting, column) for method in results.labels}
    sign = -1.0 if column.metric in LOWER_IS_BETTER else 1.0
    top = max((sign * plain[method].estimate for method in letters), default=np.nan)
    cells = {}
    for method, cell in plain.items():
        # Means of equal values may differ in the last bit.
        best = bool(any(won.values())) and method in letters and bool(np.isclose(sign * cell.estimate, top, rtol=1e-12))
        beats = tuple(letters[other] for other in letters if other in won.get(method, ()))
        cells[method] = Cell(cell.estimate, cell.std, cell.low, cell.high, cell.seeds, beats, best)
    return cells


def _cell(results: Results, method: str, setting: str, column: Column) -> Cell:
    seeds = values(results, method, setting, column.direction, column.metric)
    low, high = interval(results, method, setting, column.direction, column.metric)
    std = float(seeds.std(ddof=1)) if len(seeds) > 1 else np.nan
    if method in results.baselines and std < 1e-9:  # a closed form has no seeds to vary
        std = np.nan
    return Cell(float(seeds.mean()), std, low, high, len(seeds))


def _tests(results: Results, setting: str, metric: str, direction: str) -> pd.DataFrame:
    """Comparisons of two trained methods that have a p-value."""
    table = results.pairs
    if table.empty:
        return table
    trained = results.trained()
    here = (table["setting"] == setting) & (table["direction"] == direction) & (table["metric"] == metric)
    return table[here & table["first"].isin(trained) & table["second"].isin(trained) & table["p_holm"].notna()]


def _beaten(results: Results, setting: str, column: Column) -> dict[str, set[str]]:
    """method → the methods that it is significantly better than."""
    sign = -1.0 if column.metric in LOWER_IS_BETTER else 1.0
    won: dict[str, set[str]] = {}
    for row in _tests(results, setting, column.metric, column.direction).itertuples():
        if row.p_holm < round(1 - results.confidence, 12) and row.difference != 0:
            winner, loser = (row.first, row.second) if sign * row.difference > 0 else (row.second, row.first)
            won.setdefault(winner, set()).add(loser)
    return won
