"""What models share that are files: inputs are row numbers, and a file may lack all twins."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rewind.models.retriever import Features, Retriever
from rewind.study import Backbone as BackboneKeys
from rewind.study import Method
from rewind.study.brought import options


class RowNumbers(Retriever):
    """Inputs are row numbers of the split that ``from_captions`` saw last, and features too, if nothing else is."""

    def known_items(self) -> np.ndarray:
        """Ids of the items that the files know, (n,)."""
        raise NotImplementedError

    def covers(self, items: pd.DataFrame, captions: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        """All, or the originals alone where the files know no twin: a model is asked what it can answer."""
        twins = items["reversed"] == 1
        if not twins.any() or items["item_id"][twins].isin(self.known_items()).any():
            return items, captions
        kept = items[~twins]
        return kept.reset_index(drop=True), captions[captions["video_id"].isin(kept["item_id"])].reset_index(drop=True)

    def encode_text(self, batch: Features) -> Features:
        """``text`` (n, 1): row numbers of captions, as they are."""
        return {"captions": batch["text"]}

    def encode_items(self, batch: Features) -> Features:
        """``rows`` (n, 1): row numbers of items, as they are."""
        return {"items": batch["rows"]}


def check(method: Method, backbone: BackboneKeys) -> None:
    """Refuse options that do not fit together.

    Raises:
        RewindError: naming the option.
    """
    options(method)
