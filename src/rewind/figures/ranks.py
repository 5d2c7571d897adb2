"""Figures of ranks: the cumulative rank curve of queries, and the ranks of methods with their intervals."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from rewind.errors import RewindError
from rewind.figures import style
from rewind.figures.forest import index_rows
from rewind.figures.style import MethodStyle
from rewind.tables.settings import SETTING_TITLES

# ---- Cumulative rank curve: how far down the list the true item is -------------------------------------------------


def rank_curve(
    ranks: pd.DataFrame,
    gallery: Mapping[str, int],
    labels: Mapping[str, str],
    baselines: Collection[str] = (),
    direction: str = "text_to_item",
) -> Figure:
    """Share of queries whose true item is among the first k, for every k; mean over seeds; a panel per setting.

    ``ranks`` are the runs' rank files stacked, with columns method and seed added. ``gallery`` maps a setting to the
    number of items searched; Binary, with two items per query, is left out. Baselines are grey.

    Raises:
        RewindError: if there is nothing to draw.
    """
    rows_of_direction = ranks[(ranks["direction"] == direction) & ranks["method"].isin(labels)]
    settings = [s for s in SETTING_TITLES if s != "binary" and s in gallery and s in set(rows_of_direction["setting"])]
    if not settings:
        if set(ranks["setting"]) == {"binary"}:
            with style.applied():
                return style.message_figure("Binary ranks nothing: each query has only two candidates.")
        raise RewindError(f"ranks: no row of {direction} in origin, hard or test to draw.")
    styles = style.method_styles(labels, baselines)
    with style.applied():
        fig = style.figure(style.DOUBLE_COLUMN if len(settings) > 1 else style.SINGLE_COLUMN, 2.8)
        panels = fig.subplots(1, len(settings), sharey=True, squeeze=False)[0]
        for axes, setting in zip(panels, settings, strict=True):
            rows_of_setting = rows_of_direction[rows_of_direction["setting"] == setting]
            for position, method in enumerate(labels):
                rows = rows_of_setting[rows_of_setting["method"] == method]
                if len(rows):
                    _draw_rank_line(
                        axes, rows, gallery[setting], style.escape_dollars(labels[method]), styles[method], position
                    )
            _format_rank_axes(axes, gallery[setting])
            axes.set_title(SETTING_TITLES[setting], loc="left")
        panels[0].set_ylabel("queries with rank ≤ k (%)")
        style.legend_below(fig, panels[0], columns=4 if len(settings) > 1 else 2)
    return fig


def cumulative_share(higher: np.ndarray, ties: np.ndarray, gallery: int) -> np.ndarray:
    """Expected share of queries, 0 to 1, with rank ≤ k under random order of ties, for k = 1 … gallery: (gallery,).

    Each query's share rises in ``ties + 1`` equal steps, at k = higher + 1 to higher + ties + 1. A rank outside the
    gallery is refused.

    >>> cumulative_share(np.array([0, 1]), np.array([0, 1]), gallery=3).tolist()
    [0.5, 0.75, 1.0]
    """
    first, count = np.asarray(higher, dtype=np.int64), np.asarray(ties, dtype=np.int64) + 1
    if len(first) == 0 or first.min() < 0 or count.min() < 1 or (first + count).max() > gallery:
        raise RewindError(f"ranks: higher + ties must lie in 0 … {gallery - 1} for a gallery of {gallery} items.")
    # Of all queries at once: the slope rises by 1/(ties + 1) where a query's steps begin and falls where they end. The
    # first cumulative sum gives the slope at each k, the second the share.
    starts = np.bincount(first, weights=1 / count, minlength=gallery + 1)
    ends = np.bincount(first + count, weights=1 / count, minlength=gallery + 1)
    return np.cumsum(np.cumsum(starts - ends))[:gallery] / len(first)


def _draw_rank_line(axes: Axes, rows: pd.DataFrame, gallery: int, label: str, look: MethodStyle, position: int) -> None:
    seeds = [cumulative_share(g["higher"].to_numpy(), g["ties"].to_numpy(), gallery) for _, g in rows.groupby("seed")]
    # Markers evenly spaced on the logarithmic axis, shifted by method so that they do not cover each other.
    marker_positions = (
        np.unique(np.round(np.geomspace(1.25 ** (position % 4), gallery, 7)[:-1]).astype(int).clip(1, gallery)) - 1
    )
    mean = 100 * np.mean(seeds, axis=0)
    axes.plot(np.arange(1, gallery + 1), mean, label=label, markevery=marker_positions.tolist(), **look.line())


def _format_rank_axes(axes: Axes, gallery: int) -> None:
    axes.set_xscale("log")
    axes.set(xlabel="k", xlim=(0.93, gallery * 1.08), ylim=(0, 102))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


# ---- Methods from best to worst, with the interval of each rank ----------------------------------------------------

MIN_RANKED_METHODS = 3
"""Least number of compared methods for the picture: two are a pair."""
MAX_TICKS = 6
LETTER_WIDTH = 0.06  # inches, of a tick label


def rank_intervals(
    places: pd.DataFrame,
    labels: Mapping[str, str],
    metrics: Mapping[str, str],
    direction: str = "text_to_item",
    confidence: float = 0.95,
) -> Figure:
    """A panel per setting: every compared method's rank with its interval, the best at the top.

    Panels are side by side, or one below the other where names are long. Each panel has its own order. Settings without
    ranks, or with fewer than three compared methods, have no panel.

    ``places`` is ``ranks.csv``, ``metrics`` maps a setting to the metric that decides. Equal methods keep the order of
    ``labels``, that of the study.
    """
    panels = ranks_to_draw(places, metrics, direction)
    with style.applied():
        if not panels:
            return style.message_figure(
                "No ranks to draw: they need comparisons of all pairs of three methods or more."
            )
        most = max(map(len, panels.values()))
        columns = 1 if _labels_are_long(labels, len(panels)) else len(panels)
        height = (0.7 + 0.2 * most) * (len(panels) // columns) + 0.3
        fig = style.figure(style.DOUBLE_COLUMN if len(panels) > 1 else style.SINGLE_COLUMN, height)
        axes = fig.subplots(len(panels) // columns, columns, squeeze=False).ravel()
        for panel, (setting, rows) in zip(axes, panels.items(), strict=True):
            order = {method: at for at, method in enumerate(labels)}
            rows = rows[rows["method"].isin(labels)].assign(at=lambda t, order=order: t["method"].map(order))
            _draw_rank_panel(panel, rows.sort_values(["rank", "low", "high", "at"]), labels, most)
            panel.set_title(SETTING_TITLES[setting], loc="left")
            metric = "accuracy" if setting == "binary" else metrics[setting]
            panel.set_xlabel(f"rank by {metric}")
        fig.supxlabel(f"bars: {100 * confidence:g}% for all places at once", fontsize=7, color=style.FAINT)
    return fig


def _labels_are_long(labels: Mapping[str, str], panels: int) -> bool:
    """Whether names next to every panel would leave too little room for the panels."""
    most = max(len(style.escape_dollars(label)) for label in labels.values())
    return panels > 1 and most * LETTER_WIDTH * panels > style.DOUBLE_COLUMN / 2


def ranks_to_draw(places: pd.DataFrame, metrics: Mapping[str, str], direction: str) -> dict[str, pd.DataFrame]:
    """Setting → its rows of ranks, for settings with enough ranked methods, in the order of the tables."""
    rows_by_setting: dict[str, pd.DataFrame] = {}
    for setting in SETTING_TITLES:
        if setting not in metrics or places.empty:
            continue
        is_here = (places["setting"] == setting) & (places["direction"] == direction)
        rows = places[is_here & (places["metric"] == metrics[setting])]
        index_rows(rows, ["method"], "ranks.csv: method")  # refuses a method that is listed twice
        if len(rows) >= MIN_RANKED_METHODS:
            rows_by_setting[setting] = rows
    return rows_by_setting


def _draw_rank_panel(axes: Axes, rows: pd.DataFrame, labels: Mapping[str, str], most: int) -> None:
    for y, row in enumerate(rows.itertuples()):
        is_single_rank = row.low == row.high
        axes.barh(y, row.high - row.low + 0.5, 0.32, row.low - 0.25, color=style.BLUE, alpha=0.32, zorder=2)
        face = style.BLUE if is_single_rank else "white"
        axes.plot(row.rank, y, "o", color=style.BLUE, markerfacecolor=face, markersize=4.5, zorder=3)
    axes.set_yticks(range(len(rows)), [style.escape_dollars(labels[method]) for method in rows["method"]])
    axes.set_ylim(most - 0.4, -0.6)
    axes.set_xlim(0.4, len(rows) + 0.6)
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, len(rows)) if len(rows) / step <= MAX_TICKS)
    # Ticks at every step, and at 1; with steps of 2 the tick at 2 would be too close to it.
    axes.set_xticks(sorted({1, *range(step, len(rows) + 1, step)} - ({2} if step == 2 else set())))
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
