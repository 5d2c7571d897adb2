"""Read and write files: atomic writes, CSV, JSON, Parquet and npz, safe ids, and checks of output paths.

Files appear whole or not at all (:func:`atomic_write`). :func:`reading_user_file` turns whatever a library raises
for a broken file into a message with the file's name. Strict readers for users' text, CSV and JSON are in
:mod:`rewind.io.strict`.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import errno
import json
import os
import re
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from rewind.errors import RewindError, printable_name
from rewind.system_errors import attach_file_name, is_system_error, path_error_reason, user_message

# Letters, digits and . _ - ; never a leading dot or dash, so an id is neither hidden, a parent folder nor an option.
_SAFE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,199}")
# A command's standard input, and what a shell's `<(…)` names: both are open already, so neither waits for ever.
_PIPED_PATH = re.compile(r"/dev/stdin|(?:/dev|/proc/self)/fd/\d+")
_NON_FILE_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
DURABLE_SUFFIXES = frozenset({".safetensors", ".pt", ".bin", ".tar"})
"""Suffixes of files that take hours to compute again: models, training states, shards of clips."""
SAVE_AS_UTF8 = "save it as UTF-8"
_MAX_REASON_CHARACTERS = 200  # of a library's message
# Columns of Rewind's own CSVs that are text whatever they look like.
_TEXT_COLUMNS = frozenset(
    {"caption", "query_text", "path", "split", "status", "reason", "source", "reversed_source", "method", "setting"}
)
# Texts that a spreadsheet takes for formulas. Leading apostrophes count too, so that a text which already has one can
# be told apart from one that was escaped.
_FORMULA_START = re.compile(r"'*[=+\-@\t\r]")
_ESCAPED_FORMULA = re.compile(r"'+[=+\-@\t\r]")

# ---- Names --------------------------------------------------------------------------------------------------------


def check_id(value: object, where: str) -> str:
    """Return ``value`` as an id that is safe as a file name.

    Raises:
        RewindError: if it is empty, longer than 200 characters, or contains anything but letters, digits, ``.``, ``_``
            and ``-`` (so no id can name a path outside the results folder).
    """
    text = str(value)
    if not _SAFE_ID.fullmatch(text) or ".." in text:
        raise RewindError(
            f"{where}: the id {text!r} cannot be used as a file name; use letters, digits, '.', '_' and '-' "
            "(not starting with a dot or a dash, no '..', at most 200 characters)."
        )
    return text


# ---- Files that users name: refused before they are opened, or explained when a library fails on them --------------


def require_regular_file(path: str | Path, missing: str = "", missing_ok: bool = False) -> None:
    """Refuse what is not a file before it is opened: opening a named pipe waits for ever, and a device may never end.

    ``/dev/stdin`` and the paths of a shell's ``<(…)`` may be pipes; links are followed.

    Args:
        missing: added to the message for a missing file, such as its key and how to get it.
        missing_ok: let a missing file pass, for a caller with a better message.

    Raises:
        RewindError: if it is missing, may not be read, or is a folder, a named pipe, a socket or a device.
        OSError: for a fault of the machine, such as a disk that does not answer.
    """
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except FileNotFoundError as error:
        if missing_ok:
            return
        raise RewindError(f"{printable_name(path)}: no such file {missing}".rstrip(" .") + ".") from error
    except ValueError as error:  # a NUL character, or half of a surrogate pair
        raise RewindError(f"{printable_name(path)}: no file can have this name; correct it.") from error
    except OSError as error:
        if is_system_error(error):
            raise
        raise RewindError(f"{printable_name(path)}: {path_error_reason(error)}.") from error
    if (what := _NON_FILE_KINDS.get(kind)) and not _PIPED_PATH.fullmatch(str(path)):
        remedy = "name the file itself" if kind == stat.S_IFDIR else "save its content in a file, and name that"
        raise RewindError(f"{printable_name(path)}: this is {what}; {remedy}.")
    if not os.access(path, os.R_OK):  # libraries would call such a file damaged
        raise RewindError(
            f"{printable_name(path)}: this account may not read the file; ask its owner for the right, or copy it."
        )


def non_file_kind(path: str | Path) -> str:
    """What is in the place of a file, for example "a named pipe"; empty for a file, or where nothing is."""
    try:
        return _NON_FILE_KINDS.get(stat.S_IFMT(os.stat(path).st_mode), "")
    except (OSError, ValueError):  # the file does not exist, or no file can have this name
        return ""


def require_intact_archive(path: str | Path) -> None:
    """Refuse a zip archive with a damaged member; a file that is not a zip archive passes.

    PyTorch saves zip archives with a CRC-32 of every tensor, but does not check them when it loads.
    """
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    # NotImplementedError: an unknown way of compression; RuntimeError: an encrypted member.
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise RewindError(f"{path}: not as it was written ({error}).") from None
    if broken:
        raise RewindError(f"{path}: {broken} in it is not as it was written.")


@contextlib.contextmanager
def reading_user_file(path: str | Path, what: str, remedy: str = "write it again", missing: str = "") -> Iterator[None]:
    """Turn whatever a library raises for a user's file into a message with the file's name and the reason.

    Only the reading of the file belongs in the block: a bug of ours there would be taken for a fault of the file.

    Args:
        path: the file; what is not a file is refused before the block (see :func:`require_regular_file`).
        what: what should be in it, and where in it the block reads, for example ``npz`` or ``npz, array 'vectors'``.
        remedy: what to do about a broken file.
        missing: see :func:`require_regular_file`.

    Raises:
        RewindError: naming the file and why it cannot be read; one that the block raises itself stays as it is.
        MemoryError, OSError, RuntimeError: for faults of the machine (no memory, no space, a disk that fails), which
            pass as they are; :func:`rewind.system_errors.user_message` then names the file.
    """
    require_regular_file(path, missing)
    if what.startswith(("npy", "npz")):
        _refuse_structured_arrays(Path(path), what)
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # panics of libraries in Rust (safetensors) are not an `Exception`
        # A reader inside the block may have turned a full disk into "cannot be read": its cause is the error to report.
        cause = error.__cause__ if isinstance(error, RewindError) and error.__cause__ else error
        if is_system_error(cause):
            attach_file_name(cause, path)
            raise cause from None
        if isinstance(error, RewindError) or _is_about_other_file(error, path):
            raise
        kind = kind_of_file(path)
        # A file that begins correctly is broken; of archives this is not known.
        wanted = ("compressed", "archive", *(["Parquet"] * ("Parquet" in what)), *([".npy"] * ("npy" in what)))
        if kind and not any(word in kind for word in wanted):
            raise RewindError(f"{printable_name(path)}: not a {what.partition(',')[0]}: the file {kind}.") from error
        reason = f"not a readable {what} ({_short_reason(error)})"
        raise RewindError(f"{printable_name(path)}: {reason}; {remedy}.") from error


_STRUCTURED = b"\x93NUMPY\x03"  # the magic bytes and the major version


def _refuse_structured_arrays(path: Path, what: str) -> None:
    """Refuse version 3 of the npy format, which NumPy writes for structured arrays only: no reader here looks at its
    header, and NumPy allocates whatever that promises. It is here since readers' code counts for results; a guard's
    does not.
    """
    # What else is wrong with the file, its reader reports.
    with contextlib.suppress(OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error):
        with path.open("rb") as stream:
            starts = [stream.read(len(_STRUCTURED))]
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                starts += [archive.open(name).read(len(_STRUCTURED)) for name in archive.namelist()]
        if any(start.startswith(_STRUCTURED) for start in starts):
            raise RewindError(
                f"{printable_name(path)}: not a readable {what} (version 3 of the npy format, for structured arrays); "
                "save arrays of numbers, and of text, with numpy.save or numpy.savez."
            )


_KINDS = {
    b"\x1f\x8b": "is compressed (gzip); unpack it",
    b"BZh": "is compressed (bzip2); unpack it",
    b"\xfd7zXZ": "is compressed (xz); unpack it",
    b"\x28\xb5\x2f\xfd": "is compressed (Zstandard); unpack it",
    b"7z\xbc\xaf": "is a 7z archive; unpack it",
    b"PK\x03\x04": "is a zip archive; unpack it",
    b"\xd0\xcf\x11\xe0": "is a workbook of an old Excel (.xls); save the sheet as CSV in UTF-8",
    b"%PDF": "is a PDF",
    b"PAR1": "is a Parquet file",
    b"\x93NUMPY": "is a NumPy array (.npy)",
    b"\x89HDF": "is an HDF5 file",
    b"SQLite format 3": "is a database of SQLite",
    b"version https://git-lfs": "is a pointer of Git LFS and not the file itself; fetch it (`git lfs pull`)",
    b"/annex/objects/": "is a pointer of git-annex and not the file itself; fetch it (`git annex get`)",
    b"<!doctype html": "is a web page (HTML), as a server sends it in place of a file; download the file itself",
    b"<html": "is a web page (HTML), as a server sends it in place of a file; download the file itself",
    b"<?xml": "is XML",
    codecs.BOM_UTF32_LE: f"is UTF-32 and not UTF-8; {SAVE_AS_UTF8}",  # first: UTF-16's mark begins it
    codecs.BOM_UTF32_BE: f"is UTF-32 and not UTF-8; {SAVE_AS_UTF8}",
    codecs.BOM_UTF16_LE: f"is UTF-16 and not UTF-8; {SAVE_AS_UTF8}",
    codecs.BOM_UTF16_BE: f"is UTF-16 and not UTF-8; {SAVE_AS_UTF8}",
}
"""How files of other kinds begin → what they are, and what to do."""
KIND_BYTES = 2**12  # of a file's beginning, from which its kind is told


def file_kind(beginning: bytes) -> str:
    """What kind a file is that should be another, and what to do, from its first :data:`KIND_BYTES`; empty if unknown.

    >>> file_kind(b"<!DOCTYPE html><html>")
    'is a web page (HTML), as a server sends it in place of a file; download the file itself'
    """
    if beginning.startswith(b"PK\x03\x04") and (b"[Content_Types].xml" in beginning or b"xl/" in beginning):
        return "is an Excel workbook (.xlsx); save the sheet as CSV in UTF-8"
    if beginning.startswith(b"PK\x03\x04") and b".npy" in beginning:
        return "is an npz archive"
    start = beginning.removeprefix(codecs.BOM_UTF8).lstrip(b" \t\r\n").lower()
    return next((kind for mark, kind in _KINDS.items() if beginning.startswith(mark) or start.startswith(mark)), "")


def kind_of_file(path: str | Path) -> str:
    """:func:`file_kind` of a file; empty where it cannot be read."""
    try:
        with Path(path).open("rb") as stream:
            return file_kind(stream.read(KIND_BYTES))
    except (OSError, ValueError):
        return ""


def _is_about_other_file(error: BaseException, path: str | Path) -> bool:
    """Whether the system refused another file, such as an output that is written while this one is read."""
    if not isinstance(error, OSError) or error.errno is None or error.filename is None:
        return False
    return os.fspath(error.filename) != os.fspath(path)


def _short_reason(error: BaseException) -> str:
    """The first line of a library's message, with the class of the error where it explains little by itself."""
    line = next(iter(str(error).strip().splitlines()), "")
    line = "".join(letter if letter.isprintable() else "\ufffd" for letter in line)  # may quote a broken file
    if not line or isinstance(error, LookupError | AttributeError | AssertionError):
        line = f"{type(error).__name__}: {line}".rstrip(": ")
    return f"{line[:_MAX_REASON_CHARACTERS]}…" if len(line) > _MAX_REASON_CHARACTERS else line.rstrip(".")


