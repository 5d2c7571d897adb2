"""Shards of clips: uncompressed tar files, and the index that says where in them each clip or image is.

A data set's folder ``videos`` holds ``shards/<n>-of-<N>.tar``, which ``tar`` and WebDataset read, and two tables:

- ``clips.csv``: name (``<id>.mp4``, ``<id>_rev.mp4``, or an image's), shard (its file, relative to ``videos``), offset
  and bytes of the content, and its SHA-256;
- ``shards.csv``: shard, how many files it holds, its bytes, and the SHA-256 of the whole file. What a shard holds is in
  this small table, so what is computed from clips depends on it, and not on when a shard was written.

Names, order and all metadata follow from the ids alone: the same clips give the same bytes.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import os
import tarfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import BinaryIO

import pandas as pd

from rewind.errors import RewindError
from rewind.files import atomic, require_regular_file, sha256_of, write_csv
from rewind.video.clip_checks import check_place, check_table, refuse_shard

INDEX, SHARDS = "clips.csv", "shards.csv"
INDEX_COLUMNS = ("name", "shard", "offset", "bytes", "sha256")
SHARD_COLUMNS = ("shard", "files", "bytes", "sha256")
EXTRACTED = "clips"
"""Folder of a data set that holds single clips as files, where somebody asked for them."""


@dataclass(frozen=True)
class Member:
    """A file inside a shard; ``offset`` is where its content begins."""

    name: str
    offset: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Packed:
    """A finished shard: its members in order, its size, and the SHA-256 of the whole file."""

    members: tuple[Member, ...]
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Place:
    """Where a clip is: which shard, and which part of it."""

    shard: Path
    member: Member


class _Counted:
    """A file that is written once from its beginning, with a checksum of all that went by."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.sum, self.size = stream, hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.sum.update(data)
        self.size += len(data)
        return self.stream.write(data)


def write_tar(path: Path, members: Iterable[tuple[str, bytes]]) -> Packed:
    """Write a shard, atomically; memory holds one member at a time.

    Args:
        path: the tar file.
        members: names and contents, in order.
    """
    found = []
    with atomic(path) as draft, draft.open("wb") as stream:
        counted = _Counted(stream)
        for name, content in members:
            info = tarfile.TarInfo(name)  # time 0, nobody's, mode 644
            info.size = len(content)
            counted.write(info.tobuf(tarfile.PAX_FORMAT))
            found.append(Member(name, counted.size, len(content), hashlib.sha256(content).hexdigest()))
            counted.write(content)
            counted.write(bytes(-len(content) % tarfile.BLOCKSIZE))
        counted.write(bytes(2 * tarfile.BLOCKSIZE))
        counted.write(bytes(-counted.size % tarfile.RECORDSIZE))
    return Packed(tuple(found), counted.size, counted.sum.hexdigest())


def write_index(folder: Path, shards: Sequence[tuple[str, Packed]]) -> None:
    """Write ``clips.csv`` and ``shards.csv`` over all shards.

    Args:
        folder: the data set's ``videos``.
        shards: file of each shard, relative to ``folder``, and what it holds.
    """
    rows = [(m.name, shard, m.offset, m.bytes, m.sha256) for shard, packed in shards for m in packed.members]
    write_csv(folder / INDEX, pd.DataFrame(rows, columns=list(INDEX_COLUMNS)))
    sums = [(shard, len(packed.members), packed.bytes, packed.sha256) for shard, packed in shards]
    write_csv(folder / SHARDS, pd.DataFrame(sums, columns=list(SHARD_COLUMNS)))


def write_members(path: Path, packed: Packed) -> None:
    """Write the index of one shard; its first row is the shard itself, under the empty name."""
    rows = [("", 0, packed.bytes, packed.sha256), *map(astuple, packed.members)]
    write_csv(path, pd.DataFrame(rows, columns=["name", "offset", "bytes", "sha256"]))


