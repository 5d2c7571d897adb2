"""Shards of clips: uncompressed tar files, and the index of where in them each clip or image is.

``write_tar`` and ``write_clip_index`` write them, ``find_clip`` and ``read_packed_clip`` read a clip, ``verify_shards``
compares every byte with its checksum, and the ``refuse_…`` and ``check_…`` functions guard against foreign tables.

A data set's folder ``videos`` holds ``shards/<n>-of-<N>.tar``, which ``tar`` and WebDataset read, and two tables:

- ``clips.csv``: name (``<id>.mp4``, ``<id>_rev.mp4``, or an image's), shard (its file, relative to ``videos``),
  offset and bytes of the content, and its SHA-256;
- ``shards.csv``: shard, how many files it holds, its bytes, and the SHA-256 of the whole file. Jobs that compute from
  clips depend on this small table, and so on what shards hold, not on when they were written.

Names, order and all metadata follow only from the ids: the same clips give the same bytes.
"""

from __future__ import annotations

import csv
import functools
import os
import tarfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import BinaryIO

import pandas as pd

from rewind.commands import prepare_command, snakemake_command
from rewind.errors import RewindError
from rewind.hashing import Sha256, sha256_hex, sha256_of
from rewind.io.files import atomic_write, require_regular_file, write_csv
from rewind.io.schema import FILLED, Column, Schema
from rewind.io.strict import read_user_csv

CLIP_INDEX, SHARD_TABLE = "clips.csv", "shards.csv"
_BYTES = Column(kind="whole")  # a wrong place of a clip is reported with its name: check_clip_location
INDEX_COLUMNS = Schema(
    {"name": FILLED, "shard": FILLED, "offset": _BYTES, "bytes": _BYTES, "sha256": FILLED}, unique=(("name",),)
)
SHARD_COLUMNS = Schema({"shard": FILLED, "files": _BYTES, "bytes": _BYTES, "sha256": FILLED}, unique=(("shard",),))
EXTRACTED_FOLDER = "clips"
"""Folder of a data set that holds single clips as files, if they were requested."""
TRUST_OPTION = "--trust"
"""Option of commands that show or copy what tables name: every file that they name is allowed."""

# ---- Write, index, read and verify shards --------------------------------------------------------------------------


@dataclass(frozen=True)
class ShardMember:
    """A file inside a shard; ``offset`` is where its content begins, in bytes."""

    name: str
    offset: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class PackedShard:
    """A finished shard: its members in order, its size, and the SHA-256 of the whole file."""

    members: tuple[ShardMember, ...]
    bytes: int
    sha256: str


@dataclass(frozen=True)
class ClipLocation:
    """Where a clip is: which shard, and which part of it."""

    shard: Path
    member: ShardMember


