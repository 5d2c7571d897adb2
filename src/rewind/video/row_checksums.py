"""Checksums of the rows of a frame store: what a reader compares each row with, every time that it reads one.

Beside each shard, ``shards/<n>.bin``, lies ``shards/<n>.crc32``: a JSON object of the shard's SHA-256 and the CRC-32
of each of its rows. A store of an earlier version has none; there each shard is compared with the SHA-256 in the index
when a process first reads from it, and the CRC-32 of its rows are taken from that one reading.

No frame depends on what is here, so nothing of it counts as code of a stage (:data:`rewind.identity.units.CHECKS`).
"""

from __future__ import annotations

import hashlib
import weakref
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rewind.errors import RewindError
from rewind.files import read_json, remembered, write_json

if TYPE_CHECKING:
    from rewind.video.store import Shard, Store, View

SUFFIX = ".crc32"

_known: weakref.WeakKeyDictionary[Store, dict[int, list[int]]] = weakref.WeakKeyDictionary()
"""CRC-32 of the rows of shards that this process has read from."""


def write_row_checksums(shard: Path, row_bytes: int, written: hashlib._Hash) -> None:
    """Write the checksums of a shard that was just written, from the file as it can be read.

    Args:
        shard: the file.
        row_bytes: bytes of one row.
        written: SHA-256 of what was written.

    Raises:
        RewindError: if the file does not hold that.
    """
    rows, sha256 = _row_checksums(shard, row_bytes)
    if sha256 != written.hexdigest():
        raise RewindError(f"{shard}: does not hold what was just written to it; have the disk checked, and run again.")
    _write(shard.with_suffix(SUFFIX), rows, sha256)


def publish_row_checksums(folder: Path, view: View, shards: dict[int, Shard]) -> None:
    """Give the checksums of finished shards their place beside them; a shard that has none yet gets them.

    Args:
        folder: of the store.
        view: which frames.
        shards: what each shard holds, by its number.

    Raises:
        RewindError: naming a shard that changed since it was written.
    """
    from rewind.video.store import shard_path  # the store imports this module

    for number, shard in shards.items():
        path = shard_path(folder, number)
        rows = _read(folder / ".state" / f"{path.stem}{SUFFIX}", shard.sha256, shard.rows)
        if rows is None:
            rows, sha256 = _row_checksums(path, view.bytes)
            if sha256 != shard.sha256:
                raise RewindError(f"{path}: changed while its store was made; run again.")
        # Not a second name of that file, as shards have: damage to one would be damage to both.
        _write(path.with_suffix(SUFFIX), rows, shard.sha256)


def check_row(store: Store, shard: int, row: int, pixels: np.ndarray) -> None:
    """Compare a row with its checksum.

    CRC-32: it finds every burst of up to 32 bits and all but one in 2³² of other damage; zlib's is the fastest of the
    checksums that Python has (benchmarks/store_checksums.py: about three times SHA-256, five times BLAKE2b), fast
    enough for every row of every batch, so damage that happens while a process runs is found too. It need not withstand
    an attacker: who can write the shard can write its checksums.

    Args:
        store: what is read.
        shard: number of the shard.
        row: number of the row in it.
        pixels: the row, uint8, contiguous.

    Raises:
        RewindError: naming the shard, the row and the items in it, and how to make the store again.
    """
    known = _known.setdefault(store, {})
    shard, row = int(shard), int(row)
    if shard not in known:
        known[shard] = _checksums_of(store, shard)
    if zlib.crc32(pixels.data) != known[shard][row]:
        from rewind.video.store import INDEX, remedy, shard_path

        raise RewindError(
            f"{shard_path(store.folder, shard)}: row {row} ({_items(store, shard, row)}) is not as it was written; "
            f"{remedy(store.folder / INDEX)}"
        )


def _checksums_of(store: Store, number: int) -> list[int]:
    """CRC-32 of a shard's rows: from the file beside it, or by reading all of the shard."""
    from rewind.video.store import INDEX, remedy, shard_path

    path, index = shard_path(store.folder, number), store.folder / INDEX
    expected = read_json(index)["shards"][number]["sha256"]
    if (rows := _read(path.with_suffix(SUFFIX), expected, store.rows[number])) is not None:
        return rows
    if not _known[store]:
        print(f"{index}: has no checksums of single rows (an earlier version made it); each shard is compared whole")
    rows, sha256 = _row_checksums(path, store.view.bytes)
    if sha256 != expected:
        raise RewindError(f"{path}: its checksum differs from that in {index}; {remedy(index)}")
    return rows


def verify_row_checksums(shard: Path, sha256: str, row_bytes: int) -> None:
    """Compare the file of a shard's checksums with the shard, which is whole; one that is not there is no fault.

    Raises:
        RewindError: naming the file.
    """
    from rewind.video.store import INDEX, remedy

    path = shard.with_suffix(SUFFIX)
    if path.exists():
        rows = _row_checksums(shard, row_bytes)[0]
        if _read(path, sha256, len(rows)) != rows:
            raise RewindError(f"{path}: not the checksums of {shard.name}; {remedy(shard.parents[1] / INDEX)}")


def _row_checksums(shard: Path, row_bytes: int) -> tuple[list[int], str]:
    """CRC-32 of each row, and SHA-256 of the whole file."""
    rows, whole = [], hashlib.sha256()
    buffer = memoryview(bytearray(row_bytes))
    with shard.open("rb") as stream:
        while count := stream.readinto(buffer):
            rows.append(zlib.crc32(buffer[:count]))
            whole.update(buffer[:count])
    return rows, whole.hexdigest()


def _write(path: Path, rows: Sequence[int], sha256: str) -> None:
    write_json(path, {"sha256": sha256, "crc32": [f"{value:08x}" for value in rows]})


def _read(path: Path, sha256: str, rows: int) -> list[int] | None:
    """CRC-32 of rows; None where the file is missing, broken, or of another shard than the one with this SHA-256."""
    content: Any = remembered(path)
    try:
        found = [int(value, 16) for value in content["crc32"]]
        return found if content["sha256"] == sha256 and len(found) == rows else None
    except (KeyError, TypeError, ValueError):
        return None


def _items(store: Store, shard: int, row: int) -> str:
    """Ids of the items that a row shows: an original, and its twin where that is its mirror."""
    table = store._items
    return ", ".join(table.index[(table["shard"] == shard) & (table["row"] == row)])
