"""Collects what is wrong by file, so that all of it is told at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from rewind.errors import ConfigErrors, RewindError


class FaultCollector:
    """Faults by file, in the order in which files are read.

    >>> faults = FaultCollector()
    >>> faults.add("a.yaml", ["text: a.txt: cut off"], only_once=True)
    >>> faults.add("a.yaml", ["text.words: a.txt: no words", "seeds: none are given"])
    >>> faults.files
    {'a.yaml': ['text: a.txt: cut off', 'seeds: none are given']}
    """

    def __init__(self) -> None:
        self.files: dict[str, list[str]] = {}  # path → faults, each beginning with its key
        self.drafts: dict[str, Any] = {}  # path → content without faulty keys, so that later checks can go on
        self.left_out: dict[str, list[str]] = {}  # path → keys about which nothing more is to be reported

    def add(self, path: str, lines: Iterable[str], only_once: bool = False) -> None:
        """Add faults, except those of keys that were refused already: the draft has their default.

        Args:
            lines: ``key: what is wrong; what to do``.
            only_once: whether nothing more is to be reported about these keys.
        """
        refused = self.left_out.setdefault(path, [])
        new = [line for line in lines if not _is_about(line, refused)]
        self.files.setdefault(path, []).extend(new)
        if only_once:
            refused += [line.partition(": ")[0] for line in new]

    @contextlib.contextmanager
    def caught(self, path: str) -> Iterator[None]:
        """Collect the errors of the block and go on after it."""
        try:
            yield
        except ConfigErrors as error:
            for name, lines in error.files.items():
                self.add(name, lines)
            self.drafts[path] = error.draft
            self.left_out.setdefault(path, []).extend(error.left_out)
        except RewindError as error:
            self.add(path, [str(error).removeprefix(f"{path}: ")])

    def end(self) -> None:
        """Raise :class:`ConfigErrors` with what was collected, if anything was."""
        errors = ConfigErrors(self.files)
        if errors.files:
            raise errors


def _is_about(line: str, keys: Iterable[str]) -> bool:
    """Whether a fault is about one of the keys, or about a key inside of one."""
    return any(line.startswith((f"{key}: ", f"{key}.")) for key in keys)
