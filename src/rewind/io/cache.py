"""A cache in a JSON file: it only saves work, so a broken one is empty, and a read-only folder is not an error."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from rewind.io.files import read_cached_json, write_text


class JsonCache:
    """Values by a hash of all that they depend on, kept in a JSON file between two commands.

    Args:
        path: the file; None: values are kept in memory alone.
        limit: number of entries that are kept in the file, those that were added last.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "cache.json"
    >>> cache = JsonCache(path, limit=2)
    >>> for key in ("first", "second", "third"):
    ...     cache[key] = len(key)
    >>> cache.save(); JsonCache(path).get("third"), "first" in JsonCache(path)
    (5, False)
    >>> _ = path.write_text("{ cut off"); "third" in JsonCache(path)
    False
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
