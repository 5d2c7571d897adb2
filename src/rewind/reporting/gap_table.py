"""The table of gaps: what a method loses when the time-reversed twins join the gallery."""

from __future__ import annotations

from typing import Any

import pandas as pd

from rewind.metrics import ACCURACY, METRICS
from rewind.reporting.results import DIRECTIONS, Results
from rewind.reporting.setting_table import decimals
from rewind.reporting.sheet import MISSING, Entry, Head, Part, Sheet, bounds, number, slug


def numbers(results: Results) -> pd.DataFrame:
    """The table's CSV: ``gaps.csv`` in the order of the tables, with the methods' names; empty without gaps."""
    if results.gaps.empty:
        return pd.DataFrame()
    order = {method: at for at, method in enumerate(results.ordered())}
    rows = results.gaps.sort_values("method", key=lambda m: m.map(order), kind="stable", ignore_index=True)
    rows.insert(0, "label", rows["method"].map(results.labels))
    return rows


def metrics(results: Results) -> list[str]:
    """Of the metrics that the study's tables show, those that are means over queries, which have a gap."""
    return [metric for metric in results.shown() if METRICS[metric].tested] or [ACCURACY]


def sheet(results: Results, dataset: str = "") -> Sheet:
    """A row per method, a part per search direction; each gap with its interval.

    Args:
        results: the study's numbers; some gap is there.
        dataset: title of the data, for the caption.
    """
    rows = numbers(results)
    ways = [way for way in DIRECTIONS if way in set(rows["direction"])]
    parts = []
    for way in ways:
        cells = {(r.method, r.metric): r for r in rows[rows["direction"] == way].itertuples()}
        methods = dict.fromkeys(method for method, _ in cells)
        lines = tuple(_line(results, method, cells) for method in methods)
        parts.append(Part(results.short(way) if len(ways) > 1 else "", lines))
    heads = (Head("Method", number=False), *map(Head, metrics(results)))
    title = ", ".join(part for part in (dataset, "Origin − Hard") if part)
    return Sheet("Gap", title, slug(dataset, "gap"), heads, tuple(parts))


def _line(results: Results, method: str, cells: dict[tuple[str, str], Any]) -> tuple[Entry, ...]:
    exact = method in results.baselines  # chance has a gap without error
    entries = (_entry(cells.get((method, metric)), metric, exact) for metric in metrics(results))
    return (Entry(results.labels[method]), *entries)


def _entry(row: Any, metric: str, exact: bool) -> Entry:
    if row is None:
        return Entry(MISSING)
    digits = decimals(metric)
    ends = bounds(row.low, row.high, digits, signed=True) if row.high > row.low or not exact else None
    return Entry(number(row.gap, digits, signed=True), interval=ends)
