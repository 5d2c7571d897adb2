"""Collects items and captions into :class:`Annotations`, with the checks that every format shares."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from rewind.console import printable
from rewind.datasets.annotations import TWIN_SUFFIX, Annotations, twin_of
from rewind.datasets.id_lists import id_fault
from rewind.errors import RewindError
from rewind.files import check_id

SHOWN = 50
LONGEST = 200  # characters of an id
BLOCK = 2**16  # captions that are kept as objects of their own; in a table's columns they take a third of that
_CAPTION = ("video_id", "caption", "caption_id", "split")


class Rows:
    """Items and captions in the order in which they are added.

    Args:
        files: whether items have files here, which their ids name; without them an id may be any text on one line.
    """

    def __init__(self, files: bool = True) -> None:
        self.files = files
        self.items: list[tuple[str, str, str, str, int]] = []
        self.captions: list[tuple[str, str, str, str]] = []
        self.packed: list[pd.DataFrame] = []
        self.place: dict[str, str] = {}
        self.groups: dict[str, str] = {}

    def original(self, item_id: object, source: str, split: str, cluster_id: str, where: str) -> str:
        """Add an original video and return its id.

        Raises:
            RewindError: if the id is unsafe, ends like a twin's, or was added before (``where`` leads).
        """
        name = check_id(item_id, where) if self.files else check_name(item_id, where)
        if name.endswith(TWIN_SUFFIX):
            raise RewindError(f"{where}: the id {name!r} ends with {TWIN_SUFFIX!r}, as reversed twins do; rename it.")
        if name in self.place:
            raise RewindError(f"{where}: the id {name!r} occurs twice; it is also in {self.place[name]}. Keep one.")
        self.place[name] = where
        self.items.append((name, source, split, cluster_id, 0))
        return name

    def twin(self, item_id: str, source: str, split: str, cluster_id: str) -> str:
        """Add the reversed twin of an original and return its id."""
        name = twin_of(item_id)
        self.items.append((name, source, split, cluster_id, 1))
        return name

    def describe(self, video_id: str, captions: list[str], split: str, groups: Sequence[str] = ()) -> None:
        """Add all captions of an item; ``caption_id`` is ``<video_id>#<n>``; ``groups``: one for each, or none."""
        self.groups |= {f"{video_id}#{n}": group for n, group in enumerate(groups) if group}
        self.captions += [(video_id, text, f"{video_id}#{n}", split) for n, text in enumerate(captions)]
        if len(self.captions) >= BLOCK:
            self._pack()

    def _pack(self) -> None:
        self.packed.append(pd.DataFrame(self.captions, columns=list(_CAPTION)))
        self.captions = []

    def annotations(self, notes: dict[str, dict[str, Any]]) -> Annotations:
        """The finished tables; ``notes``, by split, gain counts of items, captions and duplicates."""
        items = pd.DataFrame(self.items, columns=["item_id", "source", "split", "cluster_id", "reversed"])
        if self.captions or not self.packed:
            self._pack()
        for split, note in notes.items():
            kept = items[items["split"] == split]
            texts = [part.loc[part["split"] == split, ["video_id", "caption"]] for part in self.packed]
            note |= {
                "originals": int((kept["reversed"] == 0).sum()),
                "twins": int((kept["reversed"] == 1).sum()),
            }
            note |= {
                "captions": sum(map(len, texts)),
                "captions_per_item": _histogram(texts),
                "duplicates": duplicates(_maybe_repeated(texts)),
            }
            del texts
        captions = pd.concat(self.packed, ignore_index=True)
        if twice := set(captions["caption_id"]).intersection(name for name in self.place if "#" in name):
            name = min(twice)
            raise RewindError(
                f"{self.place[name]}: the id {name!r} is also that of a caption of {name.rpartition('#')[0]!r}; rename "
                "the item."
            )
        if self.groups:
            captions["group"] = captions["caption_id"].map(self.groups).fillna("")
        return Annotations(items, captions, {"splits": notes})


def check_name(value: object, where: str) -> str:
    """Return ``value`` as an id of what has no file here.

    Raises:
        RewindError: if it is empty, longer than 200 characters, has white space around it, or a control character.
    """
    name = str(value)
    fault = id_fault(name)
    if not fault and (len(name) > LONGEST or printable(name) != name or re.search(r"[\t\r\n]", name)):
        fault = f"the id {name[:LONGEST]!r} has a control character, or more than {LONGEST} characters; shorten it"
    if fault:
        raise RewindError(f"{where}: {fault}.")
    return name


def _histogram(parts: list[pd.DataFrame]) -> dict[str, int]:
    """How many items have how many captions: ``{"1": 500}``."""
    counted = pd.concat([part.groupby("video_id").size() for part in parts])
    sizes = counted.groupby(level=0).sum().value_counts().sort_index()
    return {str(size): int(count) for size, count in sizes.items()}


def duplicates(captions: pd.DataFrame) -> dict[str, Any]:
    """Captions whose exact text occurs more than once: counts, and the first of them.

    Args:
        captions: ``video_id`` and ``caption`` of one split.

    Returns:
        ``between_items``: texts that describe two or more items (so a search for them has no single right
        answer); ``within_items``: texts repeated inside one item; ``shared``: the first of several items.
    """
    owners = captions.groupby("caption", sort=False)["video_id"].nunique()
    between = owners.index[owners > 1]
    repeated = captions.duplicated(["video_id", "caption"], keep=False)
    shown = captions[captions["caption"].isin(between[:SHOWN])].groupby("caption", sort=False)["video_id"]
    return {
        "between_items": len(between),
        "within_items": int(captions[repeated].drop_duplicates(["video_id", "caption"]).shape[0]),
        "shared": [{"caption": text, "items": list(dict.fromkeys(items))} for text, items in shown],
    }


def _maybe_repeated(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """Captions whose text's hash occurs more than once: of millions few are left whose texts must be compared."""
    sums = [np.fromiter(map(hash, part["caption"].tolist()), np.int64, len(part)) for part in parts]
    ordered = np.sort(np.concatenate(sums))
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    return pd.concat([part[np.isin(own, twice)] for part, own in zip(parts, sums, strict=True)], ignore_index=True)
