"""``rewind new``: a working folder, written once and later updated without touching what the user has edited."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewind.cli.scaffold import template_text, write_files
from rewind.commands import rewind_command
from rewind.errors import RewindError
from rewind.hashing import sha256_hex, sha256_of
from rewind.io.files import check_output_folder, read_json, write_json
from rewind.packaged import installed_version, workflow_home

RECORD_FILE = ".rewind.json"
"""Holds the version and a SHA-256 of every file as written, so that an update can recognise the user's edits."""
# Template → name in the folder. The template has no dot: git would apply a .gitignore to the templates themselves.
TEMPLATE_FILES = {"Snakefile": "Snakefile", "README.md": "README.md", "gitignore": ".gitignore"}
MAX_SHOWN_FILES = 5
COPIED_PATHS = ("config", "profiles", "envs/constraints.txt")
_VERSION_KEY, _FILES_KEY = "rewind", "files"


@dataclass
class UpdateReport:
    """What :func:`update_folder` did with each file."""

    written: list[str] = field(default_factory=list)  # absent and new in Rewind, or not changed by the user
    kept: list[str] = field(default_factory=list)  # changed by the user, so left alone
    newer: list[str] = field(default_factory=list)  # those of `kept` that have changed in Rewind too
    removed: list[str] = field(default_factory=list)  # by the user, and not restored
    gone: list[str] = field(default_factory=list)  # no longer part of Rewind, and not changed by the user; left there


def make_working_folder(folder: Path, update: bool = False) -> int:
    """Create or update a working folder, and print what was written, kept or removed.

    Raises:
        RewindError: if files are in the way, or a folder to be updated was not written by ``rewind new``.
    """
    check_output_folder(folder, "FOLDER")
    if update:
        return _update(folder)
    written = create_folder(folder)
    parts = Counter(name.partition("/")[0] + "/" * ("/" in name) for name in written)  # files of each top-level entry
    summary = [f"{part} ({count} files)" if count > 1 else part for part, count in parts.items()]
    print(f"{folder}: wrote {', '.join(summary)}\nNext:")
    is_current = folder.resolve() == Path.cwd()
    for line in ("snakemake -n" if is_current else f"cd {shlex.quote(str(folder))}", "snakemake --cores all"):
        print(f"    {line}")
    return 0


def _update(folder: Path) -> int:
    report = update_folder(folder)
    lines = [f"{name}: written again" for name in report.written]
    for name in report.kept:
        newer = " (Rewind's has changed too)" if name in report.newer else ""
        lines.append(f"{name}: differs from Rewind's, kept{newer}")
    lines += [f"{name}: you removed it" for name in report.removed]
    lines += [f"{name}: no longer part of Rewind" for name in report.gone]
    print("\n".join(lines or [f"{folder}: all files are those of Rewind {installed_version()}"]))
    if any(name.startswith(("config/", "profiles/", "envs/")) for name in report.kept):
        print(f"Rewind's own files are in {workflow_home()}")
    return 0


def initial_files() -> dict[str, str]:
    """Path → text of every file of a new working folder."""
    texts = {name: template_text(source) for source, name in TEMPLATE_FILES.items()}
    home = workflow_home()
    for path_name in COPIED_PATHS:
        paths = sorted((home / path_name).rglob("*")) if (home / path_name).is_dir() else [home / path_name]
        for path in paths:
            relative = path.relative_to(home)
            if path.is_file() and not any(part.startswith(".") for part in relative.parts):
                texts[relative.as_posix()] = path.read_text(encoding="utf-8")
    return texts


