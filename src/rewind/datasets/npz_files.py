"""Reading of npz files that users bring."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from rewind.errors import RewindError


def check_readable(path: Path) -> None:
    """Refuse a folder, and a file that this account may not read, of which libraries say that it is damaged."""
    if os.path.isdir(path):  # Path.is_dir would raise where its folder may not be looked into
        raise RewindError(f"{path}: this is a folder; name the file itself.")
    if not os.access(path, os.R_OK):
        raise RewindError(f"{path}: this account may not read the file; ask its owner for the right, or copy it.")


@contextmanager
def npz(path: Path) -> Iterator[np.lib.npyio.NpzFile]:
    """An npz that is read without pickles.

    Raises:
        RewindError: for a file that is none, is cut short, or holds Python objects.
    """
    check_readable(path)
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
