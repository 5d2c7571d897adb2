"""Symmetric InfoNCE over the batch, as CLIP and CLIP4Clip train."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from rewind.models.retriever import Features, Retriever
from rewind.objectives.interface import Loss

__all__ = ["Loss", "infonce", "objective"]


def infonce(retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
    """``(CE(S) + CE(Sᵀ)) / 2`` with S the (B, B) logits, row i belonging to column i.

    ``batch['items']`` (B,) tells which item each pair shows: another pair of the same item is not a negative and is
    left out of the denominator (upstream counts it as one).
    """
    logits = retriever.similarity(text, items)
    index = batch["items"]
    same = index.unsqueeze(0) == index.unsqueeze(1)
    same.fill_diagonal_(False)
    if same.any():
        logits = logits.masked_fill(same, torch.finfo(logits.dtype).min)
    truth = torch.arange(len(logits), device=logits.device)
    return Loss((F.cross_entropy(logits, truth) + F.cross_entropy(logits.T, truth)) / 2)


objective = infonce
