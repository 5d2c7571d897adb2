"""Text that a user brings: read whole, as UTF-8, or refused with the row at which a fault is."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

from rewind.errors import RewindError
from rewind.files import reading_user_file

# UTF-32's mark begins as UTF-16's does.
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_END = re.compile(r"\r\n|\r|\n")
SAVE = "save it as UTF-8"


def read_bytes(path: str | Path, missing: str = "") -> bytes:
    """A file's content.

    Args:
        path: the file.
        missing: what is said besides where it is not there, such as its key and how to get it.

    Raises:
        RewindError: if it is not there, is no file but a folder, a named pipe or a device, or cannot be read.
    """
    with reading_user_file(path, "file", missing=missing):
        try:
            return Path(path).read_bytes()
        except FileNotFoundError as error:
            raise RewindError(f"{path}: no such file {missing}".rstrip(" .") + ".") from error
        except IsADirectoryError as error:
            raise RewindError(f"{path}: this is a folder; name the file itself.") from error
        except PermissionError as error:
            raise RewindError(
                f"{path}: this account may not read the file; ask its owner for the right, or copy it."
            ) from error
        except (OSError, ValueError) as error:  # a path with a NUL character is a ValueError
            raise RewindError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}).") from error


def read_text(path: str | Path, missing: str = "") -> str:
    """A text file without its byte order mark; line ends are as they are.

    Raises:
        RewindError: as :func:`read_bytes`; for another encoding, NUL characters or an empty file.
    """
    return decoded(read_bytes(path, missing), path)


def decoded(raw: bytes, where: str | Path) -> str:
    """UTF-8 as text, without its byte order mark; ``where`` leads messages.

    Raises:
        RewindError: for another encoding, NUL characters or nothing at all.
    """
    for mark, name in _MARKS.items():
        if raw.startswith(mark):
            raise RewindError(f"{where}: the file is {name} and not UTF-8; {SAVE}.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Decoded anew, because what comes before is sound, and the mark is not counted.
        row, column = place(raw[: error.start].decode("utf-8-sig"))
        raise RewindError(
            f"{where}: not UTF-8: row {row}, character {column} is the byte 0x{raw[error.start]:02X}, as in Latin-1 or "
            f"Windows-1252, or in a file that is no text; {SAVE}."
        ) from error
    at = text.find("\0")
    if at >= 0:
        row, column = place(text[:at])
        raise RewindError(
            f"{where}: row {row}, character {column} is a NUL character, as in UTF-16 or in a file that is no text; "
            f"{SAVE}."
        )
    if not text.strip():
        raise RewindError(f"{where}: the file is empty.")
    return text


def lines(text: str) -> Iterator[str]:
    """Lines with their ends, as editors count them: after a line feed, a carriage return, or both."""
    return (found[0] for found in _LINE.finditer(text))


def place(before: str) -> tuple[int, int]:
    """Row and character, from 1, of what follows a text."""
    ends = list(_END.finditer(before))
    return len(ends) + 1, len(before) - (ends[-1].end() if ends else 0) + 1
