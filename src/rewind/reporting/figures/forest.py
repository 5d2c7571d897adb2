"""Forest plots: estimates with intervals, of methods and of pairs of methods."""

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
from rewind.metrics import ACCURACY, known
from rewind.reporting import style
from rewind.reporting.cells import TITLES
from rewind.reporting.style import Look

DASHED = (0, (4, 2))


def intervals(
    table: pd.DataFrame,
    labels: Mapping[str, str],
    baselines: Collection[str] = (),
    metric: str = "R@1",
    direction: str = "text_to_item",
    confidence: float = 0.95,
) -> Figure:
    """Estimate and interval of every method, a panel per setting; Binary with a dashed line at chance.

    The broad pale bar is the primary interval (other seeds, other queries), the thin line inside it the bootstrap's
    (these checkpoints, other queries).

    Args:
        table: ``intervals.csv``: method, setting, direction, metric, estimate, low, high, boot_low, boot_high.
        labels: method → name, in order from top to bottom (baselines go last).
        baselines: methods drawn in grey.
        metric: which metric.
        direction: which search direction.
        confidence: of the intervals, for the legend.

    Raises:
        RewindError: if the table has no such metric and direction, or a method twice.
    """
    rows = chosen(table, metric, direction, "intervals.csv")
    rows = rows[rows["method"].isin(labels)]
    settings = settings_of(rows, "intervals.csv", metric, direction)
    order, look = _baselines_last(labels, baselines), style.looks(labels, baselines)
    names = [style.plain(labels[method]) for method in order]
    with style.applied():
        fig, panels = _panels(settings, names)
        for axes, setting in zip(panels, settings, strict=True):
            here = by(rows[rows["setting"] == setting], ["method"], "intervals.csv: method")
            for place, method in enumerate(order):
                if method in here.index:
                    _whisker(axes, place, here.loc[method], look[method], "estimate")
            half = setting == "binary" and metric == ACCURACY
            _finish(axes, TITLES[setting], "accuracy (%)" if half else unit(metric), 50 if half else None)
        _key(fig, confidence, seeds=_several_seeds(rows))
    return fig


def pairs(
    table: pd.DataFrame,
    labels: Mapping[str, str],
    metric: str = "R@1",
    direction: str = "text_to_item",
    confidence: float = 0.95,
) -> Figure:
    """Difference of every declared pair, a panel per setting; filled where it stands after Holm's correction.

    Args:
        table: ``pairs.csv``: first, second, setting, direction, metric, difference, low, high, p_holm, boot_low,
            boot_high. A pair without p (one run) is drawn hollow and without a mark.
        labels: method → name.
        metric: which metric.
        direction: which search direction.
        confidence: of the intervals; a pair stands where ``p_holm < 1 - confidence``.

    Raises:
        RewindError: if a pair is there twice.
    """
    with style.applied():
        if table.empty:
            return style.message("No pairs of methods were compared in this study.")
        rows = chosen(table, metric, direction, "pairs.csv")
        settings = settings_of(rows, "pairs.csv", metric, direction)
        order = list(dict.fromkeys(zip(rows["first"], rows["second"], strict=True)))
        names = [style.plain(f"{labels[a]} − {labels[b]}") for a, b in order]
        fig, panels = _panels(settings, names, marks=0.19)
        for axes, setting in zip(panels, settings, strict=True):
            here = by(rows[rows["setting"] == setting], ["first", "second"], "pairs.csv: pair")
            for place, pair in enumerate(order):
                if pair in here.index:
                    _pair(axes, place, here.loc[pair], confidence)
            _finish(axes, TITLES[setting], f"difference in {_points(metric)}", 0)
        _key(fig, confidence, tested=True)
    return fig


def chosen(table: pd.DataFrame, metric: str, direction: str, where: str) -> pd.DataFrame:
    """Rows of a metric and a direction, the bootstrap's columns empty where the table lacks them."""
    missing = {"low", "high", "metric", "direction", "setting"} - set(table.columns)
    if missing:
        raise RewindError(f"{where}: no column {min(missing)!r}; compute the statistics again.")
    rows = table[(table["metric"] == metric) & (table["direction"] == direction)]
    return rows.assign(**{c: rows.get(c, np.nan) for c in ("boot_low", "boot_high")})


def settings_of(rows: pd.DataFrame, where: str, metric: str, direction: str) -> list[str]:
    """Settings that are there, in the order of the tables."""
    found = [setting for setting in TITLES if setting in set(rows["setting"])]
    if not found:
        raise RewindError(f"{where}: no row of {metric}, {direction} to draw.")
    return found


