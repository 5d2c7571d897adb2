"""Shared style of all figures: sizes, colours, markers, and files that are byte-identical each time.

The colours are those of Okabe and Ito. Each method also has its own marker and line style, so that greyscale prints
and colour-blind readers lose nothing.
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
from matplotlib.layout_engine import ConstrainedLayoutEngine

from rewind.errors import printable
from rewind.io.files import atomic_write

FIGURE_SUFFIXES = ("png", "pdf", "svg")
# Without it the date of drawing would be in the files, and the same figure would not give the same bytes.
_NO_DATE: dict[str, dict[str, Any]] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}

SINGLE_COLUMN, DOUBLE_COLUMN = 3.5, 7.0
"""Widths of a one-column and a two-column figure, in inches."""

# ---- The palette: every colour that is drawn, besides plain black and white ----------------------------------------

INK, FAINT, GREY, PALE, GRID = "#222222", "#555555", "#8a8a8a", "#c8c8c8", "#e3e3e3"
"""From dark to light: ink; words next to what is drawn; baselines; frames of other clips than the truth; grids."""
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
METHOD_COLOURS = (BLUE, ORANGE, GREEN, "#cc79a7", "#56b4e9", "#e69f00", "#000000")
"""Of methods in the order of the study: Okabe and Ito without their yellow, which is hardly visible on white paper."""
TRUTH, TWIN = GREEN, ORANGE
"""Of the true item and of its time-reversed twin. The style sheets have darker and lighter shades of them and of BLUE,
which can be read as text on the page's light and dark ground: ``--truth``, ``--twin`` and ``--accent``."""

# ---- How methods are drawn, and matplotlib's settings --------------------------------------------------------------

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_LINE_STYLES = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 2, 1, 2)), (0, (4, 1, 1, 1, 1, 1)))
# Thin spines and a pale grid: a small figure carries little ink besides its data.
_RC: dict[Any, Any] = {
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
    "grid.color": GRID,
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
    "pdf.fonttype": 42,  # TrueType fonts are embedded as such, not as Type 3
    "svg.hashsalt": "rewind",  # ids of elements, which are random otherwise
    "savefig.facecolor": "white",
}
# A user's matplotlibrc must not change the bytes of figures. Setting the backend could start a window system.
_DEFAULTS: dict[Any, Any] = {name: value for name, value in mpl.rcParamsDefault.items() if name != "backend"}


@dataclass(frozen=True)
class MethodStyle:
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


def method_styles(methods: Iterable[str], baselines: Collection[str] = ()) -> dict[str, MethodStyle]:
    """A distinct style per method, by its position in the study; baselines are grey.

    >>> styles = method_styles(["meanP", "chance"], baselines=["chance"])
    >>> styles["chance"].color == GREY, styles["meanP"].marker
    (True, 'o')
    """
    result, counts = {}, {False: 0, True: 0}
    for method in methods:
        is_baseline = method in baselines
        n = counts[is_baseline]
        counts[is_baseline] += 1
        colour = GREY if is_baseline else METHOD_COLOURS[n % len(METHOD_COLOURS)]
        offset = 5 if is_baseline else 0
        result[method] = MethodStyle(
            colour, _MARKERS[(n + offset) % len(_MARKERS)], _LINE_STYLES[(n + 3 * is_baseline) % len(_LINE_STYLES)]
        )
    return result


# ---- Figures, frames, legends and files ----------------------------------------------------------------------------


@contextlib.contextmanager
def applied() -> Iterator[None]:
    """Apply the style within a block; the caller's matplotlib settings are restored after it."""
    with mpl.rc_context({**_DEFAULTS, **_RC}):
        yield


def figure(width: float, height: float) -> Figure:
    """An empty figure in inches with constrained layout, without pyplot's global state."""
    fig = Figure(figsize=(width, height), layout="constrained")
    engine = fig.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(w_pad=0.06, h_pad=0.06)
    FigureCanvasAgg(fig)
    return fig


def escape_dollars(text: str) -> str:
    """``text`` as a figure shows it: with escaped dollar signs, which matplotlib would read as mathematics."""
    return printable(text).replace("$", r"\$")


def frame_clip(axes: Axes, truth: bool, twin: bool) -> None:
    """Frame the picture of a clip that was found: the truth thickly, its twin dashed, others thinly and pale."""
    colour, width = (TRUTH, 2.4) if truth else (TWIN, 1.6) if twin else (PALE, 0.6)
    for spine in axes.spines.values():
        spine.set(visible=True, color=colour, linewidth=width)
        spine.set_linestyle((0, (3, 1.5)) if twin else "-")


def message_figure(text: str) -> Figure:
    """A small figure that tells why there is nothing to draw."""
    fig = figure(SINGLE_COLUMN, 1.0)
    axes = fig.add_subplot()
    axes.axis("off")
    axes.text(0.5, 0.5, escape_dollars(text), ha="center", va="center", wrap=True)
    return fig


def with_condition(fig: Figure, condition: str) -> Figure:
    """The figure with the condition of all its numbers at its top; unchanged if it is empty."""
    if condition:
        with applied():
            above = [text for text in (fig.get_suptitle(), escape_dollars(condition)) if text]
            fig.suptitle("; ".join(above), fontsize=7, color=FAINT)
    return fig


def legend_below(fig: Figure, axes: Axes, columns: int) -> None:
    """One legend under all panels, outside the data, from the handles of ``axes``, in rows of equal length."""
    handles, names = axes.get_legend_handles_labels()
    rows = max(1, math.ceil(len(names) / columns))
    fig.legend(handles, names, loc="outside lower center", ncols=max(1, math.ceil(len(names) / rows)))


def save(fig: Figure, stem: str | Path, suffixes: Sequence[str] = FIGURE_SUFFIXES) -> tuple[Path, ...]:
    """Write ``<stem>.<suffix>`` for each suffix atomically, at 200 dpi; the same figure gives the same bytes."""
    stem = Path(stem)
    paths = tuple(stem.with_name(f"{stem.name}.{suffix}") for suffix in suffixes)
    with applied():
        for path in paths:
            with atomic_write(path) as temporary:
                fig.savefig(temporary, dpi=200, metadata=_NO_DATE.get(path.suffix))
    return paths


def save_output(fig: Figure, condition: str, output: str) -> None:
    """Save a picture under the name of a job's first output, with what all its numbers are conditional on."""
    save(with_condition(fig, condition), Path(output).with_suffix(""))
