"""Stand-ins for the raw files of a data set, one module per source format, found by the format's name.

:class:`StandIns` says what a module offers. A format of the user's own offers it in its own module.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, NamedTuple

from rewind.models.making import with_defaults
from rewind.rehearsal.pictures import Sizes
from rewind.study import Dataset


class Published(NamedTuple):
    """Sizes of a published data set: (items with twins, captions) of each split, and originals in all."""

    train: tuple[int, int]
    valid: tuple[int, int]
    test: tuple[int, int]
    originals: int
    said: str


class StandIns:
    """What a format offers to a rehearsal; each has a default.

    Attributes:
        PUBLISHED: sizes of the data set that the format is named after; None: nobody knows.
    """

    PUBLISHED: Published | None = None

    def stand_in(self, source: dict[str, Any], folder: Path, sizes: Sizes) -> dict[str, Any] | None:
        """Write a few invented items into ``folder``, in the files and layout that the format reads.

        Called where the user's own files are not there.

        Returns:
            Keys of ``source`` that must change for them to be read; None, the default: the format has no stand-ins.
        """
        return None

    def part(self, dataset: Dataset, folder: Path, sizes: Sizes) -> dict[str, Any] | None:
        """Write a part of the user's own files into ``folder``, where a list of items (``only``) would not do.

        Called where the files are there.

        Returns:
            Keys of ``source`` that must change for it to be read; None, the default: a list of items will do.
        """
        return None


def format_of(name: str) -> StandIns:
    """What a format, or the module of the user's own, offers to a rehearsal."""
    path = name if "." in name else f"{__name__}.{name}"
    try:
        return with_defaults(importlib.import_module(path), StandIns)
    except ModuleNotFoundError:
        return StandIns()
