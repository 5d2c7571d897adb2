"""A model that is a matrix: scores that somebody else computed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from rewind.datasets.score_files import NO_SCORE, Scores, read_scores
from rewind.models.bow import CaptionedItems
from rewind.models.brought import RowNumbers, check
from rewind.models.retriever import Features
from rewind.study import Backbone as BackboneKeys
from rewind.study import Method
from rewind.study import Text as TextKeys
from rewind.study.brought import options

__all__ = ["build", "check", "notes"]


class GivenScores(RowNumbers):
    """Looks scores up. A pair without one ranks below all others, tied with all such pairs, and is counted."""

    def __init__(self, scores: Scores) -> None:
        super().__init__()
        self.scores, self.missing, self.pairs, self.silent = scores, 0, 0, 0

    def known_items(self) -> np.ndarray:
        """Ids of items, (n,)."""
        return self.scores.items

    def covers(self, items: pd.DataFrame, captions: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        """All where the file knows a twin or a twin's caption, which Binary sets against the original's own."""
        twins = items["item_id"][items["reversed"] == 1]
        if captions["caption_id"][captions["video_id"].isin(twins)].isin(self.scores.queries).any():
            return items, captions
        return super().covers(items, captions)

    def from_captions(self, items: pd.DataFrame, captions: pd.DataFrame) -> tuple[CaptionedItems, Tensor]:
        """Find a split's rows and columns; return its inputs and its prepared text, row numbers both."""
        matrix = self.scores.similarity
        self.rows = _places(self.scores.queries, captions["caption_id"])
        self.columns = _places(self.scores.items, items["item_id"])
        known = self.columns[self.columns >= 0]
        there = np.zeros(len(captions), np.int64)
        for place, row in enumerate(self.rows):  # a row at a time: a matrix may take gigabytes
            there[place] = np.count_nonzero(matrix[row, known] > -np.inf) if row >= 0 else 0
        self.pairs = len(captions) * len(items)
        self.missing, self.silent = self.pairs - int(there.sum()), int((there == 0).sum())
        return CaptionedItems(len(items)), torch.arange(len(captions))[:, None]

    def similarity(self, text: Features, items: Features) -> Tensor:
        """Scores of all pairs, float32 (n_text, n_items); ``NO_SCORE`` where there is none."""
        rows = self.rows[text["captions"][:, 0].cpu().numpy()]
        columns = self.columns[items["items"][:, 0].cpu().numpy()]
        found = self.scores.similarity[np.ix_(np.maximum(rows, 0), np.maximum(columns, 0))]
        found[rows < 0] = NO_SCORE
        found[:, columns < 0] = NO_SCORE
        np.maximum(found, NO_SCORE, out=found)
        return torch.from_numpy(found).to(text["captions"].device)


def _places(ids: np.ndarray, wanted: pd.Series) -> np.ndarray:
    """Where ids stand in the matrix, -1 where they do not."""
    return pd.Series(np.arange(len(ids)), index=ids).reindex(wanted).fillna(-1).to_numpy(dtype=np.int64)


def notes(method: Method, retriever: GivenScores) -> list[str]:
    """What readers of a table must know of the row: pairs that have no score."""
    if not retriever.missing:
        return []
    none = f", {retriever.silent:,} captions have none at all" if retriever.silent else ""
    return [f"{retriever.missing:,} of {retriever.pairs:,} pairs have no score{none}; they rank below all others, tied"]


def build(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> GivenScores:
    """The scores of a run; the study's towers are not looked at.

    Raises:
        RewindError: for a file that is missing or broken.
    """
    return GivenScores(read_scores(str(options(method).file)))
