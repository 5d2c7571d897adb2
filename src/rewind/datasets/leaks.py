"""What lies in two splits of a data set, so that a method could learn what it is tested on."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from rewind.datasets.rows import SHOWN
from rewind.errors import RewindError, listed
from rewind.files import sha256_of
from rewind.study.dataset import Dataset

SAME = "same_as"  # column of the inventory where overlap is allowed
ENDS = 2**16  # bytes at either end of a file, which tell nearly all files of one size apart


def shared_clusters(items: pd.DataFrame) -> list[str]:
    """Clusters whose originals are in two splits, a line each.

    Args:
        items: of the annotations.
    """
    originals = items[items["reversed"] == 0]
    firsts = originals.drop_duplicates(["cluster_id", "split"])
    found = firsts[firsts["cluster_id"].duplicated(keep=False)]
    return [
        f"  the cluster {cluster!r} is in {_and(f'{row.split} ({row.item_id!r})' for row in rows.itertuples())}"
        for cluster, rows in found.groupby("cluster_id", sort=False)
    ]


def shared_paths(items: pd.DataFrame) -> list[str]:
    """Files that originals of two splits name, a line each, by their names alone: where no clip or image is here.

    Args:
        items: of the annotations.
    """
    rows = items[items["reversed"] == 0]
    named = (rows["path"] if "path" in rows else rows["source"]).astype(str)
    rows = rows.assign(file=named.map(lambda path: os.path.normpath(path) if path else ""))
    firsts = rows[rows["file"] != ""].drop_duplicates(["file", "split"])
    found = firsts[firsts["file"].duplicated(keep=False)]
    return [
        f"  the file {file!r} is of {_and(f'{row.item_id!r} ({row.split})' for row in group.itertuples())}"
        for file, group in found.groupby("file", sort=False)
    ]


def shared_sources(rows: pd.DataFrame) -> dict[str, str]:
    """Item → what it has in common with one of another split: its file, or a file of the same content.

    Sizes decide first, then the ends of files of one size; only what is alike so far, and in two splits, is read as a
    whole.

    Args:
        rows: of the inventory: item_id, split, source, reversed_source.

    Returns:
        Lines by item, each naming both items, their splits and their files; a pair has one line.
    """
    owners: dict[str, list[_Owner]] = {}  # by the file's real path
    for row in rows.itertuples():
        for path in filter(None, (row.source, row.reversed_source)):
            owners.setdefault(os.path.realpath(path), []).append(_Owner(row.item_id, row.split, path))
    found: dict[str, str] = {}
    for same in owners.values():
        _note(same, "are one file", found)
    for paths in _alike(owners):
        _note([owner for path in paths for owner in owners[path]], "have the same content", found)
    return found


def settle(dataset: Dataset, found: Iterable[str]) -> int:
    """Refuse what was found, or say it where the data set's file allows it; how much it is.

    Raises:
        RewindError: naming the first of them, with the key.
    """
    lines = list(found)
    if not lines:
        return 0
    where = f"config/datasets/{dataset.name}.yaml"
    if not dataset.allow_overlap:
        raise RewindError(
            f"{where}: splits overlap, so that a method could learn what it is tested on:\n{listed(lines)}\nKeep each "
            "in one split; or set allow_overlap: true, and tables will say so."
        )
    print(f"{where}: allow_overlap: {len(lines):,} overlaps of splits are allowed:\n{listed(lines)}")
    return len(lines)


def notes(items: pd.DataFrame, inventory: pd.DataFrame | None) -> dict[str, Any]:
    """What the report of captions says of overlaps that were allowed.

    Args:
        items: of the annotations.
        inventory: with the column :data:`SAME`; None where there is none.
    """
    clusters = shared_clusters(items)
    same = [] if inventory is None or SAME not in inventory else [line for line in inventory[SAME].astype(str) if line]
    shown = [line.strip() for line in [*clusters, *same][:SHOWN]]
    return {"overlap": {"clusters": len(clusters), "items": len(same), "shown": shown}}


def sentence(said: dict[str, Any]) -> str:
    """What tables say of it; ``said`` are the notes of the annotations."""
    counts = said.get("overlap", {})
    found = {what: counts.get(f"{what}s", 0) for what in ("item", "cluster")}
    parts = [f"{count:,} {what}{'s' if count > 1 else ''}" for what, count in found.items() if count]
    return f"Splits overlap, which allow_overlap permits: {_and(parts)} in two of them" if parts else ""


def copies(paths: Iterable[str]) -> list[list[str]]:
    """Groups of paths that lead to one file, or to files of the same content; of two and more each.

    Args:
        paths: files; what is empty or unreadable is like nothing else.
    """
    named: dict[str, list[str]] = {}
    for path in paths:
        named.setdefault(os.path.realpath(path), []).append(path)
    groups = [list(named)]
    for mark in (os.path.getsize, _ends, sha256_of):
        groups = [part for group in groups for part in _apart(group, mark)]
    same = {real: [path for one in group for path in named[one]] for group in groups for real in group[:1]}
    in_groups = {real for group in groups for real in group}
    links = [paths for real, paths in named.items() if len(paths) > 1 and real not in in_groups]
    return [*same.values(), *links]


class _Owner(NamedTuple):
    item: str
    split: str
    path: str


def _note(owners: list[_Owner], what: str, found: dict[str, str]) -> None:
    """Note items of ``owners`` that are not of the first one's split, each with a line."""
    first = owners[0]
    for one in owners[1:]:
        if one.split != first.split:
            said = f"  {first.item!r} ({first.split}: {first.path}) and {one.item!r} ({one.split}: {one.path}) {what}"
            found.setdefault(one.item, said)


def _alike(owners: Mapping[str, list[_Owner]]) -> list[list[str]]:
    """Groups of files with the same content that are of two splits."""
    groups = [list(owners)]
    for mark in (os.path.getsize, _ends, sha256_of):
        parts = (part for group in groups for part in _apart(group, mark))
        groups = [part for part in parts if len({owner.split for path in part for owner in owners[path]}) > 1]
    return groups


def _apart(paths: list[str], mark: Callable[[str], Any]) -> Iterator[list[str]]:
    """Those of two and more files that have the same mark; what is empty or unreadable is told when it is made."""
    marked: dict[Any, list[str]] = {}
    for path in paths:
        with contextlib.suppress(OSError):
            marked.setdefault(mark(path), []).append(path)
    return (group for known, group in marked.items() if known and len(group) > 1)


def _ends(path: str) -> bytes:
    with Path(path).open("rb") as stream:
        both = stream.read(ENDS)
        stream.seek(max(0, os.path.getsize(path) - ENDS))
        return hashlib.sha256(both + stream.read()).digest()


def _and(parts: Iterable[str]) -> str:
    return " and ".join(parts)
