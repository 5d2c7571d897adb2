"""Files that appear whole or not at all, and ids that cannot leave their folder."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rewind.errors import RewindError
from rewind.trouble import (
    is_machine_fault,
    path_fault,
    put_down,
    refuse_no_file,
    remember_file,
    remember_place,
)

# Letters, digits and . _ - ; never a leading dot or dash, so an id is neither hidden, a parent folder nor an option.
_SAFE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,199}")


def check_id(value: object, where: str) -> str:
    """Return ``value`` as an id that is safe as a file name.

    Raises:
        RewindError: if it is empty, longer than 200 characters, or holds anything but letters, digits, ``.``, ``_``
            and ``-`` (so no id can name a path outside the results folder).
    """
    text = str(value)
    if not _SAFE_ID.fullmatch(text) or ".." in text:
        raise RewindError(
            f"{where}: the id {text!r} cannot be used as a file name; use letters, digits, '.', '_' and '-' "
            "(not starting with a dot or a dash, no '..', at most 200 characters)."
        )
    return text


def require_whole_archive(path: str | Path) -> None:
    """Refuse a zip archive of which a member is not as it was written; what is no zip archive passes.

    PyTorch writes its files as zip archives, with a CRC-32 of every tensor, and does not look at them when it reads.

    Raises:
        RewindError: naming the file.
    """
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise RewindError(f"{path}: not as it was written ({error}).") from None
    if broken:
        raise RewindError(f"{path}: {broken} in it is not as it was written.")


@contextlib.contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that replaces it when the block ends without an error.

    A job killed at any moment leaves either the old file or the new one. The suffix is kept, because writers such as
    ffmpeg choose their format by it. What takes long to make again also outlives a power cut.

    Raises:
        RewindError: if ``path`` is a folder, a device or a pipe.
    """
    path = Path(path)
    refuse_no_file(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield draft
        put_down(draft, path)
    except Exception as error:
        remember_place(error, path, draft)
        raise
    finally:
        draft.unlink(missing_ok=True)


# What a shell pipes into the command, and what its `<(…)` names: both are open already, so that neither waits for ever.
_PIPED = re.compile(r"/dev/stdin|(?:/dev|/proc/self)/fd/\d+")
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_LONGEST_REASON = 200  # characters


def require_regular_file(path: str | Path, missing: str = "", missing_ok: bool = False) -> None:
    """Refuse what is no file before it is opened: opening a named pipe waits for ever, and a device may never end.

    ``/dev/stdin`` and what a shell's ``<(…)`` names may be pipes.

    Args:
        path: a file that a user names; links are followed.
        missing: what is said besides where it is not there, such as its key and how to get it.
        missing_ok: whether one that is not there is let pass, for a caller that says it better.

    Raises:
        RewindError: if it is not there, may not be read, or is a folder, a named pipe, a socket or a device.
        OSError: for a fault of the machine, such as a disk that does not answer.
    """
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except FileNotFoundError as error:
        if missing_ok:
            return
        raise RewindError(f"{path}: no such file {missing}".rstrip(" .") + ".") from error
    except ValueError as error:  # a path with a NUL character
        raise RewindError(f"{path}: cannot be read ({error}).") from error
    except OSError as error:
        if is_machine_fault(error):
            raise
        raise RewindError(f"{path}: {path_fault(error)}.") from error
    if (what := _KINDS.get(kind)) and not _PIPED.fullmatch(str(path)):
        remedy = "name the file itself" if kind == stat.S_IFDIR else "save its content in a file, and name that"
        raise RewindError(f"{path}: this is {what}; {remedy}.")
    if not os.access(path, os.R_OK):  # libraries say of such a file that it is damaged
        raise RewindError(f"{path}: this account may not read the file; ask its owner for the right, or copy it.")


def kind_of_no_file(path: str | Path) -> str:
    """What stands where a file should be, for example "a named pipe"; empty for a file, or where nothing is."""
    try:
        return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode), "")
    except OSError:
        return ""


