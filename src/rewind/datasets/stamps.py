"""Captioned images of Debian's ``tuxpaint-stamps-default``: stamps of Tux Paint, a drawing program; half are photos.

A stamp is a PNG with its caption in the first line of the text file beside it. The package is fetched and unpacked, not
installed; then it is a data set like :mod:`rewind.datasets.photos`.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pandas as pd

from rewind.datasets.annotations import Annotations
from rewind.datasets.photos import read_photos
from rewind.errors import RewindError
from rewind.files import atomic, read_csv, write_csv, write_json
from rewind.progress import track
from rewind.study.dataset import Dataset

PACKAGE = "tuxpaint-stamps-default"
INSIDE = "usr/share/tuxpaint/stamps"
HOW = (
    f"On a Debian or Ubuntu machine with a network run `apt-get update` and `apt-get download {PACKAGE}`, put the .deb "
    f"file, or what `dpkg-deb -x {PACKAGE}_*.deb stamps` makes of it, into a folder, and name that as source.folder."
)


def make_sources(dataset: Dataset, folder: Path) -> None:
    """Write ``folder/images/*.png``, ``folder/skipped.csv`` and, last, ``folder/captions.json``.

    Every PNG with a caption is taken, in the order of paths, but for ``symbols/`` (letters and coins) and captions that
    another stamp has already; the rest is in ``skipped.csv`` with its reason. A file is named after its path, with
    ``_`` between folders. Images that are there already are not written again.

    Raises:
        RewindError: if the package is neither in ``source.folder`` nor to be had with apt-get, or holds no stamps.
    """
    where, store = f"config/datasets/{dataset.name}.yaml", folder / ".package"
    tree = _tree(dataset.source.folder, store, where)
    captions, skipped = choose(tree)
    if not captions:
        raise RewindError(f"{where}: no PNG with a caption in {tree}; is it the package {PACKAGE}? {HOW}")
    wanted = {_flat(name): tree / name for name in captions}
    for name, source in track(wanted.items(), "stamps", len(wanted), "images"):
        _copy(source, folder / "images" / name)
    for path in (folder / "images").iterdir():  # of another version of the package
        if path.name not in wanted:
            path.unlink()
    entries = [{"file_name": _flat(name), "caption": caption} for name, caption in captions.items()]
    write_csv(folder / "skipped.csv", pd.DataFrame(skipped, columns=["file", "reason"]))
    write_json(folder / "captions.json", entries)
    shutil.rmtree(store, ignore_errors=True)  # what was fetched and unpacked here; never the user's own files
    print(f"stamps: {len(entries)} images; skipped: {dict(Counter(r for _, r in skipped))}", file=sys.stderr)


def read(dataset: Dataset, sources: str) -> Annotations:
    """Items and captions of what :func:`make_sources` wrote into ``sources``; notes also count what was skipped."""
    folder = Path(sources)
    where = f"config/datasets/{dataset.name}.yaml"
    found = read_photos(folder / "captions.json", folder / "images", dataset.source, where)
    skipped = read_csv(folder / "skipped.csv", text=("file",))["reason"].value_counts().sort_index().to_dict()
    return Annotations(found.items, found.captions, found.notes | {"skipped": skipped})


def choose(tree: Path) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Captions by path inside ``tree``, and (path, reason) of every other PNG."""
    captions: dict[str, str] = {}
    skipped = []
    for path in sorted(tree.rglob("*.png")):
        name = path.relative_to(tree).as_posix()
        caption = _caption(path.with_suffix(".txt"))
        if path.is_symlink():
            skipped.append((name, "symbolic link"))
        elif name.startswith("symbols/"):
            skipped.append((name, "symbol"))
        elif not caption:
            skipped.append((name, "no caption"))
        elif caption in captions.values():
            skipped.append((name, "caption of another stamp"))
        else:
            captions[name] = caption
    return captions, skipped


def _caption(path: Path) -> str:
    """The first line, which is English; the others are translations."""
    try:
        return path.read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _flat(name: str) -> str:
    return name.replace("/", "_")


def _copy(source: Path, target: Path) -> None:
    if target.is_file() and filecmp.cmp(source, target, shallow=False):
        return  # its time stays, so that later stages see no new file
    with atomic(target) as draft:
        shutil.copyfile(source, draft)


def _tree(given: str | None, store: Path, where: str) -> Path:
    """The folder of stamps: the user's, or unpacked from the user's package, or from one that is fetched."""
    if given is None:
        return _unpack(_fetch(store, where), store, where)
    if tree := _find(Path(given)):
        return tree
    packages = sorted(Path(given).glob(f"{PACKAGE}_*.deb"))
    if not packages:
        raise RewindError(
            f"{where}: source.folder: {given} contains neither {PACKAGE}_*.deb nor its unpacked tree. {HOW}"
        )
    return _unpack(packages[-1], store, where)


def _find(place: Path) -> Path | None:
    candidates = (place / INSIDE, *sorted(place.glob(f"*/{INSIDE}")), place)
    return next((path for path in candidates if any(path.rglob("*.png"))), None)


def _fetch(store: Path, where: str) -> Path:
    """The package by way of ``part``, so that a killed download never looks whole."""
    if ready := sorted(store.glob(f"{PACKAGE}_*.deb")):
        return ready[-1]
    part = store / "part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    _run(["apt-get", "download", PACKAGE], part, where)
    packages = sorted(part.glob(f"{PACKAGE}_*.deb"))
    if not packages:
        raise RewindError(f"{where}: `apt-get download {PACKAGE}` downloaded no package. {HOW}")
    os.replace(packages[0], store / packages[0].name)
    return store / packages[0].name


def _unpack(package: Path, store: Path, where: str) -> Path:
    target = store / "tree"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    _run(["dpkg-deb", "-x", str(package.resolve()), str(target.resolve())], store, where)
    tree = _find(target)
    if tree is None:
        raise RewindError(f"{where}: {package} contains no stamps; is it {PACKAGE}? {HOW}")
    return tree


def _run(command: list[str], folder: Path, where: str) -> None:
    """Run a program of Debian's in ``folder``."""
    program = shutil.which(command[0])
    if program is None:
        raise RewindError(f"{where}: {command[0]} is not on PATH. {HOW}")
    done = subprocess.run([program, *command[1:]], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join(done.stderr.split())[-400:] or "no message"
        raise RewindError(f"{where}: `{' '.join(command)}` failed: {said}. {HOW}")