def unit(metric: str) -> str:
    """``R@1 (%)``."""
    return f"{metric} (%)" if known(metric).percent else metric


def bar(axes: Axes, place: float, row: Mapping[str, Any], color: str) -> None:
    """The primary interval as a broad pale bar, the bootstrap's as a thin line inside."""
    line = {"color": color, "solid_capstyle": "butt"}
    axes.plot([row["low"], row["high"]], [place, place], linewidth=5.5, alpha=0.32, **line)
    axes.plot([row["boot_low"], row["boot_high"]], [place, place], linewidth=1.3, **line)


def _whisker(axes: Axes, place: int, row: pd.Series, look: Look, value: str, filled: bool = True) -> None:
    bar(axes, place, row, look.color)
    face = look.color if filled else "white"
    edge = {"markeredgecolor": "white" if filled else look.color, "markeredgewidth": 0.7 if filled else 1.2}
    axes.plot(row[value], place, marker=look.marker, color=face, markersize=5.5, linestyle="none", **edge)
    digits = known(row["metric"]).unit.digits
    _beside(axes, place, f"{row[value]:.{digits}f}" if value == "estimate" else signed(row[value], digits))


def signed(value: float, digits: int) -> str:
    """``+1.5`` or ``−1.5``, with a true minus sign."""
    return f"{value:+.{digits}f}".replace("-", "−")


def _pair(axes: Axes, place: int, row: pd.Series, confidence: float) -> None:
    stands = row["p_holm"] < round(1 - confidence, 12)
    look = Look(style.INK if stands else style.GREY, "s" if stands else "o", "-")
    _whisker(axes, place, row, look, "difference", filled=bool(stands))
    axes.annotate(
        _p(row["p_holm"]),
        (1.02, place),
        (0, -6.5),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center",
        fontsize=6,
        color=style.FAINT,
        annotation_clip=False,
    )


def _p(value: float) -> str:
    if np.isnan(value):
        return "no p"
    return f"p {value:.3f}" if value >= 0.001 else "p < 0.001"


def _beside(axes: Axes, place: float, text: str) -> None:
    where = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 7, "annotation_clip": False}
    axes.annotate(text, (1.02, place), **where)


def _panels(settings: list[str], names: list[str], marks: float = 0.0) -> tuple[Figure, np.ndarray]:
    width = style.DOUBLE if len(settings) > 1 else style.SINGLE
    fig = style.figure(width, 1.0 + (0.27 + marks / 2) * len(names))
    panels = fig.subplots(1, len(settings), sharey=True, squeeze=False)[0]
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(len(names) - 0.4, -0.6)
    return fig, panels


def _finish(axes: Axes, title: str, label: str, line: float | None) -> None:
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
    """Whether an interval speaks of other training seeds; of one run it cannot."""
    return "seeds" not in rows or bool((rows["seeds"] > 1).any())


def _key(fig: Figure, confidence: float, tested: bool = False, seeds: bool = True) -> None:
    ink = {"color": style.FAINT, "solid_capstyle": "butt"}
    over = "other seeds and queries" if seeds else "other queries"
    handles = [
        Line2D([], [], linewidth=5.5, alpha=0.32, label=f"{100 * confidence:g}%, {over}", **ink),
        Line2D([], [], linewidth=1.3, label="these checkpoints, other queries", **ink),
    ]
    if tested:
        mark = {"linestyle": "none", "markersize": 5}
        handles += [
            Line2D([], [], marker="s", color=style.INK, label="differs: Holm's p below the level", **mark),
            Line2D([], [], marker="o", color="white", markeredgecolor=style.GREY, label="not shown to differ", **mark),
        ]
    columns = 1 if fig.get_size_inches()[0] < style.DOUBLE else 2
    fig.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=7)


def by(rows: pd.DataFrame, keys: list[str], what: str) -> pd.DataFrame:
    """Rows by their keys.

    Raises:
        RewindError: naming the keys that are there twice.
    """
    twice = rows[rows.duplicated(keys)]
    if len(twice):
        raise RewindError(f"{what} {' − '.join(repr(twice.iloc[0][key]) for key in keys)} is there twice.")
    return rows.set_index(keys)


def _baselines_last(labels: Mapping[str, str], baselines: Collection[str]) -> list[str]:
    return [m for m in labels if m not in baselines] + [m for m in labels if m in baselines]


def _points(metric: str) -> str:
    return f"{metric} (points)" if known(metric).percent else metric
