"""How cosines of pairs and of others are distributed, a row per method."""

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
    """Densities over all seeds on the test split; dashed lines are the means, whose distance is the gap.

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
        for axes in panels[-1]:
            axes.set_xlabel("cosine")
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
    middle = (summed["low"] + summed["high"]) / 2
    names = {"positives": ("pairs", style.TRUTH), "negatives": ("others", style.GREY)}
    for column, (name, colour) in names.items():
        edges, heights = _steps(summed["low"].to_numpy(), summed["high"].to_numpy(), summed[column].to_numpy())
        axes.stairs(heights, edges, fill=True, color=colour, alpha=0.45, label=name)
        axes.stairs(heights, edges, color=colour, linewidth=1)
        mean = float(np.average(middle, weights=summed[column]))
        axes.axvline(mean, color=colour, linestyle=(0, (4, 2)), linewidth=1)


def _steps(low: np.ndarray, high: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Edges and densities of all bins from the first to the last, empty ones included."""
    width = float(np.median(high - low))
    places = np.rint((low - low[0]) / width).astype(int)
    heights = np.zeros(places[-1] + 1)
    heights[places] = counts / (counts.sum() * width)
    return low[0] + width * np.arange(len(heights) + 1), heights
