"""The difference of two methods as a file of pairs has it, whichever of them stands first there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd


class Difference(NamedTuple):
    """One method minus another; ``p_holm`` is NaN where they were not tested, ``detectable`` where nobody said."""

    value: float
    low: float
    high: float
    p_holm: float
    detectable: float = float("nan")


def row_of(table: pd.DataFrame, **values: str) -> pd.Series | None:
    """The first row with these values; None without."""
    if table.empty:
        return None
    chosen = np.logical_and.reduce([table[name] == value for name, value in values.items()])
    return table[chosen].iloc[0] if chosen.any() else None


def between(table: pd.DataFrame, one: str, other: str, **place: str) -> Difference | None:
    """``one`` minus ``other``; None where they were not compared.

    Args:
        table: first, second, difference, low, high, p_holm, and perhaps detectable.
        one, other: methods.
        place: what else identifies a row, for example the setting.
    """
    for first, second, sign in ((one, other, 1), (other, one, -1)):
        row = row_of(table, first=first, second=second, **place)
        if row is not None:
            low, high = sorted((sign * float(row["low"]), sign * float(row["high"])))
            seen = float(row.get("detectable", np.nan))
            return Difference(sign * float(row["difference"]), low, high, float(row["p_holm"]), seen)
    return None
