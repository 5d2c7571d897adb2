"""One run's similarity matrix as a heat map, and its captions and items in a plane (PCA, t-SNE or UMAP)."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from rewind.errors import RewindError
from rewind.figures import style

# ---- A corner of the similarity matrix, with every clip next to its twin -------------------------------------------


def similarity_heatmap(scores: np.ndarray, clusters: np.ndarray, note: str, twins: bool) -> Figure:
    """Scores of captions (rows) with their items (columns), so that the true items are on the diagonal.

    Scores, (n, n) in any units, are drawn as given. ``clusters``, (n,), are equal for a clip and its twin, which are
    neighbours; each block is framed. ``note`` is printed above the picture.
    """
    with style.applied():
        if not len(scores):
            return style.message_figure("No caption of the test split to draw.")
        fig = style.figure(style.SINGLE_COLUMN + 1.0, style.SINGLE_COLUMN + 0.55)
        axes = fig.subplots()
        # cividis rises in lightness throughout, so that it can be read in greyscale and by colour-blind readers.
        image = axes.imshow(scores, cmap="cividis", interpolation="nearest")
        axes.grid(visible=False)
        starts = np.flatnonzero(np.r_[True, clusters[1:] != clusters[:-1]])
        for start, end in zip(starts, np.r_[starts[1:], len(clusters)], strict=True):
            box = (start - 0.5, start - 0.5), end - start, end - start
            axes.add_patch(Rectangle(*box, fill=False, edgecolor="white", linewidth=0.5))
        axes.set(xticks=[], yticks=[])
        axes.set_xlabel("items, " + ("each original next to its reversed twin" if twins else "in the file's order"))
        axes.set_ylabel("the first caption of each item")
        axes.set_title(style.escape_dollars(note), loc="left", fontsize=7.5, fontweight="normal")
        bar = fig.colorbar(image, ax=axes, shrink=0.8, aspect=30, pad=0.02)
        bar.set_label("standard deviations above the caption's mean")
        bar.outline.set_visible(False)
    return fig


# ---- Captions and items projected to two dimensions ----------------------------------------------------------------

PROJECTION_NAMES = {"pca": "principal components", "tsne": "t-SNE", "umap": "UMAP"}
SPACE_DESCRIPTIONS = {
    "joint": "the space in which captions and items are compared",
    "towers": "the towers' space: this head scores pairs and has no space of its own",
}
MAX_ITEMS_WITH_LINES = 20  # items whose lines to captions are drawn; more would hide the points
MAX_VECTOR_POINTS = 5000  # with more items, PDF and SVG contain points and lines as one image


def embedding_space(
    text: np.ndarray,
    items: np.ndarray,
    item_of_caption: np.ndarray,
    twin_of_item: np.ndarray,
    reversed_: np.ndarray,
    kind: str,
    space: str,
    name: str,
) -> Figure:
    """Captions as crosses, originals as rings, twins as small dots: a twin on its original is seen inside its ring.

    A faint line joins every original with its twin; grey lines join the first items with their captions.

    Args:
        text: float (n, d) vectors of captions.
        items: float (m, d) vectors of items.
        item_of_caption: int (n,), row of each caption's item.
        twin_of_item: int (m,), row of each item's twin, -1 where it has none.
        reversed_: bool (m,), whether an item is a twin.
        kind: ``pca``, ``tsne`` or ``umap``.
        space: ``joint``, ``towers``, or ``none`` where a retriever has no vectors.
    """
    with style.applied():
        if space not in SPACE_DESCRIPTIONS or len(items) < 3:
            return style.message_figure(f"{name}: it has no vectors of captions and items that could be drawn.")
        plane, axis_names = project_to_plane(np.concatenate([items, text]), kind)
        points, caption_points = plane[: len(items)], plane[len(items) :]
        fig = style.figure(style.DOUBLE_COLUMN * 0.72, 4.3)
        axes = fig.subplots()
        _draw_lines(axes, points, caption_points, item_of_caption, twin_of_item)
        _draw_points(axes, points, caption_points, reversed_)
        axes.set(xlabel=axis_names[0], ylabel=axis_names[1], xticks=[], yticks=[])
        axes.set_title(
            style.escape_dollars(f"{name}\n{SPACE_DESCRIPTIONS[space]}"), loc="left", fontsize=7.5, fontweight="normal"
        )
        axes.set_aspect("equal", adjustable="datalim")
        style.legend_below(fig, axes, columns=3)
    return fig


def project_to_plane(vectors: np.ndarray, kind: str) -> tuple[np.ndarray, tuple[str, str]]:
    """Coordinates (n, 2) of vectors (n, d), scaled to unit length, and the names of the axes; deterministic.

    Raises:
        RewindError: for an unknown kind, or ``umap`` where umap-learn is not installed.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1)
    if kind == "pca":
        return _principal_components(unit)
    axes = (f"{PROJECTION_NAMES.get(kind, kind)} 1", f"{PROJECTION_NAMES.get(kind, kind)} 2")
    neighbours = max(2, min(30, (len(unit) - 1) // 3))
    # scikit-learn and umap are imported only for the projection that needs them.
    if kind == "tsne":
        manifold = importlib.import_module("sklearn.manifold")
        # With more threads or another seed the same vectors would give another picture.
        projection = manifold.TSNE(init="pca", perplexity=neighbours, random_state=0, n_jobs=1)
    elif kind == "umap":
        projection = _import_umap().UMAP(n_neighbors=min(15, neighbours), random_state=0, n_jobs=1)
    else:
        raise RewindError(f"figures.embedding: {kind!r} is unknown; available: {', '.join(PROJECTION_NAMES)}.")
    return np.asarray(projection.fit_transform(unit.astype(np.float32))), axes


def _principal_components(unit: np.ndarray) -> tuple[np.ndarray, tuple[str, str]]:
    centred = unit.astype(np.float64) - unit.mean(axis=0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    coordinates = left[:, :2] * values[:2]
    if coordinates.shape[1] < 2:
        coordinates = np.pad(coordinates, ((0, 0), (0, 2 - coordinates.shape[1])))
    # The sign of a component is arbitrary; it is chosen such that the point furthest from 0 is positive.
    furthest = coordinates[np.abs(coordinates).argmax(axis=0), [0, 1]]
    share = np.pad(100 * values**2 / max((values**2).sum(), 1e-30), (0, 2))
    first, second = (f"component {i + 1} ({share[i]:.0f}% of variance)" for i in (0, 1))
    return coordinates * np.where(furthest < 0, -1, 1), (first, second)


def _import_umap() -> Any:
    try:
        return importlib.import_module("umap")
    except ImportError as error:
        raise RewindError(
            "figures.embedding: umap needs a package that is not installed: `pip install umap-learn`; "
            "or set the key to pca or tsne."
        ) from error


def _draw_lines(
    axes: Axes, points: np.ndarray, captions: np.ndarray, item_of_caption: np.ndarray, twin_of_item: np.ndarray
) -> None:
    first_items = np.arange(min(MAX_ITEMS_WITH_LINES, len(points)))
    items = np.arange(len(points))
    paired = items[twin_of_item > items]  # each pair once; -1 is never larger
    their_twins = twin_of_item[first_items]
    shown = np.flatnonzero(np.isin(item_of_caption, np.concatenate([first_items, their_twins[their_twins >= 0]])))
    for ends, line_style in (
        (
            np.stack([captions[shown], points[item_of_caption[shown]]], axis=1),
            {
                "color": style.GREY,
                "label": f"own caption, first {len(first_items)} items",
                "linewidth": 0.7,
                "alpha": 0.8,
            },
        ),
        (
            np.stack([points[paired], points[twin_of_item[paired]]], axis=1),
            {"color": style.TWIN, "label": "original and twin", "linewidth": 0.8, "alpha": 0.45},
        ),
    ):
        if len(ends):
            axes.add_collection(
                LineCollection(list(ends), zorder=1.5, rasterized=len(points) > MAX_VECTOR_POINTS, **line_style)
            )


def _draw_points(axes: Axes, points: np.ndarray, captions: np.ndarray, reversed_: np.ndarray) -> None:
    scale = 1.0 if len(points) <= 500 else 0.45
    ring = {
        "marker": "o",
        "facecolors": "none",
        "edgecolors": style.BLUE,
        "linewidths": 0.9 * scale**0.5,
        "s": 26 * scale,
    }
    dot = {"marker": "o", "c": style.BLUE, "linewidths": 0, "s": 16 * scale}
    twins = reversed_.any()
    # From the bottom up: larger hollow markers are drawn over smaller filled ones, which stay visible inside.
    kinds: list[tuple[str, np.ndarray, Mapping[str, Any]]] = [
        ("captions", captions, {"marker": "x", "c": style.GREY, "linewidths": 0.6, "s": 11 * scale}),
        ("reversed twins", points[reversed_], {"marker": "o", "c": style.TWIN, "linewidths": 0, "s": 8 * scale}),
        ("originals" if twins else "items", points[~reversed_], ring if twins else dot),
    ]
    for layer, (label, coordinates, marker_style) in enumerate(kinds):
        if len(coordinates):
            rasterized = len(points) > MAX_VECTOR_POINTS
            axes.scatter(
                coordinates[:, 0],
                coordinates[:, 1],
                label=label,
                zorder=2 + layer,
                rasterized=rasterized,
                **marker_style,
            )
