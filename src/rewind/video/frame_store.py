"""The frame store: every clip of a data set, decoded once into shards that all runs map into memory.

``write_store_shard`` and ``write_store_index`` make a store, ``FrameStore`` reads one, ``verify_store`` compares every
byte with its checksum.

A store is a folder of ``shards/<shard>.bin``, ``items.csv`` and, written last, ``index.json``:

- a shard is raw uint8, rows × T × 3 × S × S in C order, one row per clip, zero after a short clip's last frame;
  ``shards/<shard>.crc32`` next to it has a checksum of each row, which is compared whenever the row is read;
- ``items.csv`` lists where each clip is: item_id, shard, row, frames (how many are real), mirrored (0/1);
- ``index.json`` holds the version, the keys of ``frames``, each shard's rows and SHA-256, and the SHA-256 of
  ``items.csv``.

A twin whose decoded frames are exactly its original's in opposite order has no row of its own: ``items.csv`` names the
original's row for it, mirrored. Both are decoded to find out, so a reversed file of the user's own that is not an exact
mirror keeps its frames. No path, date or machine is written: the same clips give the same bytes.
"""

from __future__ import annotations

import mmap
import weakref
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rewind.commands import snakemake_command
from rewind.config import Frames
from rewind.errors import RewindError
from rewind.hashing import Sha256, sha256_of
from rewind.io.files import (
    atomic_write,
    read_cached_json,
    read_csv,
    read_json,
    require_regular_file,
    write_csv,
    write_json,
)
from rewind.video.frames import Fit, Sampling, sample_clip

STORE_VERSION = 2
STORE_INDEX, STORE_ITEMS, STORE_SHARDS = "index.json", "items.csv", "shards"
STORE_ITEM_COLUMNS = ["item_id", "shard", "row", "frames", "mirrored"]
_VIEW_KEYS = ("max_frames", "size", "sampling", "rate", "fit")

