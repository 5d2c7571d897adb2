"""What documents print of the calibration's edges (``python tools/publish calibration_edges``).

    python benchmarks/calibration.py --grid edges --out results/calibration_edges.csv

measures them: few seeds, few clusters, ceilings, unequal seeds, the pre-training, mean ranks, letters.
"""

from __future__ import annotations

import pandas as pd

import calibration_tables as tables
from rewind.statistics.calibration import OUR_TEST

_READ = ("type I", "coverage")
_LETTERS = ("family-wise", "letter anywhere", "kept")


def slim(table: pd.DataFrame) -> pd.DataFrame:
    """The figures that documents read of, to the digits that a simulation of this size knows."""
    chosen = table[table["replicates"] == table["replicates"].max()]
    letters = (chosen["group"] == "letters") & chosen["measure"].isin(_LETTERS) & chosen["metric"].isin(("R@1", "any"))
    point = chosen["measure"].isin(("zero width", "zero width, difference", "p = 0")) & (chosen["rate"] > 0)
    return _wide(tables.slim(chosen[chosen["measure"].isin(_READ) | letters | point]))


def published(table: pd.DataFrame) -> dict[str, str]:
    """Name → a table in Markdown, or words in a sentence."""
    table = _long(tables.as_text(table))
    named = {"two-seeds": "two seeds", "fixed": "fixed models", "unequal": "unequal seeds", "mean-ranks": "mean ranks"}
    found = {name: tables.group_table(table, group, _READ) for name, group in named.items()}
    found["pre-training"] = tables.group_table(table, "pre-training", _READ)
    for name, group, down in (("clusters", "few clusters", ("clusters",)), ("ceilings", "ceilings", ("queries", "r1"))):
        for metric, short in (("R@1", "r1"), ("MnR", "mnr")):
            for measure in _READ:
                text = tables.crossed(table, group, measure, metric, down, ("seeds",))
                found[f"{name}-{measure.replace(' ', '-').lower()}-{short}"] = text.split("\n\n", 1)[1]
    found |= {"letters": tables.letters(table), "kept": tables.kept(table), "points": tables.degenerate(table)}
    return found | {"outside": tables.outside(table), "outside-summary": tables.outside_summary(table)}


def _wide(table: pd.DataFrame) -> pd.DataFrame:
    """A row per cell and measure, the metrics beside each other: names of cells are long."""
    keys = [column for column in table.columns if column not in ("metric", "rate", "error", "procedure", "replicates")]
    wide = table.set_index([*keys, "metric"])[["rate", "error"]].unstack("metric")
    wide.columns = [f"{value} {metric}" for value, metric in wide.columns]
    order = table.drop_duplicates(keys).set_index(keys).index
    return wide.loc[order].reset_index()


def _long(table: pd.DataFrame) -> pd.DataFrame:
    """As it was measured: a row per cell, measure and metric."""
    metrics = [column.removeprefix("rate ") for column in table.columns if column.startswith("rate ")]
    keys = [column for column in table.columns if not column.startswith(("rate ", "error "))]
    parts = [
        table[keys].assign(
            procedure=OUR_TEST, metric=metric, rate=table[f"rate {metric}"], error=table[f"error {metric}"]
        )
        for metric in metrics
    ]
    return pd.concat(parts).dropna(subset=["rate"]).sort_index(kind="stable").reset_index(drop=True)
