"""The floor of every table: a retriever that knows nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from rewind.models.baselines import check_options
from rewind.models.bow import CaptionedItems
from rewind.models.retriever import Features, Retriever
from rewind.study import Backbone as BackboneKeys
from rewind.study import Method
from rewind.study import Text as TextKeys


class Chance(Retriever):
    """Scores every pair 0.

    All items tie, so under honest ties (metrics as expectations over the order of the ties) its metrics are
    exactly chance: R@k = k/n, mean rank (n + 1)/2. No seed, no noise, nothing to train.
    """

    def from_captions(self, items: pd.DataFrame, captions: pd.DataFrame) -> tuple[CaptionedItems, Tensor]:
        """Row numbers of a split: no clip is read."""
        return CaptionedItems(len(items)), torch.arange(len(captions))[:, None]

    def encode_text(self, batch: Features) -> Features:
        """``text`` (n, …) → an empty row per caption."""
        return {"text": _rows(batch["text"])}

    def encode_items(self, batch: Features) -> Features:
        """Whatever a batch holds → an empty row per item."""
        return {"items": _rows(next(iter(batch.values())))}

    def similarity(self, text: Features, items: Features) -> Tensor:
        """Zeros, (n_text, n_items)."""
        return text["text"] @ items["items"].T


def _rows(like: Tensor) -> Tensor:
    return torch.zeros(len(like), 0, device=like.device)


def make(options: Mapping[str, Any] | None = None) -> Chance:
    """The baseline ``chance``; it has no options."""
    check_options(options or {}, (), "chance")
    return Chance()


def build(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Chance:
    """The baseline; of a study it only looks at the method's options, which must be empty."""
    return make(method.options)
