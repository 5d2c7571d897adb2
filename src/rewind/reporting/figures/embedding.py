"""Captions and items of one run in a plane: principal components, t-SNE or UMAP of their vectors."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from rewind.errors import RewindError
from rewind.reporting import style

NAMES = {"pca": "principal components", "tsne": "t-SNE", "umap": "UMAP"}
SPACES = {
    "joint": "the space in which captions and items are compared",
    "towers": "the towers' space: this head scores pairs and has no space of its own",
}
LINED = 20  # items whose lines to captions are drawn; more would be all that is seen
DRAWN = 5000  # items up to which every point is drawn as such in PDF and SVG; more are one image in them


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
    """Captions as crosses, originals as rings, twins as small dots: a twin that lies on its original shows inside it.

    A faint line joins every original with its twin; grey lines join the first items with their captions.

    Args:
        text: float (n, d) vectors of captions.
        items: float (m, d) vectors of items.
        item_of_caption: int (n,), row of each caption's item.
        twin_of_item: int (m,), row of each item's twin, -1 where it has none.
        reversed_: bool (m,), whether an item is a twin.
        kind: ``pca``, ``tsne`` or ``umap``.
        space: ``joint``, ``towers``, or ``none`` where a retriever has no vectors.
        name: which run, for the title.

    Raises:
        RewindError: for ``umap`` where umap-learn is not installed.
    """
    with style.applied():
        if space not in SPACES or len(items) < 3:
            return style.message(f"{name}: it has no vectors of captions and items that could be drawn.")
        plane, axis_names = layout(np.concatenate([items, text]), kind)
        points, words = plane[: len(items)], plane[len(items) :]
        fig = style.figure(style.DOUBLE * 0.72, 4.3)
        axes = fig.subplots()
        _lines(axes, points, words, item_of_caption, twin_of_item)
        _points(axes, points, words, reversed_)
        axes.set(xlabel=axis_names[0], ylabel=axis_names[1], xticks=[], yticks=[])
        axes.set_title(style.plain(f"{name}\n{SPACES[space]}"), loc="left", fontsize=7.5, fontweight="normal")
        axes.set_aspect("equal", adjustable="datalim")
        style.legend_below(fig, axes, columns=3)
    return fig


def layout(vectors: np.ndarray, kind: str) -> tuple[np.ndarray, tuple[str, str]]:
    """Places (n, 2) of vectors (n, d) of unit length, and the names of the axes; the same for the same vectors.

    Raises:
        RewindError: for an unknown kind, or ``umap`` where umap-learn is not installed.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1)
    if kind == "pca":
        return _principal(unit)
    axes = (f"{NAMES.get(kind, kind)} 1", f"{NAMES.get(kind, kind)} 2")
    neighbours = max(2, min(30, (len(unit) - 1) // 3))
    if kind == "tsne":
        manifold = importlib.import_module("sklearn.manifold")
        made = manifold.TSNE(init="pca", perplexity=neighbours, random_state=0, n_jobs=1)
    elif kind == "umap":
        made = _umap().UMAP(n_neighbors=min(15, neighbours), random_state=0, n_jobs=1)
    else:
        raise RewindError(f"figures.embedding: {kind!r} is unknown; available: {', '.join(NAMES)}.")
    return np.asarray(made.fit_transform(unit.astype(np.float32))), axes


def _principal(unit: np.ndarray) -> tuple[np.ndarray, tuple[str, str]]:
    centred = unit.astype(np.float64) - unit.mean(axis=0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    places = left[:, :2] * values[:2]
    if places.shape[1] < 2:
        places = np.pad(places, ((0, 0), (0, 2 - places.shape[1])))
    # A component's sign is arbitrary: the point furthest out lies on the positive side.
    far = places[np.abs(places).argmax(axis=0), [0, 1]]
    share = np.pad(100 * values**2 / max((values**2).sum(), 1e-30), (0, 2))
    return places * np.where(far < 0, -1, 1), tuple(f"component {i + 1} ({share[i]:.0f}% of variance)" for i in (0, 1))


def _umap() -> Any:
    try:
        return importlib.import_module("umap")
    except ImportError as error:
        raise RewindError(
            "figures.embedding: umap needs a package that is not installed: `pip install umap-learn`; "
            "or set the key to pca or tsne."
        ) from error


def _lines(axes: Axes, points: np.ndarray, words: np.ndarray, own: np.ndarray, twin: np.ndarray) -> None:
    few = np.arange(min(LINED, len(points)))
    items = np.arange(len(points))
    paired = items[twin > items]
    captions = np.flatnonzero(np.isin(own, np.concatenate([few, twin[few][twin[few] >= 0]])))
    for ends, look in (
        (
            np.stack([words[captions], points[own[captions]]], axis=1),
            {"color": style.GREY, "label": f"own caption, first {len(few)} items", "linewidth": 0.7, "alpha": 0.8},
        ),
        (
            np.stack([points[paired], points[twin[paired]]], axis=1),
            {"color": style.ORANGE, "label": "original and twin", "linewidth": 0.8, "alpha": 0.45},
        ),
    ):
        if len(ends):
            axes.add_collection(LineCollection(ends, zorder=1.5, rasterized=len(points) > DRAWN, **look))


def _points(axes: Axes, points: np.ndarray, words: np.ndarray, reversed_: np.ndarray) -> None:
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
    # From the bottom up: what is larger and hollow lies over what is smaller and filled.
    kinds: list[tuple[str, np.ndarray, Mapping[str, Any]]] = [
        ("captions", words, {"marker": "x", "c": style.GREY, "linewidths": 0.6, "s": 11 * scale}),
        ("reversed twins", points[reversed_], {"marker": "o", "c": style.ORANGE, "linewidths": 0, "s": 8 * scale}),
        ("originals" if twins else "items", points[~reversed_], ring if twins else dot),
    ]
    for above, (label, places, look) in enumerate(kinds):
        if len(places):
            many = len(points) > DRAWN
            axes.scatter(places[:, 0], places[:, 1], label=label, zorder=2 + above, rasterized=many, **look)
