"""What the training loop learns from."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from rewind.feeding.ids import Text, text_batch
from rewind.feeding.inputs import Inputs
from rewind.models.retriever import Features


@dataclass
class TrainingData:
    """The training split.

    Attributes:
        inputs: the items.
        text: prepared captions, one row each, see :mod:`rewind.feeding.ids`.
        item_of_caption: (n,) item row of each caption.
        cluster_of_item: (m,) cluster of each item.
        caption_ids: names for messages.
        captions: the captions themselves, for samplers and losses that read them.
        workers: processes that may decode items where all of them are encoded.
    """

    inputs: Inputs
    text: Text
    item_of_caption: np.ndarray
    cluster_of_item: np.ndarray
    caption_ids: list[str]
    captions: list[str] = field(default_factory=list)
    workers: int = 0

    def batch(self, rows: np.ndarray) -> Features:
        """Everything that a step needs of some captions: ``rows``, ``text``, ``items`` and the items' input."""
        items = self.item_of_caption[rows]
        index = torch.from_numpy(rows)
        of_items = {"items": torch.from_numpy(items)} | self.inputs.batch(items)
        return {"rows": index} | text_batch(self.text, index) | of_items
