"""Reading of npz files that users bring."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from rewind.errors import RewindError


@contextmanager
def npz(path: Path) -> Iterator[np.lib.npyio.NpzFile]:
    """An npz that is read without pickles.

    Raises:
        RewindError: for a file that is none, is cut short, or holds Python objects.
    """
    if not zipfile.is_zipfile(path):
        raise RewindError(f"{path}: not a whole npz; write it again, with numpy.savez.")
    try:
        with np.load(path, allow_pickle=False) as archive:
            yield archive
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise RewindError(f"{path}: not a whole npz ({error}); write it again.") from error
    except ValueError as error:  # NumPy's word for an array of Python objects
        raise RewindError(
            f"{path}: it holds Python objects; save numbers, and ids with np.array(ids, dtype=str)."
        ) from error


def need(path: Path, archive: np.lib.npyio.NpzFile, names: tuple[str, ...]) -> None:
    """Refuse an npz that lacks an array."""
    missing = [name for name in names if name not in archive.files]
    if missing:
        there = ", ".join(archive.files) or "nothing"
        raise RewindError(f"{path}: there is no array {missing[0]!r}, only {there}; save {' and '.join(names)}.")
