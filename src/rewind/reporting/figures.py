"""The figures that a study publishes, each a pure function from frames to a Figure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from rewind.errors import RewindError
from rewind.reporting import style
from rewind.reporting.cells import TITLES
from rewind.reporting.style import Look

CURVES = {"valid_sum": "validation R@1+R@5+R@10", "loss": "training loss"}


def intervals(
    table: pd.DataFrame,
    labels: Mapping[str, str],
    baselines: Collection[str] = (),
    metric: str = "R@1",
    direction: str = "text_to_item",
    confidence: float = 0.95,
) -> Figure:
    """Estimate and interval of every method, a panel per setting; Binary with a dashed line at chance.

    Args:
        table: ``intervals.csv``: method, setting, direction, metric, estimate, low, high.
        labels: method → name, in order from top to bottom (baselines go last).
        baselines: methods drawn in grey.
        metric: which metric.
        direction: which search direction.
        confidence: of the intervals, for the axis label.

    Raises:
        RewindError: if the table has no such metric and direction.
    """
    chosen = table[(table["metric"] == metric) & (table["direction"] == direction) & table["method"].isin(labels)]
    settings = [setting for setting in TITLES if setting in set(chosen["setting"])]
    if not settings:
        raise RewindError(f"intervals.csv: no row of {metric}, {direction} to draw.")
    order, look = _baselines_last(labels, baselines), style.looks(labels, baselines)
    width = style.DOUBLE if len(settings) > 1 else style.SINGLE
    with style.applied():
        fig = style.figure(width, 0.95 + 0.27 * len(order))
        panels = fig.subplots(1, len(settings), sharey=True, squeeze=False)[0]
        for axes, setting in zip(panels, settings, strict=True):
            _interval_panel(axes, chosen[chosen["setting"] == setting], order, look)
            axes.set_title(TITLES[setting], loc="left")
            axes.set_xlabel("accuracy (%)" if setting == "binary" and metric == "R@1" else _unit(metric))
            if setting == "binary" and metric == "R@1":
                axes.axvline(50, color="black", linewidth=0.8, linestyle=(0, (4, 2)), zorder=1)
        panels[0].set_yticks(range(len(order)), [style.plain(labels[method]) for method in order])
        panels[0].set_ylim(len(order) - 0.4, -0.6)
        fig.supxlabel(
            f"whiskers: {100 * confidence:g}% interval; at the right: the estimate",
            fontsize=7,
            color=style.FAINT,
        )
    return fig


def _interval_panel(axes: Axes, rows: pd.DataFrame, order: list[str], look: Mapping[str, Look]) -> None:
    rows = rows.set_index("method")
    if rows.index.has_duplicates:
        raise RewindError(f"intervals.csv: method {rows.index[rows.index.duplicated()][0]!r} is there twice.")
    for place, method in enumerate(order):
        if method not in rows.index:
            continue
        row, drawn = rows.loc[method], look[method]
        axes.plot([row["low"], row["high"]], [place, place], color=drawn.color, linewidth=1.8, solid_capstyle="butt")
        axes.plot(
            row["estimate"],
            place,
            marker=drawn.marker,
            color=drawn.color,
            markersize=6,
            markeredgecolor="white",
            markeredgewidth=0.7,
            linestyle="none",
        )
        axes.annotate(
            f"{row['estimate']:.1f}",
            (1.02, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=7,
            annotation_clip=False,
        )
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.margins(x=0.08)


def training_curves(
    history: pd.DataFrame,
    labels: Mapping[str, str],
    baselines: Collection[str] = (),
    values: Sequence[str] = ("valid_sum", "loss"),
) -> Figure:
    """Mean over seeds as a line, lowest to highest seed as a band; a panel per value.

    Args:
        history: the runs' ``history.csv`` stacked, with columns method and seed added. Epochs without a value
            (not every epoch is validated) are skipped, and so are epochs that not every seed has reached.
        labels: method → name, in order.
        baselines: methods without a history.
        values: columns to draw; those that are absent or empty are left out.
    """
    shown = [name for name in values if name in history.columns and history[name].notna().any()]
    with style.applied():
        if not shown:
            return style.message("No training history: every method is a closed form.")
        fig = style.figure(style.DOUBLE if len(shown) > 1 else style.SINGLE, 2.6)
        panels = fig.subplots(1, len(shown), squeeze=False)[0]
        look = style.looks(labels, baselines)
        for axes, name in zip(panels, shown, strict=True):
            for method in (m for m in labels if m in set(history["method"])):
                _curve(
                    axes,
                    history[history["method"] == method],
                    name,
                    style.plain(labels[method]),
                    look[method],
                )
            axes.set(xlabel="epoch", ylabel=CURVES.get(name, name))
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        style.legend_below(fig, panels[0], columns=4 if len(shown) > 1 else 2)
    return fig


def _curve(axes: Axes, rows: pd.DataFrame, value: str, label: str, look: Look) -> None:
    if rows.duplicated(["epoch", "seed"]).any():
        raise RewindError(f"history.csv of {label!r}: an epoch is there twice in one run.")
    seeds = rows.pivot(index="epoch", columns="seed", values=value).dropna()
    if seeds.empty:
        return
    every = max(1, len(seeds) // 10)
    axes.fill_between(seeds.index, seeds.min(axis=1), seeds.max(axis=1), color=look.color, alpha=0.18, linewidth=0)
    axes.plot(seeds.index, seeds.mean(axis=1), label=label, markevery=every, **look.line())


def rank_curve(
    ranks: pd.DataFrame,
    gallery: Mapping[str, int],
    labels: Mapping[str, str],
    baselines: Collection[str] = (),
    direction: str = "text_to_item",
) -> Figure:
    """Share of queries whose truth is among the first k, for every k; mean over seeds; a panel per setting.

    Args:
        ranks: the runs' rank files stacked, with columns method and seed added.
        gallery: setting → number of items searched; Binary's two make no curve and are skipped.
        labels: method → name, in order.
        baselines: methods drawn in grey.
        direction: which search direction.

    Raises:
        RewindError: if there is nothing to draw.
    """
    chosen = ranks[(ranks["direction"] == direction) & ranks["method"].isin(labels)]
    settings = [s for s in TITLES if s != "binary" and s in gallery and s in set(chosen["setting"])]
    if not settings:
        raise RewindError(f"ranks: no row of {direction} in origin, hard or test to draw.")
    look = style.looks(labels, baselines)
    with style.applied():
        fig = style.figure(style.DOUBLE if len(settings) > 1 else style.SINGLE, 2.8)
        panels = fig.subplots(1, len(settings), sharey=True, squeeze=False)[0]
        for axes, setting in zip(panels, settings, strict=True):
            here = chosen[chosen["setting"] == setting]
            for place, method in enumerate(labels):
                rows = here[here["method"] == method]
                if len(rows):
                    _rank_line(axes, rows, gallery[setting], style.plain(labels[method]), look[method], place)
            _rank_axes(axes, gallery[setting])
            axes.set_title(TITLES[setting], loc="left")
        panels[0].set_ylabel("queries with rank ≤ k (%)")
        style.legend_below(fig, panels[0], columns=4 if len(settings) > 1 else 2)
    return fig


def cumulative(higher: np.ndarray, ties: np.ndarray, gallery: int) -> np.ndarray:
    """Expected share of queries with rank ≤ k under random order of ties, for k = 1 … gallery.

    Each query's share rises in ``ties + 1`` equal steps from k = higher + 1 on; the steps of all queries are
    summed at once. Returns [gallery], from 0 to 1.

    Raises:
        RewindError: if a rank lies outside the gallery.
    """
    first, count = np.asarray(higher, dtype=np.int64), np.asarray(ties, dtype=np.int64) + 1
    if len(first) == 0 or first.min() < 0 or count.min() < 1 or (first + count).max() > gallery:
        raise RewindError(f"ranks: higher + ties must lie in 0 … {gallery - 1} for a gallery of {gallery} items.")
    starts = np.bincount(first, weights=1 / count, minlength=gallery + 1)
    ends = np.bincount(first + count, weights=1 / count, minlength=gallery + 1)
    return np.cumsum(np.cumsum(starts - ends))[:gallery] / len(first)


def _rank_line(axes: Axes, rows: pd.DataFrame, gallery: int, label: str, look: Look, place: int) -> None:
    seeds = [cumulative(g["higher"].to_numpy(), g["ties"].to_numpy(), gallery) for _, g in rows.groupby("seed")]
    # Markers evenly spaced on the logarithmic axis, shifted by method so that they do not cover each other.
    at = np.unique(np.round(np.geomspace(1.25 ** (place % 4), gallery, 7)[:-1]).astype(int).clip(1, gallery)) - 1
    axes.plot(
        np.arange(1, gallery + 1),
        100 * np.mean(seeds, axis=0),
        label=label,
        markevery=at.tolist(),
        **look.line(),
    )


def _rank_axes(axes: Axes, gallery: int) -> None:
    axes.set_xscale("log")
    axes.set(xlabel="k", xlim=(0.93, gallery * 1.08), ylim=(0, 102))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _baselines_last(labels: Mapping[str, str], baselines: Collection[str]) -> list[str]:
    return [m for m in labels if m not in baselines] + [m for m in labels if m in baselines]


def _unit(metric: str) -> str:
    return f"{metric} (%)" if metric.startswith("R@") else metric
