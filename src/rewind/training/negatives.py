"""Negatives of a batch that may be no negatives: captions of the same words, and twins."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rewind.feeding.training_data import TrainingData


def doubtful(batches: Iterable[np.ndarray], data: TrainingData, texts: np.ndarray | None) -> dict[str, float]:
    """Columns of the history: how many pairs of an epoch's batches are negatives of each other, though

    - ``same_text_negatives``: their captions say the same of different items;
    - ``twin_negatives``: their items are a clip and its twin, which is what teaches the direction of time.

    Two pairs of the same item are no negatives, and not counted. ``texts`` (n,) numbers the captions' texts, see
    :func:`rewind.text.same_texts`; without them only twins are counted.
    """
    said = twins = 0
    for rows in batches:
        items = data.item_of_caption[rows]
        if texts is not None:
            said += _together(texts[rows]) - _together(texts[rows], items)
        clusters = data.cluster_of_item[items]
        twins += _together(clusters) - _together(clusters, items)
    return ({"same_text_negatives": float(said)} if texts is not None else {}) | {"twin_negatives": float(twins)}


def _together(*keys: np.ndarray) -> int:
    """Pairs that agree in all keys."""
    counts = np.unique(np.stack(keys), axis=1, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())
