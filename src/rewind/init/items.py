"""What a user's files say of clips or images, before they are looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rewind.console import printable
from rewind.datasets.annotations import TWIN_SUFFIX
from rewind.datasets.photos import item_id
from rewind.errors import RewindError
from rewind.files import check_id


@dataclass
class Item:
    """One clip or image.

    Attributes:
        item_id: safe as a file name.
        path: as its row names it, relative to the folder of clips; the suffix may be missing.
        where: file and row, for messages.
        split, cluster_id: empty where the files say nothing.
        forward, reverse: captions.
        groups: what each caption of ``forward`` is about; empty for nothing.
    """

    item_id: str
    path: str
    where: str
    split: str = ""
    cluster_id: str = ""
    forward: list[str] = field(default_factory=list)
    reverse: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)

    @property
    def cluster(self) -> str:
        """What statistics treat as one unit: the item itself unless its row names another."""
        return self.cluster_id or self.item_id


@dataclass
class Brought:
    """All of it.

    Attributes:
        source: the file or folder that was named.
        items: by id, in the order of the files.
        folder: of the clips, where the source says it.
        said: what was done with the files, a sentence each.
        faults: what is wrong, a sentence each.
        table: CSV that a data set can name as it is; empty: one must be written.
        annotations: JSON files by split, in RTime's format; one alone, still to be split, is of no split: ``""``.
    """

    source: Path
    items: dict[str, Item] = field(default_factory=dict)
    folder: Path | None = None
    said: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    table: str = ""
    annotations: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, path: str, caption: str, where: str, **more: str) -> bool:
        """Add a row: a caption of an item, and where given ``split``, ``cluster_id``, ``reverse`` and ``group``.

        Rows of one item agree on all but captions. What is wrong is kept in ``faults``.

        Returns:
            Whether the id is the name as it was given.
        """
        if fault := name_fault(path):
            self.faults.append(f"{where}: the name '{printable(path)}' {fault}; rename the file.")
            return False
        group = more.pop("group", "")
        caption, reverse = (" ".join(text.split()) for text in (caption, more.pop("reverse", "")))
        known = safe_id(name)
        split, cluster = more.get("split", ""), more.get("cluster_id", "")
        item = self.items.setdefault(known, Item(known, path, where, split=split, cluster_id=cluster))
        if not caption:
            self.faults.append(f"{where}: the caption of {name!r} is empty; write one or delete the row.")
            return known == name
        for key, value in {"path": path, **more}.items():
            if value != getattr(item, key):
                first = getattr(item, key)
                self.faults.append(
                    f"{where}: {name!r} has the {key} {value!r} here but {first!r} in {item.where}; all rows of an "
                    "item must agree."
                )
        item.forward.append(caption)
        item.groups.append(group)
        if reverse:
            item.reverse.append(reverse)
        return known == name

    @property
    def splits(self) -> set[str]:
        """Splits that the files name; empty text for items of none."""
        return {item.split for item in self.items.values()}


def name_fault(path: str) -> str:
    """Why no table can name a file; empty where one can."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return "is not UTF-8"
    if path != path.strip():
        return "has a blank at an end"
    return "" if printable(path) == path and "\n" not in path and "\r" not in path else "has a control character"


def safe_id(name: str) -> str:
    """A name that may be the name of a file: itself where it can be, else one with a part of its hash."""
    try:
        check_id(name, "")
    except RewindError:
        return item_id(f"{name}.x")
    return item_id(f"{name}.x") if name.endswith(TWIN_SUFFIX) else name
