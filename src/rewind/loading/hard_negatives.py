"""Captions that say the opposite of a batch's captions, as further texts of a training step.

With ``training.hard_negatives: twins`` they are the captions of a clip's time-reversed twin, else those of a file
(:mod:`rewind.data.opposites`). In every epoch each caption that has some gets one of them, drawn by the run's seed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from rewind.data.annotations import twin_of
from rewind.data.tokenizers import same_text_labels
from rewind.errors import RewindError
from rewind.loading.text import PreparedText, take_text
from rewind.models.retriever import Features

PREFIX = "negative_"
"""Prefix of the entries of a batch that an encoder of texts gets for its hard negatives."""
_DRAW = 7  # tells these draws from others of the same seed and epoch


@dataclass
class HardNegatives:
    """Hard negatives of the training split's n captions.

    >>> negatives = HardNegatives(torch.arange(3)[:, None], np.array([0, 2, 2]), np.array([1, 2]), np.arange(3),
    ...                           np.array([4]), items=2)
    >>> negatives.draw(seed=0, epoch=0).tolist()[1], negatives.batch(np.array([1, -1]))["negative_text"].tolist()
    (-1, [[1], [0]])
    """

    text: PreparedText  # k prepared captions, one row each
    starts: np.ndarray  # (n + 1,) where each caption's own begin in `rows`
    rows: np.ndarray  # of `text`, caption by caption
    labels: np.ndarray  # (k,) the same number for the same words
    true_of: np.ndarray  # sorted label · items + item of all captions: which texts are true of which items
    items: int  # number of items of the split

    def draw(self, seed: int, epoch: int) -> np.ndarray:
        """(n,) for every caption a row of ``text``, or -1 if it has no hard negative; the same for the same numbers."""
        counts = np.diff(self.starts)
        chosen = np.random.default_rng([seed, epoch, _DRAW]).integers(0, np.maximum(counts, 1))
        # minimum: captions at the end without any begin one past the last row; where() then drops what is read there.
        return np.where(counts > 0, self.rows[np.minimum(self.starts[:-1] + chosen, len(self.rows) - 1)], -1)

    def batch(self, rows: np.ndarray) -> Features:
        """Entries of a batch: ``negatives`` (B,), rows of ``text`` or -1, and what an encoder of texts needs of these.

        Where there is none, the first row stands: a loss leaves its score out.
        """
        index = torch.from_numpy(np.ascontiguousarray(rows))
        text = take_text(self.text, index.clamp(min=0))
        return {"negatives": index} | {f"{PREFIX}{name}": value for name, value in text.items()}


class NegativePairs:
    """Which hard negatives of a batch are negatives of which of its items: not those that are true of them.

    >>> negatives = HardNegatives(torch.zeros(2, 1), np.array([0, 1, 2]), np.arange(2), np.array([5, 6]),
    ...                           np.array([5 * 2 + 1]), items=2)
    >>> pairs = NegativePairs(negatives, torch.device("cpu"))
    >>> batch = {"items": torch.tensor([0, 1, 0]), "negatives": torch.tensor([0, 1, -1])}
    >>> pairs.excluded(batch).tolist()  # text 5 is true of item 1; the third caption has none
    [[False, True, False], [False, False, False], [True, True, True]]
    """

    def __init__(self, negatives: HardNegatives, device: torch.device) -> None:
        self.labels = torch.from_numpy(np.asarray(negatives.labels, np.int64)).to(device)
        self.true_of = torch.from_numpy(np.asarray(negatives.true_of, np.int64)).to(device)
        self.items = negatives.items

    def excluded(self, batch: Features) -> Tensor:
        """Bool (B, B): hard negative i is not a negative of item j, because it is a caption of it, or there is none."""
        own = batch["negatives"]
        pairs = self.labels[own.clamp(min=0)][:, None] * self.items + batch["items"][None]
        return torch.isin(pairs, self.true_of) | (own < 0)[:, None]


def take_negatives(batch: Features) -> Features:
    """A batch's hard negatives as an encoder of texts takes captions; empty if it has none.

    >>> take_negatives({"text": torch.zeros(1), "negative_text": torch.ones(1)})
    {'text': tensor([1.])}
    """
    return {name.removeprefix(PREFIX): value for name, value in batch.items() if name.startswith(PREFIX)}


# ---- From captions of twins, or from a file ------------------------------------------------------------------------


def negatives_of_twins(items: pd.DataFrame, captions: pd.DataFrame, text: PreparedText) -> HardNegatives:
    """Give every caption of a clip those of its twin, and the other way round; without any, the split is refused."""
    twin = {name: twin_of(name) for name in items["item_id"]}
    twin |= {reversed_name: name for name, reversed_name in twin.items()}
    rows_of_item = captions.groupby("video_id", sort=False).indices
    own = [rows_of_item.get(twin[name], np.empty(0, np.int64)) for name in captions["video_id"]]
    if not any(map(len, own)):
        raise RewindError(
            "training.hard_negatives: twins have no captions in the training split; name a CSV file of opposites "
            "(docs/direction.md), or remove the key."
        )
    return _hard_negatives(items, captions, text, captions["caption"].tolist(), own)


def negatives_of_texts(
    items: pd.DataFrame, captions: pd.DataFrame, text: PreparedText, texts: Sequence[str], owners: Sequence[int]
) -> HardNegatives:
    """Take captions that are not of the split: ``texts`` (k,), and ``text``, the same prepared.

    ``owners`` (k,) has the row of the caption that each is the opposite of, ascending.
    """
    bounds = np.searchsorted(np.asarray(owners), np.arange(len(captions) + 1))
    own = [np.arange(begin, end) for begin, end in itertools.pairwise(bounds)]
    return _hard_negatives(items, captions, text, list(texts), own)


def _hard_negatives(
    items: pd.DataFrame, captions: pd.DataFrame, text: PreparedText, texts: list[str], own: list[np.ndarray]
) -> HardNegatives:
    labels = same_text_labels([*captions["caption"], *texts])
    row_of_item = pd.Series(np.arange(len(items)), index=items["item_id"])
    owner = row_of_item[captions["video_id"]].to_numpy()
    true_of = np.unique(labels[: len(captions)].astype(np.int64) * len(items) + owner)
    starts = np.concatenate([[0], np.cumsum([len(rows) for rows in own])])
    return HardNegatives(text, starts, np.concatenate(own), labels[len(captions) :], true_of, len(items))
