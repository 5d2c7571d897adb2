"""Ids and paths of items, ids and texts of captions in a model's batches, for retrievers that look something up."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from rewind.feeding.inputs import Inputs
from rewind.models.retriever import Features


class Identified:
    """Inputs whose batches also hold ``item_ids`` and ``item_paths``, uint8 (n, bytes): UTF-8, padded with zeros.

    ``rewind.models.retriever.names`` turns them into text. Tensors, because batches go through worker processes, are
    cut into parts and moved to devices.

    Args:
        inputs: what the batches hold besides.
        items: rows with ``item_id`` and ``path`` (relative to ``folder``).
        folder: of the data set's prepared files.
    """

    def __init__(self, inputs: Inputs, items: pd.DataFrame, folder: str | Path) -> None:
        self.inputs, self.copies = inputs, inputs.copies
        self.ids = _letters(items["item_id"])
        self.paths = _letters(str((Path(folder) / path).absolute()) for path in items["path"])

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, rows: np.ndarray) -> Features:
        at = torch.as_tensor(rows)
        return self.inputs.batch(rows) | {"item_ids": self.ids[at], "item_paths": self.paths[at]}


class IdentifiedText:
    """Prepared captions whose batches also hold ``caption_ids`` and ``captions``, uint8 (n, bytes) as above.

    Args:
        text: prepared captions, (n, ...).
        captions: rows with ``caption_id`` and ``caption``.
    """

    def __init__(self, text: torch.Tensor, captions: pd.DataFrame) -> None:
        self.text = text
        self.ids, self.captions = _letters(captions["caption_id"]), _letters(captions["caption"])

    def __len__(self) -> int:
        return len(self.text)

    def batch(self, rows: torch.Tensor | slice) -> Features:
        return {"text": self.text[rows], "caption_ids": self.ids[rows], "captions": self.captions[rows]}


Text = torch.Tensor | IdentifiedText
"""Prepared captions, one row each."""


def text_batch(text: Text, rows: torch.Tensor | slice) -> Features:
    """What a retriever's ``encode_text`` gets of some captions: ``text``, and their ids and texts where they are."""
    return text.batch(rows) if isinstance(text, IdentifiedText) else {"text": text[rows]}


def _letters(names: Iterable[str]) -> torch.Tensor:
    written = np.array([str(name).encode("utf-8") for name in names], dtype=np.bytes_)
    width = max(1, written.dtype.itemsize)
    return torch.from_numpy(written.view(np.uint8).reshape(len(written), width).copy())
