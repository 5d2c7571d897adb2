"""What tables of clips may say that somebody else made: each file lies within its folder, each clip within its file.

``items.csv`` names files and ``clips.csv`` shards. In results of one's own these are one's own; in a folder that was
fetched from elsewhere they may name anything on this machine. What shows or copies a clip asks here first.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rewind.errors import RewindError
from rewind.files import require_regular_file

if TYPE_CHECKING:
    from rewind.video.packed import Place

TRUST = "--trust"
"""Option of commands that show or copy what tables name: whatever they name is allowed."""


def clip_within(path: Path, folder: Path) -> Path:
    """The file that holds a clip, itself or its shard, if that lies below ``results/data``, links followed.

    Args:
        path: of an item, as ``items.csv`` names it.
        folder: ``results/data/<dataset>``.

    Raises:
        RewindError: if it is elsewhere, be it by ``..``, an absolute path or a symbolic link.
    """
    from rewind.video.packed import find  # it imports this module

    place = find(path)
    real = (place.shard if place else path).resolve()
    home = folder.parent.resolve()
    if not real.is_relative_to(home):
        raise RewindError(
            f"{path.name}: the file lies outside of {home}, so it is neither shown nor copied. If these results are "
            f"yours, or you trust who made them, start again with {TRUST}."
        )
    return real


def refuse_outside(name: str, folder: Path, table: Path) -> None:
    """Refuse a file that a table names outside of a folder; links are the user's own, and are not followed.

    Args:
        name: the file, relative to the folder of the table.
        folder: that it must be in.
        table: the file that names it.

    Raises:
        RewindError: for an absolute path, or one that leads out by ``..``.
    """
    here = os.path.abspath(table.parent / name)
    if not Path(here).is_relative_to(os.path.abspath(folder)):
        raise RewindError(
            f"{table}: names {name!r}, which is outside of {folder}; what is outside is not read. Make the table "
            "again; if the file is yours, put it, or a link to its folder, there, and name that."
        )


def refuse_shard(name: str, index: Path) -> None:
    """Refuse a shard that ``clips.csv`` or ``shards.csv`` names outside of its own folder.

    Raises:
        RewindError: naming both.
    """
    if name:  # what is empty or lacking is refused as no index
        refuse_outside(name, index.parent, index)


def check_table(table: Path) -> None:
    """Refuse a table of clips or shards that is no regular file, or no CSV from its first row to its last.

    Raises:
        RewindError: naming the table. One that is missing passes: who opens it says so.
    """
    require_regular_file(table, missing_ok=True)
    try:
        with table.open(newline="", encoding="utf-8") as stream:
            for _ in csv.DictReader(stream, strict=True):
                pass
    except (csv.Error, UnicodeError) as error:  # the latter's repr holds thousands of bytes
        raise RewindError(f"{table}: not an index of clips ({error}); delete it and run again.") from None
    except (OSError, ValueError):
        return  # who reads it says so


def check_place(place: Place) -> None:
    """Refuse a clip that cannot be where its index says.

    Raises:
        RewindError: naming the shard, if it is no regular file, or does not reach from where the clip begins to where
            it ends. A shard that is missing passes: who opens it says so.
    """
    from rewind.video.packed import remedy

    require_regular_file(place.shard, missing_ok=True)
    try:
        size = place.shard.stat().st_size
    except OSError:
        return
    first, last = place.member.offset, place.member.offset + place.member.bytes
    if not 0 <= first <= last <= size:
        raise RewindError(
            f"{place.shard}: {place.member.name} is not as it was written: its index says bytes {first:,} to {last:,}, "
            f"and there are {size:,}; {remedy(place.shard)}"
        )
