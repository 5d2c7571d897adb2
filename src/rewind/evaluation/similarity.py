"""The similarity matrix of a run: features once, then all pairs in chunks."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rewind.models.retriever import Features, Retriever, concatenate
from rewind.study.model import Evaluation
from rewind.training.inputs import Inputs


@torch.inference_mode()
def similarity_matrix(
    retriever: Retriever, text: Tensor, inputs: Inputs, keys: Evaluation, device: torch.device
) -> np.ndarray:
    """Scores of every caption against every item.

    Args:
        retriever: the model, put into evaluation mode.
        text: prepared captions, one row each.
        inputs: the items.
        keys: batch sizes. Features are computed once a caption and once an item; pairs are scored in blocks of at
            most ``pair_batch_size``, which bounds the memory of heads that look at pairs.

    Returns:
        float32 (n_captions, n_items).
    """
    retriever.eval().to(device)
    size = keys.batch_size
    captions = concatenate(
        [retriever.encode_text({"text": text[at : at + size].to(device)}) for at in range(0, len(text), size)]
    )
    items = concatenate(
        [
            retriever.encode_items(
                {k: v.to(device) for k, v in inputs.batch(np.arange(at, min(at + size, len(inputs)))).items()}
            )
            for at in range(0, len(inputs), size)
        ]
    )
    return _all_pairs(retriever, captions, items, len(text), len(inputs), keys.pair_batch_size)


def _all_pairs(retriever: Retriever, captions: Features, items: Features, n: int, m: int, most: int) -> np.ndarray:
    columns = min(m, most)
    rows = max(1, most // columns)
    scores = np.empty((n, m), dtype=np.float32)
    for top in range(0, n, rows):
        text = {name: value[top : top + rows] for name, value in captions.items()}
        for left in range(0, m, columns):
            block = {name: value[left : left + columns] for name, value in items.items()}
            scores[top : top + rows, left : left + columns] = retriever.similarity(text, block).float().cpu().numpy()
    return scores