# ---- Write and read a store ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FrameView:
    """What decides the pixels of a row: a study's ``frames``, for one number of frames.

    >>> view = FrameView(max_frames=12, size=224, sampling="uniform", rate=None)
    >>> view.shape, view.bytes
    ((12, 3, 224, 224), 1806336)
    """

    max_frames: int
    size: int
    sampling: Sampling
    rate: float | None
    fit: Fit = "crop"

    @classmethod
    def of(cls, frames: Frames, max_frames: int) -> FrameView:
        """The view of a study's ``frames`` block."""
        return cls(max_frames, frames.size, frames.sampling, frames.rate, frames.fit)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(T, 3, S, S)."""
        return self.max_frames, 3, self.size, self.size

    @property
    def bytes(self) -> int:
        """Bytes of one row."""
        return self.max_frames * 3 * self.size**2


@dataclass(frozen=True)
class ClipToStore:
    """One clip to store: its id, its file, and whether it is a twin, whose frames are chosen in mirror image."""

    item_id: str
    path: str
    reversed: bool


@dataclass(frozen=True)
class StoreShard:
    """What a finished shard holds; ``places`` are (item_id, row, frames, mirrored) of each clip."""

    rows: int
    sha256: str
    places: list[tuple[str, int, int, int]]


def store_shard_name(number: int) -> str:
    """File name of a shard, for example ``00003.bin``."""
    return f"{number:05}.bin"


def store_shard_path(folder: Path, number: int) -> Path:
    """Where a finished store has a shard."""
    return folder / STORE_SHARDS / store_shard_name(number)


def write_store_shard(path: Path, families: Iterable[Sequence[ClipToStore]], view: FrameView) -> StoreShard:
    """Decode families (an original, then any twin) into one shard, atomically; memory holds one family at a time."""
    digest, rows, places = Sha256(), 0, []
    with atomic_write(path) as file, file.open("wb") as stream:
        for family in families:
            for clip, frames, pixels in _decoded(family, view):
                if pixels is not None:
                    stream.write(pixels.data)
                    digest.update(pixels.data)
                    rows += 1
                # A mirrored twin comes right after the row that it shares.
                places.append((clip.item_id, rows - 1, frames, int(pixels is None)))
    write_row_checksums(path, view.bytes, digest)
    return StoreShard(rows, digest.hex(), places)


def _decoded(family: Sequence[ClipToStore], view: FrameView) -> Iterator[tuple[ClipToStore, int, np.ndarray | None]]:
    """Each clip with its number of real frames and its row; None if it mirrors the clip before it."""
    last: tuple[np.ndarray, int] | None = None
    for clip in family:
        pixels, mask = sample_clip(
            clip.path, view.max_frames, view.size, view.sampling, view.rate, reversed=clip.reversed, fit=view.fit
        )
        frames = int(mask.sum())
        if last is not None and last[1] == frames and np.array_equal(pixels[:frames], last[0][:frames][::-1]):
            yield clip, frames, None
            continue
        last = pixels, frames
        yield clip, frames, pixels


def write_store_index(folder: Path, view: FrameView, shards: Sequence[StoreShard]) -> None:
    """Make finished shards a store: ``items.csv``, then ``index.json``, without which there is no store."""
    places = [(place[0], number, *place[1:]) for number, shard in enumerate(shards) for place in shard.places]
    write_csv(folder / STORE_ITEMS, pd.DataFrame(places, columns=STORE_ITEM_COLUMNS))
    content = {
        "version": STORE_VERSION,
        **asdict(view),
        "clips": len(places),
        "rows": sum(shard.rows for shard in shards),
        "items_sha256": sha256_of(folder / STORE_ITEMS),
        "shards": [{"rows": shard.rows, "sha256": shard.sha256} for shard in shards],
    }
    write_json(folder / STORE_INDEX, content)


class FrameStore:
    """Reads a frame store; each process maps shards when it first needs them, so a store is cheap to pickle.

    A store of another version or another ``view`` is refused, as are files that are missing, cut short or changed. Of
    shards only the size is compared: each row is compared with its checksum when it is read, and :func:`verify_store`
    reads every byte.
    """

    def __init__(self, index: str | Path, view: FrameView) -> None:
        self.folder, self.view = Path(index).parent, view
        content = _read_index(Path(index))
        _check_view(Path(index), content, view)
        self.rows = [shard["rows"] for shard in content["shards"]]
        for number, rows in enumerate(self.rows):
            _check_size(store_shard_path(self.folder, number), rows * view.bytes)
        self._items = _read_items(Path(index), content)
        self._maps: dict[int, mmap.mmap] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_maps": {}}  # a mapping cannot be pickled; the other process makes its own

    def places(self, item_ids: Iterable[str]) -> np.ndarray:
        """Where items are, for :meth:`read`: int64 (n, 4) of shard, row, frames, mirrored."""
        ids = list(item_ids)
        numbers = self._items.index.get_indexer(ids)
        if (numbers < 0).any():
            missing = [item for item, number in zip(ids, numbers, strict=True) if number < 0]
            raise RewindError(
                f"{self.folder / STORE_ITEMS}: {len(missing)} items are not in the store, first {missing[0]!r}; "
                f"delete {self.folder / STORE_INDEX} and run again."
            )
        return self._items.to_numpy(np.int64)[numbers]

    def read(self, places: np.ndarray, pixels: np.ndarray) -> np.ndarray:
        """Copy rows of :meth:`places` into ``pixels``, uint8 (n, T, 3, S, S); return their mask, uint8 (n, T)."""
        # All are announced before the first is read: the disk fetches one row while another is copied.
        for shard, row, _, _ in places:
            self._announce(int(shard), int(row))
        for target, (shard, row, frames, mirrored) in zip(pixels, places, strict=True):
            stored = self._row(int(shard), int(row))
            check_row(self, shard, row, stored)
            if mirrored:  # padding stays at the end
                target[:frames] = stored[:frames][::-1]
                target[frames:] = 0
            else:
                target[:] = stored
        return (np.arange(self.view.max_frames) < places[:, 2:3]).astype(np.uint8)

    def _row(self, shard: int, row: int) -> np.ndarray:
        flat = np.frombuffer(self._map(shard), np.uint8, self.view.bytes, row * self.view.bytes)
        return flat.reshape(self.view.shape)

    def _announce(self, shard: int, row: int) -> None:
        """Ask for a row ahead of reading it, so that a disk has a whole batch of requests at once."""
        if hasattr(mmap, "MADV_WILLNEED"):  # not on every system
            # madvise takes whole pages only: begin at the page in which the row begins.
            first = row * self.view.bytes // mmap.PAGESIZE * mmap.PAGESIZE
            self._map(shard).madvise(mmap.MADV_WILLNEED, first, (row + 1) * self.view.bytes - first)

    def _map(self, shard: int) -> mmap.mmap:
        if shard not in self._maps:
            with store_shard_path(self.folder, shard).open("rb") as stream:
                self._maps[shard] = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        return self._maps[shard]


def verify_store(index: str | Path) -> None:
    """Read every byte of a store and refuse the first file that is not as it was written."""
    index = Path(index)
    require_regular_file(index, missing_ok=True)
    content = _read_index(index)
    _read_items(index, content)
    try:
        _verify_shards(index, content)
    except (KeyError, TypeError, AttributeError) as error:
        raise RewindError(f"{index}: not the index of a frame store ({error!r}); {store_remedy(index)}") from None


def _verify_shards(index: Path, content: dict[str, Any]) -> None:
    for number, shard in enumerate(content["shards"]):
        path = store_shard_path(index.parent, number)
        row_bytes = FrameView(*(content[key] for key in _VIEW_KEYS)).bytes
        _check_size(path, shard["rows"] * row_bytes)
        if sha256_of(path) != shard["sha256"]:
            raise RewindError(f"{path}: its checksum differs from that in {index}; {store_remedy(index)}")
        verify_row_checksums(path, shard["sha256"], row_bytes)


def _read_index(index: Path) -> dict[str, Any]:
    content = read_json(index)
    if not isinstance(content, dict) or content.get("version") != STORE_VERSION:
        raise RewindError(
            f"{index}: not the index of a frame store of version {STORE_VERSION}; delete it and run again."
        )
    missing = [key for key in (*_VIEW_KEYS, "shards", "items_sha256") if key not in content]
    if missing:
        raise RewindError(f"{index}: lacks {', '.join(missing)}; delete it and run again.")
    return content


def _check_view(index: Path, content: dict[str, Any], view: FrameView) -> None:
    for key, value in asdict(view).items():
        if content[key] != value:
            raise RewindError(
                f"{index}: written with {key} = {content[key]}, but this run has frames.{key} = {value}; "
                "delete the store's folder and run again."
            )


def _check_size(path: Path, expected: int) -> None:
    try:
        size = path.stat().st_size
    except OSError:
        raise RewindError(
            f"{path}: this shard of the frame store is missing; {store_remedy(path.parents[1] / STORE_INDEX)}"
        ) from None
    if size != expected:
        raise RewindError(
            f"{path}: has {size:,} bytes, but the index states {expected:,}; "
            f"{store_remedy(path.parents[1] / STORE_INDEX)}"
        )


def _read_items(index: Path, content: dict[str, Any]) -> pd.DataFrame:
    path = index.parent / STORE_ITEMS
    if not path.is_file() or sha256_of(path) != content["items_sha256"]:
        raise RewindError(f"{path}: missing, or not the file that {index} was written with; {store_remedy(index)}")
    return read_csv(path).set_index("item_id")


def store_remedy(index: Path) -> str:
    """How to repair a store: run only its own job, without those that depend on it."""
    return f"make it again with `{snakemake_command(index, force=True)}` (intact shards are not decoded again)."


# ---- Checksums of rows ---------------------------------------------------------------------------------------------
# ``shards/<n>.crc32`` is a JSON object of the shard's SHA-256 and the CRC-32 of each of its rows. A store of an
# earlier version has none; then each shard is compared with the SHA-256 in the index when a process first reads from
# it, and the checksums of its rows are computed in that same pass. No frame depends on these functions, so they count
# as code of no stage (:mod:`rewind.workflow.stages` names them).

ROW_CHECKSUM_SUFFIX = ".crc32"

_row_checksum_cache: weakref.WeakKeyDictionary[FrameStore, dict[int, list[int]]] = weakref.WeakKeyDictionary()
"""CRC-32 of the rows of shards that this process has read from, by store and number of the shard."""


def write_row_checksums(shard: Path, row_bytes: int, written: Sha256) -> None:
    """Read back a shard that was just written, compare it with ``written``, and write the checksums of its rows."""
    rows, sha256 = _row_checksums(shard, row_bytes)
    if sha256 != written.hex():
        raise RewindError(f"{shard}: does not hold what was just written to it; have the disk checked, and run again.")
    _write_checksum_file(shard.with_suffix(ROW_CHECKSUM_SUFFIX), rows, sha256)


def publish_row_checksums(folder: Path, view: FrameView, shards: dict[int, StoreShard]) -> None:
    """Put the checksums of finished shards, kept in the store's ``.state``, next to them; missing ones are computed."""
    for number, shard in shards.items():
        path = store_shard_path(folder, number)
        rows = _read_checksum_file(folder / ".state" / f"{path.stem}{ROW_CHECKSUM_SUFFIX}", shard.sha256, shard.rows)
        if rows is None:
            rows, sha256 = _row_checksums(path, view.bytes)
            if sha256 != shard.sha256:
                raise RewindError(f"{path}: changed while its store was written; run again.")
        # A copy and not a hard link, as for shards: damage to one would be damage to both.
        _write_checksum_file(path.with_suffix(ROW_CHECKSUM_SUFFIX), rows, shard.sha256)