def read_members(path: Path) -> Packed:
    """What :func:`write_members` wrote.

    Raises:
        RewindError: naming the file, if it is no such index.
    """
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            rows = [_member(row) for row in _rows(stream)]
        whole, members = rows[0], tuple(rows[1:])
    except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
        raise RewindError(f"{path}: not the index of a shard ({error}); delete it and run again.") from None
    return Packed(members, whole.bytes, whole.sha256)


def find(path: str | Path) -> Place | None:
    """The place of a clip by the name that it has in ``items.csv``: ``<folder>/videos/<id>.mp4``.

    None where its folder has no index (single files, as earlier versions had them), or not this name.
    """
    path = Path(path)
    try:
        return _index(path.parent).get(path.name)
    except OSError:
        return None


def _index(folder: Path) -> dict[str, Place]:
    index = folder / INDEX
    stat = os.stat(index)
    return _places(index, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=8)
def _places(index: Path, _time: int, _size: int) -> dict[str, Place]:
    """The index of a folder, read once as long as the file is the same."""
    shards: dict[str, Path] = {}
    found = {}
    check_table(index)
    try:
        with index.open(newline="", encoding="utf-8") as stream:
            for row in _rows(stream):
                refuse_shard(row["shard"], index)
                shard = shards.setdefault(row["shard"], index.parent / row["shard"])
                member = _member(row)
                found[member.name] = Place(shard, member)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RewindError(f"{index}: not an index of clips ({error!r}); delete it and run again.") from None
    return found


def _rows(stream: Iterable[str]) -> csv.DictReader[str]:
    return csv.DictReader(stream, strict=True)


def _member(row: dict[str, str]) -> Member:
    return Member(row["name"], int(row["offset"]), int(row["bytes"]), row["sha256"])


def read(place: Place) -> bytes:
    """The content of a clip.

    Raises:
        RewindError: naming the shard, if it is missing or cut short, or the content is not what was written.
    """
    member = place.member
    check_place(place)
    try:
        with place.shard.open("rb", buffering=0) as stream:
            content = os.pread(stream.fileno(), member.bytes, member.offset)
    except FileNotFoundError:
        raise RewindError(f"{place.shard}: this shard of clips is missing; {remedy(place.shard)}") from None
    except OSError as error:
        raise RewindError(f"{place.shard}: cannot be read ({error.strerror}); {remedy(place.shard)}") from error
    if hashlib.sha256(content).hexdigest() != member.sha256:
        raise RewindError(f"{place.shard}: {member.name} is not as it was written; {remedy(place.shard)}")
    return content


def remedy(shard: Path) -> str:
    """How a shard is made again; clips in it that are whole are kept."""
    return (
        f"make it again with `snakemake --cores all --force {shard}` (of its clips only those that are damaged are "
        "made again, and nothing that was computed from them becomes stale)."
    )


def identity(path: str | Path) -> tuple[str, int, int] | tuple[str]:
    """What tells whether a clip is still the same: its checksum, or of a single file path, size and time.

    Raises:
        OSError: if there is no such clip.
    """
    if place := find(path):
        return (place.member.sha256,)
    stat = os.stat(path)
    return str(path), stat.st_size, stat.st_mtime_ns


def extract(path: str | Path, target: Path) -> Path:
    """Write a clip as a file of its own, atomically; one that is there already, with the same bytes, stays.

    Raises:
        RewindError: if there is no such clip, or it is damaged.
    """
    place = find(path)
    if place is None and not Path(path).is_file():
        raise RewindError(f"{path}: no such clip; prepare the data first (`snakemake --cores all prepared`).")
    content = read(place) if place else Path(path).read_bytes()
    if not target.is_file() or target.read_bytes() != content:
        with atomic(target) as draft:
            draft.write_bytes(content)
    return target


