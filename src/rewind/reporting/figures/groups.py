"""Results group by group: a row of markers with intervals for each group of captions."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rewind.metrics import known
from rewind.reporting import style
from rewind.reporting.cells import TITLES
from rewind.reporting.figures.forest import DASHED, unit
from rewind.reporting.group_table import mark

MOST = 40
"""Groups in a picture; of more, those with the most queries."""
SPREAD = 0.72  # of the space between two groups, over which a group's methods stand


def group_intervals(
    table: pd.DataFrame,
    labels: Mapping[str, str],
    baselines: Collection[str],
    setting: str,
    direction: str = "text_to_item",
    confidence: float = 0.95,
) -> Figure:
    """Estimate and interval of every method in every group of a setting; in Binary with chance and marks of tests.

    Args:
        table: ``statistics/groups.csv``.
        labels: method → name, in the order of the study.
        baselines: methods that are not drawn: in a group they say nothing new.
        setting: which.
        direction: which search direction; where the setting lacks it, the one that it has.
        confidence: of the intervals, and of the tests' marks.
    """
    rows = table[table["setting"] == setting]
    if direction not in set(rows["direction"]) and len(rows):
        direction = rows["direction"].iloc[0]
    shown = [m for m in labels if m not in baselines] or list(labels)
    rows = rows[(rows["direction"] == direction) & rows["method"].isin(shown)]
    with style.applied():
        if rows.empty:
            return style.message("No query of this setting is in a group.")
        sizes = rows.groupby("group")["queries"].first()
        kept = sizes.sort_values(ascending=False, kind="stable").index[:MOST]
        means = rows[rows["group"].isin(kept)].groupby("group")["estimate"].mean()
        lower = known(rows["metric"].iloc[0]).lower_is_better
        order = list(means.sort_values(ascending=lower, kind="stable").index)
        methods = [method for method in shown if method in set(rows["method"])]
        return _drawn(rows, order, sizes, methods, labels, baselines, setting, confidence)


def _drawn(
    rows: pd.DataFrame,
    order: list[str],
    sizes: pd.Series,
    methods: list[str],
    labels: Mapping[str, str],
    baselines: Collection[str],
    setting: str,
    confidence: float,
) -> Figure:
    metric, looks = rows["metric"].iloc[0], style.looks(labels, baselines)
    step = SPREAD / max(1, len(methods))
    fig = style.figure(style.DOUBLE, 0.9 + len(order) * (0.16 + 0.085 * len(methods)))
    axes = fig.add_subplot()
    cells = rows.set_index(["group", "method"])
    for at, method in enumerate(methods):
        look = looks[method]
        for place, group in enumerate(order):
            if (group, method) not in cells.index:
                continue
            row, y = cells.loc[(group, method)], place + (at - (len(methods) - 1) / 2) * step
            axes.plot([row["low"], row["high"]], [y, y], color=look.color, alpha=0.4, linewidth=2.6)
            axes.plot(row["estimate"], y, marker=look.marker, color=look.color, markersize=4, linestyle="none")
            if sign := mark(row["estimate"], row["p_holm"], round(1 - confidence, 12)):
                axes.annotate(sign, (1.005, y), xycoords=("axes fraction", "data"), va="center", fontsize=7)
        name = style.plain(labels[method])
        axes.plot([], [], marker=look.marker, color=look.color, markersize=4, linestyle="none", label=name)
    axes.set_yticks(range(len(order)), [f"{style.plain(group)} ({sizes[group]:,})" for group in order])
    axes.set_ylim(len(order) - 0.5, -0.5)
    for line in np.arange(len(order) - 1) + 0.5:
        axes.axhline(line, color="#e3e3e3", linewidth=0.5, zorder=0)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    if setting == "binary":
        axes.axvline(50, color="black", linewidth=0.8, linestyle=DASHED, zorder=1)
    axes.set_title(f"{TITLES[setting]} by group (queries)", loc="left")
    axes.set_xlabel("accuracy (%)" if setting == "binary" else unit(metric))
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    style.legend_below(fig, axes, min(4, len(methods)))
    return fig
