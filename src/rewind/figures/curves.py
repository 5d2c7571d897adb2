"""Training curves: mean and range over the seeds of every method, epoch by epoch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rewind.errors import RewindError
from rewind.figures import style
from rewind.figures.style import MethodStyle

CURVE_LABELS = {
    "valid_sum": "validation R@1+R@5+R@10",
    "valid_R@1": "validation R@1",
    "valid_mean R@1": "validation R@1, mean of both directions",
    "valid_loss": "validation InfoNCE",
    "loss": "training loss",
    "topical_pct": "topical batches (%)",
    "largest_cluster_pct": "first cluster's share (%)",
    "largest_cluster": "largest cluster (captions)",
}


def training_curves(
    history: pd.DataFrame,
    labels: Mapping[str, str],
    baselines: Collection[str] = (),
    values: Sequence[str] = ("valid_sum", "loss"),
) -> Figure:
    """Mean over seeds as a line, lowest to highest seed as a band; a panel per value.

    ``history`` is the runs' ``history.csv`` stacked, with columns method and seed added. Epochs without a value (not
    every epoch is validated) are skipped, as are epochs that not every seed has reached. Missing and empty columns of
    ``values`` are left out. ``baselines`` have no history.
    """
    columns = [name for name in values if name in history.columns and history[name].notna().any()]
    with style.applied():
        if not columns:
            return style.message_figure("No training history: every method is a closed form.")
        fig = style.figure(style.DOUBLE_COLUMN if len(columns) > 1 else style.SINGLE_COLUMN, 2.8)
        panels = fig.subplots(1, len(columns), squeeze=False)[0]
        styles = style.method_styles(labels, baselines)
        for axes, name in zip(panels, columns, strict=True):
            for method in (m for m in labels if m in set(history["method"])):
                rows = history[history["method"] == method]
                _draw_curve(axes, rows, name, style.escape_dollars(labels[method]), styles[method])
            axes.set(xlabel="epoch", ylabel=CURVE_LABELS.get(name, name))
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        style.legend_below(fig, panels[0], columns=4 if len(columns) > 1 else 2)
        fig.suptitle("line: mean over seeds; band: lowest to highest seed", fontsize=7, color=style.FAINT)
    return fig


def _draw_curve(axes: Axes, rows: pd.DataFrame, value: str, label: str, method_style: MethodStyle) -> None:
    if rows.duplicated(["epoch", "seed"]).any():
        raise RewindError(f"history.csv of {label!r}: an epoch occurs twice in one run.")
    seeds = rows.pivot(index="epoch", columns="seed", values=value).dropna()
    if seeds.empty:
        return
    marker_interval = max(1, len(seeds) // 10)
    axes.fill_between(
        seeds.index, seeds.min(axis=1), seeds.max(axis=1), color=method_style.color, alpha=0.18, linewidth=0
    )
    axes.plot(seeds.index, seeds.mean(axis=1), label=label, markevery=marker_interval, **method_style.line())
