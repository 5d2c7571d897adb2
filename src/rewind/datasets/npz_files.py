"""Reading of npz and npy files that users bring."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

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
                if not member.filename.endswith(".npy"):
                    raise RewindError(
                        f"{path}: {member.filename!r} in it is no array; write it again, with numpy.savez."
                    )
                with archive.zip.open(member) as stream:
                    where = f"{path}: array {member.filename.removesuffix('.npy')!r}"
                    _check_header(stream, member.file_size, where, "numpy.savez")
            yield archive


def npy(path: Path) -> np.ndarray:
    """The array of an npy, read without pickles.

    Raises:
        RewindError: for a file that is none, is cut short or damaged, or holds Python objects.
    """
    with reading_user_file(path, "npy", "write it again, with numpy.save"), path.open("rb") as stream:
        _check_header(stream, path.stat().st_size, str(path), "numpy.save")
        stream.seek(0)
        return np.lib.format.read_array(stream, allow_pickle=False)


def _check_header(stream: IO[bytes], size: int, where: str, writer: str) -> None:
    """Refuse an array of Python objects, and one whose header promises more than the file holds.

    Memory is asked for by what the header says, so that a wrong one would look like a machine without memory.
    """
    formats = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(stream)
    if version not in formats:  # of names that are not ASCII, in arrays with fields
        return
    shape, _, dtype = formats[version](stream)
    if dtype.hasobject:
        raise RewindError(f"{where}: it holds Python objects; save numbers, and ids with np.array(ids, dtype=str).")
    promised, held = dtype.itemsize * math.prod(shape), size - stream.tell()
    if promised != held:
        raise RewindError(
            f"{where}: its header says {tuple(shape)} of {dtype}, {promised:,} bytes, but there are {held:,}; write it "
            f"again, with {writer}."
        )


def need(path: Path, archive: np.lib.npyio.NpzFile, names: tuple[str, ...]) -> None:
    """Refuse an npz that lacks an array."""
    missing = [name for name in names if name not in archive.files]
    if missing:
        there = ", ".join(archive.files) or "nothing"
        raise RewindError(f"{path}: there is no array {missing[0]!r}, only {there}; save {' and '.join(names)}.")
