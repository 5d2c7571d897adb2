"""Finds overlap between splits: the same file, the same content or one cluster in two of them.

Overlap would let a method learn what it is tested on. It is refused unless the dataset's file says
``allow_overlap: true`` (:func:`check_split_overlap`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from rewind.config.dataset import Dataset
from rewind.data.annotations import MAX_NOTE_EXAMPLES, SHOWN_SPLIT
from rewind.errors import RewindError, first_lines
from rewind.hashing import content_key, sha256_of

SAME_AS_COLUMN = "same_as"  # column of the inventory that describes overlap where it is allowed
END_BYTES = 2**16  # at either end of a file: enough to tell nearly all files of one size apart


def shared_clusters(items: pd.DataFrame) -> list[str]:
    """Clusters whose originals are in two or more splits, one line each.

    >>> columns = {"item_id": ["v1", "v2"], "split": ["train", "test"], "cluster_id": ["film", "film"]}
    >>> shared_clusters(pd.DataFrame(columns | {"reversed": [0, 0]}))
    ["  the cluster 'film' is in train ('v1') and test ('v2')"]
    """
    originals = items[(items["reversed"] == 0) & (items["split"] != SHOWN_SPLIT)]
    firsts = originals.drop_duplicates(["cluster_id", "split"])  # one item of a cluster represents each split
    shared = firsts[firsts["cluster_id"].duplicated(keep=False)]
    lines = []
    for cluster, rows in shared.groupby("cluster_id", sort=False):
        splits = " and ".join(f"{row.split} ({row.item_id!r})" for row in rows.itertuples())
        lines.append(f"  the cluster {cluster!r} is in {splits}")
    return lines


def shared_paths(items: pd.DataFrame) -> list[str]:
    """Files that originals of two or more splits name, one line each; for datasets without their clips or images."""
    rows = items[items["reversed"] == 0]
    paths = (rows["path"] if "path" in rows else rows["source"]).astype(str)
    rows = rows.assign(file=paths.map(lambda path: os.path.normpath(path) if path else ""))
    firsts = rows[rows["file"] != ""].drop_duplicates(["file", "split"])
    shared = firsts[firsts["file"].duplicated(keep=False)]
    lines = []
    for file, group in shared.groupby("file", sort=False):
        owners = " and ".join(f"{row.item_id!r} ({row.split})" for row in group.itertuples())
        lines.append(f"  the file {file!r} is of {owners}")
    return lines


def shared_sources(rows: pd.DataFrame) -> dict[str, str]:
    """Items that share a file, or its content, with an item of another split → a line that names both.

    Files are compared by size, then by their ends; only files that are alike so far and belong to two splits are hashed
    as a whole. A pair has one line.
    """
    owners: dict[str, list[_FileOwner]] = {}  # by the file's real path
    for row in rows[rows["split"] != SHOWN_SPLIT].itertuples():  # a query may show a clip that it looks for
        for path in filter(None, (row.source, row.reversed_source)):
            owners.setdefault(os.path.realpath(path), []).append(_FileOwner(row.item_id, row.split, path))
    lines: dict[str, str] = {}
    for same_file in owners.values():
        _note_shared(same_file, "are one file", lines)
    for paths in _same_content_across_splits(owners):
        _note_shared([owner for path in paths for owner in owners[path]], "have the same content", lines)
    return lines


def check_split_overlap(dataset: Dataset, overlaps: Iterable[str]) -> int:
    """Refuse overlaps, lines of the functions above; print and count them if the dataset's file allows them."""
    lines = list(overlaps)
    if not lines:
        return 0
    where = f"config/datasets/{dataset.name}.yaml"
    if not dataset.allow_overlap:
        raise RewindError(
            f"{where}: splits overlap, so that a method could learn what it is tested on:\n{first_lines(lines)}\n"
            "Keep each in one split; or set allow_overlap: true, and tables will say so."
        )
    print(f"{where}: allow_overlap: {len(lines):,} overlaps of splits are allowed:\n{first_lines(lines)}")
    return len(lines)