@contextlib.contextmanager
def reading_user_file(path: str | Path, what: str, remedy: str = "write it again", missing: str = "") -> Iterator[None]:
    """Around whatever a library does with a file that a user brings: what it throws becomes file and reason.

    Only what reads the file belongs into the block: there a bug of ours would be taken for a fault of the file.

    Args:
        path: the file; what is no file is refused before the block (see :func:`require_regular_file`).
        what: what should be in it, and where in it the block reads, for example ``npz`` or ``npz, array 'vectors'``.
        remedy: what to do about a broken one.
        missing: see :func:`require_regular_file`.

    Raises:
        RewindError: naming the file and why it cannot be read; one that the block raises itself stays as it is.
        MemoryError, OSError, RuntimeError: of the machine (no memory, no space, a disk that fails), which keep their
            own meaning; :func:`rewind.trouble.told` names the file.
    """
    require_regular_file(path, missing)
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # panics of libraries in Rust are no `Exception`
        blamed = error.__cause__ if isinstance(error, RewindError) and error.__cause__ else error
        if is_machine_fault(blamed):  # also where a reader took it for a fault of the file
            remember_file(blamed, path)
            raise blamed from None
        if isinstance(error, RewindError) or _of_another_file(error, path):
            raise
        raise RewindError(f"{path}: no {what} that can be read ({_reason(error)}); {remedy}.") from error


def _of_another_file(error: BaseException, path: str | Path) -> bool:
    """Whether the system refused another file, such as one that is written from what is read."""
    if not isinstance(error, OSError) or error.errno is None or error.filename is None:
        return False
    return os.fspath(error.filename) != os.fspath(path)


def _reason(error: BaseException) -> str:
    """The first line of what a library said, with the kind of error where that alone says little."""
    line = next(iter(str(error).strip().splitlines()), "")
    line = "".join(letter if letter.isprintable() else "\ufffd" for letter in line)  # bytes of a broken file, perhaps
    if not line or isinstance(error, LookupError | AttributeError | AssertionError):
        line = f"{type(error).__name__}: {line}".rstrip(": ")
    return f"{line[:_LONGEST_REASON]}…" if len(line) > _LONGEST_REASON else line.rstrip(".")


@contextlib.contextmanager
def naming_file(path: str | Path) -> Iterator[None]:
    """Around work on what a file holds: where memory or another thing of the machine is at its end, the file is told.

    Raises:
        MemoryError, OSError, RuntimeError: what the block raises, with the file's name.
    """
    try:
        yield
    except Exception as error:
        if is_machine_fault(error):
            remember_file(error, path)
        raise


def raise_machine_fault(error: BaseException, path: str | Path) -> None:
    """For those who go on without a file that cannot be read: not where a fault of the machine is the reason.

    Raises:
        MemoryError, OSError, RuntimeError: the error, with the file's name, if it is one.
    """
    if is_machine_fault(error):
        remember_file(error, path)
        raise error


def sha256_of(path: str | Path) -> str:
    """SHA-256 of a file, 64 hex digits."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def crc32_of(path: str | Path) -> int:
    """CRC-32 of a file: against damage, not against somebody who wants to deceive."""
    value, buffer = 0, memoryview(bytearray(2**20))
    with Path(path).open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            value = zlib.crc32(buffer[:count], value)
    return value


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` as UTF-8, atomically."""
    with atomic(path) as draft:
        draft.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: str | Path) -> Any:
    """Read a JSON file; a broken one is refused with its name and the place of the fault."""
    with reading_user_file(path, "JSON file"):
        try:
            return json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise RewindError(f"{path}: no such file.") from error
        except (ValueError, RecursionError) as error:  # of bytes, of syntax, of digits, of depth
            raise RewindError(f"{path}: not valid JSON: {error}.") from error


def remembered(path: Path | None) -> Any:
    """What a JSON file holds that only saves work; None where it is absent or broken: all of it can be found anew."""
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path and path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None


