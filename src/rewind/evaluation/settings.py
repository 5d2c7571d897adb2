"""Which queries search which gallery: Origin, Hard, Binary and the plain test split."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from rewind.datasets.annotations import twin_of
from rewind.errors import RewindError


@dataclass(frozen=True)
class Pool:
    """Rows (captions) and columns (items) of the similarity matrix that a setting uses.

    ``binary`` limits each query's gallery to the clip and its twin (text→item), or to the clip's two captions
    (item→text).
    """

    setting: str
    captions: np.ndarray
    items: np.ndarray
    binary: bool = False


def pool(setting: str, captions: pd.DataFrame, items: pd.DataFrame) -> Pool:
    """Select a setting's captions and items.

    - ``origin``: captions of originals × originals.
    - ``hard``: all captions × originals and twins.
    - ``binary``: originals whose twin has a caption too, forward captions (as RTime-Binary counts them); those whose
      twin has none are counted by :func:`left_out`.
    - ``test``: all captions × all items.

    Raises:
        RewindError: if the setting needs twins and there are none, or a caption's item is not in the gallery.
    """
    known = set(items["item_id"])
    unknown = [v for v in captions["video_id"] if v not in known]
    if unknown:
        raise RewindError(
            f"setting {setting}: {len(unknown)} captions name items outside the gallery, first {unknown[0]!r}."
        )
    is_twin = items["reversed"].to_numpy() == 1
    if setting != "test" and not is_twin.any():
        raise RewindError(
            f"evaluation.settings: {setting!r} needs time-reversed twins and the data set has none; use ['test']."
        )
    original = set(items["item_id"][~is_twin])
    forward = captions["video_id"].isin(original).to_numpy()
    rows, columns = np.arange(len(captions)), np.arange(len(items))
    if setting == "origin":
        return Pool(setting, rows[forward], columns[~is_twin])
    if setting == "binary":
        paired = forward & _described_twins(captions, items)
        if not paired.any():
            raise RewindError(
                "evaluation.settings: 'binary' needs captions of a clip and of its time-reversed twin, and no twin "
                "of the split has one; take binary out."
            )
        return Pool(setting, rows[paired], columns, binary=True)
    return Pool(setting, rows, columns)


def among_originals(setting: str) -> str:
    """The setting that asks of a run without twins what ``setting`` asks of the others: all that it has is Origin."""
    return "test" if setting == "origin" else setting


def left_out(captions: pd.DataFrame, items: pd.DataFrame) -> int:
    """Captions of originals that Binary does not ask because their clip's twin is there without a caption."""
    known, twins = set(items["item_id"]), set(items["item_id"][items["reversed"] == 1])
    has_twin = captions["video_id"].map(lambda v: twin_of(v) in known).to_numpy(dtype=bool)
    forward = ~captions["video_id"].isin(twins).to_numpy()
    return int((forward & has_twin & ~_described_twins(captions, items)).sum())


def _described_twins(captions: pd.DataFrame, items: pd.DataFrame) -> np.ndarray:
    """Whether the twin of each caption's clip is an item and has a caption."""
    described = set(captions["video_id"]) & set(items["item_id"])
    return captions["video_id"].map(lambda v: twin_of(v) in described).to_numpy(dtype=bool)
