"""Runs against themselves: what each of several controls costs every method."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from rewind.config.report import Statistics
from rewind.statistics.blocks import RunRanks
from rewind.statistics.comparisons import compare_methods
from rewind.statistics.pairs import RandomFactors

CONTROL_COLUMNS = (
    *("method", "control", "setting", "direction", "metric", "estimate", "controlled", "loss", "low", "high"),
    *("p", "p_holm", "procedure", "family", "clusters", "df", "identical", "boot_low", "boot_high"),
)
_SEPARATOR = "\n"  # between a method and a control; no method's name has a line break


def compare_with_controls(
    runs: RunRanks, controlled: Mapping[str, RunRanks], setting: str, keys: Statistics, random: RandomFactors
) -> pd.DataFrame:
    """How much better every method is as it is than under each control; ``controlled`` are the same runs under it.

    A run and the same run under a control have the same weights and the same queries: both cancel, as a pre-trained
    backbone's effect does in :func:`rewind.statistics.inference.paired_inference`. Holm's correction runs over all
    methods and controls. The direction is from captions to items.

    Columns :data:`CONTROL_COLUMNS`, one row per method, control and metric. ``estimate`` is the method's value,
    ``controlled`` that under the control, and ``loss`` their difference, above 0 where the control costs the method
    something (mean ranks: below 0). ``identical``: every query of every run has exactly the same rank, so that the
    difference is 0 by construction and not by chance.
    """
    methods = list(dict.fromkeys(method for tables in controlled.values() for method in tables))
    tables = {method: _in_setting(runs[method], setting) for method in methods}
    identical = {}
    pairs = []
    for control, under_control in controlled.items():
        for method, seeds in under_control.items():
            name = f"{method}{_SEPARATOR}{control}"
            tables[name] = _in_setting(seeds, setting)
            pairs.append((method, name))
            identical[method, control] = _same_ranks(tables[method], tables[name])
    # A fixed model is one under a control too; its name stands before the separator.
    fixed = frozenset(name for name in tables if name.split(_SEPARATOR)[0] in random.fixed)
    factors = RandomFactors(fixed=fixed, paired=frozenset(tables))
    results = compare_methods(tables, pairs, keys, factors)
    means = results.intervals.set_index(["method", "metric"])["estimate"]
    rows = []
    for row in results.pairs.to_dict("records"):
        method, control = str(row["second"]).split(_SEPARATOR)
        values = {"estimate": means[method, row["metric"]], "controlled": means[row["second"], row["metric"]]}
        rows.append(
            row
            | {"method": method, "control": control, "loss": row["difference"]}
            | values
            | {"identical": int(identical[method, control])}
        )
    return pd.DataFrame(rows, columns=list(CONTROL_COLUMNS))


def _in_setting(seeds: Mapping[int, pd.DataFrame], setting: str) -> dict[int, pd.DataFrame]:
    chosen = {
        seed: table[(table["setting"] == setting) & (table["direction"] == "text_to_item")]
        for seed, table in seeds.items()
    }
    return {seed: table.reset_index(drop=True) for seed, table in chosen.items()}


def _same_ranks(first: Mapping[int, pd.DataFrame], second: Mapping[int, pd.DataFrame]) -> bool:
    return all(
        np.array_equal(first[seed].set_index("query_id").loc[table["query_id"], ["higher", "ties"]].to_numpy(), values)
        for seed, table in second.items()
        for values in [table[["higher", "ties"]].to_numpy()]
    )
