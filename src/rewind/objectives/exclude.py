"""Pairs of a batch that are no negatives of each other, which every loss leaves out alike."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from rewind.feeding.training_data import TrainingData
from rewind.models.retriever import Features
from rewind.objectives.interface import same_items
from rewind.study.keys import key
from rewind.text import same_texts

Exclude = Literal["same_text", "twins"]
"""A reason why two pairs are no negatives of each other."""


def exclude_key() -> Any:
    """The option ``exclude: list[Exclude]``, which every loss has."""
    return key(
        [],
        "Pairs of a batch that are no negatives of each other besides those of the same item: captions of the same "
        "words, and clips and their twins (which teach the direction of time).",
    )


class Exclusions:
    """Which pairs are no negatives of each other: those of one item, and what ``exclude`` names.

    Args:
        exclude: ``same_text``, ``twins``, both or none.
    """

    def __init__(self, exclude: Collection[str]) -> None:
        self.exclude = frozenset(exclude)
        self.texts = self.clusters = torch.empty(0)

    def __bool__(self) -> bool:
        """Whether it excludes more than pairs of one item."""
        return bool(self.exclude)

    def prepare(self, data: TrainingData, device: torch.device) -> None:
        """Look up which captions say the same, and which items are twins; called before :meth:`batch`."""
        if not self.exclude:
            return
        self.texts = torch.from_numpy(same_texts(data.captions)).to(device)
        self.clusters = torch.from_numpy(np.unique(data.cluster_of_item, return_inverse=True)[1]).to(device)

    def batch(self, batch: Features) -> Tensor:
        """Bool (B, B), False on the diagonal: pairs (caption i, item j) that count neither way.

        Args:
            batch: ``items`` (B,) and ``rows`` (B,), the item and the caption of each pair.
        """
        none = same_items(batch["items"])
        if self.exclude:
            none |= self.between(batch["rows"], batch["items"], batch["rows"], batch["items"])
        return none

    def between(self, rows: Tensor, items: Tensor, other_rows: Tensor, other_items: Tensor) -> Tensor:
        """Bool (n, m): pairs of different items that ``exclude`` names, also of other batches.

        Args:
            rows, items: (n,), the captions and items of some pairs.
            other_rows, other_items: (m,), of the pairs that would be their negatives.
        """
        none = torch.zeros(len(rows), len(other_rows), dtype=torch.bool, device=rows.device)
        if "same_text" in self.exclude:
            none |= self.texts[rows][:, None] == self.texts[other_rows][None]
        if "twins" in self.exclude:
            none |= self.clusters[items][:, None] == self.clusters[other_items][None]
        return none & (items[:, None] != other_items[None])
