"""Results by group of captions: a row of markers with intervals for each group."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rewind.figures import style
from rewind.figures.forest import DASHED, metric_label
from rewind.ranking_metrics import CHANCE_ACCURACY, metric_of_column
from rewind.statistics.chance import ALL_TIED
from rewind.statistics.inference import significance_level
from rewind.tables.results import chance_mark
from rewind.tables.settings import SETTING_TITLES

MAX_GROUPS = 40
"""Most groups in a picture: if there are more, those with the most queries."""
GROUP_HEIGHT = 0.72  # share of the distance between two groups over which a group's methods are spread


def group_intervals(
    table: pd.DataFrame,
    labels: Mapping[str, str],
    baselines: Collection[str],
    setting: str,
    direction: str = "text_to_item",
    confidence: float = 0.95,
) -> Figure:
    """Estimate and interval of every method in every group of a setting, groups from best to worst.

    In Binary with a line at chance and the marks of tests. Baselines are not drawn, unless there are no other methods.
    If the setting lacks the direction, the one that it has is drawn. ``table`` is ``statistics/groups.csv``.
    """
    rows = table[table["setting"] == setting]
    if direction not in set(rows["direction"]) and len(rows):
        direction = rows["direction"].iloc[0]
    shown = [m for m in labels if m not in baselines] or list(labels)
    rows = rows[(rows["direction"] == direction) & rows["method"].isin(shown)]
    with style.applied():
        if rows.empty:
            return style.message_figure("No query of this setting is in a group.")
        sizes = rows.groupby("group")["queries"].first()
        largest = sizes.sort_values(ascending=False, kind="stable").index[:MAX_GROUPS]
        means = rows[rows["group"].isin(largest)].groupby("group")["estimate"].mean()
        ascending = metric_of_column(rows["metric"].iloc[0]).lower_is_better
        order = list(means.sort_values(ascending=ascending, kind="stable").index)
        methods = [method for method in shown if method in set(rows["method"])]
        return _draw_groups(rows, order, sizes, methods, labels, baselines, setting, confidence)


def _draw_groups(
    rows: pd.DataFrame,
    order: list[str],
    sizes: pd.Series,
    methods: list[str],
    labels: Mapping[str, str],
    baselines: Collection[str],
    setting: str,
    confidence: float,
) -> Figure:
    metric, looks = rows["metric"].iloc[0], style.method_styles(labels, baselines)
    step = GROUP_HEIGHT / max(1, len(methods))
    fig = style.figure(style.DOUBLE_COLUMN, 0.9 + len(order) * (0.16 + 0.085 * len(methods)))
    axes = fig.add_subplot()
    cells = rows.set_index(["group", "method"])
    for i, method in enumerate(methods):
        look = looks[method]
        for row_number, group in enumerate(order):
            if (group, method) not in cells.index:
                continue
            row, y = cells.loc[(group, method)], row_number + (i - (len(methods) - 1) / 2) * step
            if row.get("tied") != ALL_TIED:  # 50 by construction: tables print no interval either
                axes.plot([row["low"], row["high"]], [y, y], color=look.color, alpha=0.4, linewidth=2.6)
            axes.plot(row["estimate"], y, marker=look.marker, color=look.color, markersize=4, linestyle="none")
            if mark := chance_mark(row["estimate"], row["p_holm"], significance_level(confidence)):
                axes.annotate(mark, (1.005, y), xycoords=("axes fraction", "data"), va="center", fontsize=7)
        name = style.escape_dollars(labels[method])
        axes.plot([], [], marker=look.marker, color=look.color, markersize=4, linestyle="none", label=name)
    axes.set_yticks(range(len(order)), [f"{style.escape_dollars(group)} ({sizes[group]:,})" for group in order])
    axes.set_ylim(len(order) - 0.5, -0.5)
    for line in np.arange(len(order) - 1) + 0.5:
        axes.axhline(line, color=style.GRID, linewidth=0.5, zorder=0)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    if setting == "binary":
        axes.axvline(CHANCE_ACCURACY, color="black", linewidth=0.8, linestyle=DASHED, zorder=1)
    axes.set_title(f"{SETTING_TITLES[setting]} by group (queries)", loc="left")
    axes.set_xlabel("accuracy (%)" if setting == "binary" else metric_label(metric))
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    style.legend_below(fig, axes, min(4, len(methods)))
    return fig
