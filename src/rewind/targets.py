"""Files and folders that a command is told to write: looked at before the work, not after it."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from rewind.errors import RewindError
from rewind.files import reading_user_file
from rewind.trouble import refuse_no_file, told


def output_file(path: Path, option: str, same_kind: Callable[[Path], bool] | None = None) -> None:
    """Refuse a file that could not be written in the end, or that holds something else.

    Args:
        path: file to write.
        option: how the user named it, for messages.
        same_kind: whether a file that is there is one of those that would be written; none: any is replaced.

    Raises:
        RewindError: if it is a folder or a device, its folder cannot be written, or it holds something else.
    """
    try:
        refuse_no_file(path)
        found = path.is_file() and path.stat().st_size > 0
        if found and same_kind is not None and not same_kind(path):
            raise RewindError(f"{path}: holds something else, which would be lost; name another file, or remove it.")
        _try_folder(path.parent)
    except (RewindError, OSError) as error:
        raise RewindError(f"{option}: {told(error) or error}") from None


def output_folder(path: Path, option: str) -> None:
    """Refuse a folder that could not be written in the end.

    Raises:
        RewindError: if it is a file, or cannot be written.
    """
    try:
        if path.exists() and not path.is_dir():
            raise RewindError(f"{path}: no folder; name one, or remove what is there.")
        _try_folder(path)
    except (RewindError, OSError) as error:
        raise RewindError(f"{option}: {told(error) or error}") from None


def archive_with(*names: str) -> Callable[[Path], bool]:
    """Whether a file is a zip archive (npz, PyTorch) with one of these files in it, in whichever folder."""

    def check(path: Path) -> bool:
        try:
            with reading_user_file(path, "archive"), zipfile.ZipFile(path) as archive:
                return any(entry.rpartition("/")[2] in names for entry in archive.namelist())
        except RewindError:
            return False

    return check


def is_json(path: Path) -> bool:
    """Whether a file begins as a block or a list of JSON does."""
    with path.open("rb") as stream:
        return stream.read(100).lstrip()[:1] in (b"{", b"[")


def _try_folder(folder: Path) -> None:
    """Write something where the folder is or will be made; nothing stays, so that a refusal leaves nothing behind."""
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    with tempfile.TemporaryFile(dir=there) as stream:
        stream.write(b"rewind writes here\n")