@contextlib.contextmanager
def name_file_in_errors(path: str | Path) -> Iterator[None]:
    """Around work on the content of a file: note its name on faults of the machine, such as a lack of memory."""
    try:
        yield
    except Exception as error:
        if is_system_error(error):
            attach_file_name(error, path)
        raise


def reraise_system_error(error: BaseException, path: str | Path) -> None:
    """Raise ``error`` again if it is a fault of the machine; else the caller goes on without the file."""
    if is_system_error(error):
        attach_file_name(error, path)
        raise error


# ---- Atomic writes, and the formats that Rewind writes and reads ---------------------------------------------------


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path next to ``path`` that replaces it when the block ends without an error.

    A job killed at any moment leaves either the old file or the new one, and perhaps a hidden ``.<name>.<pid>.part``
    file. The suffix is kept, because writers such as ffmpeg choose their format by it. Files that take long to write
    again (:data:`DURABLE_SUFFIXES`) also survive a power cut: they are flushed to the disk before they get their name,
    and so is their folder afterwards.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_write(Path(folder) / "runs" / "notes.txt") as temporary:
    ...         _ = temporary.write_text("done")
    ...     print([path.name for path in (Path(folder) / "runs").iterdir()])
    ['notes.txt']
    """
    path = Path(path)
    require_file_target(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, since a rename is atomic only within a file system. With the process id, since two processes
    # may write one file.
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield temporary
        durable = path.suffix in DURABLE_SUFFIXES
        if durable:
            _sync(temporary)
        os.replace(temporary, path)
        if durable:
            _sync(path.parent)
    except Exception as error:
        attach_file_name(error, path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def require_file_target(path: Path) -> None:
    """Refuse to put a file where there is a folder, a device or a pipe."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # it does not exist yet, or cannot be inspected: writing will report that
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise RewindError(f"{path}: {kind}, but a file is to be written; name a file.")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):  # no fsync here
            raise
    finally:
        os.close(handle)


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` as UTF-8, atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: str | Path) -> Any:
    """Read a JSON file.

    Raises:
        RewindError: with the file's name, and the line and column of the fault, if it is missing or not valid JSON.
    """
    with reading_user_file(path, "JSON file"):
        try:
            return json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise RewindError(f"{path}: no such file.") from error
        except (ValueError, RecursionError) as error:  # not UTF-8, bad syntax, too deep
            raise RewindError(f"{path}: not valid JSON: {error}.") from error


def read_cached_json(path: Path | None) -> Any:
    """The content of a JSON file that only saves work; None where it is absent or broken: it can be computed again."""
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path and path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None


def write_csv(path: str | Path, table: pd.DataFrame) -> None:
    """Write ``table`` as CSV with ``\\n`` line ends and no index, atomically."""
    with atomic_write(path) as temporary:
        table.to_csv(temporary, index=False, lineterminator="\n")


def write_csv_parts(path: str | Path, parts: Iterable[pd.DataFrame]) -> None:
    """Write the file of :func:`write_csv` from consecutive blocks of rows (at least one), one in memory at a time."""
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        for number, part in enumerate(parts):
            part.to_csv(stream, index=False, lineterminator="\n", header=number == 0)


def read_csv(path: str | Path, text: tuple[str, ...] = ()) -> pd.DataFrame:
    """Read a CSV written by :func:`write_csv`; columns named in ``text`` and every ``*_id`` stay strings.

    Ids such as ``0012`` must not turn into numbers, and a caption ``NA`` is a word, not a missing value.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_csv(Path(folder) / "items.csv", pd.DataFrame({"item_id": ["0012"], "caption": ["NA"], "rank": [3]}))
    ...     print(read_csv(Path(folder) / "items.csv").to_dict("list"))
    {'item_id': ['0012'], 'caption': ['NA'], 'rank': [3]}
    """
    with reading_user_file(path, "CSV"):
        try:
            columns = pd.read_csv(path, nrows=0).columns
            text_types = {c: str for c in columns if c.endswith("_id") or c in text or c in _TEXT_COLUMNS}
            # pandas takes "NA", "null" and the like for missing; only an empty cell of another column is.
            blanks = {c: [""] for c in columns if c not in text_types}
            return pd.read_csv(path, dtype=text_types, keep_default_na=False, na_values=blanks)
        except (FileNotFoundError, pd.errors.EmptyDataError) as error:
            raise RewindError(f"{path}: missing or empty; a CSV with a header row is needed.") from error
        except (ValueError, IsADirectoryError) as error:  # not UTF-8, or rows of unequal length
            raise RewindError(f"{path}: not a readable CSV: {error}.") from error


def write_spreadsheet(path: str | Path, table: pd.DataFrame) -> None:
    """Write a CSV that people open in a spreadsheet, so that no text in it is taken for a formula.

    A text that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return gets an apostrophe before it, and so
    does one with nothing but apostrophes before these. Numbers stay as they are. :func:`read_spreadsheet` returns the
    original texts. Files that programs read are written by :func:`write_csv`, which changes nothing.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "captions.csv"
    ...     write_spreadsheet(path, pd.DataFrame({"caption": ["=SUM(A1)", "a dog"]}))
    ...     print(path.read_text().split(), read_spreadsheet(path)["caption"].tolist())
    ['caption', "'=SUM(A1)", 'a', 'dog'] ['=SUM(A1)', 'a dog']
    """
    safe = _map_text_cells(table, lambda text: f"'{text}" if _FORMULA_START.match(text) else text)
    # Before Python 3.13 the csv module does not quote a carriage return, which would end the row.
    has_returns = any(isinstance(cell, str) and "\r" in cell for cell in safe.to_numpy(dtype=object).flat)
    with atomic_write(path) as temporary:
        quoting = csv.QUOTE_NONNUMERIC if has_returns else csv.QUOTE_MINIMAL
        safe.to_csv(temporary, index=False, lineterminator="\n", quoting=quoting)


def read_spreadsheet(path: str | Path, text: tuple[str, ...] = ()) -> pd.DataFrame:
    """Read a CSV written by :func:`write_spreadsheet`, as :func:`read_csv` does, without the apostrophes."""
    return _map_text_cells(read_csv(path, text), lambda cell: cell[1:] if _ESCAPED_FORMULA.match(cell) else cell)


def _map_text_cells(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """The table with ``change`` applied to every cell that is text."""
    columns = [column for column in table if not pd.api.types.is_numeric_dtype(table[column])]
    changed = {
        column: table[column].astype(object).map(lambda cell: change(cell) if isinstance(cell, str) else cell)
        for column in columns
    }
    return table.assign(**changed)


def write_parquet(path: str | Path, table: pd.DataFrame) -> None:
    """Write ``table`` as Parquet, atomically."""
    with atomic_write(path) as temporary:
        table.to_parquet(temporary, index=False)


def write_npz(path: str | Path, **arrays: Any) -> None:
    """Write arrays to a compressed npz, atomically."""
    with atomic_write(path) as temporary:
        np.savez_compressed(temporary, **arrays)


@dataclass(frozen=True)
class ArrayParts:
    """An array that need not fit in memory: its parts from top to bottom, all of one dtype."""

    rows: int  # of all parts together
    parts: Iterator[np.ndarray]


def write_stored_npz(path: str | Path, **arrays: np.ndarray | ArrayParts) -> None:
    """Write arrays to an npz that is not compressed, atomically, some of them in parts.

    >>> items = ArrayParts(3, iter([np.zeros((2, 4)), np.ones((1, 4))]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_stored_npz(Path(folder) / "vectors.npz", items=items)
    ...     np.load(Path(folder) / "vectors.npz")["items"].shape
    (3, 4)
    """
    with atomic_write(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            # The size of a member that is written in parts is not known at its start; without zip64 it would fail past
            # 2 GiB.
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                if not isinstance(array, ArrayParts):
                    np.lib.format.write_array(member, np.asanyarray(array))
                    continue
                part = next(array.parts, None)
                assert part is not None  # an array of no rows is written whole
                descr, shape = np.lib.format.dtype_to_descr(part.dtype), (array.rows, *part.shape[1:])
                header = {"descr": descr, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(member, header)
                while part is not None:
                    member.write(np.ascontiguousarray(part).data.cast("B"))
                    part = None  # released before the next one is made
                    part = next(array.parts, None)


# ---- Output paths of commands: checked before the work starts, not after it ----------------------------------------


def open_member(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> tuple[Path, IO[bytes]] | None:
    """Where a member of a tar archive goes below ``folder``, and its content; None if it is not a file, or leads out.

    ``extractall`` refuses such members only from Python 3.11.4 on.

    >>> import io
    >>> data = io.BytesIO()
    >>> with tarfile.open(fileobj=data, mode="w") as archive:
    ...     archive.addfile(tarfile.TarInfo("../a.txt"))
    >>> with tarfile.open(fileobj=io.BytesIO(data.getvalue())) as archive:
    ...     [open_member(archive, member, Path("out")) for member in archive]
    [None]
    """
    path = folder / member.name
    if not member.isfile() or not path.resolve().is_relative_to(folder.resolve()):
        return None
    stream = archive.extractfile(member)
    return None if stream is None else (path, stream)


def check_output_file(path: Path, option: str, same_kind: Callable[[Path], bool] | None = None) -> None:
    """Refuse an output file that could not be written in the end, or that would overwrite something else.

    ``option`` names the file in messages. ``same_kind`` tells whether an existing file is an earlier output of the same
    kind; None: any file is replaced.
    """
    try:
        require_file_target(path)
        has_content = path.is_file() and path.stat().st_size > 0
        if has_content and same_kind is not None and not same_kind(path):
            raise RewindError(f"{path}: holds something else, which would be lost; name another file, or remove it.")
        _check_folder_writable(path.parent)
    except (RewindError, OSError) as error:
        raise RewindError(f"{option}: {user_message(error) or error}") from None


def check_output_folder(path: Path, option: str) -> None:
    """Refuse an output folder that could not be written in the end."""
    try:
        if path.exists() and not path.is_dir():
            raise RewindError(f"{path}: not a folder; name one, or remove it.")
        _check_folder_writable(path)
    except (RewindError, OSError) as error:
        raise RewindError(f"{option}: {user_message(error) or error}") from None


def _check_folder_writable(folder: Path) -> None:
    """Write a temporary file where the folder is or will be; it is gone afterwards, whether this fails or not."""
    existing = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=existing) as stream:
            stream.write(b"rewind writes here\n")
    except OSError as error:
        error.filename = str(existing)  # instead of the temporary file, which the user did not name
        if user_message(error) is None:
            reason = f"nothing can be written here ({error.strerror}); name another place"
            raise RewindError(f"{printable_name(existing)}: {reason}.") from error
        raise


def archive_contains(*names: str) -> Callable[[Path], bool]:
    """A check of whether a file is a zip archive (npz, PyTorch) with one of these files in it, in whichever folder."""

    def check(path: Path) -> bool:
        try:
            with reading_user_file(path, "archive"), zipfile.ZipFile(path) as archive:
                return any(entry.rpartition("/")[2] in names for entry in archive.namelist())
        except RewindError:
            return False

    return check


def looks_like_json(path: Path) -> bool:
    """Whether a file begins as a JSON object or list does."""
    with path.open("rb") as stream:
        return stream.read(100).lstrip()[:1] in (b"{", b"[")
