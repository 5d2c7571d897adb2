"""Whether source files are still the same, when a workflow is read.

Names and sizes decide at once. A file whose time alone differs is in doubt: it is compared with the checksum that its
shard noted when the clip was made. What is found is remembered, so nothing is read twice, and a folder that was copied
or touched makes nothing stale.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rewind.errors import RewindError
from rewind.files import atomic, digest, sha256_of

NAMES = "surrogateescape"  # names of files are bytes, of which some are no UTF-8


class Seen(NamedTuple):
    """A source file; ``sha256`` is empty unless it took the place of another one of its name and size."""

    path: str
    size: int
    time: int
    sha256: str = ""


class SourceListing:
    """The source files of a data set.

    Args:
        folders: where they lie.
        videos: the data set's folder of normalised clips, whose shards note checksums of sources.
        memory: what was seen the last time; None to remember nothing.
    """

    def __init__(self, folders: Iterable[str], videos: Path, memory: Path | None = None) -> None:
        self.folders, self.videos, self.memory = [Path(folder) for folder in folders], videos, memory

    def digest(self) -> str:
        """A sum of all names and sizes, and of the content of files that were replaced by others of their size."""
        before, now, shown = self._recall(), {}, []
        for folder in map(str, self.folders):
            start = len(folder) + 1
            for path, size, time in sorted(_files(folder)):
                seen = now[path] = self._judged(path, size, time, before.get(path))
                shown.append([path[start:], size, seen.sha256] if seen.sha256 else [path[start:], size])
        if self.memory and now != before:
            self._remember(now)
        return digest(shown)  # as earlier versions had it where nothing was replaced

    def _judged(self, path: str, size: int, time: int, before: Seen | None) -> Seen:
        if before is None or before.size != size:
            return Seen(path, size, time)
        if before.time == time:
            return before
        noted = before.sha256 or self._noted(path)
        if not noted:
            return Seen(path, size, time)
        found = sha256_of(path)
        return Seen(path, size, time, before.sha256 if found == noted else found)

    def _noted(self, path: str) -> str:
        """The checksum of a source whose clip was made; empty if it is not known."""
        return self._checksums().get(path, "")

    def _checksums(self) -> Mapping[str, str]:
        if not hasattr(self, "_sums"):
            self._sums = dict(self._of_shards())
        return self._sums

    def _of_shards(self) -> Iterator[tuple[str, str]]:
        notes = {}
        for path in sorted((self.videos / ".state/shards").glob("*.json")):
            try:
                notes |= json.loads(path.read_text(encoding="utf-8"))["clips"]
            except (OSError, ValueError, KeyError, TypeError, RecursionError):
                continue
        try:
            with (self.videos / "inventory.csv").open(newline="", encoding="utf-8") as stream:
                for row in csv.DictReader(stream):
                    sums = notes.get(row["item_id"], {}).get("sources", ())
                    paths = [path for path in (row["source"], row["reversed_source"]) if path]
                    yield from zip(paths, sums, strict=False)
        except (OSError, KeyError, csv.Error):
            return

    def _recall(self) -> dict[str, Seen]:
        if self.memory is None:
            return {}
        try:
            with self.memory.open(newline="", encoding="utf-8", errors=NAMES) as stream:
                return {path: Seen(path, int(size), int(time), sha) for path, size, time, sha in csv.reader(stream)}
        except (OSError, ValueError, csv.Error):
            return {}

    def _remember(self, now: Mapping[str, Seen]) -> None:
        try:
            with atomic(self.memory) as draft, draft.open("w", newline="", encoding="utf-8", errors=NAMES) as stream:
                csv.writer(stream).writerows((seen.path, seen.size, seen.time, seen.sha256) for seen in now.values())
        except OSError as error:
            raise RewindError(
                f"{self.memory}: cannot be written ({error.strerror}); Snakemake's folder must be writable."
            ) from error


def _files(folder: str) -> Iterator[tuple[str, int, int]]:
    """Path, size and time of every file in a folder and those below it; links to folders are not followed."""
    try:
        entries = os.scandir(folder)
    except OSError:
        return
    with entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            elif entry.is_file():
                stat = entry.stat()
                yield entry.path, stat.st_size, stat.st_mtime_ns