def check_row(store: FrameStore, shard: int, row: int, pixels: np.ndarray) -> None:
    """Compare a row (``pixels``: uint8, contiguous) with its checksum.

    CRC-32 finds every burst of up to 32 bits and misses one in 2³² of other damage. zlib's is the fastest checksum in
    Python (benchmarks/store_checksums.py: about three times as fast as SHA-256, five times as BLAKE2b), fast enough for
    every row of every batch, so damage that happens while a process runs is found too. It need not withstand an
    attacker: whoever can write the shard can write its checksums.
    """
    checksums = _row_checksum_cache.setdefault(store, {})
    shard, row = int(shard), int(row)
    if shard not in checksums:
        checksums[shard] = _load_row_checksums(store, shard)
    if zlib.crc32(pixels.data) != checksums[shard][row]:
        raise RewindError(
            f"{store_shard_path(store.folder, shard)}: row {row} ({_items_of_row(store, shard, row)}) is not as it "
            f"was written; {store_remedy(store.folder / STORE_INDEX)}"
        )


def _load_row_checksums(store: FrameStore, number: int) -> list[int]:
    """CRC-32 of a shard's rows: from the file next to it, or by reading all of the shard."""
    path, index = store_shard_path(store.folder, number), store.folder / STORE_INDEX
    expected = read_json(index)["shards"][number]["sha256"]
    if (rows := _read_checksum_file(path.with_suffix(ROW_CHECKSUM_SUFFIX), expected, store.rows[number])) is not None:
        return rows
    if not _row_checksum_cache[store]:
        print(f"{index}: has no checksums of single rows (an earlier version wrote it); each shard is compared whole")
    rows, sha256 = _row_checksums(path, store.view.bytes)
    if sha256 != expected:
        raise RewindError(f"{path}: its checksum differs from that in {index}; {store_remedy(index)}")
    return rows


