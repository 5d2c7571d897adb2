"""Prepared captions: tokens or vectors, with ids and texts for retrievers that look something up."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
import torch

from rewind.models.retriever import Features


class IdentifiedText:
    """Prepared captions whose batches also hold ``caption_ids`` and ``captions``: uint8 (n, bytes), UTF-8 and zeros."""

    def __init__(self, text: torch.Tensor, captions: pd.DataFrame) -> None:
        self.text = text
        self.ids, self.captions = encode_names(captions["caption_id"]), encode_names(captions["caption"])

    def __len__(self) -> int:
        return len(self.text)

    def batch(self, rows: torch.Tensor | slice) -> Features:
        return {"text": self.text[rows], "caption_ids": self.ids[rows], "captions": self.captions[rows]}


PreparedText = torch.Tensor | IdentifiedText
"""Prepared captions, one row each."""


def take_text(text: PreparedText, rows: torch.Tensor | slice) -> Features:
    """The batch for a retriever's ``encode_text``: ``text``, and ids and texts if the retriever reads them."""
    return text.batch(rows) if isinstance(text, IdentifiedText) else {"text": text[rows]}


def encode_names(names: Iterable[str]) -> torch.Tensor:
    encoded = np.array([str(name).encode("utf-8") for name in names], dtype=np.bytes_)
    width = max(1, encoded.dtype.itemsize)
    return torch.from_numpy(encoded.view(np.uint8).reshape(len(encoded), width).copy())
