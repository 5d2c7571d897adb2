"""The files of a new working folder: written once, later updated without touching what the user has edited."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from rewind.errors import RewindError
from rewind.io.files import read_json, write_json, write_text
from rewind.packaged import installed_version, workflow_home

RECORD_FILE = ".rewind.json"
"""Holds the version and a SHA-256 of every file as written, so that an update can recognise the user's edits."""
# Template → name in the folder. The template has no dot: git would apply a .gitignore to the templates themselves.
TEMPLATE_FILES = {"Snakefile": "Snakefile", "README.md": "README.md", "gitignore": ".gitignore"}
COPIED_PATHS = ("config", "profiles", "envs/constraints.txt")
_VERSION_KEY, _FILES_KEY = "rewind", "files"


@dataclass
class UpdateReport:
    """What :func:`update_folder` did with each file.

    Attributes:
        written: updated: absent and new in Rewind, or not changed by the user.
        kept: changed by the user, so left alone.
        newer: those of ``kept`` that have changed in Rewind too.
        removed: removed by the user, and not restored.
        gone: no longer part of Rewind, and not changed by the user; left where they are.
    """

    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    newer: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)


def initial_files() -> dict[str, str]:
    """Path → text of every file of a new working folder."""
    templates = resources.files("rewind.cli.new") / "templates"
    texts = {name: (templates / source).read_text(encoding="utf-8") for source, name in TEMPLATE_FILES.items()}
    home = workflow_home()
    for path_name in COPIED_PATHS:
        paths = sorted((home / path_name).rglob("*")) if (home / path_name).is_dir() else [home / path_name]
        for path in paths:
            relative = path.relative_to(home)
            if path.is_file() and not any(part.startswith(".") for part in relative.parts):
                texts[relative.as_posix()] = path.read_text(encoding="utf-8")
    return texts


def create_folder(folder: Path) -> list[str]:
    """Write :func:`initial_files` into a folder that is absent or empty, and return their names.

    Raises:
        RewindError: if the folder is not empty.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise RewindError(
            f"{folder}: not empty; name another folder, or add --update if `rewind new` made it and its files are to "
            "be brought up to date."
        )
    files, started = initial_files(), []
    try:
        for name, text in files.items():
            started.append(name)
            write_text(folder / name, text)
        _write_record(folder, {name: _hash_text(text) for name, text in files.items()})
    except BaseException:  # half a folder would be refused the next time
        for name in started:
            with contextlib.suppress(OSError):
                (folder / name).unlink()
        raise
    return list(files)


def update_folder(folder: Path) -> UpdateReport:
    """Bring those files up to date that are as Rewind wrote them; all others stay.

    A file is compared with two hashes: of the text that this version would write (``new``) and of the one that an
    earlier version wrote (``old``).

    Raises:
        RewindError: if ``rewind new`` did not make this folder.
    """
    recorded, files, report = _read_record(folder), initial_files(), UpdateReport()
    for name, text in files.items():
        path, new, old = folder / name, _hash_text(text), recorded.get(name)
        exists = path.exists() or path.is_symlink()  # a broken link is the user's too
        current = _hash_file(path)
        if current == new:
            recorded[name] = new
        elif not exists and old:
            report.removed.append(name)
        elif not exists or (old and current == old):
            write_text(path, text)
            recorded[name] = new
            report.written.append(name)
        else:
            report.kept.append(name)
            if old != new:
                report.newer.append(name)
    for name in sorted(recorded.keys() - files.keys()):
        if _hash_file(folder / name) == recorded[name]:
            report.gone.append(name)
    _write_record(folder, recorded)
    return report


def _write_record(folder: Path, hashes: Mapping[str, str]) -> None:
    write_json(folder / RECORD_FILE, {_VERSION_KEY: installed_version(), _FILES_KEY: dict(sorted(hashes.items()))})


def _read_record(folder: Path) -> dict[str, str]:
    if not (folder / RECORD_FILE).is_file():
        raise RewindError(
            f"{folder}: no {RECORD_FILE} here, so that nobody can tell which files are yours; make a new folder with "
            "`rewind new` and copy your files into it."
        )
    content = read_json(folder / RECORD_FILE)
    files = content.get(_FILES_KEY) if isinstance(content, dict) else None
    if not isinstance(files, dict) or not all(isinstance(sha256, str) for sha256 in files.values()):
        raise RewindError(
            f"{folder / RECORD_FILE}: not as `rewind new` wrote it; take it back from a copy of the folder."
        )
    return files


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _hash_file(path: Path) -> str:
    """SHA-256 of a file; empty where there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
