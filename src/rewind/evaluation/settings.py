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
    - ``binary``: originals that have a twin, forward captions (as RTime-Binary counts them).
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
        paired = captions["video_id"].map(lambda v: twin_of(v) in known).to_numpy()
        return Pool(setting, rows[forward & paired], columns, binary=True)
    return Pool(setting, rows, columns)