def create_folder(folder: Path) -> list[str]:
    """Write :func:`initial_files` into a folder, and return their names; what else is there stays as it is.

    Raises:
        RewindError: if ``rewind new`` wrote the folder before, or naming every file that is in the way.
    """
    if (folder / RECORD_FILE).exists():
        command = rewind_command("new", "--update", folder)
        raise RewindError(f"{folder}: `rewind new` wrote it before; `{command}` brings its files up to date.")
    files = initial_files()
    if in_the_way := _in_the_way(folder, files):
        shown = ", ".join(in_the_way[:MAX_SHOWN_FILES])
        more = f" and {len(in_the_way) - MAX_SHOWN_FILES} more" if len(in_the_way) > MAX_SHOWN_FILES else ""
        raise RewindError(
            f"{folder}: in the way of files of these names: {shown}{more}; move them, or name another folder."
        )
    with write_files({folder / name: text for name, text in files.items()}):  # half a folder would be refused next time
        _write_record(folder, {name: _hash_text(text) for name, text in files.items()})
    return list(files)


def _in_the_way(folder: Path, files: Iterable[str]) -> list[str]:
    """What stands in a folder where these files would be: the files, or one in the place of a folder of theirs."""
    found: dict[str, None] = {}
    for name in files:
        for part in [*reversed(Path(name).parents), Path(name)][1:]:
            path = folder / part
            if path.is_symlink() or (path.exists() and not (path.is_dir() and part != Path(name))):
                found[str(part)] = None
                break
    return list(found)


def update_folder(folder: Path) -> UpdateReport:
    """Bring those files up to date that are as Rewind wrote them; all others stay.

    A file is compared with two hashes: of the text that this version would write (``new``) and of the one that an
    earlier version wrote (``old``).

    Raises:
        RewindError: if ``rewind new`` did not write this folder.
    """
    recorded, files, report = _read_record(folder), initial_files(), UpdateReport()
    texts: dict[Path, str] = {}
    for name, text in files.items():
        path, new, old = folder / name, _hash_text(text), recorded.get(name)
        exists = path.exists() or path.is_symlink()  # a broken link is the user's too
        current = _hash_file(path)
        if current == new:
            recorded[name] = new
        elif not exists and old:
            report.removed.append(name)
        elif not exists or (old and current == old):
            texts[path] = text
            recorded[name] = new
            report.written.append(name)
        else:
            report.kept.append(name)
            if old != new:
                report.newer.append(name)
    for name in sorted(recorded.keys() - files.keys()):
        if _hash_file(folder / name) == recorded[name]:
            report.gone.append(name)
    with write_files(texts, replaced=texts):
        _write_record(folder, recorded)
    return report


def _write_record(folder: Path, hashes: Mapping[str, str]) -> None:
    write_json(folder / RECORD_FILE, {_VERSION_KEY: installed_version(), _FILES_KEY: dict(sorted(hashes.items()))})


def _read_record(folder: Path) -> dict[str, str]:
    if not (folder / RECORD_FILE).is_file():
        raise RewindError(
            f"{folder}: no {RECORD_FILE} here, so it is unknown which files are yours; make a new folder with "
            "`rewind new` and copy your files into it."
        )
    content = read_json(folder / RECORD_FILE)
    files, version = (content.get(key) if isinstance(content, dict) else None for key in (_FILES_KEY, _VERSION_KEY))
    if not isinstance(files, dict) or not all(isinstance(sha256, str) for sha256 in files.values()):
        raise RewindError(
            f"{folder / RECORD_FILE}: not as `rewind new` wrote it; take it back from a copy of the folder."
        )
    if _is_newer(version):
        raise RewindError(
            f"{folder}: its files are those of Rewind {version}, and this is {installed_version()}; update Rewind, or "
            "its older files would replace newer ones."
        )
    return files


def _is_newer(version: Any) -> bool:
    """Whether a version is later than the installed one, as far as both are known; the commit in a version is not."""
    from packaging.version import InvalidVersion, Version

    try:
        there, here = (Version(str(each)).public for each in (version, installed_version()))
    except InvalidVersion:
        return False
    return Version(there) > Version(here)


def _hash_text(text: str) -> str:
    return sha256_hex(text.encode())


def _hash_file(path: Path) -> str:
    """SHA-256 of a file; empty where there is none."""
    return sha256_of(path) if path.is_file() else ""
