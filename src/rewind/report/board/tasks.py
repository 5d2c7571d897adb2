"""One rank over several data sets: the mean of a method's ranks within them, never a mean of their scores.

Methods that have one label are one method. In a setting and direction those are ranked that form a group on every data
set of the board where anything can be ranked (:mod:`rewind.report.board.ranking`), among each other.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rewind.ranking_metrics import METRICS
from rewind.statistics.ranks import rank_by_mean
from rewind.statistics.task_ranks import mean_rank_intervals


@dataclass(frozen=True)
class MethodOverTasks:
    """A method's mean rank with its interval, its rank on each data set, and what single data sets show of it.

    Attributes:
        ranks: data set → rank among the methods of the table, 1 for the best; equal scores share the better one.
        shown_best, shown_beaten: data sets on which it is shown to be first in its group, or not to be.
    """

    label: str
    mean: float
    low: float
    high: float
    ranks: dict[str, int]
    shown_best: int
    shown_beaten: int


@dataclass(frozen=True)
class TaskRanks:
    """Methods in a setting and direction over data sets, the best first; ``left_out`` are those not on all of them."""

    setting: str
    direction: str
    confidence: float
    methods: tuple[MethodOverTasks, ...]
    left_out: tuple[str, ...]

    @property
    def data_sets(self) -> list[str]:
        return list(self.methods[0].ranks)

    @property
    def says_little(self) -> bool:
        """Whether some interval holds every rank."""
        return any(method.low <= 1 and method.high >= len(self.methods) for method in self.methods)


def ranks_over_data_sets(cells: pd.DataFrame) -> list[TaskRanks]:
    """Tables for all settings and directions in which two methods or more are comparable on two data sets or more.

    ``cells`` are those of :func:`rewind.report.board.ranking.rank_cells`. A label that several rows of a column have is
    nobody's.
    """
    found = []
    for (setting, direction), column in cells[cells["group"] != ""].groupby(["setting", "direction"], sort=False):
        alone = column[~column.duplicated(["data_set", "label"], keep=False)]
        data_sets = list(dict.fromkeys(alone["data_set"]))
        if len(data_sets) < 2:
            continue
        places = {name: rows.set_index("label") for name, rows in alone.groupby("data_set", sort=False)}
        together: dict[tuple[str, ...], list[str]] = defaultdict(list)  # groups on all data sets → labels
        for label in dict.fromkeys(column["label"]):
            if all(label in places[name].index for name in data_sets):
                together[tuple(places[name].at[label, "group"] for name in data_sets)].append(label)
        for labels in together.values():
            if len(labels) > 1:
                table = {name: places[name].loc[labels] for name in data_sets}
                others = tuple(label for label in dict.fromkeys(column["label"]) if label not in labels)
                found.append(_table(setting, direction, table, others))
    return found


def _table(setting: str, direction: str, tasks: dict[str, pd.DataFrame], left_out: tuple[str, ...]) -> TaskRanks:
    ranks = np.array(
        [
            rank_by_mean(rows["estimate"].to_numpy(), METRICS[rows["metric"].iloc[0]].lower_is_better)
            for rows in tasks.values()
        ]
    )
    confidence = max(float(rows["confidence"].max()) for rows in tasks.values())
    mean, low, high = mean_rank_intervals(ranks, confidence)
    labels = next(iter(tasks.values())).index
    methods = [
        MethodOverTasks(
            label=str(label),
            mean=float(mean[k]),
            low=float(low[k]),
            high=float(high[k]),
            ranks={name: int(ranks[n, k]) for n, name in enumerate(tasks)},
            shown_best=sum(bool(rows.at[label, "rank_high"] == 1) for rows in tasks.values()),
            shown_beaten=sum(bool(rows.at[label, "rank_low"] > 1) for rows in tasks.values()),
        )
        for k, label in enumerate(labels)
    ]
    methods.sort(key=lambda method: method.mean)
    return TaskRanks(setting, direction, confidence, tuple(methods), left_out)
