"""Methods from best to worst, with the interval of every place."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rewind.reporting import style
from rewind.reporting.cells import TITLES
from rewind.reporting.figures.forest import by

LEAST = 3
"""Compared methods from which the picture is drawn: two are a pair."""
TICKS = 6
LETTER = 0.06  # inches, of a tick label


def rank_intervals(
    places: pd.DataFrame,
    labels: Mapping[str, str],
    metrics: Mapping[str, str],
    direction: str = "text_to_item",
    confidence: float = 0.95,
) -> Figure:
    """A panel per setting: every compared method's place with its interval, the best at the top.

    Panels stand side by side, or one below the other where names are long.
    Each panel has its own order. Settings without ranks, or with fewer than three compared methods, have no panel.

    Args:
        places: ``ranks.csv``: method, setting, direction, metric, rank, low, high.
        labels: method → name, in the order of the study, in which equal methods stand.
        metrics: setting → the metric that decides.
        direction: which search direction.
        confidence: of the intervals, for the key.

    Raises:
        RewindError: if a method is there twice.
    """
    panels = drawn(places, metrics, direction)
    with style.applied():
        if not panels:
            return style.message("No ranks to draw: they need comparisons of all pairs of three methods or more.")
        most = max(map(len, panels.values()))
        columns = 1 if _long(labels, len(panels)) else len(panels)
        height = (0.7 + 0.2 * most) * (len(panels) // columns) + 0.3
        fig = style.figure(style.DOUBLE if len(panels) > 1 else style.SINGLE, height)
        axes = fig.subplots(len(panels) // columns, columns, squeeze=False).ravel()
        for one, (setting, rows) in zip(axes, panels.items(), strict=True):
            order = {method: at for at, method in enumerate(labels)}
            rows = rows[rows["method"].isin(labels)].assign(at=lambda t, order=order: t["method"].map(order))
            _panel(one, rows.sort_values(["rank", "low", "high", "at"]), labels, most)
            one.set_title(TITLES[setting], loc="left")
            what = "accuracy" if setting == "binary" else metrics[setting]
            one.set_xlabel(f"rank by {what}")
        fig.supxlabel(f"bars: {100 * confidence:g}% for all places at once", fontsize=7, color=style.FAINT)
    return fig


def _long(labels: Mapping[str, str], panels: int) -> bool:
    """Whether names beside every panel would leave too little room for the panels."""
    most = max(len(style.plain(label)) for label in labels.values())
    return panels > 1 and most * LETTER * panels > style.DOUBLE / 2


def drawn(places: pd.DataFrame, metrics: Mapping[str, str], direction: str) -> dict[str, pd.DataFrame]:
    """Setting → its rows of ranks, of settings that have enough of them, in the order of tables.

    Raises:
        RewindError: if a method is there twice.
    """
    found: dict[str, pd.DataFrame] = {}
    for setting in TITLES:
        if setting not in metrics or places.empty:
            continue
        here = (places["setting"] == setting) & (places["direction"] == direction)
        rows = places[here & (places["metric"] == metrics[setting])]
        by(rows, ["method"], "ranks.csv: method")
        if len(rows) >= LEAST:
            found[setting] = rows
    return found


def _panel(axes: Axes, rows: pd.DataFrame, labels: Mapping[str, str], most: int) -> None:
    for place, row in enumerate(rows.itertuples()):
        sure = row.low == row.high
        axes.barh(place, row.high - row.low + 0.5, 0.32, row.low - 0.25, color=style.BLUE, alpha=0.32, zorder=2)
        face = style.BLUE if sure else "white"
        axes.plot(row.rank, place, "o", color=style.BLUE, markerfacecolor=face, markersize=4.5, zorder=3)
    axes.set_yticks(range(len(rows)), [style.plain(labels[method]) for method in rows["method"]])
    axes.set_ylim(most - 0.4, -0.6)
    axes.set_xlim(0.4, len(rows) + 0.6)
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, len(rows)) if len(rows) / step <= TICKS)
    axes.set_xticks(sorted({1, *range(step, len(rows) + 1, step)} - ({2} if step == 2 else set())))
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