def verify(folder: Path) -> tuple[int, list[str]]:
    """Read every byte of the shards of a data set.

    Args:
        folder: its ``videos``.

    Returns:
        How many files were compared, and what is wrong, one sentence each, with the remedy.

    Raises:
        RewindError: if there is no index, or its two tables cannot be read or contradict one another.
    """
    index, shards = folder / INDEX, folder / SHARDS
    if not (index.exists() and shards.exists()):
        raise RewindError(
            f"{folder}: no {INDEX} and {SHARDS}; prepare the data first (`snakemake --cores all prepared`)."
        )
    places, sums = _index(folder), _sums(shards)
    _check_counts(places.values(), sums, index, shards)
    wrong: dict[Path, list[str]] = {}
    for place in places.values():
        try:
            read(place)
        except RewindError:
            wrong.setdefault(place.shard, []).append(place.member.name)
    for shard, (_, expected) in sums.items():
        if shard not in wrong and (not shard.is_file() or sha256_of(shard) != expected):
            wrong[shard] = []
    return len(places), [_verdict(shard, names) for shard, names in sorted(wrong.items())]


def _sums(shards: Path) -> dict[Path, tuple[int, str]]:
    """Number of files and SHA-256 of each shard in ``shards.csv``."""
    check_table(shards)
    found = {}
    try:
        with shards.open(newline="", encoding="utf-8") as stream:
            for row in _rows(stream):
                refuse_shard(row["shard"], shards)
                found[shards.parent / row["shard"]] = int(row["files"]), row["sha256"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RewindError(f"{shards}: not a table of shards ({error!r}); delete it and run again.") from None
    return found


def _check_counts(places: Iterable[Place], sums: Mapping[Path, tuple[int, str]], index: Path, shards: Path) -> None:
    """Refuse two tables of which one lacks what the other has: what is in neither would be compared with nothing."""
    counted = Counter(place.shard for place in places)
    for shard in dict.fromkeys([*sums, *counted]):
        files = sums[shard][0] if shard in sums else 0
        if files != counted[shard]:
            raise RewindError(
                f"{shards}: has {files:,} files in {shard.relative_to(index.parent)}, and {index.name} names "
                f"{counted[shard]:,}: one of the two was cut or changed; make them again with "
                f"`snakemake --cores all --force {index.with_name('report.csv')}`."
            )
    if not sums and any((index.parent / "shards").glob("*.tar")):
        raise RewindError(
            f"{shards}: names no shard, but there are some in {index.parent / 'shards'}; make it again with "
            f"`snakemake --cores all --force {index.with_name('report.csv')}`."
        )


def lost(folder: Path) -> list[str]:
    """Shards of a data set that are not there, or have another size than when they were indexed: no byte is read.

    Args:
        folder: its ``videos``; nothing is lost where the shards were not all reported, so that they are made anyway.
    """
    if not (folder / "report.csv").is_file():
        return []
    try:
        require_regular_file(folder / SHARDS, missing_ok=True)
        with (folder / SHARDS).open(newline="", encoding="utf-8") as stream:
            sizes = {folder / row["shard"]: int(row["bytes"]) for row in _rows(stream)}
    except (OSError, ValueError, TypeError, KeyError, csv.Error, RewindError):
        return []  # the jobs that need the table refuse it by name
    return [str(shard) for shard, size in sizes.items() if not shard.is_file() or shard.stat().st_size != size]


def how_to_restore(shards: Sequence[str]) -> str:
    """What to say of :func:`lost` shards."""
    named = ", ".join(shards[:3]) + (f" and {len(shards) - 3} more" if len(shards) > 3 else "")
    return (
        f"{named}: missing, or not of the size that was written. What is finished does not need it; new runs, pictures "
        f"and searches do. First make it again by itself: `snakemake --cores all --force {' '.join(shards)}`. Its "
        "clips come back with the same bytes and nothing becomes stale; made together with other jobs, all that "
        "follows would run again."
    )


def _verdict(shard: Path, names: list[str]) -> str:
    if shard.exists() and not shard.is_file():
        return f"{shard}: no regular file; remove it, then {remedy(shard)}"
    if not shard.is_file():
        return f"{shard}: this shard of clips is missing; {remedy(shard)}"
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
    what = f"{shown}: not as written" if names else "bytes between its clips differ"
    return f"{shard}: {what}; {remedy(shard)}"
