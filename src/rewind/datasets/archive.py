"""Arrays inside an npz, one member at a time: sizes are known before anything is unpacked, and nothing is executed."""

from __future__ import annotations

import math
import pickle
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from rewind.errors import RewindError
from rewind.files import reading_user_file

BLOCK = 64 * 2**20  # bytes that are read at once


@dataclass(frozen=True)
class Member:
    """An array as its header describes it."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int  # of the first element inside the member
    bytes: int  # of the whole member, unpacked

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape[1:])


class Archive:
    """An npz file whose members are read by name; members that nobody asks for are never unpacked.

    Args:
        path: the file.

    Raises:
        RewindError: if it is missing or no npz.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with reading_user_file(self.path, "npz"):
            try:
                with zipfile.ZipFile(self.path) as file:
                    self.sizes = {info.filename.removesuffix(".npy"): info.file_size for info in file.infolist()}
            except FileNotFoundError as error:
                raise RewindError(f"{self.path}: no such file.") from error
            except (zipfile.BadZipFile, OSError) as error:
                raise RewindError(f"{self.path}: not an npz file ({error}).") from error
        self.headers: dict[str, Member] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.sizes

    def member(self, name: str) -> Member:
        """The header of an array.

        Raises:
            RewindError: if there is no such member, or its header cannot be read or does not fit its size.
        """
        if name not in self.headers:
            if name not in self.sizes:
                raise RewindError(f"{self.path}: has no {name!r}; available: {', '.join(self.sizes)}.")
            with self._open(name) as stream:
                self.headers[name] = _header(stream, name, self.sizes[name], str(self.path))
        return self.headers[name]

    def blocks(self, name: str, most: int = BLOCK) -> Iterator[tuple[int, np.ndarray]]:
        """Rows of an array in order, as (number of the first row, rows) of about ``most`` bytes each."""
        member = self.member(name)
        step = max(1, most // max(1, member.row_bytes))
        with self._open(name) as stream:
            stream.read(member.offset)
            for start in range(0, member.shape[0], step):
                rows = min(step, member.shape[0] - start)
                data = _read(stream, rows * member.row_bytes, f"{self.path}: {name!r}")
                yield start, np.frombuffer(data, member.dtype).reshape(rows, *member.shape[1:])

    def strings(self, name: str) -> list[str]:
        """A one-dimensional array of text, stored as unicode or, as the challenge does, as pickled text.

        Raises:
            RewindError: for another shape, for values that are no text, or where the pickle holds anything else.
        """
        member = self.member(name)
        if member.dtype.hasobject:
            with self._open(name) as stream:
                stream.read(member.offset)
                values = _unpickled(stream, f"{self.path}: {name!r}")
        else:
            values = [value for _, rows in self.blocks(name) for value in rows.tolist()]
        if len(member.shape) != 1 or len(values) != member.shape[0]:
            raise RewindError(f"{self.path}: {name!r} has shape {member.shape}; it must have one dimension.")
        for row, value in enumerate(values):
            if not isinstance(value, str):
                raise RewindError(f"{self.path}: {name!r}, row {row}: {value!r} is not text.")
        return values

    def integers(self, name: str) -> list[int]:
        """A one-dimensional array of whole numbers."""
        member = self.member(name)
        if member.dtype.kind not in "iu" or len(member.shape) != 1:
            raise RewindError(
                f"{self.path}: {name!r} is {member.dtype} {member.shape}; it must be one-dimensional, of whole numbers."
            )
        return [value for _, rows in self.blocks(name) for value in rows.tolist()]

    @contextmanager
    def _open(self, name: str) -> Iterator[IO[bytes]]:
        with reading_user_file(self.path, f"npz, array {name!r}", "get the file again"):
            try:
                with zipfile.ZipFile(self.path) as file, file.open(self._stored(file, name)) as stream:
                    yield stream
            except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError) as error:
                raise RewindError(f"{self.path}: {name!r} cannot be unpacked ({error}); get the file again.") from error

    def _stored(self, file: zipfile.ZipFile, name: str) -> str:
        return f"{name}.npy" if f"{name}.npy" in file.NameToInfo else name


def _header(stream: IO[bytes], name: str, size: int, where: str) -> Member:
    formats = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        version = np.lib.format.read_magic(stream)
        shape, by_column, dtype = formats[version](stream)
    except (ValueError, KeyError, TypeError, SyntaxError) as error:
        raise RewindError(f"{where}: {name!r} is not a NumPy array ({error}).") from error
    offset = stream.tell()
    if by_column and len(shape) > 1:
        raise RewindError(f"{where}: {name!r} is stored in column-major order; save np.ascontiguousarray of it.")
    whole = offset + dtype.itemsize * math.prod(shape)
    if not dtype.hasobject and whole != size:
        raise RewindError(f"{where}: {name!r} says {shape} of {dtype} ({whole:,} bytes), but holds {size:,} bytes.")
    return Member(name, tuple(shape), dtype, offset, size)


def _read(stream: IO[bytes], size: int, where: str) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise RewindError(f"{where} ends early; get the file again.")
    return data


class _Shell:
    """Stands for an array or its dtype while a pickle is read: keeps what it is given and runs nothing."""

    def __init__(self, *given: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Texts(pickle.Unpickler):
    """Reads the pickle of an array of text: arrays and dtypes become shells, any other name is refused."""

    ALLOWED = frozenset(
        {
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it would run {module}.{name}")
        return _Shell


def _unpickled(stream: IO[bytes], where: str) -> list[Any]:
    try:
        array = _Texts(stream).load()
        values = array.state[-1]
    except Exception as error:  # a broken pickle fails in many ways
        raise RewindError(
            f"{where} is a pickle that cannot be read safely ({error}): save the texts as np.array(texts, dtype=str)."
        ) from None
    if not isinstance(values, list):
        raise RewindError(f"{where} is a pickle, but not of a list of texts.")
    return values
