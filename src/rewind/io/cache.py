"""A cache in a JSON file: it only saves work, so a broken one is empty, and a read-only folder is not an error."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from rewind.hashing import stable_hash
from rewind.io.files import read_cached_json, write_text


class JsonCache:
    """Values by a hash of all that they depend on, kept in a JSON file between two commands.

    Without a path, values are kept only in memory; the file keeps the ``limit`` entries that were added last.
    """

    def __init__(self, path: Path | None = None, limit: int = 1000) -> None:
        self.path, self.limit = path, limit
        self.changed = False
        content = read_cached_json(path)
        if isinstance(content, list):  # keys without values, as Rewind wrote them once
            content = {key: None for key in content if isinstance(key, str)}
        self._entries: dict[str, Any] = content if isinstance(content, dict) else {}

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __setitem__(self, key: str, value: Any) -> None:
        self._entries.pop(key, None)  # so that it is the newest
        self._entries[key], self.changed = value, True

    def get(self, key: str) -> Any:
        """The value of a key; None where there is none. Another program may have written it: check its type."""
        return self._entries.get(key)

    def save(self) -> None:
        """Write the file if entries were added."""
        if self.path is None or not self.changed:
            return
        newest = dict(list(self._entries.items())[-self.limit :])
        with contextlib.suppress(OSError):  # a read-only checkout can still be looked at
            write_text(self.path, json.dumps(newest))
        self.changed = False


def file_stamp(path: str) -> str:
    """A hash of a file's path, size and time, without reading it: it may have gigabytes."""
    if not Path(path).is_file():
        return stable_hash(path)
    stat = Path(path).stat()
    return stable_hash(path, stat.st_size, stat.st_mtime_ns)