def verify_row_checksums(shard: Path, sha256: str, row_bytes: int) -> None:
    """Compare the row checksums of an undamaged shard with the shard; a missing file is not an error."""
    path = shard.with_suffix(ROW_CHECKSUM_SUFFIX)
    if path.exists():
        rows = _row_checksums(shard, row_bytes)[0]
        if _read_checksum_file(path, sha256, len(rows)) != rows:
            raise RewindError(
                f"{path}: not the checksums of {shard.name}; {store_remedy(shard.parents[1] / STORE_INDEX)}"
            )


def _row_checksums(shard: Path, row_bytes: int) -> tuple[list[int], str]:
    """CRC-32 of each row, and SHA-256 of the whole file."""
    rows, digest = [], Sha256()
    buffer = memoryview(bytearray(row_bytes))
    with shard.open("rb") as stream:
        while count := stream.readinto(buffer):
            rows.append(zlib.crc32(buffer[:count]))
            digest.update(buffer[:count])
    return rows, digest.hex()


def _write_checksum_file(path: Path, rows: Sequence[int], sha256: str) -> None:
    write_json(path, {"sha256": sha256, "crc32": [f"{value:08x}" for value in rows]})


def _read_checksum_file(path: Path, sha256: str, rows: int) -> list[int] | None:
    """CRC-32 of rows; None if the file is missing, broken, or not of the shard with this SHA-256."""
    content: Any = read_cached_json(path)
    try:
        checksums = [int(value, 16) for value in content["crc32"]]
        return checksums if content["sha256"] == sha256 and len(checksums) == rows else None
    except (KeyError, TypeError, ValueError):
        return None


def _items_of_row(store: FrameStore, shard: int, row: int) -> str:
    """Ids of the items that a row shows: an original, and its twin where that is its mirror."""
    table = store._items
    return ", ".join(table.index[(table["shard"] == shard) & (table["row"] == row)])
