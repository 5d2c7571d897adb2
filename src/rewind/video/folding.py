"""Whether a folder takes two names for one, as on macOS and Windows: there one clip would replace another."""

from __future__ import annotations

import tempfile
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from rewind.errors import RewindError, listed


def folds_case(folder: Path) -> bool:
    """Whether ``a`` and ``A`` are one file in a folder."""
    return _one(folder, "a", "A")


def folds_forms(folder: Path) -> bool:
    """Whether a letter with an accent is one file in a folder, however it is composed."""
    return _one(folder, "\u00e9", "e\u0301")


def refuse_one_name(ids: Iterable[str], folder: Path, where: str) -> None:
    """Refuse ids that are different and would be one file here, such as ``k1`` and ``K1``.

    Args:
        ids: of originals and twins.
        folder: where their files will be.
        where: leads the message.

    Raises:
        RewindError: naming them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names: dict[str, list[str]] = {}
    for name in dict.fromkeys(map(str, ids)):
        names.setdefault(unicodedata.normalize("NFC", name.casefold()), []).append(name)
    same = [group for group in names.values() if len(group) > 1]
    if not same:
        return
    case, forms = folds_case(folder), folds_forms(folder)
    faults = []
    for group in same:
        here: dict[str, list[str]] = {}
        for name in group:
            key = name.casefold() if case else name
            here.setdefault(unicodedata.normalize("NFC", key) if forms else key, []).append(name)
        faults += [f"  {' and '.join(map(repr, part))}" for part in here.values() if len(part) > 1]
    if faults:
        raise RewindError(
            f"{where}: these ids are names of one file in {folder}, whose file system does not tell them apart:\n"
            f"{listed(faults)}\nRename them, or put the results on a file system that does."
        )


def _one(folder: Path, name: str, other: str) -> bool:
    with tempfile.TemporaryDirectory(prefix=".probe-", dir=folder) as probe:
        try:
            (Path(probe) / name).touch()
            return (Path(probe) / other).exists()
        except (OSError, UnicodeError):  # a name that this file system cannot have
            return False
