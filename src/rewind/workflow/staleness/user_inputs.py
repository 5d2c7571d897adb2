"""Detects user files (weights, annotations, vectors, labelled images) that were replaced by other content.

Snakemake sees a file that is newer than what was made from it. It does not see one that was replaced by a file with an
older time, as copies and unpacked archives have. Size and times are compared first (the inode's change time too, which
no program can set back); where one differs, the content is compared with what it was when the file was first seen.
"""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rewind.hashing import SHORT_DIGITS, sha256_of
from rewind.io.files import atomic_write

FILE_CONTENT = "content"
"""Represents a file's content among the names of definitions that a code hash is computed from."""


class KnownFile(NamedTuple):
    """A file as it was last seen."""

    size: int
    time: int  # of modification
    entry: int  # time of the inode's change
    sha256: str
    first: str  # its checksum when it was first seen


class UserInputs:
    """The user's own files, by content.

    Args:
        memory: CSV file of the files seen before.
        writes: whether this process records new files; other processes only compare.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> inputs, path = UserInputs(folder / "seen.csv", writes=True), folder / "weights.pt"
    >>> _ = path.write_text("first"); inputs.parts([path])
    {}
    >>> _ = path.write_text("another"); list(inputs.parts([path]).values()) == [sha256_of(path)[:16]]
    True
    """

    def __init__(self, memory: Path, writes: bool) -> None:
        self.memory, self.writes = memory, writes
        self._known, self._new = _load_known_files(memory), False

    def parts(self, paths: Iterable[str | Path]) -> dict[str, str]:
        """Parts of a code hash: the checksum of each file whose content is no longer the first one.

        Empty where all files are unchanged, so that recording files for the first time makes nothing stale.
        """
        replaced = {}
        for path in sorted({str(path) for path in paths}):
            known = self._seen(path)
            if known and known.sha256 != known.first:
                replaced[f"{path if '/' in path else f'./{path}'}:{FILE_CONTENT}"] = known.sha256[:SHORT_DIGITS]
        return replaced

    def _seen(self, path: str) -> KnownFile | None:
        known = self._known.get(path)
        try:
            stat = Path(path).stat()
            if not Path(path).is_file():
                return None
            state = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
            if known and known[:3] == state:  # size, time and change of the inode
                return known
            if not known and not self.writes:
                return None
            sha256 = sha256_of(path)
            if known and sha256 == known.sha256 and stat.st_mtime_ns != known.time and self.writes:
                with contextlib.suppress(OSError):  # another user's; then it goes by its time
                    os.utime(path, ns=(stat.st_atime_ns, known.time))
                    stat = Path(path).stat()
            state = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        except OSError:
            return None  # the job that needs the file reports it
        current = KnownFile(*state, sha256, known.first if known else sha256)
        self._known[path], self._new = current, True
        return current

    def restore_times(self) -> None:
        """Give files of known content the time back that they had: Snakemake compares large ones by time alone."""
        for path in list(self._known):
            self._seen(path)

    def keep(self) -> None:
        """Write the files seen; a read-only folder is not an error."""
        if self._new and self.writes:
            with (
                contextlib.suppress(OSError),
                atomic_write(self.memory) as temporary,
                temporary.open("w", newline="", encoding="utf-8") as stream,
            ):
                csv.writer(stream).writerows((path, *known) for path, known in self._known.items())
            self._new = False


def _load_known_files(memory: Path) -> dict[str, KnownFile]:
    try:
        with memory.open(newline="", encoding="utf-8") as stream:
            rows = list(csv.reader(stream))
        return {
            path: KnownFile(int(size), int(time), int(entry), sha256, first)
            for path, size, time, entry, sha256, first in rows
        }
    except (OSError, ValueError, csv.Error):
        return {}
