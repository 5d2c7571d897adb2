"""Forest plots: estimates with intervals, for methods and for pairs of methods."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from rewind.errors import RewindError
from rewind.figures import style
from rewind.figures.style import MethodStyle
from rewind.ranking_metrics import ACCURACY_METRIC, CHANCE_ACCURACY, metric_of_column
from rewind.statistics.inference import significance_level
from rewind.tables.settings import SETTING_TITLES

DASHED = (0, (4, 2))


def interval_forest(
    table: pd.DataFrame,
    labels: Mapping[str, str],
    baselines: Collection[str] = (),
    metric: str = "R@1",
    direction: str = "text_to_item",
    confidence: float = 0.95,
    stacked: bool = False,
) -> Figure:
    """Estimate and interval of every method, a panel per setting; Binary with a dashed line at chance.

    The broad pale bar is the primary interval (other seeds, other queries), the thin line inside it the bootstrap's
    (these checkpoints, other queries).

    Args:
        table: ``intervals.csv``.
        labels: method → name, in order from top to bottom (baselines, in grey, go last).
        stacked: panels below one another, in the width of a column or of a phone.
    """
    rows = rows_to_draw(table, metric, direction, "intervals.csv")
    rows = rows[rows["method"].isin(labels)]
    settings = settings_to_draw(rows, "intervals.csv", metric, direction)
    order, styles = _baselines_last(labels, baselines), style.method_styles(labels, baselines)
    names = [style.escape_dollars(labels[method]) for method in order]
    with style.applied():
        fig, panels = _panels(settings, names, stacked=stacked)
        for axes, setting in zip(panels, settings, strict=True):
            here = index_rows(rows[rows["setting"] == setting], ["method"], "intervals.csv: method")
            for row, method in enumerate(order):
                if method in here.index:
                    draw_estimate(axes, row, here.loc[method], styles[method], "estimate")
            is_accuracy = setting == "binary" and metric == ACCURACY_METRIC
            _finish_axes(
                axes,
                SETTING_TITLES[setting],
                "accuracy (%)" if is_accuracy else metric_label(metric),
                CHANCE_ACCURACY if is_accuracy else None,
            )
        _add_legend(fig, confidence, seeds=_several_seeds(rows))
    return fig


def pair_forest(
    table: pd.DataFrame,
    labels: Mapping[str, str],
    metric: str = "R@1",
    direction: str = "text_to_item",
    confidence: float = 0.95,
) -> Figure:
    """Difference of every declared pair, a panel per setting; filled where significant after Holm's correction.

    The table is ``pairs.csv``. A pair is significant where ``p_holm < 1 - confidence``; one without a p-value (one run)
    is drawn hollow.
    """
    with style.applied():
        if table.empty:
            return style.message_figure("No pairs of methods were compared in this study.")
        rows = rows_to_draw(table, metric, direction, "pairs.csv")
        settings = settings_to_draw(rows, "pairs.csv", metric, direction)
        order = list(dict.fromkeys(zip(rows["first"], rows["second"], strict=True)))
        names = [style.escape_dollars(f"{labels[a]} − {labels[b]}") for a, b in order]
        fig, panels = _panels(settings, names, extra_height=0.19)
        for axes, setting in zip(panels, settings, strict=True):
            here = index_rows(rows[rows["setting"] == setting], ["first", "second"], "pairs.csv: pair")
            for row, pair in enumerate(order):
                if pair in here.index:
                    _draw_pair(axes, row, here.loc[pair], confidence)
            _finish_axes(axes, SETTING_TITLES[setting], f"difference in {_points_label(metric)}", 0)
        _add_legend(fig, confidence, tested=True)
    return fig


def rows_to_draw(table: pd.DataFrame, metric: str, direction: str, where: str) -> pd.DataFrame:
    """Rows of a metric and a direction; the bootstrap's columns are NaN if the table lacks them.

    Another column that is missing is refused; ``where`` names the file.
    """
    missing = {"low", "high", "metric", "direction", "setting"} - set(table.columns)
    if missing:
        raise RewindError(f"{where}: no column {min(missing)!r}; compute the statistics again.")
    rows = table[(table["metric"] == metric) & (table["direction"] == direction)]
    return rows.assign(**{c: rows.get(c, np.nan) for c in ("boot_low", "boot_high")})


def settings_to_draw(rows: pd.DataFrame, where: str, metric: str, direction: str) -> list[str]:
    """Settings of the rows, in the order of the tables; without any it is an error that names the file, ``where``."""
    settings = [setting for setting in SETTING_TITLES if setting in set(rows["setting"])]
    if not settings:
        raise RewindError(f"{where}: no row of {metric}, {direction} to draw.")
    return settings


def metric_label(metric: str) -> str:
    """``R@1 (%)``."""
    return f"{metric} (%)" if metric_of_column(metric).percent else metric


def draw_estimate(axes: Axes, y: int, row: pd.Series, look: MethodStyle, value: str, filled: bool = True) -> None:
    """An estimate with its two intervals at height ``y``, and its value at the right edge of the panel.

    The row has low, high, boot_low, boot_high, metric, and the column ``value``: ``estimate``, or the name of a
    difference, which is written with its sign.
    """
    _draw_interval_bars(axes, y, row, look.color)
    face = look.color if filled else "white"
    edge: dict[str, Any] = {
        "markeredgecolor": "white" if filled else look.color,
        "markeredgewidth": 0.7 if filled else 1.2,
    }
    axes.plot(row[value], y, marker=look.marker, color=face, markersize=5.5, linestyle="none", **edge)
    digits = metric_of_column(row["metric"]).unit.digits
    # Differences have a sign: ``+1.5`` or ``−1.5``, with a true minus sign.
    text = f"{row[value]:.{digits}f}" if value == "estimate" else f"{row[value]:+.{digits}f}".replace("-", "−")
    axes.annotate(text, (1.02, y), xycoords=("axes fraction", "data"), va="center", fontsize=7, annotation_clip=False)


def _draw_interval_bars(axes: Axes, y: float, row: Mapping[str, Any], color: str) -> None:
    """The primary interval as a broad pale bar, the bootstrap's as a thin line inside it, at height ``y``."""
    line: dict[str, Any] = {"color": color, "solid_capstyle": "butt"}
    axes.plot([row["low"], row["high"]], [y, y], linewidth=5.5, alpha=0.32, **line)
    axes.plot([row["boot_low"], row["boot_high"]], [y, y], linewidth=1.3, **line)


