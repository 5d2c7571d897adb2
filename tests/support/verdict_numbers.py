"""Made-up numbers of a study with a verdict: base and new under topical batches, their counterparts under uniform."""

from __future__ import annotations

import dataclasses

import pandas as pd

from rewind.config.report import Verdict
from rewind.tables.results import Results
from table_numbers import WAYS, intervals, metrics, pairs

CONTROL = {"base": "base_uniform", "new": "new_uniform"}
VALUES = {
    "base": [20.0, 21.0, 22.0],
    "new": [23.0, 23.5, 26.0],
    "base_uniform": [20.0, 21.0, 22.0],
    "new_uniform": [20.5, 21.0, 22.0],
}


def ratios(ratio: float) -> dict[str, float]:
    return {"ratio": ratio, "ratio_low": ratio - 0.02, "ratio_high": ratio + 0.03}


def step_time(ratio: float) -> pd.DataFrame:
    place = {"baseline": "base", "rounds": 30, "batch": 64, "device": "1 CPU"}
    return pd.DataFrame([{"method": "base", **ratios(1.0)} | place, {"method": "new", **ratios(ratio)} | place])


def control(shrinkage: float, half: float, ways: tuple[str, ...] = WAYS) -> pd.DataFrame:
    ends = {"shrinkage": shrinkage, "low": shrinkage - half, "high": shrinkage + half}
    rows = [{"direction": way, "metric": metric} for way in ways for metric in ("R@1", "R@5")]
    return pd.DataFrame([{"method": "new", "setting": "test"} | row | ends for row in rows])


def results(
    values: dict[str, list[float]] = VALUES,
    p: float = 0.01,
    ratio: float = 1.05,
    shrinkage: tuple[float, float] = (2.0, 1.0),
    turned: bool = False,
    **keys,
) -> Results:
    """A win, unless something is changed; ``turned`` writes the pair as base − new."""
    table = metrics(values, "test")
    pair = ("base", "new") if turned else ("new", "base")
    made = Results(
        table, intervals(table), pairs(table, {pair: p}), dict.fromkeys(values, ""), dict.fromkeys(values, "")
    )
    verdict = Verdict(**{"baseline": "base", "methods": ["new"], "control": CONTROL} | keys)
    labels = {name: name.replace("_", ", ").capitalize() for name in values}
    return dataclasses.replace(
        made,
        labels=labels,
        train=dict.fromkeys(values, "Data"),
        verdict=verdict,
        items="images",
        analyses={
            "step_time": step_time(ratio),
            "control": control(*shrinkage) if verdict.control else pd.DataFrame(),
        },
        seeds={name: [0, 1, 2] for name in values},
    )