def overlap_notes(items: pd.DataFrame, inventory: pd.DataFrame | None) -> dict[str, Any]:
    """Counts and examples of allowed overlaps, for ``captions/report.json``."""
    clusters = shared_clusters(items)
    same_files = (
        []
        if inventory is None or SAME_AS_COLUMN not in inventory
        else [line for line in inventory[SAME_AS_COLUMN].astype(str) if line]
    )
    shown = [line.strip() for line in [*clusters, *same_files][:MAX_NOTE_EXAMPLES]]
    return {"overlap": {"clusters": len(clusters), "items": len(same_files), "shown": shown}}


def overlap_sentence(notes: dict[str, Any]) -> str:
    """The sentence of tables about allowed overlaps (:func:`overlap_notes`); empty without any.

    >>> overlap_sentence({"overlap": {"clusters": 1, "items": 2, "shown": []}})
    'Splits overlap, which allow_overlap permits: 2 items and 1 cluster in two of them'
    """
    overlap = notes.get("overlap", {})
    counts = {what: overlap.get(f"{what}s", 0) for what in ("item", "cluster")}
    parts = [f"{count:,} {what}{'s' if count > 1 else ''}" for what, count in counts.items() if count]
    return f"Splits overlap, which allow_overlap permits: {' and '.join(parts)} in two of them" if parts else ""


def duplicate_files(paths: Iterable[str]) -> list[list[str]]:
    """Groups of two or more paths that lead to one file, or to files of the same content.

    The content of empty and of unreadable files is not compared.
    """
    paths_of: dict[str, list[str]] = {}  # real path → paths that lead to it
    for path in paths:
        paths_of.setdefault(os.path.realpath(path), []).append(path)
    groups = [list(paths_of)]
    for hash_file in (os.path.getsize, _hash_ends, sha256_of):
        groups = [part for group in groups for part in _group_by_hash(group, hash_file)]
    same_content = [[path for real in group for path in paths_of[real]] for group in groups]
    in_groups = {real for group in groups for real in group}
    links = [same_file for real, same_file in paths_of.items() if len(same_file) > 1 and real not in in_groups]
    return [*same_content, *links]


class _FileOwner(NamedTuple):
    item: str
    split: str
    path: str


def _note_shared(owners: list[_FileOwner], what: str, lines: dict[str, str]) -> None:
    """Add a line for every owner of another split than the first one's; an item keeps its first line."""
    first = owners[0]
    for other in owners[1:]:
        if other.split != first.split:
            both = " and ".join(f"{owner.item!r} ({owner.split}: {owner.path})" for owner in (first, other))
            lines.setdefault(other.item, f"  {both} {what}")


def _same_content_across_splits(owners: Mapping[str, list[_FileOwner]]) -> list[list[str]]:
    """Groups of files with the same content whose owners are in two or more splits."""
    groups = [list(owners)]
    for hash_file in (os.path.getsize, _hash_ends, sha256_of):  # each is slower than the one before, on fewer files
        parts = (part for group in groups for part in _group_by_hash(group, hash_file))
        groups = [part for part in parts if len({owner.split for path in part for owner in owners[path]}) > 1]
    return groups


def _group_by_hash(paths: list[str], hash_file: Callable[[str], Any]) -> Iterator[list[str]]:
    """Groups of two or more files with the same hash; empty and unreadable files are left for the video stage."""
    groups: dict[Any, list[str]] = {}
    for path in paths:
        with contextlib.suppress(OSError):
            groups.setdefault(hash_file(path), []).append(path)
    return (group for value, group in groups.items() if value and len(group) > 1)  # 0 is the size of an empty file


def _hash_ends(path: str) -> bytes:
    with Path(path).open("rb") as stream:
        start = stream.read(END_BYTES)
        stream.seek(max(0, os.path.getsize(path) - END_BYTES))
        return content_key(start, stream.read())