def write_csv(path: str | Path, table: pd.DataFrame) -> None:
    """Write ``table`` as CSV with ``\\n`` line ends and no index, atomically."""
    with atomic(path) as draft:
        table.to_csv(draft, index=False, lineterminator="\n")


def write_spreadsheet(path: str | Path, table: pd.DataFrame) -> None:
    """Write a CSV that people open in a spreadsheet; no text in it is taken for a formula.

    A text that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return gets an apostrophe before it, and so
    does one in which only apostrophes stand before these. Numbers stay as they are. :func:`read_spreadsheet` gives back
    what was written. Files that programs read are written by :func:`write_csv`, which changes nothing.
    """
    safe = _each_text(table, lambda text: f"'{text}" if _FORMULA.match(text) else text)
    # Before Python 3.13 a carriage return is not quoted, and would end the row.
    broken = any(isinstance(cell, str) and "\r" in cell for cell in safe.to_numpy(dtype=object).flat)
    with atomic(path) as draft:
        quoting = csv.QUOTE_NONNUMERIC if broken else csv.QUOTE_MINIMAL
        safe.to_csv(draft, index=False, lineterminator="\n", quoting=quoting)


def read_spreadsheet(path: str | Path, text: tuple[str, ...] = ()) -> pd.DataFrame:
    """Read a CSV written by :func:`write_spreadsheet`, as :func:`read_csv` does, without the apostrophes."""
    return _each_text(read_csv(path, text), lambda cell: cell[1:] if _GUARDED.match(cell) else cell)


# Apostrophes are part of it, so that a text which has one already can be told from one which was given one.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_GUARDED = re.compile(r"'+[=+\-@\t\r]")


def _each_text(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """The table with every cell changed that is a text."""
    columns = [column for column in table if not pd.api.types.is_numeric_dtype(table[column])]
    changed = {
        column: table[column].astype(object).map(lambda cell: change(cell) if isinstance(cell, str) else cell)
        for column in columns
    }
    return table.assign(**changed)


def write_csv_parts(path: str | Path, parts: Iterable[pd.DataFrame]) -> None:
    """The same file from its rows in several parts, at least one, of which only one need be in memory."""
    with atomic(path) as draft, draft.open("w", encoding="utf-8", newline="") as stream:
        for number, part in enumerate(parts):
            part.to_csv(stream, index=False, lineterminator="\n", header=number == 0)


def read_csv(path: str | Path, text: tuple[str, ...] = ()) -> pd.DataFrame:
    """Read a CSV written by :func:`write_csv`; columns named in ``text`` and every ``*_id`` stay strings.

    Ids such as ``0012`` must not turn into numbers, and a caption ``NA`` is a word, not a missing value.
    """
    with reading_user_file(path, "CSV"):
        try:
            columns = pd.read_csv(path, nrows=0).columns
            kinds = {c: str for c in columns if c.endswith("_id") or c in text or c in _TEXT_COLUMNS}
            blanks = {c: [""] for c in columns if c not in kinds}
            return pd.read_csv(path, dtype=kinds, keep_default_na=False, na_values=blanks)
        except (FileNotFoundError, pd.errors.EmptyDataError) as error:
            raise RewindError(f"{path}: missing or empty; a CSV with a header row is needed.") from error
        except (ValueError, IsADirectoryError) as error:  # of bytes, or of rows
            raise RewindError(f"{path}: no CSV that can be read: {error}.") from error


_TEXT_COLUMNS = frozenset(
    {"caption", "path", "split", "status", "reason", "source", "reversed_source", "method", "setting"}
)


def write_parquet(path: str | Path, table: pd.DataFrame) -> None:
    """Write ``table`` as Parquet, atomically."""
    with atomic(path) as draft:
        table.to_parquet(draft, index=False)


def write_npz(path: str | Path, **arrays: Any) -> None:
    """Write arrays to a compressed npz, atomically."""
    with atomic(path) as draft:
        np.savez_compressed(draft, **arrays)


def digest(*parts: object) -> str:
    """A short stable hash (16 hex digits) of JSON-able values."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