def _draw_pair(axes: Axes, y: int, row: pd.Series, confidence: float) -> None:
    significant = row["p_holm"] < significance_level(confidence)
    look = MethodStyle(style.INK if significant else style.GREY, "s" if significant else "o", "-")
    draw_estimate(axes, y, row, look, "difference", filled=bool(significant))
    axes.annotate(
        _p_text(row["p_holm"]),
        (1.02, y),
        (0, -6.5),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center",
        fontsize=6,
        color=style.FAINT,
        annotation_clip=False,
    )


def _p_text(value: float) -> str:
    if np.isnan(value):
        return "no p"
    return f"p {value:.3f}" if value >= 0.001 else "p < 0.001"


def _panels(
    settings: list[str], names: list[str], extra_height: float = 0.0, stacked: bool = False
) -> tuple[Figure, np.ndarray]:
    """A figure with a panel per setting, and in each a row per name from top to bottom; lengths in inches."""
    panel_height = (0.27 + extra_height / 2) * len(names)
    if stacked or len(settings) == 1:
        fig = style.figure(style.SINGLE_COLUMN, 0.4 + (0.6 + panel_height) * len(settings))
        panels = fig.subplots(len(settings), 1, sharey=True, squeeze=False)[:, 0]
    else:
        fig = style.figure(style.DOUBLE_COLUMN, 1.0 + panel_height)
        panels = fig.subplots(1, len(settings), sharey=True, squeeze=False)[0]
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(len(names) - 0.4, -0.6)
    return fig, panels


def _finish_axes(axes: Axes, title: str, label: str, line: float | None) -> None:
    axes.set_title(title, loc="left")
    axes.set_xlabel(label)
    if line is not None:
        axes.axvline(line, color="black", linewidth=0.8, linestyle=DASHED, zorder=1)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.margins(x=0.08)


def _several_seeds(rows: pd.DataFrame) -> bool:
    """Whether an interval generalises to other training seeds; that of a single run does not."""
    return "seeds" not in rows or bool((rows["seeds"] > 1).any())


def _add_legend(fig: Figure, confidence: float, tested: bool = False, seeds: bool = True) -> None:
    line_style: dict[str, Any] = {"color": style.FAINT, "solid_capstyle": "butt"}
    scope = "other seeds and queries" if seeds else "other queries"
    handles = [
        Line2D([], [], linewidth=5.5, alpha=0.32, label=f"{100 * confidence:g}%, {scope}", **line_style),
        Line2D([], [], linewidth=1.3, label="these checkpoints, other queries", **line_style),
    ]
    if tested:
        marker_style: dict[str, Any] = {"linestyle": "none", "markersize": 5}
        handles += [
            Line2D([], [], marker="s", color=style.INK, label="differs: Holm's p below the level", **marker_style),
            Line2D(
                [],
                [],
                marker="o",
                color="white",
                markeredgecolor=style.GREY,
                label="not shown to differ",
                **marker_style,
            ),
        ]
    columns = 1 if fig.get_size_inches()[0] < style.DOUBLE_COLUMN else 2
    fig.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=7)


def index_rows(rows: pd.DataFrame, keys: list[str], what: str) -> pd.DataFrame:
    """Rows indexed by their keys; keys that are listed twice are refused."""
    duplicates = rows[rows.duplicated(keys)]
    if len(duplicates):
        raise RewindError(f"{what} {' − '.join(repr(duplicates.iloc[0][key]) for key in keys)} is listed twice.")
    return rows.set_index(keys)


def _baselines_last(labels: Mapping[str, str], baselines: Collection[str]) -> list[str]:
    return [m for m in labels if m not in baselines] + [m for m in labels if m in baselines]


def _points_label(metric: str) -> str:
    return f"{metric} (points)" if metric_of_column(metric).percent else metric