class _HashingWriter:
    """A file that is written once from its beginning, with the SHA-256 and size of all that was written."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.digest, self.size = stream, Sha256(), 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size += len(data)
        return self.stream.write(data)


def write_tar(path: Path, members: Iterable[tuple[str, bytes]]) -> PackedShard:
    """Write a shard of (name, content) in this order, atomically; memory holds one member at a time.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> packed = write_tar(folder / "0-of-1.tar", [("clip1.mp4", b"abc")])
    >>> packed.bytes, read_packed_clip(ClipLocation(folder / "0-of-1.tar", packed.members[0]))
    (10240, b'abc')
    """
    written = []
    with atomic_write(path) as target, target.open("wb") as stream:
        output = _HashingWriter(stream)
        for name, content in members:
            info = tarfile.TarInfo(name)  # its defaults: time 0, no owner, mode 644
            # A long name takes further blocks of header, so that the place of the content is known only once these are
            # written.
            info.size = len(content)
            output.write(info.tobuf(tarfile.PAX_FORMAT))
            written.append(ShardMember(name, output.size, len(content), sha256_hex(content)))
            output.write(content)
            output.write(bytes(-len(content) % tarfile.BLOCKSIZE))  # zeros up to a whole block
        # The end of an archive: two empty blocks, then zeros up to a whole record.
        output.write(bytes(2 * tarfile.BLOCKSIZE))
        output.write(bytes(-output.size % tarfile.RECORDSIZE))
    return PackedShard(tuple(written), output.size, output.digest.hex())


def write_clip_index(folder: Path, shards: Sequence[tuple[str, PackedShard]]) -> None:
    """Write ``clips.csv`` and ``shards.csv`` over all shards, each named by its file relative to ``folder``."""
    rows = [(m.name, shard, m.offset, m.bytes, m.sha256) for shard, packed in shards for m in packed.members]
    write_csv(folder / CLIP_INDEX, pd.DataFrame(rows, columns=list(INDEX_COLUMNS.known)))
    totals = [(shard, len(packed.members), packed.bytes, packed.sha256) for shard, packed in shards]
    write_csv(folder / SHARD_TABLE, pd.DataFrame(totals, columns=list(SHARD_COLUMNS.known)))


def write_members(path: Path, packed: PackedShard) -> None:
    """Write the index of one shard; its first row is the shard itself, under the empty name."""
    rows = [("", 0, packed.bytes, packed.sha256), *map(astuple, packed.members)]
    write_csv(path, pd.DataFrame(rows, columns=["name", "offset", "bytes", "sha256"]))


def read_members(path: Path) -> PackedShard:
    """What :func:`write_members` wrote."""
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            rows = [_member(row) for row in _rows(stream)]
        shard, members = rows[0], tuple(rows[1:])
    except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
        raise RewindError(f"{path}: not the index of a shard ({error}); delete it and run again.") from None
    return PackedShard(members, shard.bytes, shard.sha256)


def find_clip(path: str | Path) -> ClipLocation | None:
    """Where a clip is packed, by its name in ``items.csv``: ``<folder>/videos/<id>.mp4``.

    None if its folder has no index (single files, as earlier versions made them), or the index has no such name.
    """
    path = Path(path)
    try:
        return _index(path.parent).get(path.name)
    except OSError:
        return None


def _index(folder: Path) -> dict[str, ClipLocation]:
    index = folder / CLIP_INDEX
    stat = os.stat(index)
    return _read_clip_index(index, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=8)
def _read_clip_index(index: Path, _time: int, _size: int) -> dict[str, ClipLocation]:
    """The clips of an index by name; read once as long as the file, by its time and size, is the same."""
    shards: dict[str, Path] = {}
    clips = {}
    check_csv(index, INDEX_COLUMNS)
    try:
        with index.open(newline="", encoding="utf-8") as stream:
            for row in _rows(stream):
                refuse_shard(row["shard"], index)
                shard = shards.setdefault(row["shard"], index.parent / row["shard"])
                member = _member(row)
                clips[member.name] = ClipLocation(shard, member)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RewindError(f"{index}: not an index of clips ({error!r}); delete it and run again.") from None
    return clips


def _rows(stream: Iterable[str]) -> csv.DictReader[str]:
    return csv.DictReader(stream, strict=True)


def _member(row: dict[str, str]) -> ShardMember:
    return ShardMember(row["name"], int(row["offset"]), int(row["bytes"]), row["sha256"])


def read_packed_clip(location: ClipLocation) -> bytes:
    """The content of a clip, compared with its checksum."""
    member = location.member
    check_clip_location(location)
    try:
        # Unbuffered and by position: one system call, for no byte but those of the clip.
        with location.shard.open("rb", buffering=0) as stream:
            content = os.pread(stream.fileno(), member.bytes, member.offset)
    except FileNotFoundError:
        raise RewindError(f"{location.shard}: this shard of clips is missing; {shard_remedy(location.shard)}") from None
    except OSError as error:
        raise RewindError(
            f"{location.shard}: cannot be read ({error.strerror}); {shard_remedy(location.shard)}"
        ) from error
    if sha256_hex(content) != member.sha256:
        raise RewindError(f"{location.shard}: {member.name} is not as it was written; {shard_remedy(location.shard)}")
    return content


def shard_remedy(shard: Path) -> str:
    """How to make a shard again; clips in it that are undamaged are kept."""
    return (
        f"make it again with `{snakemake_command(shard, force=True)}` (of its clips only those that are damaged are "
        "made again, and nothing that was computed from them becomes stale)."
    )


def clip_identity(path: str | Path) -> tuple[str, int, int] | tuple[str]:
    """What shows whether a clip is still the same: its checksum, or for a single file its path, size and time.

    Raises:
        OSError: if there is no such clip.
    """
    if location := find_clip(path):
        return (location.member.sha256,)
    stat = os.stat(path)
    return str(path), stat.st_size, stat.st_mtime_ns


def extract_clip(path: str | Path, target: Path) -> Path:
    """Write a clip as a file of its own, atomically; an existing file with the same bytes is left alone."""
    location = find_clip(path)
    if location is None and not Path(path).is_file():
        raise RewindError(f"{path}: no such clip; prepare the data first (`{prepare_command(path)}`).")
    content = read_packed_clip(location) if location else Path(path).read_bytes()
    if not target.is_file() or target.read_bytes() != content:
        with atomic_write(target) as file:
            file.write_bytes(content)
    return target


def verify_shards(folder: Path) -> tuple[int, list[str]]:
    """Read every byte of the shards in ``folder``, the ``videos`` of a data set.

    Returns:
        How many files were compared, and what is wrong, one sentence each, with the remedy.
    """
    index, shards = folder / CLIP_INDEX, folder / SHARD_TABLE
    if not (index.exists() and shards.exists()):
        raise RewindError(
            f"{folder}: no {CLIP_INDEX} and {SHARD_TABLE}; prepare the data first (`{prepare_command(index)}`)."
        )
    clips, totals = _index(folder), _read_shard_table(shards)
    _check_counts(clips.values(), totals, index, shards)
    damaged: dict[Path, list[str]] = {}
    for location in clips.values():
        try:
            read_packed_clip(location)
        except RewindError:
            damaged.setdefault(location.shard, []).append(location.member.name)
    # Headers and padding between the clips are only in the checksum of the whole shard.
    for shard, (_, expected) in totals.items():
        if shard not in damaged and (not shard.is_file() or sha256_of(shard) != expected):
            damaged[shard] = []
    return len(clips), [_describe_damage(shard, names) for shard, names in sorted(damaged.items())]


def _read_shard_table(shards: Path) -> dict[Path, tuple[int, str]]:
    """Number of files and SHA-256 of each shard in ``shards.csv``."""
    check_csv(shards, SHARD_COLUMNS)
    totals = {}
    try:
        with shards.open(newline="", encoding="utf-8") as stream:
            for row in _rows(stream):
                refuse_shard(row["shard"], shards)
                totals[shards.parent / row["shard"]] = int(row["files"]), row["sha256"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RewindError(f"{shards}: not a table of shards ({error!r}); delete it and run again.") from None
    return totals


def _check_counts(
    clips: Iterable[ClipLocation], totals: Mapping[Path, tuple[int, str]], index: Path, shards: Path
) -> None:
    """Refuse two tables that name different clips: what one of them lacks would be compared with nothing."""
    counted = Counter(location.shard for location in clips)
    for shard in dict.fromkeys([*totals, *counted]):
        files = totals[shard][0] if shard in totals else 0
        if files != counted[shard]:
            raise RewindError(
                f"{shards}: has {files:,} files in {shard.relative_to(index.parent)}, and {index.name} names "
                f"{counted[shard]:,}: one of the two was cut or changed; make them again with "
                f"`{snakemake_command(index.with_name('report.csv'), force=True)}`."
            )
    if not totals and any((index.parent / "shards").glob("*.tar")):
        raise RewindError(
            f"{shards}: names no shard, but there are some in {index.parent / 'shards'}; make it again with "
            f"`{snakemake_command(index.with_name('report.csv'), force=True)}`."
        )


def missing_shards(folder: Path) -> list[str]:
    """Shards of a data set that do not exist or have another size than when they were indexed; no byte is read.

    Without a ``report.csv`` in ``folder`` (``videos``) none is missing: the workflow makes them anyway.
    """
    if not (folder / "report.csv").is_file():
        return []
    try:
        require_regular_file(folder / SHARD_TABLE, missing_ok=True)
        with (folder / SHARD_TABLE).open(newline="", encoding="utf-8") as stream:
            sizes = {folder / row["shard"]: int(row["bytes"]) for row in _rows(stream)}
    except (OSError, ValueError, TypeError, KeyError, csv.Error, RewindError):
        return []  # the jobs that need the table refuse it with a message
    return [str(shard) for shard, size in sizes.items() if not shard.is_file() or shard.stat().st_size != size]


def how_to_restore_shards(shards: Sequence[str]) -> str:
    """The message about :func:`missing_shards`."""
    names = ", ".join(shards[:3]) + (f" and {len(shards) - 3} more" if len(shards) > 3 else "")
    return (
        f"{names}: missing, or not of the size that was written. What is finished does not need it; new runs, pictures "
        f"and searches do. First make it again by itself: `{snakemake_command(*shards, force=True)}`. Its "
        "clips come back with the same bytes and nothing becomes stale; made together with other jobs, all that "
        "follows would run again."
    )


def _describe_damage(shard: Path, names: list[str]) -> str:
    if shard.exists() and not shard.is_file():
        return f"{shard}: not a regular file; remove it, then {shard_remedy(shard)}"
    if not shard.is_file():
        return f"{shard}: this shard of clips is missing; {shard_remedy(shard)}"
    listed = ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
    damage = f"{listed}: not as written" if names else "bytes between its clips differ"
    return f"{shard}: {damage}; {shard_remedy(shard)}"


# ---- Checks on tables that another user may have written -----------------------------------------------------------
# ``items.csv`` names files and ``clips.csv`` shards. In a folder that was fetched from elsewhere they may name
# anything on this machine, so all code that shows or copies a clip calls these first: each file must be within its
# folder, each clip within its file.


def clip_within(path: Path, folder: Path) -> Path:
    """The file that holds a clip, its own or its shard, if that is below the parent of ``folder``, links followed.

    ``folder`` is ``results/data/<dataset>``. A file elsewhere, through ``..``, an absolute path or a symbolic link, is
    refused.
    """
    location = find_clip(path)
    real = (location.shard if location else path).resolve()
    home = folder.parent.resolve()
    if not real.is_relative_to(home):
        raise RewindError(
            f"{path.name}: the file is outside of {home}, so it is neither shown nor copied. If these results are "
            f"yours, or you trust their author, start again with {TRUST_OPTION}."
        )
    return real


def refuse_outside(name: str, folder: Path, table: Path) -> None:
    """Refuse a file that a table names outside of a folder, by an absolute path or ``..``.

    ``name`` is relative to the folder of the table. Links are not followed: those in the folder are the user's.
    """
    here = os.path.abspath(table.parent / name)
    if not Path(here).is_relative_to(os.path.abspath(folder)):
        raise RewindError(
            f"{table}: names {name!r}, which is outside of {folder}; files outside are not read. Write the table "
            "again; if the file is yours, put it, or a link to its folder, there, and name that."
        )


def refuse_shard(name: str, index: Path) -> None:
    """Refuse a shard that ``clips.csv`` or ``shards.csv`` names outside of its own folder."""
    if name:  # an empty or missing name is refused later, as one that is not an index
        refuse_outside(name, index.parent, index)


def check_csv(table: Path, schema: Schema) -> None:
    """Refuse a table of clips or shards that is not a regular file, or not as it was written, naming the row.

    A missing one passes: the code that opens it reports that.
    """
    require_regular_file(table, missing_ok=True)
    if not table.exists():
        return  # the code that reads the table reports that
    try:
        for _ in read_user_csv(table, schema):
            pass
    except RewindError as error:
        reason = str(error).removesuffix(".").removeprefix(f"{table}: ")
        raise RewindError(f"{table}: not as it was written ({reason}); delete it and run again.") from None


def check_clip_location(location: ClipLocation) -> None:
    """Refuse a clip whose shard is not a regular file, or too short for where its index puts the clip.

    A missing shard passes: the code that opens it reports that.
    """
    require_regular_file(location.shard, missing_ok=True)
    try:
        size = location.shard.stat().st_size
    except OSError:
        return
    first, last = location.member.offset, location.member.offset + location.member.bytes
    if not 0 <= first <= last <= size:
        raise RewindError(
            f"{location.shard}: {location.member.name} is not as it was written: its index states bytes {first:,} to "
            f"{last:,}, and there are {size:,}; {shard_remedy(location.shard)}"
        )
