"""The cosine gap: how much closer captions are to their own items than to items of other clusters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from rewind.config.evaluation import Evaluation
from rewind.data.captions import load_split
from rewind.errors import RewindError
from rewind.io.files import write_npz
from rewind.loading.encode import encode_all_items, encode_all_texts
from rewind.loading.frame_source import FrameSource
from rewind.loading.run_data import RunData, job_device, load_trained_model
from rewind.loading.text import PreparedText
from rewind.models.retriever import Retriever

INDEPENDENT, PAIR_CONDITIONED = "independent", "pair_conditioned"
COSINE_BIN_EDGES = np.linspace(-1, 1, 201)
"""Borders of the bins in which cosines are counted."""


@dataclass(frozen=True)
class CosineGap:
    """The cosine gap of one matrix, and what every caption and item adds to it."""

    positive: np.ndarray  # (Q,) cosine of each caption with its own item
    negative: np.ndarray  # (Q,) mean cosine of each caption with items of other clusters
    influence: np.ndarray  # (M,) how far an item, as a candidate of others, moves the sum of `negative`; sums to 0
    counts: np.ndarray  # (2, bins) positives and negatives between COSINE_BIN_EDGES

    @property
    def gap(self) -> float:
        """Mean of ``positive`` minus mean of ``negative``, over captions."""
        return float(self.positive.mean() - self.negative.mean())


def measure_cosine_gap(
    cosines: np.ndarray, item_of_caption: np.ndarray, cluster_of_item: np.ndarray, where: str = ""
) -> CosineGap:
    """The gap of a matrix of cosines (Q, M); other values are refused.

    A caption's negatives are the items of other clusters, of which there must be some: its own item never counts as
    one, nor does a time-reversed twin or anything else that statistics resample together with it. With one caption per
    item and one item per cluster, the gap is the mean of the diagonal minus the mean of all other entries.

    >>> gap = measure_cosine_gap(np.array([[0.75, 0.25], [0.25, 0.75]]), np.array([0, 1]), np.array([0, 1]))
    >>> gap.gap, gap.counts.sum(axis=1).tolist()
    (0.5, [2, 2])
    """
    cosines = np.asarray(cosines, dtype=float)
    if not (np.abs(cosines) <= 1 + 1e-4).all():  # not `> 1`: a comparison with NaN is False, and NaN is refused too
        raise RewindError(f"{where}: the cosine gap needs cosines, numbers from -1 to 1; look for NaN in the model.")
    is_negative = cluster_of_item[item_of_caption][:, None] != cluster_of_item[None, :]
    counts = is_negative.sum(axis=1)
    if not counts.all():
        raise RewindError(f"{where}: the cosine gap needs items of at least two clusters; there is one.")
    positive = cosines[np.arange(len(cosines)), item_of_caption]
    negative = (cosines * is_negative).sum(axis=1) / counts
    # Of item m: Σ over captions q that have it as a negative of (c_qm − negative_q) / counts_q, the derivative of the
    # sum of weighted means with respect to m's weight.
    influence = (np.where(is_negative, cosines - negative[:, None], 0) / counts[:, None]).sum(axis=0)
    # np.histogram would leave out cosines that rounding put beyond ±1.
    bins = [np.histogram(part.clip(-1, 1), COSINE_BIN_EDGES)[0] for part in (positive, cosines[is_negative])]
    return CosineGap(positive, negative, influence, np.stack(bins))


@torch.inference_mode()
def cosine_matrices(
    retriever: Retriever,
    text: PreparedText,
    inputs: FrameSource,
    item_of_caption: np.ndarray,
    keys: Evaluation,
    device: torch.device,
    workers: int = 0,
) -> dict[str, np.ndarray]:
    """Cosines of every caption with every item, float32 (Q, M), by how the vectors were computed; {} if there are none.

    ``independent``: each caption and item encoded by itself. ``pair_conditioned``, if the retriever has
    cross-attention: each caption has attended to its own item (``item_of_caption``, (Q,)), and each item to the first
    of its captions, as in the original's evaluation; both have seen the answer. Each item needs a caption.
    """
    if not retriever.compares_vectors:
        return {}
    retriever.eval().to(device)
    captions = encode_all_texts(retriever.encode_text, text, keys.batch_size, device)
    items = encode_all_items(retriever.encode_items, inputs, keys.batch_size, device, workers=workers)
    left, right = retriever.vectors(captions, items)
    matrices = {INDEPENDENT: _cosine_matrix(left, right)}
    if retriever.attends_to_pairs:
        own = torch.tensor(item_of_caption, device=device)
        first = np.unique(item_of_caption, return_index=True)[1]
        left, right = retriever.pair_vectors(captions, {name: value[own] for name, value in items.items()})
        matrices[PAIR_CONDITIONED] = _cosine_matrix(left, right[torch.tensor(first, device=device)])
    return matrices


def _cosine_matrix(left: Tensor, right: Tensor) -> np.ndarray:
    # Rounding can give vectors that are equal a product above 1.
    return (left.float() @ right.float().T).clamp(-1, 1).cpu().numpy()


# ---- Cosines of a trained model ------------------------------------------------------------------------------------


GAP_SPLITS = ("valid", "test")


def compute_cosines(data: RunData, model: str, result: str) -> None:
    """Write an npz: ``<split>_<scoring>`` float32 (captions, items), ``<split>_query_ids`` and ``<split>_item_ids``.

    Items without a caption are left out. A method that compares no vectors gets only ids.
    """
    retriever = load_trained_model(data, model)
    data.check_tower(retriever)
    arrays: dict[str, np.ndarray] = {}
    for split_name in GAP_SPLITS:
        items, captions, _ = load_split(data.folder, data.dataset, split_name)
        items = items[items["item_id"].isin(captions["video_id"])].reset_index(drop=True)
        split = data.prepare(items, captions, retriever)
        row = pd.Series(np.arange(len(items)), index=items["item_id"])
        item_of_caption = row[captions["video_id"]].to_numpy()
        keys = data.spec.evaluation
        matrices = cosine_matrices(
            retriever, split.text, split.inputs, item_of_caption, keys, job_device(), split.workers
        )
        arrays |= {f"{split_name}_{scoring}": matrix for scoring, matrix in matrices.items()}
        arrays[f"{split_name}_query_ids"] = captions["caption_id"].to_numpy(dtype=str)
        arrays[f"{split_name}_item_ids"] = items["item_id"].to_numpy(dtype=str)
    write_npz(result, **arrays)
