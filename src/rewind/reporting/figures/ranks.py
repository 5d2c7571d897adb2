"""The cumulative rank curve: how far down the list the truth is."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from rewind.errors import RewindError
from rewind.reporting import style
from rewind.reporting.cells import TITLES
from rewind.reporting.style import Look


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
        if set(ranks["setting"]) == {"binary"}:
            with style.applied():
                return style.message("Binary alone ranks nothing: each query has two candidates.")
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
    mean = 100 * np.mean(seeds, axis=0)
    axes.plot(np.arange(1, gallery + 1), mean, label=label, markevery=at.tolist(), **look.line())


def _rank_axes(axes: Axes, gallery: int) -> None:
    axes.set_xscale("log")
    axes.set(xlabel="k", xlim=(0.93, gallery * 1.08), ylim=(0, 102))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
