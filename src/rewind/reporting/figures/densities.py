"""How cosines of pairs and of others are distributed: pairs upwards, others downwards, a row per method."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rewind.reporting import style

TITLES = {"independent": "Independent embeddings", "pair_conditioned": "Pair-conditioned: sees the answer"}
SPLIT = "test"


def densities(counts: pd.DataFrame, labels: Mapping[str, str]) -> Figure:
    """Densities over all seeds on the test split, each to its own height; the bars are the means, a gap apart.

    Args:
        counts: ``cosine_counts.csv``: method, seed, split, scoring, low, high, positives, negatives.
        labels: method → name, from top to bottom.
    """
    rows = counts[counts["split"] == SPLIT]
    methods = [method for method in labels if method in set(rows["method"])]
    scorings = [scoring for scoring in TITLES if scoring in set(rows["scoring"])]
    if not methods:
        return style.message("No cosines to draw: no method compares vectors.")
    with style.applied():
        fig = style.figure(style.DOUBLE if len(scorings) > 1 else style.SINGLE, 0.55 + 0.75 * len(methods))
        panels = fig.subplots(len(methods), len(scorings), squeeze=False, sharex="col")
        for line, method in zip(panels, methods, strict=True):
            for axes, scoring in zip(line, scorings, strict=True):
                _panel(axes, rows[(rows["method"] == method) & (rows["scoring"] == scoring)])
            line[0].set_ylabel(style.plain(labels[method]), rotation=0, ha="right", va="center")
        for axes, scoring in zip(panels[0], scorings, strict=True):
            axes.set_title(TITLES[scoring], loc="left")
        for column in panels.T:
            last = [axes for axes in column if axes.axison][-1]
            last.tick_params(labelbottom=True)
            last.set_xlabel("cosine")
        style.legend_below(fig, panels[0][0], 2)
    return fig


def _panel(axes: Axes, rows: pd.DataFrame) -> None:
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=False)
    if rows.empty:
        axes.set_axis_off()
        return
    summed = rows.groupby(["low", "high"], as_index=False)[["positives", "negatives"]].sum()
    low, middle = summed["low"].to_numpy(), (summed["low"] + summed["high"]) / 2
    names = {"positives": ("pairs", style.TRUTH, 1), "negatives": ("others", style.GREY, -1)}
    for column, (name, colour, way) in names.items():
        edges, heights = _steps(low, summed["high"].to_numpy(), summed[column].to_numpy())
        axes.stairs(way * heights, edges, fill=True, color=colour, alpha=0.5, label=name)
        axes.stairs(way * heights, edges, color=colour, linewidth=0.8)
        mean = float(np.average(middle, weights=summed[column]))
        axes.plot([mean, mean], [0, 1.1 * way], color=style.INK, linewidth=1.2)
    axes.axhline(0, color=style.INK, linewidth=0.5)
    axes.set_ylim(-1.15, 1.15)


def _steps(low: np.ndarray, high: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Edges and heights, at most 1, of all bins from the first to the last, empty ones included."""
    width = float(np.median(high - low))
    places = np.rint((low - low[0]) / width).astype(int)
    heights = np.zeros(places[-1] + 1)
    heights[places] = counts / counts.max()
    return low[0] + width * np.arange(len(heights) + 1), heights
