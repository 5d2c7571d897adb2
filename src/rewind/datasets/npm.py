"""Packages of npm as folders: the user's own, or fetched."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from rewind.errors import RewindError
from rewind.files import reading_user_file
from rewind.progress import track


def name(spec: str) -> str:
    """``@scope/name@version`` → ``name``."""
    return spec.rpartition("@")[0].rpartition("/")[2]


def packages(wanted: Mapping[str, str], given: Path, store: Path, where: str, hint: str = "") -> list[Path]:
    """Unpacked folder of every package: the user's, or what an earlier job left, or fetched with npm.

    Args:
        wanted: specification (``@scope/name@version``) → a folder that the package must have.
        given: folder of the user's archives or packages.
        store: where packages are fetched and unpacked.
        where: names the configuration file in messages.
        hint: what else a user may do where nothing can be fetched.

    Raises:
        RewindError: if a package is in neither folder and cannot be fetched, or is broken.
    """
    missing = [spec for spec, inside in wanted.items() if not _find_any(spec, inside, given, store)]
    for spec in track(missing, "npm pack", len(missing), "packages"):
        if fault := _fetch(spec, store):
            raise RewindError(
                f"{where}: {fault}. Install npm (Node.js) and check the network; or, on a machine with both, run\n"
                f"  npm pack {' '.join(missing)}\n"
                "and put the .tgz files, or each package unpacked into a folder of its name, into the folder "
                f"that source.folder names. {hint}".rstrip()
            )
    found = {spec: _find_any(spec, inside, given, store) for spec, inside in wanted.items()}
    return [path if path.is_dir() else _unpack(path, spec, wanted[spec], store) for spec, path in found.items() if path]


def _find_any(spec: str, inside: str, *places: Path) -> Path | None:
    return next((path for place in places if (path := _find(spec, inside, place))), None)


def _find(spec: str, inside: str, place: Path) -> Path | None:
    """An unpacked package, else its archive, under ``place``."""
    full = spec.rpartition("@")[0]
    roots = (place / name(spec) / "package", place / name(spec), place / full, place / "node_modules" / full)
    archives = sorted(place.glob(f"{full.lstrip('@').replace('/', '-')}-[0-9]*.tgz"))[-1:]
    return next((path for path in [*(r for r in roots if (r / inside).is_dir()), *archives]), None)


def _fetch(spec: str, store: Path) -> str:
    """``npm pack`` by way of ``part``, so that a killed download never looks whole; returns what failed."""
    part = store / "part"
    if not (npm := shutil.which("npm")):
        return "npm is not on PATH"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    command = [npm, "pack", "--loglevel=error", spec]
    done = subprocess.run(command, cwd=part, capture_output=True, text=True, check=False)
    archives = sorted(part.glob("*.tgz"))
    if done.returncode or not archives:
        return f"`npm pack {spec}` failed: {' '.join(done.stderr.split())[-400:] or 'no archive was written'}"
    os.replace(archives[0], store / archives[0].name)
    return ""


def _unpack(archive: Path, spec: str, inside: str, store: Path) -> Path:
    """Extract ``archive`` under ``store``, whole or not at all; nothing in it can leave that folder."""
    target, part = store / name(spec), store / "part"
    shutil.rmtree(target, ignore_errors=True)
    shutil.rmtree(part, ignore_errors=True)
    with reading_user_file(archive, "npm package", "download it again"):
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(part, filter="data")
            if not (part / "package" / inside).is_dir():
                raise tarfile.TarError(f"it is not {spec}")
        except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
            raise RewindError(f"{archive}: the archive is damaged ({error}); download it again.") from error
    os.replace(part, target)
    return target / "package"
