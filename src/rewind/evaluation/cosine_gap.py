"""The cosine gap: how much closer captions are to their own items than to others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rewind.errors import RewindError
from rewind.feeding.encode import encode_all, encode_texts
from rewind.feeding.ids import Text
from rewind.feeding.inputs import Inputs
from rewind.models.retriever import Retriever
from rewind.study.model import Evaluation

INDEPENDENT, PAIRED = "independent", "pair_conditioned"
EDGES = np.linspace(-1, 1, 201)
"""Borders of the bins in which cosines are counted."""


@dataclass(frozen=True)
class Gap:
    """The cosine gap of one matrix, and what every caption and item adds to it.

    Attributes:
        positive: (Q,) cosine of each caption with its own item.
        negative: (Q,) mean cosine of each caption with items of other clusters.
        influence: (M,) how far an item, as a candidate of other captions, moves the sum of ``negative``; sums to 0.
        counts: (2, bins) positives and negatives between :data:`EDGES`.
    """

    positive: np.ndarray
    negative: np.ndarray
    influence: np.ndarray
    counts: np.ndarray

    @property
    def gap(self) -> float:
        """Mean of the positives minus mean of the negatives, over captions."""
        return float(self.positive.mean() - self.negative.mean())


def cosine_gap(cosines: np.ndarray, item_of_caption: np.ndarray, cluster_of_item: np.ndarray, where: str = "") -> Gap:
    """The gap of a matrix of cosines.

    A caption's negatives are the items of other clusters: its own item never counts as one, nor does a time-reversed
    twin or anything else that statistics resample with it. With one caption per item and cluster it is the mean of the
    diagonal minus the mean of all other entries.

    Args:
        cosines: (Q, M).
        item_of_caption: (Q,) column of each caption's item.
        cluster_of_item: (M,) cluster of each item, any integers.
        where: names the matrix in messages.

    Raises:
        RewindError: for values that are no cosines, or a caption without negatives.
    """
    cosines = np.asarray(cosines, dtype=float)
    if not (np.abs(cosines) <= 1 + 1e-4).all():  # NaN too
        raise RewindError(f"{where}: the cosine gap needs cosines, numbers from -1 to 1; look for NaN in the model.")
    other = cluster_of_item[item_of_caption][:, None] != cluster_of_item[None, :]
    counts = other.sum(axis=1)
    if not counts.all():
        raise RewindError(f"{where}: the cosine gap needs items of at least two clusters; there is one.")
    positive = cosines[np.arange(len(cosines)), item_of_caption]
    negative = (cosines * other).sum(axis=1) / counts
    influence = (np.where(other, cosines - negative[:, None], 0) / counts[:, None]).sum(axis=0)
    bins = [np.histogram(part.clip(-1, 1), EDGES)[0] for part in (positive, cosines[other])]
    return Gap(positive, negative, influence, np.stack(bins))


@torch.inference_mode()
def cosine_matrices(
    retriever: Retriever,
    text: Text,
    inputs: Inputs,
    item_of_caption: np.ndarray,
    keys: Evaluation,
    device: torch.device,
    workers: int = 0,
) -> dict[str, np.ndarray]:
    """Cosines of every caption with every item, float32 (Q, M), by how the vectors were made.

    ``independent``: each by itself. ``pair_conditioned``, where the retriever has cross-attention: each caption has
    seen its own item, and each item the first of its captions, as in the original's evaluation; the answer is known
    to both.

    Args:
        retriever: the model, put into evaluation mode; one that compares no vectors has no matrix.
        text: prepared captions, one row each.
        inputs: the items; each has a caption.
        item_of_caption: (Q,) row of each caption's item.
        keys: ``batch_size``.
        device: where it is computed.
        workers: decoding processes.
    """
    if not retriever.compares_vectors:
        return {}
    retriever.eval().to(device)
    captions = encode_texts(retriever.encode_text, text, keys.batch_size, device)
    items = encode_all(retriever.encode_items, inputs, keys.batch_size, device, workers=workers)
    left, right = retriever.vectors(captions, items)
    found = {INDEPENDENT: _cosines(left, right)}
    if retriever.attends_to_pairs:
        own = torch.tensor(item_of_caption, device=device)
        first = np.unique(item_of_caption, return_index=True)[1]
        left, right = retriever.pair_vectors(captions, {name: value[own] for name, value in items.items()})
        found[PAIRED] = _cosines(left, right[torch.tensor(first, device=device)])
    return found


def _cosines(left: Tensor, right: Tensor) -> np.ndarray:
    return (left.float() @ right.float().T).clamp(-1, 1).cpu().numpy()
