"""Batches with hard negatives and twins, for losses that teach direction."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from gradients import CAPTIONS, CPU, batch_of
from rewind.loading.hard_negatives import HardNegatives
from rewind.losses.base import make_loss
from rewind.models.retriever import Retriever

LOSSES = ("negclip", "ceclip", "tact")
"""Of pairs of a caption and a clip; `tara` compares captions."""


def prepared(name: str):
    """A loss that knows its data: every second item is a twin, and the next caption is each one's opposite."""
    loss, count = make_loss(name, {"alpha_cross": 0.3, "beta": 0.5} if name == "tact" else {}), len(CAPTIONS)
    true_of = np.arange(count) * count + np.arange(count)
    negatives = HardNegatives(
        torch.zeros(count, 1), np.arange(count + 1), np.arange(count), np.arange(count), true_of, count
    )
    data = SimpleNamespace(
        hard_negatives=negatives,
        captions=CAPTIONS,
        reversed_items=np.arange(count) % 2 == 1,
        cluster_of_item=np.arange(count) // 2,
    )
    loss.prepare(None, data, CPU)
    return loss if name != "tact" else _without_negatives(loss)


def _without_negatives(loss):
    """TACT's negatives are the batch's own twins: it is not given others."""
    return lambda retriever, text, items, batch, *_: loss(retriever, text, items, batch)


def opposed_batch(model: Retriever) -> dict[str, torch.Tensor]:
    """The usual batch, each caption with the next one as its hard negative; two have none."""
    batch = batch_of(model)
    count = len(CAPTIONS)
    negatives = (torch.arange(count) + 1) % count
    negatives[[2, 9]] = -1
    return {"rows": torch.arange(count)} | batch | {
        "negatives": negatives, "negative_text": batch["text"][negatives.clamp(min=0)]
    }  # fmt: skip
