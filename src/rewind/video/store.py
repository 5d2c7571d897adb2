"""The frame store: every clip of a data set decoded once, into shards that all runs map into memory.

A store is a folder of ``shards/<shard>.bin``, ``items.csv`` and, written last, ``index.json``:

- a shard is raw uint8, rows × T × 3 × S × S in C order, one row per clip, zero after a short clip's last frame;
  ``shards/<shard>.crc32`` beside it has a checksum of each row, with which every reading of that row is compared;
- ``items.csv`` says where each clip is: item_id, shard, row, frames (how many are real), mirrored (0/1);
- ``index.json`` holds the version, the sampling keys, each shard's rows and SHA-256, and the SHA-256 of ``items.csv``.

A twin whose decoded frames are exactly its original's in opposite order has no row of its own: it points at the
original's, mirrored. That is found by decoding both, so a reversed file of the user's own that is no exact mirror keeps
its frames. No path, date or machine is written: the same clips give the same bytes.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rewind.errors import RewindError
from rewind.files import atomic, read_csv, read_json, require_regular_file, sha256_of, write_csv, write_json
from rewind.study import Frames
from rewind.video.frames import sample_clip
from rewind.video.row_checksums import check_row, verify_row_checksums, write_row_checksums

VERSION = 2
INDEX, ITEMS, SHARDS = "index.json", "items.csv", "shards"
PLACE_COLUMNS = ["item_id", "shard", "row", "frames", "mirrored"]


@dataclass(frozen=True)
class View:
    """What decides the pixels of a row: as in a study's ``frames``, for one number of frames."""

    max_frames: int
    size: int
    sampling: str
    rate: float | None
    fit: str = "crop"

    @classmethod
    def of(cls, frames: Frames, max_frames: int) -> View:
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
class Clip:
    """One clip to store."""

    item_id: str
    path: str
    reversed: bool


@dataclass(frozen=True)
class Shard:
    """What a finished shard holds: ``places`` are (item_id, row, frames, mirrored)."""

    rows: int
    sha256: str
    places: list[tuple[str, int, int, int]]


def shard_name(number: int) -> str:
    """File name of a shard, for example ``00003.bin``."""
    return f"{number:05}.bin"


def shard_path(folder: Path, number: int) -> Path:
    """Where a finished store has a shard."""
    return folder / SHARDS / shard_name(number)


def write_shard(path: Path, families: Iterable[Sequence[Clip]], view: View) -> Shard:
    """Decode clips into one shard, atomically; memory holds one family at a time.

    Args:
        path: the shard's file.
        families: an original with its twin, if it has one; the original first.
        view: which frames.

    Raises:
        RewindError: naming a clip that cannot be read.
    """
    whole, rows, places = hashlib.sha256(), 0, []
    with atomic(path) as draft, draft.open("wb") as stream:
        for family in families:
            for clip, frames, pixels in _decoded(family, view):
                if pixels is not None:
                    stream.write(pixels)
                    whole.update(pixels)
                    rows += 1
                # A mirrored twin comes right after the row that it shares.
                places.append((clip.item_id, rows - 1, frames, int(pixels is None)))
    write_row_checksums(path, view.bytes, whole)
    return Shard(rows, whole.hexdigest(), places)


def _decoded(family: Sequence[Clip], view: View) -> Iterator[tuple[Clip, int, np.ndarray | None]]:
    """Each clip with its number of real frames and its row; no row where it mirrors the one before."""
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


def write_index(folder: Path, view: View, shards: Sequence[Shard]) -> None:
    """Make finished shards a store: ``items.csv``, then ``index.json``."""
    places = [(place[0], number, *place[1:]) for number, shard in enumerate(shards) for place in shard.places]
    write_csv(folder / ITEMS, pd.DataFrame(places, columns=PLACE_COLUMNS))
    content = {
        "version": VERSION,
        **asdict(view),
        "clips": len(places),
        "rows": sum(shard.rows for shard in shards),
        "items_sha256": sha256_of(folder / ITEMS),
        "shards": [{"rows": shard.rows, "sha256": shard.sha256} for shard in shards],
    }
    write_json(folder / INDEX, content)


