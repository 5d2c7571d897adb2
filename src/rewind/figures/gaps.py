"""Figures of gaps: what reversed twins in the gallery cost, and how the cosines of pairs and others are distributed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rewind.errors import RewindError
from rewind.figures import style
from rewind.figures.forest import DASHED, draw_estimate, index_rows, metric_label, rows_to_draw
from rewind.figures.style import MethodStyle
from rewind.ranking_metrics import metric_of_column

# ---- Origin against Hard: the same queries without and with reversed twins in the gallery --------------------------

MIN_LABEL_DISTANCE = 0.062  # of two names at the ends of lines, as a share of the panel's height


def gap_slope(
    intervals: pd.DataFrame,
    gaps: pd.DataFrame,
    labels: Mapping[str, str],
    baselines: Collection[str] = (),
    metric: str = "R@1",
    direction: str = "text_to_item",
    confidence: float = 0.95,
) -> Figure:
    """Left: a line per method from Origin to the same queries in Hard's gallery. Right: the gap with its intervals.

    Tables are ``gaps.csv``, and ``intervals.csv`` for the values in Origin, which every method with a gap must have.
    Baselines, in grey, go last.
    """
    with style.applied():
        rows = gaps[(gaps["metric"] == metric) & (gaps["direction"] == direction) & gaps["method"].isin(labels)]
        if rows.empty:
            return style.message_figure("No gap to draw: it needs both settings, origin and hard.")
        rows = index_rows(rows, ["method"], "gaps.csv: method")
        origin = rows_to_draw(intervals, metric, direction, "intervals.csv").query("setting == 'origin'")
        in_origin = index_rows(origin, ["method"], "intervals.csv: method")
        missing = [method for method in rows.index if method not in in_origin.index]
        if missing:
            raise RewindError(
                f"intervals.csv: no {metric} of method {missing[0]!r} in origin; compute the statistics again."
            )
        order = [m for m in labels if m in rows.index and m not in baselines]
        order += [m for m in labels if m in rows.index and m in baselines]
        styles = style.method_styles(labels, baselines)
        fig = style.figure(style.DOUBLE_COLUMN, max(2.6, 1.1 + 0.27 * len(order)))
        digits = metric_of_column(metric).unit.digits
        left, right = fig.subplots(1, 2, width_ratios=(1, 1.1))
        _draw_slopes(
            left,
            order,
            in_origin["estimate"],
            rows["gap"],
            {m: style.escape_dollars(labels[m]) for m in order},
            styles,
            digits,
        )
        left.set_ylabel(metric_label(metric))
        _draw_gaps(right, order, rows, [style.escape_dollars(labels[m]) for m in order], styles)
        points = f"{metric}, points" if metric_of_column(metric).percent else metric
        right.set_xlabel(f"Origin − Hard ({points}); bar: {100 * confidence:g}%, line: these checkpoints")
    return fig


def _draw_slopes(
    axes: Axes,
    order: list[str],
    start: pd.Series,
    gap: pd.Series,
    names: Mapping[str, str],
    styles: Mapping[str, MethodStyle],
    digits: int,
) -> None:
    ends = {method: start[method] - gap[method] for method in order}
    for method in order:
        axes.plot([0, 1], [start[method], ends[method]], **styles[method].line())
    axes.set_xticks([0, 1], ["Origin", "Hard"])
    axes.set_xlim(-0.08, 1.85)
    axes.margins(y=0.1)
    axes.grid(axis="x", visible=False)
    axes.spines["bottom"].set_bounds(0, 1)
    axes.set_title("The same queries", loc="left")
    low, high = axes.get_ylim()
    label_positions = _move_apart([ends[m] for m in order], MIN_LABEL_DISTANCE * (high - low))
    for method, y in zip(order, label_positions, strict=True):
        axes.annotate(
            f"{names[method]} {ends[method]:.{digits}f}",
            (1, ends[method]),
            (1.12, y),
            va="center",
            fontsize=7,
            color=style.INK,
            arrowprops={"arrowstyle": "-", "color": style.GREY, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3},
        )


def _draw_gaps(
    axes: Axes, order: list[str], rows: pd.DataFrame, names: list[str], styles: Mapping[str, MethodStyle]
) -> None:
    for y, method in enumerate(order):
        draw_estimate(axes, y, rows.loc[method], styles[method], "gap")
    axes.axvline(0, color="black", linewidth=0.8, linestyle=DASHED, zorder=1)
    axes.set_yticks(range(len(order)), names)
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_title("What twins in the gallery cost", loc="left")
    axes.margins(x=0.08)


def _move_apart(values: list[float], least: float) -> np.ndarray:
    """Positions near ``values``, in the same order, at least ``least`` apart."""
    order = np.argsort(values, kind="stable")
    steps = least * np.arange(len(values))
    targets = np.asarray(values, dtype=float)[order] - steps
    # Positions that are ``least`` apart are, without these steps, a sequence that does not decrease. The nearest one in
    # least squares comes from pooling adjacent violators: neighbours in the wrong order get their mean.
    blocks: list[list[float]] = []
    for value in targets:
        blocks.append([value, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (b, m), (a, n) = blocks.pop(), blocks.pop()
            blocks.append([(a * n + b * m) / (n + m), n + m])
    positions = np.repeat([b[0] for b in blocks], [int(b[1]) for b in blocks]) + steps
    result = np.empty(len(values))
    result[order] = positions
    return result


# ---- Densities of cosines: pairs upwards, others downwards, one row per method -------------------------------------

SCORING_TITLES = {"independent": "Independent embeddings", "pair_conditioned": "Pair-conditioned: sees the answer"}
DENSITY_SPLIT = "test"


def cosine_densities(counts: pd.DataFrame, labels: Mapping[str, str]) -> Figure:
    """Densities of cosines over all seeds on the test split, each scaled to the same height; bars are the means.

    Rows are in the order of ``labels``; ``counts`` is ``cosine_counts.csv``.
    """
    rows = counts[counts["split"] == DENSITY_SPLIT]
    methods = [method for method in labels if method in set(rows["method"])]
    scorings = [scoring for scoring in SCORING_TITLES if scoring in set(rows["scoring"])]
    if not methods:
        return style.message_figure("No cosines to draw: no method compares vectors.")
    with style.applied():
        fig = style.figure(
            style.DOUBLE_COLUMN if len(scorings) > 1 else style.SINGLE_COLUMN, 0.55 + 0.75 * len(methods)
        )
        panels = fig.subplots(len(methods), len(scorings), squeeze=False, sharex="col")
        for line, method in zip(panels, methods, strict=True):
            for axes, scoring in zip(line, scorings, strict=True):
                _draw_density_panel(axes, rows[(rows["method"] == method) & (rows["scoring"] == scoring)])
            line[0].set_ylabel(style.escape_dollars(labels[method]), rotation=0, ha="right", va="center")
        for axes, scoring in zip(panels[0], scorings, strict=True):
            axes.set_title(SCORING_TITLES[scoring], loc="left")
        for column in panels.T:
            last = [axes for axes in column if axes.axison][-1]
            last.tick_params(labelbottom=True)
            last.set_xlabel("cosine")
        style.legend_below(fig, panels[0][0], 2)
    return fig


def _draw_density_panel(axes: Axes, rows: pd.DataFrame) -> None:
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=False)
    if rows.empty:
        axes.set_axis_off()
        return
    summed = rows.groupby(["low", "high"], as_index=False)[["positives", "negatives"]].sum()
    low, middle = summed["low"].to_numpy(), (summed["low"] + summed["high"]) / 2
    names = {"positives": ("pairs", style.TRUTH, 1), "negatives": ("others", style.GREY, -1)}
    for column, (name, colour, sign) in names.items():
        edges, heights = _histogram_steps(low, summed["high"].to_numpy(), summed[column].to_numpy())
        axes.stairs(sign * heights, edges, fill=True, color=colour, alpha=0.5, label=name)
        axes.stairs(sign * heights, edges, color=colour, linewidth=0.8)
        mean = float(np.average(middle, weights=summed[column]))
        axes.plot([mean, mean], [0, 1.1 * sign], color=style.INK, linewidth=1.2)
    axes.axhline(0, color=style.INK, linewidth=0.5)
    axes.set_ylim(-1.15, 1.15)


def _histogram_steps(low: np.ndarray, high: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Edges and heights, scaled to at most 1, of all bins from the first to the last, including empty ones."""
    width = float(np.median(high - low))
    bins = np.rint((low - low[0]) / width).astype(int)
    heights = np.zeros(bins[-1] + 1)
    heights[bins] = counts / counts.max()
    return low[0] + width * np.arange(len(heights) + 1), heights
