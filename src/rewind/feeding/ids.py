"""Ids and paths of items in a model's batches, for retrievers that look something up by them."""

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


def _letters(names: Iterable[str]) -> torch.Tensor:
    written = np.array([str(name).encode("utf-8") for name in names], dtype=np.bytes_)
    width = max(1, written.dtype.itemsize)
    return torch.from_numpy(written.view(np.uint8).reshape(len(written), width).copy())
