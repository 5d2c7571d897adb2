"""Whether a gap between two methods shrinks in a control: the difference of two gaps with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from rewind.statistics import labels
from rewind.statistics.blocks import Runs, blocks
from rewind.statistics.inference import combination
from rewind.statistics.parts import parts
from rewind.study.verdict import CLAIMED

COLUMNS = (
    *("method", "baseline", "control", "control_baseline", "setting", "direction", "metric"),
    *("gap", "control_gap", "shrinkage", "low", "high", "p", "procedure", "df"),
)


def shrinkage(
    runs: Runs, baseline: str, methods: Sequence[str], control: Mapping[str, str], setting: str, confidence: float
) -> pd.DataFrame:
    """(method − baseline) − (its counterpart − the baseline's counterpart), R@k in percent, both search directions.

    The four methods answer the same queries, and their training seeds are independent, as in the comparison of pairs.

    Args:
        runs: rank tables of all of them.
        baseline, methods: whose gaps.
        control: the counterpart of each.
        setting: which.
        confidence: of the intervals.

    Returns:
        One row per method, direction and metric.
    """
    wanted = dict.fromkeys([baseline, *methods, *control.values()])
    rows: list[dict[str, Any]] = []
    for block in blocks({name: runs[name] for name in wanted}):
        if block.setting != setting:
            continue
        found = {name: parts(block.totals(name, CLAIMED), block.clusters.sizes) for name in wanted}
        for method in methods:
            four = (method, baseline, control[method], control[baseline])
            place = dict(zip(COLUMNS, (*four, setting, block.direction), strict=False))
            result = combination([found[name] for name in four], (1, -1, -1, 1), confidence, 200.0)
            gap, other = (found[a].mean - found[b].mean for a, b in (four[:2], four[2:]))
            procedure = labels.pair(*(min(len(block.higher[name]) for name in two) for two in (four[:2], four[2:])))
            for k, metric in enumerate(CLAIMED):
                rows.append(
                    place
                    | {"metric": metric, "gap": gap[k], "control_gap": other[k], "shrinkage": result.estimate[k]}
                    | {"low": result.low[k], "high": result.high[k], "p": result.p[k]}
                    | {"procedure": procedure, "df": result.df[k]}
                )
    return pd.DataFrame(rows, columns=list(COLUMNS))
