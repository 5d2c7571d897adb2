"""One look for every figure: sizes, colours, markers, and files that are the same bytes each time.

Colours are Okabe and Ito's; each method also has its own marker and line style, so that a greyscale print and
a colour-blind reader lose nothing.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rewind.files import atomic

SUFFIXES = ("png", "pdf", "svg")
_UNDATED = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}

SINGLE, DOUBLE = 3.5, 7.0
"""Widths of a one-column and a two-column figure, in inches."""

INK, FAINT, GREY = "#222222", "#555555", "#8a8a8a"
BLUE, ORANGE, TRUTH = "#0072b2", "#d55e00", "#009e73"

# Okabe–Ito without its yellow, which vanishes on white paper.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_LINES = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 2, 1, 2)), (0, (4, 1, 1, 1, 1, 1)))
# Thin spines and a pale grid: a small figure carries little ink besides its data.
_RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.visible": False,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.2,
    "pdf.fonttype": 42,
    "svg.hashsalt": "rewind",  # names of elements, which are random otherwise
    "savefig.facecolor": "white",
}
# Whatever a user's matplotlibrc says, the bytes are the same; naming the backend would start a window system.
_DEFAULTS = {name: value for name, value in mpl.rcParamsDefault.items() if name != "backend"}


@dataclass(frozen=True)
class Look:
    """How one method is drawn in every figure."""

    color: str
    marker: str
    linestyle: Any

    def line(self) -> dict[str, Any]:
        """Keywords for a line with markers; markers are filled white so that crossing lines stay apart."""
        return {
            "color": self.color,
            "marker": self.marker,
            "linestyle": self.linestyle,
            "markerfacecolor": "white",
            "markeredgewidth": 1.0,
        }


def looks(methods: Iterable[str], baselines: Collection[str] = ()) -> dict[str, Look]:
    """A distinct look per method, by its place in the study; baselines are grey."""
    result, place = {}, {False: 0, True: 0}
    for method in methods:
        grey = method in baselines
        n = place[grey]
        place[grey] += 1
        colour = GREY if grey else _COLOURS[n % len(_COLOURS)]
        offset = 5 if grey else 0
        result[method] = Look(colour, _MARKERS[(n + offset) % len(_MARKERS)], _LINES[(n + 3 * grey) % len(_LINES)])
    return result


@contextlib.contextmanager
def applied() -> Iterator[None]:
    """The style, for the length of a block; the caller's own matplotlib settings are untouched."""
    with mpl.rc_context({**_DEFAULTS, **_RC}):
        yield


def figure(width: float, height: float) -> Figure:
    """An empty figure in inches with constrained layout, without pyplot's global state."""
    fig = Figure(figsize=(width, height), layout="constrained")
    fig.get_layout_engine().set(w_pad=0.06, h_pad=0.06)
    FigureCanvasAgg(fig)
    return fig


def plain(text: str) -> str:
    """``text`` with its dollar signs kept from being read as mathematics."""
    return text.replace("$", r"\$")


def message(text: str) -> Figure:
    """A small figure that says why there is nothing to draw."""
    fig = figure(SINGLE, 1.0)
    axes = fig.add_subplot()
    axes.axis("off")
    axes.text(0.5, 0.5, plain(text), ha="center", va="center", wrap=True)
    return fig


def given(fig: Figure, condition: str) -> Figure:
    """The figure with what all of it is conditional on at its top; unchanged without."""
    if condition:
        with applied():
            above = [text for text in (fig.get_suptitle(), plain(condition)) if text]
            fig.suptitle("; ".join(above), fontsize=7, color=FAINT)
    return fig


def legend_below(fig: Figure, axes: Axes, columns: int) -> None:
    """One legend under all panels, outside the data, from the handles of ``axes``, in rows of equal length."""
    handles, names = axes.get_legend_handles_labels()
    rows = max(1, math.ceil(len(names) / columns))
    fig.legend(handles, names, loc="outside lower center", ncols=max(1, math.ceil(len(names) / rows)))


def save(fig: Figure, stem: str | Path, suffixes: Sequence[str] = SUFFIXES) -> tuple[Path, ...]:
    """Write ``<stem>.<suffix>`` each, images in them at 200 dpi, atomically; the same figure gives the same bytes."""
    stem = Path(stem)
    paths = tuple(stem.with_name(f"{stem.name}.{suffix}") for suffix in suffixes)
    with applied():
        for path in paths:
            with atomic(path) as draft:
                fig.savefig(draft, dpi=200, metadata=_UNDATED.get(path.suffix))
    return paths
