"""Readers of users' own files: npz archives, lists of ids, TREC runs, embeddings and score matrices.

Sizes are checked before anything is unpacked, and pickles are never executed. The formats are described in
docs/bring-your-model.md.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import math
import pickle
import re
import struct
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, NamedTuple
from urllib.parse import unquote

import numpy as np
import pandas as pd

from rewind.config.methods import ids_file_of
from rewind.errors import RewindError
from rewind.io.files import kind_of_file, name_file_in_errors, reading_user_file, require_regular_file
from rewind.io.schema import number_of, similar_name
from rewind.io.strict import csv_records, decode_utf8, read_user_bytes, read_user_json, read_user_text, split_lines

READ_BLOCK_BYTES = 64 * 2**20  # read at once
MIN_STORED_BYTES = 2**28
"""Bytes of vectors from which they stay in their file, if it is not compressed, and are read when they are used."""
EXPORTED_ARRAYS = {"query_ids", "text", "item_ids", "items", "space"}  # of results/<study>/embedding/*.npz
MAX_IDS_SHOWN = 3  # in a message
MAX_SCORE = 3.4e38
"""Largest absolute value of a score, that single precision can hold: a pair without a score is below all of them."""
SCORE_ARRAYS = ("similarity", "query_ids", "item_ids")
UNSCORED_ARRAYS = SCORE_ARRAYS[1:]  # of a model by name whose pairs are scored by the job that re-ranks
MISSING_SCORE = np.finfo(np.float32).min
"""Represents a pair without a score in a run's matrix: finite, and below every possible score."""
_DECOMPRESSORS = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}
_TREC_FIELDS = "query Q0 document rank score tag"
# Not str.split, which also cuts at white space that an id may contain, such as a no-break space.
_FIELD_SEPARATOR = re.compile(r"[ \t]+")
_SCORE_PATTERN = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
# Names of torch's types as text, so that torch need not be imported.
_TORCH_FLOATS = {f"torch.{name}" for name in ("float16", "bfloat16", "float32", "float64")}
_TORCH_INTEGERS = {f"torch.{name}" for name in ("uint8", "int8", "int16", "int32", "int64")}

# ---- Large npz archives, read one array and one block at a time ----------------------------------------------------


