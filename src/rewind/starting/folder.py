"""What a working folder holds to begin with: laid down once, later brought up to date around the user's edits."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from rewind.errors import RewindError
from rewind.files import read_json, write_json, write_text
from rewind.packaged import home, version

RECORD = ".rewind.json"
"""Remembers what was written, so that an update can tell edits of the user's."""
TEMPLATES = {"Snakefile": "Snakefile", "README.md": "README.md", "gitignore": ".gitignore"}
TAKEN = ("config", "profiles", "envs/constraints.txt")
_VERSION, _FILES = "rewind", "files"


@dataclass
class Update:
    """What became of the files of a folder.

    Attributes:
        written: files that were absent, or are as Rewind wrote them.
        kept: files of the user's that differ from Rewind's.
        newer: those of ``kept`` that are also another one in this version of Rewind.
        removed: files that the user removed.
        gone: files that no longer come with Rewind, and are as it wrote them.
    """

    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    newer: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)


def contents() -> dict[str, str]:
    """Path → text of every file that a working folder begins with."""
    templates = resources.files("rewind.starting") / "templates"
    found = {name: (templates / source).read_text(encoding="utf-8") for source, name in TEMPLATES.items()}
    top = home()
    for place in TAKEN:
        paths = sorted((top / place).rglob("*")) if (top / place).is_dir() else [top / place]
        for path in paths:
            inside = path.relative_to(top)
            if path.is_file() and not any(part.startswith(".") for part in inside.parts):
                found[inside.as_posix()] = path.read_text(encoding="utf-8")
    return found


def lay(folder: Path) -> list[str]:
    """Write everything into a folder that is absent or empty; what was written.

    Raises:
        RewindError: if something is in it.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise RewindError(
            f"{folder}: not empty; name another folder, or add --update if `rewind new` made it and its files are to "
            "be brought up to date."
        )
    files, begun = contents(), []
    try:
        for name, text in files.items():
            begun.append(name)
            write_text(folder / name, text)
        _remember(folder, {name: _sum(text) for name, text in files.items()})
    except BaseException:  # half a folder would be refused the next time
        for name in begun:
            with contextlib.suppress(OSError):
                (folder / name).unlink()
        raise
    return list(files)


def update(folder: Path) -> Update:
    """Bring the files up to date that are as Rewind wrote them; all others stay.

    Raises:
        RewindError: if ``rewind new`` did not make this folder.
    """
    known, files, result = _remembered(folder), contents(), Update()
    for name, text in files.items():
        path, new, old = folder / name, _sum(text), known.get(name)
        there = path.exists() or path.is_symlink()
        here = _sum_of(path)
        if here == new:
            known[name] = new
        elif not there and old:
            result.removed.append(name)
        elif not there or (old and here == old):
            write_text(path, text)
            known[name] = new
            result.written.append(name)
        else:
            result.kept.append(name)
            if old != new:
                result.newer.append(name)
    for name in sorted(known.keys() - files.keys()):
        if _sum_of(folder / name) == known[name]:
            result.gone.append(name)
    _remember(folder, known)
    return result


def _remember(folder: Path, sums: Mapping[str, str]) -> None:
    write_json(folder / RECORD, {_VERSION: version(), _FILES: dict(sorted(sums.items()))})


def _remembered(folder: Path) -> dict[str, str]:
    if not (folder / RECORD).is_file():
        raise RewindError(
            f"{folder}: no {RECORD} here, so that nobody can tell which files are yours; make a new folder with "
            "`rewind new` and copy your files into it."
        )
    content = read_json(folder / RECORD)
    files = content.get(_FILES) if isinstance(content, dict) else None
    if not isinstance(files, dict) or not all(isinstance(one, str) for one in files.values()):
        raise RewindError(f"{folder / RECORD}: not as `rewind new` wrote it; take it back from a copy of the folder.")
    return files


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _sum_of(path: Path) -> str:
    """Sum of a file; empty where there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