class Store:
    """Reads a frame store. Shards are mapped when first needed, in each process anew, so a store is cheap to pickle.

    Args:
        index: the store's ``index.json``.
        view: what the reader wants; a store made otherwise is refused.

    Raises:
        RewindError: naming the file, for a store that is not there, of another version or made with other keys, or
            whose files are missing, cut short or changed (of the shards the size alone: each row is compared with its
            checksum when it is read, and :func:`verify` looks at every byte).
    """

    def __init__(self, index: str | Path, view: View) -> None:
        self.folder, self.view = Path(index).parent, view
        content = _read_index(Path(index))
        _check_view(Path(index), content, view)
        self.rows = [shard["rows"] for shard in content["shards"]]
        for number, rows in enumerate(self.rows):
            _check_size(shard_path(self.folder, number), rows * view.bytes)
        self._items = _read_items(Path(index), content)
        self._maps: dict[int, mmap.mmap] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_maps": {}}

    def places(self, item_ids: Iterable[str]) -> np.ndarray:
        """Where items are, for :meth:`read`: int64 (n, 4) of shard, row, frames, mirrored.

        Raises:
            RewindError: naming an item that the store lacks.
        """
        ids = list(item_ids)
        known = self._items.index.get_indexer(ids)
        if (known < 0).any():
            missing = [item for item, place in zip(ids, known, strict=True) if place < 0]
            raise RewindError(
                f"{self.folder / ITEMS}: {len(missing)} items are not in the store, first {missing[0]!r}; "
                f"delete {self.folder / INDEX} and run again."
            )
        return self._items.to_numpy(np.int64)[known]

    def read(self, places: np.ndarray, pixels: np.ndarray) -> np.ndarray:
        """Copy rows of :meth:`places` into ``pixels``, uint8 (n, T, 3, S, S); return their mask, uint8 (n, T).

        Raises:
            RewindError: naming the shard and the row, if a row is not as it was written.
        """
        for shard, row, _, _ in places:
            self._announce(int(shard), int(row))
        for target, (shard, row, frames, mirrored) in zip(pixels, places, strict=True):
            stored = self._row(int(shard), int(row))
            check_row(self, shard, row, stored)
            if mirrored:
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
        if hasattr(mmap, "MADV_WILLNEED"):
            first = row * self.view.bytes // mmap.PAGESIZE * mmap.PAGESIZE
            self._map(shard).madvise(mmap.MADV_WILLNEED, first, (row + 1) * self.view.bytes - first)

    def _map(self, shard: int) -> mmap.mmap:
        if shard not in self._maps:
            with shard_path(self.folder, shard).open("rb") as stream:
                self._maps[shard] = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        return self._maps[shard]


def verify(index: str | Path) -> None:
    """Read every byte of a store and compare the checksums.

    Raises:
        RewindError: naming the first file that is not as it was written.
    """
    index = Path(index)
    require_regular_file(index, missing_ok=True)
    content = _read_index(index)
    _read_items(index, content)
    try:
        _verify_shards(index, content)
    except (KeyError, TypeError, AttributeError) as error:
        raise RewindError(f"{index}: not the index of a frame store ({error!r}); {remedy(index)}") from None


def _verify_shards(index: Path, content: dict[str, Any]) -> None:
    for number, shard in enumerate(content["shards"]):
        path = shard_path(index.parent, number)
        row_bytes = View(*(content[key] for key in _KEYS)).bytes
        _check_size(path, shard["rows"] * row_bytes)
        if sha256_of(path) != shard["sha256"]:
            raise RewindError(f"{path}: its checksum differs from that in {index}; {remedy(index)}")
        verify_row_checksums(path, shard["sha256"], row_bytes)


_KEYS = ("max_frames", "size", "sampling", "rate", "fit")


def _read_index(index: Path) -> dict[str, Any]:
    content = read_json(index)
    if not isinstance(content, dict) or content.get("version") != VERSION:
        raise RewindError(f"{index}: not the index of a frame store of version {VERSION}; delete it and run again.")
    lacking = [key for key in (*_KEYS, "shards", "items_sha256") if key not in content]
    if lacking:
        raise RewindError(f"{index}: lacks {', '.join(lacking)}; delete it and run again.")
    return content


def _check_view(index: Path, content: dict[str, Any], view: View) -> None:
    for key, wanted in asdict(view).items():
        if content[key] != wanted:
            raise RewindError(
                f"{index}: made with {key} = {content[key]}, but this run has frames.{key} = {wanted}; "
                "delete the store's folder and run again."
            )


def _check_size(path: Path, expected: int) -> None:
    try:
        found = path.stat().st_size
    except OSError:
        raise RewindError(
            f"{path}: this shard of the frame store is missing; {remedy(path.parents[1] / INDEX)}"
        ) from None
    if found != expected:
        raise RewindError(
            f"{path}: has {found:,} bytes, but the index says {expected:,}; {remedy(path.parents[1] / INDEX)}"
        )


def _read_items(index: Path, content: dict[str, Any]) -> pd.DataFrame:
    path = index.parent / ITEMS
    if not path.is_file() or sha256_of(path) != content["items_sha256"]:
        raise RewindError(f"{path}: missing, or not the file that {index} was written with; {remedy(index)}")
    return read_csv(path).set_index("item_id")


def remedy(index: Path) -> str:
    """How a store is made whole again: by its own job alone, without what follows from it."""
    return f"make it again with `snakemake --cores all --force {index}` (shards that are whole are not decoded again)."
