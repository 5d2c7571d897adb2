"""Reading of npz files that users bring."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from rewind.errors import RewindError
from rewind.files import reading_user_file


@contextmanager
def npz(path: Path) -> Iterator[np.lib.npyio.NpzFile]:
    """An npz that is read without pickles; arrays are unpacked when they are asked for, inside of the block.

    Raises:
        RewindError: for a file that is none, is cut short or damaged, or holds Python objects.
    """
    with reading_user_file(path, "npz", "write it again, with numpy.savez"):
        if not zipfile.is_zipfile(path):
            raise RewindError(f"{path}: not a whole npz; write it again, with numpy.savez.")
        with np.load(path, allow_pickle=False) as archive:
            for member in archive.zip.infolist():
                _check_header(path, archive.zip, member)
            yield archive


def _check_header(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Refuse an array of Python objects, and one whose header promises more than the file holds.

    Memory is asked for by what the header says, so that a wrong one would look like a machine without memory.
    """
    if not member.filename.endswith(".npy"):
        return
    name = member.filename.removesuffix(".npy")
    with archive.open(member) as stream:
        formats = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        version = np.lib.format.read_magic(stream)
        if version not in formats:  # of names that are not ASCII, in arrays with fields
            return
        shape, _, dtype = formats[version](stream)
        if dtype.hasobject:
            raise RewindError(
                f"{path}: array {name!r}: it holds Python objects; save numbers, and ids with np.array(ids, dtype=str)."
            )
        promised, held = dtype.itemsize * math.prod(shape), member.file_size - stream.tell()
    if promised != held:
        raise RewindError(
            f"{path}: array {name!r}: its header says {tuple(shape)} of {dtype}, {promised:,} bytes, but there are "
            f"{held:,}; write it again, with numpy.savez."
        )


def need(path: Path, archive: np.lib.npyio.NpzFile, names: tuple[str, ...]) -> None:
    """Refuse an npz that lacks an array."""
    missing = [name for name in names if name not in archive.files]
    if missing:
        there = ", ".join(archive.files) or "nothing"
        raise RewindError(f"{path}: there is no array {missing[0]!r}, only {there}; save {' and '.join(names)}.")
