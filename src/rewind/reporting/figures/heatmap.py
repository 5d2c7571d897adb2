"""A corner of a run's similarity matrix, every clip beside its twin."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from rewind.reporting import style


def similarity_heatmap(scores: np.ndarray, clusters: np.ndarray, note: str, twins: bool) -> Figure:
    """Scores of captions (rows) against their own items (columns), so that the truth is the diagonal.

    Args:
        scores: float (n, n), any units; drawn as given.
        clusters: (n,), equal for a clip and its twin, which stand side by side; each block is framed.
        note: what is drawn, printed over the picture.
        twins: whether there are reversed twins, for the words on the axes.
    """
    with style.applied():
        if not len(scores):
            return style.message("No caption of the test split to draw.")
        fig = style.figure(style.SINGLE + 1.0, style.SINGLE + 0.55)
        axes = fig.subplots()
        # One colour map that rises in lightness throughout: it reads in greyscale.
        image = axes.imshow(scores, cmap="cividis", interpolation="nearest")
        axes.grid(visible=False)
        starts = np.flatnonzero(np.r_[True, clusters[1:] != clusters[:-1]])
        for start, end in zip(starts, np.r_[starts[1:], len(clusters)], strict=True):
            box = (start - 0.5, start - 0.5), end - start, end - start
            axes.add_patch(Rectangle(*box, fill=False, edgecolor="white", linewidth=0.5))
        axes.set(xticks=[], yticks=[])
        axes.set_xlabel("items, " + ("each original beside its reversed twin" if twins else "in the file's order"))
        axes.set_ylabel("the first caption of each item")
        axes.set_title(style.plain(note), loc="left", fontsize=7.5, fontweight="normal")
        bar = fig.colorbar(image, ax=axes, shrink=0.8, aspect=30, pad=0.02)
        bar.set_label("standard deviations above the caption's mean")
        bar.outline.set_visible(False)
    return fig
