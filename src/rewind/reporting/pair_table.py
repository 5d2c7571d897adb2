"""The table of pairs: difference, interval, p, Holm's p, effect, and the bootstrap beside them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from rewind.metrics import known
from rewind.reporting.results import Results, check, directions
from rewind.reporting.setting_table import decimals, place
from rewind.reporting.sheet import Entry, Head, Part, Sheet, bounds, number, p_value, slug


def numbers(results: Results, setting: str) -> pd.DataFrame:
    """The table's CSV: ``pairs.csv`` in this setting, all metrics, with the names of both methods.

    Raises:
        RewindError: from :func:`rewind.reporting.results.check`.
    """
    check(results, setting)
    if results.pairs.empty:
        return pd.DataFrame()
    rows = results.pairs[results.pairs["setting"] == setting].reset_index(drop=True)
    for column in ("second", "first"):
        rows.insert(0, f"{column}_label", rows[column].map(results.labels))
    return rows


def sheet(results: Results, setting: str, dataset: str = "") -> Sheet:
    """A row per pair, a part per search direction; the deciding metric alone is printed.

    Args:
        results: the study's numbers; some pair was compared in this setting.
        setting: which.
        dataset: title of the data, for the caption.
    """
    rows = numbers(results, setting)
    ways, metric = directions(results, setting), results.deciding(setting)
    digits = decimals(metric)
    level = round(1 - results.confidence, 12)
    parts = []
    for way in ways:
        chosen = rows[(rows["direction"] == way) & (rows["metric"] == metric)]
        if len(chosen):
            lines = tuple(_line(row, level, digits) for row in chosen.itertuples())
            parts.append(Part(results.short(way) if len(ways) > 1 else "", lines))
    what = "accuracy" if setting == "binary" else metric
    heads = (
        Head("Pair", number=False),
        Head("Difference"),
        *(Head(title) for title in ("p", "Holm’s p", "Detectable", "Effect")),
        Head("these checkpoints", group="Bootstrap"),
    )
    title = f"{place(dataset, setting)}: differences in {what}"
    return Sheet("Pairs", title, slug(dataset, setting, "pairs"), heads, tuple(parts))


def _line(row: Any, level: float, digits: int) -> tuple[Entry, ...]:
    significant = bool(row.p_holm < level)
    low_high = bounds(row.boot_low, row.boot_high, digits, signed=True)
    return (
        Entry(f"{row.first_label} − {row.second_label}"),
        Entry(
            number(row.difference, digits, signed=True),
            "",
            bounds(row.low, row.high, digits, signed=True),
            bold=significant,
        ),
        Entry(p_value(row.p)),
        Entry(p_value(row.p_holm), bold=significant),
        Entry("> 100" if known(row.metric).percent and row.detectable > 100 else number(row.detectable, digits)),
        Entry(number(row.effect, 2, signed=True)),
        Entry("", interval=low_high),
    )
