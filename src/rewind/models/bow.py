"""Bag of words: a caption finds an item by the item's *other* captions. It looks at no picture.

It is caption→caption retrieval, not text→image: a floor for what words alone tell. Upstream ranks captions; here an
item has the score of its best caption, so that ranks are among items, like those of every other method.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from rewind.models.baselines import check_options
from rewind.models.retriever import Features, Retriever
from rewind.study import Backbone as BackboneKeys
from rewind.study import Method
from rewind.study import Text as TextKeys
from rewind.text import MiniclipTokenizer


class BagOfWords(Retriever):
    """Score of (caption, item): the largest cosine of word counts between the caption and the item's captions.

    A caption is never compared with itself. One that is the only caption of its item says nothing about that item: it
    scores all items 0, so under honest ties it ranks as chance does (upstream leaves such captions out). Features are
    row numbers of the split that :meth:`from_captions` saw last.
    """

    def from_captions(self, items: pd.DataFrame, captions: pd.DataFrame) -> tuple[CaptionedItems, Tensor]:
        """Take a split's ``item_id`` and ``video_id``, ``caption``; return its inputs and its prepared text."""
        place = pd.Series(np.arange(len(items)), index=items["item_id"])
        self.item = place[captions["video_id"]].to_numpy()
        self.counts = word_counts(captions["caption"].tolist())
        self.squares = np.asarray(self.counts.multiply(self.counts).sum(axis=1)).ravel()
        sizes = np.bincount(self.item, minlength=len(items))
        self.alone = sizes[self.item] == 1
        if self.alone.any():
            print(
                f"bow: {self.alone.sum():,} of {len(captions):,} captions are the only caption of their item: they "
                "have nothing to compare with and score all items the same"
            )
        return CaptionedItems(len(items)), torch.arange(len(captions))[:, None]

    def encode_text(self, batch: Features) -> Features:
        """``text`` (n, 1): row numbers of captions, as they are."""
        return {"captions": batch["text"]}

    def encode_items(self, batch: Features) -> Features:
        """``rows`` (n, 1): row numbers of items, as they are."""
        return {"items": batch["rows"]}

    def similarity(self, text: Features, items: Features) -> Tensor:
        """Cosines, float32 (n_text, n_items). Rounding from double precision makes equal ratios equal."""
        queries, gallery = text["captions"][:, 0].cpu().numpy(), items["items"][:, 0].cpu().numpy()
        column = np.full(max(self.item.max(initial=0), gallery.max(initial=0)) + 1, -1)
        column[gallery] = np.arange(len(gallery))
        theirs = np.flatnonzero(column[self.item] >= 0)
        theirs = theirs[np.argsort(column[self.item[theirs]], kind="stable")]
        scores = np.zeros((len(queries), len(gallery)), np.float32)
        if len(theirs):
            cosines = self._cosines(queries, theirs)
            places, starts = np.unique(column[self.item[theirs]], return_index=True)
            scores[:, places] = np.maximum(np.maximum.reduceat(cosines, starts, axis=1), 0)
        scores[self.alone[queries]] = 0
        return torch.from_numpy(scores).to(text["captions"].device)

    def _cosines(self, queries: np.ndarray, others: np.ndarray) -> np.ndarray:
        """(n, m) between captions, -1 where a caption meets itself."""
        products = (self.counts[queries] @ self.counts[others].T).toarray()
        norms = np.sqrt(np.outer(self.squares[queries], self.squares[others]))
        cosines = products / np.maximum(norms, 1)
        cosines[queries[:, None] == others] = -1
        return cosines


class CaptionedItems:
    """Items by their row numbers alone."""

    copies = True

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def batch(self, rows: np.ndarray) -> Features:
        """``rows`` (n, 1)."""
        return {"rows": torch.as_tensor(rows)[:, None]}


def word_counts(captions: list[str]) -> csr_matrix:
    """How often each word stands in each caption, float64 (n, words); words as MiniCLIP cuts them."""
    counts = [Counter(MiniclipTokenizer.words(caption)) for caption in captions]
    ids = {word: number for number, word in enumerate(dict.fromkeys(word for c in counts for word in c))}
    rows = np.repeat(np.arange(len(counts)), [len(c) for c in counts])
    columns = [ids[word] for c in counts for word in c]
    values = [float(value) for c in counts for value in c.values()]
    return csr_matrix((values, (rows, columns)), shape=(len(counts), max(1, len(ids))))


def make(options: Mapping[str, Any] | None = None) -> BagOfWords:
    """The baseline ``bow``; it has no options."""
    check_options(options or {}, (), "bow")
    return BagOfWords()


def build(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> BagOfWords:
    """The baseline; of a study it only looks at the method's options, which must be empty."""
    return make(method.options)
