"""Whether files that the user brings (weights, annotations, vectors, labelled images) are still the same.

Snakemake sees a file that is newer than what was made of it. One that took another's place with an older time, as
copies and unpacked archives have, it does not see. Size and times decide at once (that of the file's entry too, which
nobody can set back); where one differs, the content is compared with what it was when the file was first seen.
"""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rewind.files import atomic, sha256_of

CONTENT = "content"
"""What is said of a file in an identity, beside names of functions."""


class Known(NamedTuple):
    """A file as it was last seen, and the checksum that it had at first."""

    size: int
    time: int
    entry: int
    sha256: str
    first: str


class Brought:
    """Files of the user's own, by content.

    Args:
        memory: CSV file of what was seen; it goes where Snakemake's records go.
        writes: look at files that are new and remember them; other processes only compare.
    """

    def __init__(self, memory: Path, writes: bool) -> None:
        self.memory, self.writes = memory, writes
        self._known, self._new = _load(memory), False

    def parts(self, paths: Iterable[str | Path]) -> dict[str, str]:
        """Parts of an identity: of each file whose content is no longer the first one, its checksum.

        Nothing where all are as they were, so that an identity without files stays what it was.
        """
        found = {}
        for path in sorted({str(path) for path in paths}):
            known = self._seen(path)
            if known and known.sha256 != known.first:
                found[f"{path if '/' in path else f'./{path}'}:{CONTENT}"] = known.sha256[:16]
        return found

    def _seen(self, path: str) -> Known | None:
        known = self._known.get(path)
        try:
            stat = Path(path).stat()
            if not Path(path).is_file():
                return None
            state = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
            if known and known[:3] == state:
                return known
            if not known and not self.writes:
                return None
            sha256 = sha256_of(path)
        except OSError:
            return None  # the job that needs it says so
        now = Known(*state, sha256, known.first if known else sha256)
        self._known[path], self._new = now, True
        return now

    def keep(self) -> None:
        """Write what was seen; a folder that is read-only is no fault."""
        if self._new and self.writes:
            with (
                contextlib.suppress(OSError),
                atomic(self.memory) as draft,
                draft.open("w", newline="", encoding="utf-8") as stream,
            ):
                csv.writer(stream).writerows((path, *known) for path, known in self._known.items())
            self._new = False


def _load(memory: Path) -> dict[str, Known]:
    try:
        with memory.open(newline="", encoding="utf-8") as stream:
            rows = list(csv.reader(stream))
        return {
            path: Known(int(size), int(time), int(entry), sha256, first)
            for path, size, time, entry, sha256, first in rows
        }
    except (OSError, ValueError, csv.Error):
        return {}