@dataclass(frozen=True)
class NpzMember:
    """An array of an npz, as its header describes it."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int  # of the first element inside the member
    bytes: int  # of the whole member with its header, unpacked

    @property
    def row_bytes(self) -> int:
        """Bytes of one row (entry along the first axis)."""
        return self.dtype.itemsize * math.prod(self.shape[1:])


class NpzArchive:
    """An npz file whose arrays are read by name and in blocks; other members are never unpacked.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "train.npz"
    ...     np.savez(path, images=np.zeros((5, 4), np.float32), names=np.array(["a", "b"]))
    ...     archive = NpzArchive(path)
    ...     archive.member("images").shape, archive.strings("names")
    ...     [(start, rows.shape) for start, rows in archive.blocks("images", most=32)]
    ((5, 4), ['a', 'b'])
    [(0, (2, 4)), (2, (2, 4)), (4, (1, 4))]
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
                kind = kind_of_file(self.path)
                raise RewindError(f"{self.path}: not an npz file ({f'it {kind}' if kind else error}).") from error
        self.headers: dict[str, NpzMember] = {}  # those that have been read

    def __contains__(self, name: str) -> bool:
        return name in self.sizes

    def member(self, name: str) -> NpzMember:
        """The header of an array; one that does not fit the member's size is refused."""
        if name not in self.headers:
            if name not in self.sizes:
                raise RewindError(f"{self.path}: has no {name!r}; available: {', '.join(self.sizes)}.")
            with self._open(name) as stream:
                self.headers[name] = _read_member_header(stream, name, self.sizes[name], str(self.path))
        return self.headers[name]

    def blocks(self, name: str, most: int = READ_BLOCK_BYTES) -> Iterator[tuple[int, np.ndarray]]:
        """Blocks of consecutive rows, as (number of the first row, rows), of at most ``most`` bytes or one row each."""
        member = self.member(name)
        step = max(1, most // max(1, member.row_bytes))
        with self._open(name) as stream:
            stream.read(member.offset)  # skip the header; a compressed member has no seek to speak of
            for start in range(0, member.shape[0], step):
                rows = min(step, member.shape[0] - start)
                data = _read_exactly(stream, rows * member.row_bytes, f"{self.path}: {name!r}")
                yield start, np.frombuffer(data, member.dtype).reshape(rows, *member.shape[1:])

    def strings(self, name: str) -> list[str]:
        """One-dimensional text, stored as Unicode or, as in the challenge's files, as a pickled list of only text."""
        member = self.member(name)
        if member.dtype.hasobject:
            with self._open(name) as stream:
                stream.read(member.offset)
                values = _unpickle_texts(stream, f"{self.path}: {name!r}")
        else:
            values = [value for _, rows in self.blocks(name) for value in rows.tolist()]
        if len(member.shape) != 1 or len(values) != member.shape[0]:
            raise RewindError(f"{self.path}: {name!r} has shape {member.shape}; it must have one dimension.")
        for row, value in enumerate(values):
            if not isinstance(value, str):
                raise RewindError(f"{self.path}: {name!r}, row {row}: {value!r} is not text.")
        return values

    def integers(self, name: str) -> list[int]:
        """A one-dimensional array of whole numbers; another type or shape is refused."""
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


def _read_member_header(stream: IO[bytes], name: str, size: int, where: str) -> NpzMember:
    try:
        shape, by_column, dtype = read_npy_header(stream)
    except (ValueError, KeyError, TypeError, SyntaxError) as error:
        raise RewindError(f"{where}: {name!r} is not a NumPy array ({error}).") from error
    offset = stream.tell()
    if by_column and len(shape) > 1:
        raise RewindError(f"{where}: {name!r} is stored in column-major order; save np.ascontiguousarray of it.")
    promised = offset + dtype.itemsize * math.prod(shape)
    if not dtype.hasobject and promised != size:
        raise RewindError(
            f"{where}: {name!r} states {shape} of {dtype} ({promised:,} bytes), but holds {size:,} bytes."
        )
    return NpzMember(name, tuple(shape), dtype, offset, size)


def _read_exactly(stream: IO[bytes], size: int, where: str) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise RewindError(f"{where} ends early; get the file again.")
    return data


class _InertObject:
    """Stands for an array or its dtype while a pickle is read: keeps its state and runs nothing."""

    def __init__(self, *arguments: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _TextUnpickler(pickle.Unpickler):
    """Reads the pickle of an array of text: arrays and dtypes become inert objects, any other name is refused.

    A pickle names the functions and classes that loading it calls, and ``find_class`` looks them up. Only these four
    names are answered, with an inert class, so nothing of the file's choice can run.
    """

    ALLOWED = frozenset(
        {
            ("numpy._core.multiarray", "_reconstruct"),  # NumPy 2
            ("numpy.core.multiarray", "_reconstruct"),  # NumPy 1
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it would run {module}.{name}")
        return _InertObject


def _unpickle_texts(stream: IO[bytes], where: str) -> list[Any]:
    try:
        array = _TextUnpickler(stream).load()
        values = array.state[-1]  # of an array of objects, the state ends with the list of its values
    except Exception as error:  # a broken pickle fails in many ways
        raise RewindError(
            f"{where} is a pickle that cannot be read safely ({error}): save the texts as np.array(texts, dtype=str)."
        ) from None
    if not isinstance(values, list):
        raise RewindError(f"{where} is a pickle, but not of a list of texts.")
    return values


class _PlainUnpickler(pickle.Unpickler):
    """Reads a pickle of lists, dicts, texts and numbers, which need no name to be looked up; any name is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it would run {module}.{name}")


def read_plain_pickle(path: str | Path, missing: str = "") -> Any:
    """The content of a pickle that holds nothing but lists, dicts, texts, numbers, true, false and None.

    Nothing of the file's choice can run: a pickle runs what it names, and every name is refused. Texts that Python 2
    wrote are taken for UTF-8.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "captions.pkl"
    >>> _ = path.write_bytes(pickle.dumps(print))
    >>> read_plain_pickle(path)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    rewind.errors.RewindError: ...captions.pkl: a pickle that cannot be read safely (it would run builtins.print): ...
    """
    raw = read_user_bytes(path, missing)
    with reading_user_file(path, "pickle"):
        try:
            return _PlainUnpickler(io.BytesIO(raw), encoding="utf-8").load()
        except MemoryError:
            raise
        except Exception as error:  # a broken pickle fails in many ways
            raise RewindError(
                f"{path}: a pickle that cannot be read safely ({error}): only lists, dicts, texts and numbers may be "
                "in it; get the original file."
            ) from None


def read_text_array(path: str | Path, missing: str = "") -> list[str]:
    """A one-dimensional array of texts in an npy file, also one that is stored as a pickle, or as bytes in UTF-8."""
    raw = read_user_bytes(path, missing)
    with reading_user_file(path, "npy"):
        stream = io.BytesIO(raw)
        member = _read_member_header(stream, "the array", len(raw), str(path))
        if member.dtype.hasobject:
            values = _unpickle_texts(stream, f"{path}: the array")
        elif member.dtype.kind in "US" and len(member.shape) == 1:
            rows = _read_exactly(stream, member.row_bytes * member.shape[0], f"{path}: the array")
            values = np.frombuffer(rows, member.dtype).tolist() if rows else []
        else:
            raise RewindError(f"{path}: one-dimensional text is needed, not {member.dtype} {member.shape}.")
        if len(member.shape) != 1 or len(values) != member.shape[0]:
            raise RewindError(f"{path}: the array has shape {member.shape}; it must have one dimension.")
        texts = [value.decode("utf-8") if isinstance(value, bytes) else value for value in values]
    for row, value in enumerate(texts):
        if not isinstance(value, str):
            raise RewindError(f"{path}: row {row} is not text.")
    return texts


# ---- npz and npy files through NumPy, without pickles, with headers checked first ----------------------------------


@contextmanager
def open_npz(path: Path) -> Iterator[np.lib.npyio.NpzFile]:
    """An npz with checked headers, read without pickles; arrays are unpacked when they are used, inside the block."""
    with reading_user_file(path, "npz", "write it again, with numpy.savez"):
        if not zipfile.is_zipfile(path):
            if (kind := kind_of_file(path)) and "npz" not in kind:
                raise RewindError(f"{path}: not an npz: the file {kind}.")
            raise RewindError(f"{path}: an incomplete npz; write it again, with numpy.savez.")
        with np.load(path, allow_pickle=False) as archive:
            for member in archive.zip.infolist():
                if not member.filename.endswith(".npy"):
                    raise RewindError(
                        f"{path}: {member.filename!r} in it is not an array; write it again, with numpy.savez."
                    )
                with archive.zip.open(member) as stream:
                    where = f"{path}: array {member.filename.removesuffix('.npy')!r}"
                    _check_member_header(stream, member.file_size, where, "numpy.savez")
            yield archive


_LOCAL_HEADER_BYTES = 30  # of a member of a zip file, before its name


def read_npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape of an array, whether it is stored column by column (Fortran's order), and dtype."""
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    return read[np.lib.format.read_magic(stream)](stream)


def stored_content(file: BinaryIO, member: zipfile.ZipInfo) -> int:
    """Where in an archive the content of an uncompressed member begins.

    It follows the member's local header (APPNOTE.TXT, 4.3.7), whose length the archive's directory does not state.
    """
    file.seek(member.header_offset)
    # The last 4 bytes of the fixed part: the lengths of the name and of the extra field.
    name_bytes, extra_bytes = struct.unpack_from("<HH", file.read(_LOCAL_HEADER_BYTES), 26)
    return member.header_offset + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes


@dataclass(frozen=True)
class StoredRows:
    """Rows of a large array in an npz that is not compressed: read from the file when they are used.

    The file is mapped for each use, so that memory holds nothing in between.
    """

    path: Path
    start: int
    shape: tuple[int, ...]
    dtype: np.dtype
    ndim: int = 2

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        # A copy, since the mapping ends here.
        return np.array(np.memmap(self.path, self.dtype, "r", self.start, self.shape)[rows])


def find_stored_rows(path: Path, name: str, least: int) -> StoredRows | None:
    """A matrix of an npz, to be read from the file; None if it is compressed, or has fewer than ``least`` bytes.

    All of it is read once, so that a damaged file is found here (``zipfile.BadZipFile``).
    """
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        member = archive.getinfo(f"{name}.npy")
        if member.compress_type != zipfile.ZIP_STORED or member.file_size < least:
            return None
        with archive.open(member) as stream:
            shape, by_column, dtype = read_npy_header(stream)
            header_bytes = stream.tell()
            if len(shape) != 2 or by_column or dtype.hasobject:
                return None
            while stream.read(READ_BLOCK_BYTES):  # at its end the content is compared with its checksum
                pass
        return StoredRows(path, stored_content(file, member) + header_bytes, shape, dtype)


def npy(path: Path) -> np.ndarray:
    """The array of an npy, its header checked, read without pickles."""
    with reading_user_file(path, "npy", "write it again, with numpy.save"), path.open("rb") as stream:
        _check_member_header(stream, path.stat().st_size, str(path), "numpy.save")
        stream.seek(0)
        return np.lib.format.read_array(stream, allow_pickle=False)


def _check_member_header(stream: IO[bytes], size: int, where: str, writer: str) -> None:
    """Refuse an array of Python objects, and one whose header promises more than the file holds.

    NumPy allocates what the header states, so a wrong header would look like a machine that is out of memory.
    """
    formats = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(stream)
    if version not in formats:  # 3.0: structured arrays with field names that are not ASCII; refused before
        return
    shape, _, dtype = formats[version](stream)
    if dtype.hasobject:
        raise RewindError(f"{where}: it holds Python objects; save numbers, and ids with np.array(ids, dtype=str).")
    promised, held = dtype.itemsize * math.prod(shape), size - stream.tell()
    if promised != held:
        raise RewindError(
            f"{where}: its header states {tuple(shape)} of {dtype}, {promised:,} bytes, but there are {held:,}; write "
            f"it again, with {writer}."
        )


def require_arrays(path: Path, archive: np.lib.npyio.NpzFile, names: tuple[str, ...]) -> None:
    """Refuse an npz that lacks an array."""
    missing = [name for name in names if name not in archive.files]
    if missing:
        available = ", ".join(archive.files) or "nothing"
        raise RewindError(f"{path}: there is no array {missing[0]!r}, only {available}; save {' and '.join(names)}.")


# ---- Ids of embeddings and scores ----------------------------------------------------------------------------------


def text_ids(values: object, what: str, where: str) -> np.ndarray:
    """(n,) text from an array or list of ids; whole numbers become text.

    A message about a value that cannot be an id names its position, from 0 as in NumPy.

    >>> text_ids(np.array([7, 8]), "ids", "vectors.npz").tolist(), text_ids(["v1", b"v2"], "ids", "ids.json").tolist()
    (['7', '8'], ['v1', 'v2'])
    """
    ids = _as_array(values)
    if ids.ndim != 1:
        raise RewindError(f"{where}: {what} must be a list, not an array of shape {ids.shape}.")
    if ids.dtype.kind in "iu":
        return ids.astype(str)
    names = ids.tolist()
    for position, name in enumerate(names):
        if fault := id_fault(name):
            raise RewindError(f"{where}: {what}, place {position}: {fault}.")
    return np.array([_id_text(name) for name in names], dtype=str)


def _as_array(values: Any) -> np.ndarray:
    if isinstance(values, np.ndarray):
        return values
    # np.array would turn lists of equal length into a matrix; as objects they are reported as they are.
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def id_fault(name: object) -> str:
    """What is wrong with an id; empty where nothing is.

    >>> id_fault("v1"), id_fault(" v1")
    ('', "the id ' v1' has white space around it; remove it")
    """
    if isinstance(name, bool) or not isinstance(name, str | bytes | int):
        return f"{name!r} is no text; save ids as text"
    try:
        text = _id_text(name)
        text.encode("utf-8")
    except UnicodeError:
        return f"{name!r} is not UTF-8 text"
    if not text.strip():
        return "the id is empty; give it the name that the data set has for it"
    if text != text.strip():
        return f"the id {text!r} has white space around it; remove it"
    return f"the id {text!r} has a NUL character" if "\0" in text else ""


def _id_text(name: object) -> str:
    return name.decode("utf-8") if isinstance(name, bytes) else str(name)


def describe_ids(names: list[str]) -> str:
    """The number of ids and the first few of them.

    >>> describe_ids(["a", "b", "c", "d"])
    "4 ids: 'a', 'b', 'c', …"
    """
    shown = ", ".join(map(repr, names[:MAX_IDS_SHOWN]))
    return f"{len(names):,} {'id' if len(names) == 1 else 'ids'}: {shown}{', …' if len(names) > MAX_IDS_SHOWN else ''}"


def spelling(names: Sequence[str], known: Iterable[str]) -> str:
    """What follows a list of ids that are missing elsewhere: how the first is written there, if it is nearly the same.

    >>> spelling(["V1"], ["v1"]), spelling(["v2"], ["v1"])
    (", but 'v1' is, which differs only in upper and lower case", '')
    """
    hint = similar_name(names[0], known)
    return f", but {hint}" if hint else ""


# ---- TREC runs: lines `query Q0 document rank score tag` -----------------------------------------------------------


class ScoredPair(NamedTuple):
    """A pair of a TREC run."""

    number: int  # its line, as an editor shows it
    query: str
    document: str
    score: float
    rank: float = math.nan  # NaN where the file has no number


def read_trec_run(path: Path) -> Iterator[ScoredPair]:
    """The pairs of a TREC run; empty lines are skipped, and ``.gz``, ``.bz2`` and ``.xz`` files are unpacked.

    Raises:
        RewindError: naming the line that does not have six fields, or whose score is not a number.
    """
    raw = read_user_bytes(path, "write the scores there, or correct the path")
    if unpack := _DECOMPRESSORS.get(path.suffix):
        with reading_user_file(path, f"{path.suffix} file"):
            raw = unpack(raw)
    for number, line in enumerate(split_lines(decode_utf8(raw, path)), start=1):
        fields = _FIELD_SEPARATOR.split(line.strip(" \t\r\n"))
        if fields == [""]:
            continue
        if len(fields) != 6:
            raise RewindError(
                f"{path}: line {number}: {len(fields)} fields, not the six of a TREC run ({_TREC_FIELDS}). Blanks "
                "inside of ids are written %20; a matrix is an .npz."
            )
        # The pattern first: float() would also take "1_000", "nan" and "infinity".
        score = float(fields[4]) if _SCORE_PATTERN.fullmatch(fields[4]) else math.nan
        if not is_score(score):
            too_large = not math.isnan(score)
            what = f"is beyond {MAX_SCORE:g}, the largest in single precision" if too_large else "is not a number"
            remedy = "; divide all scores by one number, which changes no rank" if too_large else ""
            raise RewindError(f"{path}: line {number}: the score {what}: {fields[4][:40]!r}{remedy}.")
        yield ScoredPair(number, fields[0], fields[2], score, number_of(fields[3]))


def rank_fault(pairs: Sequence[ScoredPair], higher_is_better: bool = True) -> str:
    """How the ranks of a run contradict its scores, by the first line that does; empty where they agree.

    Ranks count from any number, and equal scores may have any ranks. Ranks without an order are not compared: text,
    equal numbers, or those by which tools order scores that are all equal (ids, up or down).

    >>> rank_fault([ScoredPair(1, "q", "a", 0.1, 1), ScoredPair(2, "q", "b", 0.7, 2)]).partition(";")[0]
    "line 2: the rank of 'b' is 2, behind 'a' with the rank 1, but its score is higher (0.7 and 0.1)"
    """
    ordered = sorted((pair for pair in pairs if not math.isnan(pair.rank)), key=lambda pair: (pair.query, pair.rank))
    neighbours = [(a, b) for a, b in pairwise(ordered) if a.query == b.query and a.rank < b.rank]
    sign = 1 if higher_is_better else -1
    for before, after in neighbours:
        if sign * after.score > sign * before.score:
            than = "higher" if higher_is_better else "lower"
            other = str(not higher_is_better).lower()
            return (
                f"line {after.number}: the rank of {after.document!r} is {after.rank:g}, behind {before.document!r} "
                f"with the rank {before.rank:g}, but its score is {than} ({after.score:g} and {before.score:g}); if "
                f"{'small' if higher_is_better else 'large'} scores are best, set the option higher_is_better: "
                f"{other}, and if the scores are right, write ranks that follow them, or 0 in every line"
            )
    by_id = {a.document < b.document for a, b in neighbours}
    if len(by_id) == 2 and all(a.score == b.score for a, b in neighbours):
        return (
            f"line {neighbours[0][0].number}: ranks differ, but the scores of every query are all equal; write scores "
            "that fall as ranks rise, for example 1 / rank, or 0 for every rank"
        )
    return ""


def is_score(value: object) -> bool:
    """Whether a value can be a score: a number that is finite in single precision.

    >>> is_score(0.5), is_score(float("nan")), is_score(1e39)
    (True, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_SCORE


# ---- Embeddings with their ids: npz, npy, Parquet, CSV or safetensors ----------------------------------------------
# Each id has one vector, or several (late interaction).


@dataclass(frozen=True)
class EmbeddingTable:
    """Vectors by id.

    Those of one id are consecutive, in the order of ``ids``. Many are a :class:`StoredRows`, of which parts are read.

    >>> table = EmbeddingTable(np.array(["v1", "v2"]), np.eye(2), None, "items.npz")
    >>> table.width, table.of(np.array(["v2"])).values.tolist()
    (2, [[0.0, 1.0]])
    """

    ids: np.ndarray  # (n,) text, each once
    values: np.ndarray | StoredRows  # (n, D), or (N, D) where ids have several vectors
    counts: np.ndarray | None  # (n,) number of vectors of each id; None: one each
    where: str  # the file, for messages

    def blocks(self) -> Iterator[np.ndarray]:
        """The vectors, some rows at a time."""
        step = max(1, READ_BLOCK_BYTES // (8 * self.width))
        return (self.values[top : top + step] for top in range(0, len(self.values), step))

    @property
    def width(self) -> int:
        """D, the width of the vectors."""
        return self.values.shape[1]

    def places(self, ids: np.ndarray | pd.Series) -> np.ndarray:
        """(n,) places of some ids in the table; an id without a vector is refused."""
        place_of = {name: place for place, name in enumerate(self.ids.tolist())}
        names = np.asarray(ids, dtype=str).tolist()
        if missing := [name for name in names if name not in place_of]:
            hint = spelling(missing, place_of)
            raise RewindError(f"{self.where}: no vector for {describe_ids(missing)}{hint}: add what is missing.")
        return np.array([place_of[name] for name in names], dtype=np.int64)

    def of(self, ids: np.ndarray | pd.Series) -> EmbeddingTable:
        """The vectors of some ids, in their order; an id without a vector is refused."""
        places, ids = self.places(ids), np.asarray(ids, dtype=str)
        if self.counts is None:
            return EmbeddingTable(ids, self.values[places], None, self.where)
        starts = np.concatenate([[0], np.cumsum(self.counts)])
        vector_rows = [np.arange(starts[place], starts[place + 1]) for place in places]
        return EmbeddingTable(ids, self.values[np.concatenate(vector_rows)], self.counts[places], self.where)


def read_embedding_file(path: str | Path, side: Literal["captions", "items"]) -> EmbeddingTable:
    """Read and check a file of vectors.

    - ``.npz``: ``ids`` (n,) of text, ``vectors`` (n, D); or (n, L, D) with ``lengths`` (n,), where the first
      ``lengths[i]`` of the L vectors are real and the rest is padding. A file of ``results/<study>/embedding`` has both
      sides: ``query_ids`` and ``text``, ``item_ids`` and ``items``; those of ``side`` are read.
    - ``.npy``: vectors (n, D); the ids are in a file of the same name, one per line in ``.txt`` or as a list in
      ``.json``.
    - ``.parquet``: columns ``id`` and ``vector``: in each row a list of numbers, or a list of such lists.
    - ``.csv``: a header that begins with ``id``; in each row an id and its D numbers.
    - ``.safetensors``: ``vectors``, ``lengths`` as in npz; the ids as a JSON list in the metadata ``ids``.

    Numbers are float16, bfloat16 (safetensors), float32 or float64. bfloat16 becomes float32, others stay.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "items.npz", ids=np.array(["v1", "v2"]), vectors=np.ones((2, 8), np.float16))
    ...     read_embedding_file(Path(folder) / "items.npz", "items").values.dtype
    dtype('float16')
    """
    path = Path(path)
    readers = {
        ".npy": _read_npy_embeddings,
        ".parquet": _read_parquet_embeddings,
        ".csv": _read_csv_embeddings,
        ".safetensors": _read_safetensors_embeddings,
    }
    if path.suffix != ".npz" and path.suffix not in readers:
        raise RewindError(
            f"{path}: vectors are read from .npz, .npy, .parquet, .csv or .safetensors; save them as one of these."
        )
    require_regular_file(path, missing_ok=True)
    if not path.exists():
        raise RewindError(f"{path}: no such file; write the vectors there, or correct the path.")
    with name_file_in_errors(path):
        ids, values, lengths = _read_npz_embeddings(path, side) if path.suffix == ".npz" else readers[path.suffix](path)
        return _check_embeddings(ids, values, lengths, str(path))


def _read_npz_embeddings(path: Path, side: str) -> tuple[np.ndarray, np.ndarray | StoredRows, np.ndarray | None]:
    with open_npz(path) as archive:
        if set(archive.files) >= EXPORTED_ARRAYS:
            if str(archive["space"]) != "joint":
                raise RewindError(
                    f"{path}: this run scores pairs, so its vectors of captions and items share no space; use its "
                    "similarity file with model: scores."
                )
            ids, vectors = ("query_ids", "text") if side == "captions" else ("item_ids", "items")
        else:
            require_arrays(path, archive, ("ids", "vectors"))
            ids, vectors = "ids", "vectors"
        rows = find_stored_rows(path, vectors, MIN_STORED_BYTES)
        lengths = archive["lengths"] if vectors == "vectors" and "lengths" in archive.files else None
        return archive[ids], archive[vectors] if rows is None else rows, lengths


def _read_npy_embeddings(path: Path) -> tuple[np.ndarray, np.ndarray, None]:
    ids_file = ids_file_of(path)
    missing = "beside the vectors: write their ids there, one a line in the order of the vectors, or save an .npz"
    ids = read_user_json(ids_file) if ids_file.suffix == ".json" else read_user_text(ids_file, missing).splitlines()
    if not isinstance(ids, list):
        raise RewindError(f"{ids_file}: a list of the ids of {path.name} is needed.")
    return text_ids(ids, "ids", str(ids_file)), npy(path), None


def _read_parquet_embeddings(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    with reading_user_file(path, "Parquet file"):
        table = pd.read_parquet(path)
    for name in ("id", "vector"):
        if name not in table:
            raise RewindError(f"{path}: there is no column {name!r} ({', '.join(map(str, table.columns))}).")
    ids = table["id"].to_numpy()
    rows = [
        _parse_vector_cell(value, f"{path}: row {n}, id {ids[n - 1]!r}")
        for n, value in enumerate(table["vector"], start=1)
    ]
    if not rows:
        return ids, np.zeros((0, 0)), None
    for name, row in zip(ids, rows, strict=True):
        if row.ndim != rows[0].ndim:
            raise RewindError(f"{path}: {name!r} and {ids[0]!r}: one has a vector and the other a list of them.")
        if row.shape[-1] != rows[0].shape[-1]:
            raise RewindError(
                f"{path}: the vector of {name!r} has {row.shape[-1]} numbers and that of {ids[0]!r} "
                f"{rows[0].shape[-1]}: all need the same."
            )
    if rows[0].ndim == 1:
        return ids, np.stack(rows), None
    return ids, np.concatenate(rows), np.array([len(row) for row in rows])


def _parse_vector_cell(value: object, where: str) -> np.ndarray:
    """The vector (D,) in a cell of a table, or its k vectors (k, D)."""
    if not isinstance(value, np.ndarray | list | tuple):
        kinds = {type(None): "empty", str: "text", bytes: "bytes", dict: "an object"}
        what = "empty" if value is pd.NA else kinds.get(type(value), "a single value")
        raise RewindError(f"{where}: `vector` is {what}, not a list of numbers.")
    if not len(value):
        raise RewindError(f"{where}: `vector` is an empty list.")
    if np.ndim(value[0]) == 0:
        vectors = np.asarray(value)
    else:
        rows = [np.asarray(row) for row in value]
        if any(row.ndim != 1 for row in rows) or len({len(row) for row in rows}) > 1:
            raise RewindError(f"{where}: `vector` is a list of lists that are not of one length.")
        vectors = np.stack(rows)
    if vectors.dtype.kind not in "biuf":
        raise RewindError(f"{where}: `vector` does not hold numbers ({vectors.dtype}).")
    return vectors


def _read_csv_embeddings(path: Path) -> tuple[list[str], np.ndarray, None]:
    records = ((number, cells) for number, cells in csv_records(read_user_text(path), path) if any(cells))
    number, header = next(records)
    if header[0].strip() != "id" or len(header) == 1:
        raise RewindError(
            f"{path}: row {number} begins with {header[0]!r}; the header needs a column `id` and one for each number "
            'of a vector, separated by commas, as pandas.DataFrame(vectors, ids).to_csv(path, index_label="id") writes.'
        )
    ids, rows = [], []
    for number, (name, *cells) in records:
        values = [number_of(cell.strip()) for cell in cells]
        if len(cells) != len(header) - 1:
            raise RewindError(f"{path}: row {number}: {len(cells)} numbers, but the header has {len(header) - 1}.")
        if wrong := next((cell for cell, value in zip(cells, values, strict=True) if math.isnan(value)), None):
            raise RewindError(f"{path}: row {number}, id {name!r}: {wrong!r} is not a finite number.")
        ids.append(name.strip())
        rows.append(values)
    return ids, np.array(rows, dtype=np.float64).reshape(len(rows), len(header) - 1), None


def _read_safetensors_embeddings(path: Path) -> tuple[list[Any], np.ndarray, np.ndarray | None]:
    from safetensors import safe_open  # here, because with "pt" it imports torch

    with reading_user_file(path, "safetensors file"), safe_open(path, "pt") as file:  # NumPy has no bfloat16
        names = json.loads((file.metadata() or {}).get("ids", "null"))
        if not isinstance(names, list) or "vectors" not in file.keys():  # noqa: SIM118 - not a mapping
            raise RewindError(
                f'{path}: it needs a tensor `vectors` and the ids as metadata: {{"ids": json.dumps(list_of_ids)}}.'
            )
        tensors = {name: file.get_tensor(name) for name in ("vectors", "lengths") if name in file.keys()}  # noqa: SIM118
    values, lengths = tensors["vectors"], tensors.get("lengths")
    if str(values.dtype) not in _TORCH_FLOATS:
        raise RewindError(f"{path}: vectors are {values.dtype}, not float16, bfloat16, float32 or float64.")
    if lengths is not None and str(lengths.dtype) not in _TORCH_INTEGERS:
        raise RewindError(f"{path}: lengths are {lengths.dtype}, not whole numbers.")
    values = (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()
    return names, values, None if lengths is None else lengths.numpy()


def _check_embeddings(
    ids: object, values: np.ndarray | StoredRows, lengths: np.ndarray | None, where: str
) -> EmbeddingTable:
    """The table of checked values; ``ids`` are those of the file, ``lengths`` as in :func:`read_embedding_file`."""
    ids = text_ids(ids, "ids", where)
    names, times = np.unique(ids, return_counts=True)
    if (times > 1).any():
        raise RewindError(f"{where}: duplicate: {describe_ids(names[times > 1].tolist())}; give each id one vector.")
    if values.dtype.kind != "f" or values.dtype.itemsize > 8:  # long doubles differ from machine to machine
        raise RewindError(f"{where}: vectors are {values.dtype}, not float16, float32 or float64.")
    if lengths is not None and (lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 0).any()):
        shown = f"{lengths.dtype} of shape {lengths.shape}"
        raise RewindError(f"{where}: lengths are {shown}, not a list of whole numbers from 1.")
    if values.ndim == 3:
        values, lengths = _remove_padding(ids, values[:], lengths, where)
    elif values.ndim != 2 or (lengths is not None and lengths.sum() != len(values)):
        raise RewindError(f"{where}: vectors have shape {values.shape}; (ids, numbers) is expected.")
    if len(ids) != (len(values) if lengths is None else len(lengths)):
        raise RewindError(f"{where}: {len(ids):,} ids and {len(values):,} vectors: each id needs one.")
    if not len(ids) or not values.shape[1]:
        raise RewindError(f"{where}: there are no vectors.")
    table = EmbeddingTable(ids, values, lengths, where)
    finite = np.concatenate([np.isfinite(block).all(axis=1) for block in table.blocks()])
    if not finite.all():
        owners = ids if lengths is None else np.repeat(ids, lengths)
        raise RewindError(f"{where}: NaN or infinity in {describe_ids(list(dict.fromkeys(owners[~finite].tolist())))}.")
    return table


def _remove_padding(
    ids: np.ndarray, values: np.ndarray, lengths: np.ndarray | None, where: str
) -> tuple[np.ndarray, np.ndarray]:
    """Padded vectors (n, L, D) and lengths (n,) → only the real vectors (N, D), and the lengths as int64 (n,)."""
    if lengths is None:
        raise RewindError(
            f"{where}: vectors have three axes {values.shape}, so `lengths` must state how many are real."
        )
    lengths = np.asarray(lengths)
    if lengths.shape != (len(values),) or lengths.dtype.kind not in "iu" or len(ids) != len(values):
        raise RewindError(f"{where}: {len(ids):,} ids, {len(values):,} vectors, lengths {lengths.shape}: one each.")
    wrong = (lengths < 1) | (lengths > values.shape[1])
    if wrong.any():
        raise RewindError(
            f"{where}: the length of {ids[wrong][0]!r} is {lengths[wrong][0]}; it goes from 1 to {values.shape[1]}."
        )
    return values[np.arange(values.shape[1]) < lengths[:, None]], lengths.astype(np.int64)


# ---- Scores: a matrix with its ids, or a TREC run ------------------------------------------------------------------


@dataclass(frozen=True)
class ScoreMatrix:
    """Scores of captions and items."""

    similarity: np.ndarray  # (Q, N) float32, or float64 where single precision would round; -inf where a pair has none
    queries: np.ndarray  # (Q,) caption ids, each once
    items: np.ndarray  # (N,) item ids, each once
    where: str  # the file, for messages


def read_score_file(path: str | Path, higher_is_better: bool = True) -> ScoreMatrix:
    """Read and check scores; where small ones are best (distances), they are negated.

    - ``.npz``: ``similarity`` (Q, N), ``query_ids`` (Q,) and ``item_ids`` (N,), in any order, as in
      ``results/<study>/similarity``.
    - any other name: a TREC run, lines ``query Q0 document rank score tag``, of which query, document and score are
      read, and ranks are compared with scores. Ids are written as in ``results/<study>/trec``, with blanks as ``%20``.
      ``.gz``, ``.bz2`` and ``.xz`` files are unpacked.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "run.trec").write_text("v1#0 Q0 v1 1 0.9 run\\nv1#0 Q0 v2 2 0.4 run\\n")
    ...     scores = read_score_file(Path(folder) / "run.trec")
    >>> scores.similarity.shape, scores.items.tolist()
    ((1, 2), ['v1', 'v2'])
    """
    path = Path(path)
    require_regular_file(path, missing_ok=True)
    if not path.exists():
        raise RewindError(f"{path}: no such file; write the scores there, or correct the path.")
    with name_file_in_errors(path):
        scores = _read_npz_scores(path) if path.suffix == ".npz" else _read_trec_scores(path, higher_is_better)
    if not higher_is_better:
        scores = replace(scores, similarity=np.where(np.isneginf(scores.similarity), -np.inf, -scores.similarity))
    if not np.size(scores.similarity):
        raise RewindError(f"{path}: there are no scores.")
    for what, ids in (("caption", scores.queries), ("item", scores.items)):
        names, times = np.unique(ids, return_counts=True)
        if (times > 1).any():
            raise RewindError(
                f"{path}: duplicate {what}s: {describe_ids(names[times > 1].tolist())}; keep one of each."
            )
    return scores


def _read_npz_scores(path: Path) -> ScoreMatrix:
    with open_npz(path) as archive:
        require_arrays(path, archive, SCORE_ARRAYS)
        matrix, queries, items = (archive[name] for name in SCORE_ARRAYS)
    queries, items = text_ids(queries, "query_ids", str(path)), text_ids(items, "item_ids", str(path))
    if matrix.dtype.kind != "f" or matrix.shape != (len(queries), len(items)):
        raise RewindError(
            f"{path}: similarity is {matrix.dtype} of shape {matrix.shape}; floating-point numbers of shape "
            f"{(len(queries), len(items))} fit the ids."
        )
    for row, scores in enumerate(matrix):  # a row at a time: a matrix may take gigabytes, and so would masks of it
        missing = np.isneginf(scores) | (scores == MISSING_SCORE)  # as users write it, and as matrices of runs have it
        invalid = ~((np.abs(scores) <= np.float64(MAX_SCORE)) | missing)  # NaN too, for which every comparison is false
        if invalid.any():
            column = int(invalid.argmax())
            pair = f"the score of caption {str(queries[row])!r} and item {str(items[column])!r} is"
            if np.isfinite(scores[column]):
                raise RewindError(
                    f"{path}: {pair} {scores[column]:g}, beyond {MAX_SCORE:g}, the largest in single precision: "
                    "divide all scores by one number, which changes no rank."
                )
            raise RewindError(
                f"{path}: {pair} {scores[column]}, not a number (-inf represents a pair without a score)."
            )
    matrix = _without_loss(matrix)
    for scores in matrix:  # a view of the row, changed in place
        scores[scores == MISSING_SCORE] = -np.inf
    return ScoreMatrix(matrix, queries, items, str(path))


def _without_loss(matrix: np.ndarray) -> np.ndarray:
    """Scores in single precision where that rounds none, else in double: what differs must not tie."""
    with np.errstate(over="ignore", under="ignore"):
        if all((row.astype(np.float32) == row).all() for row in matrix):
            return matrix.astype(np.float32, copy=False)
    return matrix.astype(np.float64, copy=False)


def _read_trec_scores(path: Path, higher_is_better: bool) -> ScoreMatrix:
    pairs = list(read_trec_run(path))
    if fault := rank_fault(pairs, higher_is_better):
        raise RewindError(f"{path}: {fault}.")
    numbers, queries, documents, scores, _ = zip(*pairs, strict=True)
    # Ids in the order of their first line; they are still percent-encoded, as the file has them.
    rows, query_ids = pd.factorize(np.array(queries, dtype=object))
    columns, item_ids = pd.factorize(np.array(documents, dtype=object))
    repeated = pd.Series(rows * len(item_ids) + columns).duplicated().to_numpy()
    if repeated.any():
        first = int(np.flatnonzero(repeated)[0])
        raise RewindError(
            f"{path}: line {numbers[first]}: the pair of {queries[first]!r} and {documents[first]!r} is listed twice; "
            "keep one."
        )
    for encoded_ids, column in ((query_ids, queries), (item_ids, documents)):
        for name in encoded_ids:
            if fault := id_fault(unquote(name)):
                raise RewindError(f"{path}: line {numbers[column.index(name)]}: {fault}.")
    matrix = np.full((len(query_ids), len(item_ids)), -np.inf)
    matrix[rows, columns] = scores
    matrix = _without_loss(matrix)
    decoded = [np.array([unquote(name) for name in ids], dtype=str) for ids in (query_ids, item_ids)]
    return ScoreMatrix(matrix, decoded[0], decoded[1], str(path))
