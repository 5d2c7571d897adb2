"""Vectors of a data set, mapped into memory: they play the part that features of frozen towers play elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from rewind.errors import RewindError
from rewind.files import read_csv, read_json, reading_user_file
from rewind.models.retriever import Features

INDEX = "embeddings.json"


class Embeddings:
    """The vectors that :func:`rewind.datasets.embeddings.make_sources` laid out.

    Args:
        index: ``embeddings.json``; ``text.npy``, ``images.npy`` and their tables lie beside it.

    Raises:
        RewindError: if the files do not fit together.
    """

    def __init__(self, index: str | Path) -> None:
        self.index, folder = Path(index), Path(index).parent
        self.keys = read_json(index)
        self._text, self._items = (_mapped(folder / f"{name}.npy") for name in ("text", "images"))
        captions = read_csv(folder / "captions.csv")
        turn = captions.groupby("item_id", sort=False).cumcount()
        self._caption_rows = _places(captions["item_id"] + "#" + turn.astype(str))
        self._item_rows = _places(read_csv(folder / "items.csv")["item_id"])
        for matrix, rows, width in (
            (self._text, self._caption_rows, self.text_width),
            (self._items, self._item_rows, self.item_width),
        ):
            if matrix.shape != (len(rows), width):
                raise RewindError(
                    f"{index}: vectors {tuple(matrix.shape)} for {len(rows)} rows of width {width}; prepare the data "
                    "again."
                )

    def __reduce__(self) -> tuple[Any, ...]:
        return Embeddings, (self.index,)  # another process maps the files itself

    @property
    def text_width(self) -> int:
        return int(self.keys["text_width"])

    @property
    def item_width(self) -> int:
        return int(self.keys["item_width"])

    def text(self, captions: pd.DataFrame) -> torch.Tensor:
        """Caption vectors (n, text_width) in the order of ``captions``, as they are stored."""
        return _rows(self._text, self._found(self._caption_rows, captions["caption_id"], "captions"))

    def items(self, items: pd.DataFrame) -> Vectors:
        """The vectors of ``items``, in their order."""
        return Vectors(_rows(self._items, self._found(self._item_rows, items["item_id"], "items")))

    def _found(self, rows: pd.Series, ids: pd.Series, what: str) -> np.ndarray:
        found = rows.reindex(ids)
        if found.isna().any():
            lost = found.index[found.isna()]
            raise RewindError(
                f"{self.index}: no vectors of {len(lost)} {what}, first {lost[0]!r}; prepare the data again."
            )
        return np.array(found, dtype=np.int64)


class Vectors:
    """One vector per item, as a clip of one frame: ``frames`` float32 (n, 1, D) and ``mask`` (n, 1)."""

    copies = True

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def batch(self, rows: np.ndarray) -> Features:
        frames = self.values[torch.as_tensor(rows)].float()[:, None]
        return {"frames": frames, "mask": torch.ones(len(frames), 1, dtype=torch.uint8)}


def _mapped(path: Path) -> torch.Tensor:
    # Copy on write: nobody writes, and torch does not warn of memory that it must not write to.
    with reading_user_file(path, "npy file", "make it again: `snakemake prepared`"):
        return torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))


def _places(ids: pd.Series) -> pd.Series:
    return pd.Series(np.arange(len(ids)), index=ids.to_numpy())


def _rows(matrix: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
    """Rows of a mapped matrix: a piece of it where they follow one another, as those of a split do; else a copy."""
    if len(rows) and (np.diff(rows) == 1).all():
        return matrix[int(rows[0]) : int(rows[-1]) + 1]
    return matrix[torch.from_numpy(rows)]
