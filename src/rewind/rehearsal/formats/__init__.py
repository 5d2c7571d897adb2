"""Stand-ins for the raw files of a data set, one module per source format, found by the format's name.

A module has ``stand_in(source, folder, sizes)``: it writes a few invented items into ``folder``, in the files and
layout that the format reads, and returns the keys of ``source`` that must change for them to be read. It may have
``part(dataset, folder, sizes)``, which returns the same keys for a part of the user's own files, where a list of items
(``only``) would not do; and ``PUBLISHED``, the sizes of the data set that the format is named after.

A format of the user's own may have ``stand_in`` in its own module.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from rewind.rehearsal.pictures import Sizes


class Published(NamedTuple):
    """Sizes of a published data set: (items with twins, captions) of each split, and originals in all."""

    train: tuple[int, int]
    valid: tuple[int, int]
    test: tuple[int, int]
    originals: int
    said: str


def format_of(name: str) -> ModuleType | None:
    """The module of a format, or the user's own; None where there is none."""
    path = name if "." in name else f"{__name__}.{name}"
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        return None


def stand_in(name: str, source: dict[str, Any], folder: Path, sizes: Sizes) -> dict[str, Any] | None:
    """Keys of ``source`` with stand-ins in ``folder``; None for a format that has none."""
    write = getattr(format_of(name), "stand_in", None)
    return None if write is None else write(source, folder, sizes)
