"""What reversed twins in the gallery cost: the same queries in Origin and in Hard."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rewind.errors import RewindError
from rewind.metrics import known
from rewind.reporting import style
from rewind.reporting.figures.forest import DASHED, bar, by, chosen, signed, unit

SPACE = 0.062  # least distance of two names at the slope's end, as a share of the panel's height


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

    Args:
        intervals: ``intervals.csv``, for the values in Origin.
        gaps: ``gaps.csv``: method, direction, metric, gap, low, high, boot_low, boot_high.
        labels: method → name, in order.
        baselines: methods drawn in grey.
        metric: which metric.
        direction: which search direction.
        confidence: of the intervals, for the axis label.

    Raises:
        RewindError: if a method is there twice, or has a gap but no value in Origin.
    """
    with style.applied():
        rows = gaps[(gaps["metric"] == metric) & (gaps["direction"] == direction) & gaps["method"].isin(labels)]
        if rows.empty:
            return style.message("No gap to draw: it needs both settings, origin and hard.")
        rows = by(rows, ["method"], "gaps.csv: method")
        origin = chosen(intervals, metric, direction, "intervals.csv").query("setting == 'origin'")
        start = by(origin, ["method"], "intervals.csv: method")
        absent = [method for method in rows.index if method not in start.index]
        if absent:
            raise RewindError(
                f"intervals.csv: no {metric} of method {absent[0]!r} in origin; compute the statistics again."
            )
        order = [m for m in labels if m in rows.index and m not in baselines]
        order += [m for m in labels if m in rows.index and m in baselines]
        look = style.looks(labels, baselines)
        fig = style.figure(style.DOUBLE, max(2.6, 1.1 + 0.27 * len(order)))
        digits = known(metric).unit.digits
        left, right = fig.subplots(1, 2, width_ratios=(1, 1.1))
        _slopes(left, order, start["estimate"], rows["gap"], {m: style.plain(labels[m]) for m in order}, look, digits)
        left.set_ylabel(unit(metric))
        _gaps(right, order, rows, [style.plain(labels[m]) for m in order], look, digits)
        points = f"{metric}, points" if known(metric).percent else metric
        right.set_xlabel(f"Origin − Hard ({points}); bar: {100 * confidence:g}%, line: these checkpoints")
    return fig


def _slopes(axes: Axes, order: Any, start: Any, gap: Any, names: Any, look: Any, digits: int) -> None:
    ends = {method: start[method] - gap[method] for method in order}
    for method in order:
        axes.plot([0, 1], [start[method], ends[method]], **look[method].line())
    axes.set_xticks([0, 1], ["Origin", "Hard"])
    axes.set_xlim(-0.08, 1.85)
    axes.margins(y=0.1)
    axes.grid(axis="x", visible=False)
    axes.spines["bottom"].set_bounds(0, 1)
    axes.set_title("The same queries", loc="left")
    low, high = axes.get_ylim()
    places = _apart([ends[m] for m in order], SPACE * (high - low))
    for method, place in zip(order, places, strict=True):
        axes.annotate(
            f"{names[method]} {ends[method]:.{digits}f}",
            (1, ends[method]),
            (1.12, place),
            va="center",
            fontsize=7,
            color=style.INK,
            arrowprops={"arrowstyle": "-", "color": style.GREY, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3},
        )


def _gaps(axes: Axes, order: Any, rows: Any, names: Any, look: Any, digits: int) -> None:
    for place, method in enumerate(order):
        row, drawn = rows.loc[method], look[method]
        bar(axes, place, row, drawn.color)
        edge = {"markeredgecolor": "white", "markeredgewidth": 0.7, "markersize": 5.5}
        axes.plot(row["gap"], place, marker=drawn.marker, color=drawn.color, linestyle="none", **edge)
        where = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 7, "annotation_clip": False}
        axes.annotate(signed(row["gap"], digits), (1.02, place), **where)
    axes.axvline(0, color="black", linewidth=0.8, linestyle=DASHED, zorder=1)
    axes.set_yticks(range(len(order)), names)
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_title("What twins in the gallery cost", loc="left")
    axes.margins(x=0.08)


def _apart(values: list[float], least: float) -> np.ndarray:
    """Places near ``values``, in the same order, at least ``least`` apart."""
    order = np.argsort(values, kind="stable")
    steps = least * np.arange(len(values))
    level = np.asarray(values, dtype=float)[order] - steps
    # Pool neighbours that stand too close: the nearest non-decreasing sequence in least squares.
    blocks: list[list[float]] = []
    for value in level:
        blocks.append([value, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (b, m), (a, n) = blocks.pop(), blocks.pop()
            blocks.append([(a * n + b * m) / (n + m), n + m])
    placed = np.repeat([b[0] for b in blocks], [int(b[1]) for b in blocks]) + steps
    result = np.empty(len(values))
    result[order] = placed
    return result
