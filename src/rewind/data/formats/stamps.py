"""Captioned images of Debian's ``tuxpaint-stamps-default``: stamps of Tux Paint; half of them are photos.

A stamp is a PNG with its caption in the first line of the text file next to it. The package is downloaded and
unpacked, not installed; from there on it is read like :mod:`rewind.data.formats.photos`.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

from rewind.config.dataset import Dataset
from rewind.data.annotations import Annotations
from rewind.data.dummy import PublishedSizes, SplitSizes, draw_picture, make_dummy_images
from rewind.data.formats.photos import read_photos
from rewind.errors import RewindError
from rewind.io.files import atomic_write, read_csv, write_csv, write_json, write_text
from rewind.progress import track
from rewind.registry import DUMMY_DATA, FORMATS

DEBIAN_PACKAGE = "tuxpaint-stamps-default"
STAMPS_FOLDER = "usr/share/tuxpaint/stamps"
HOW_TO_GET = (
    f"On a Debian or Ubuntu machine with a network run `apt-get update` and `apt-get download {DEBIAN_PACKAGE}`, put "
    f"the .deb file, or what `dpkg-deb -x {DEBIAN_PACKAGE}_*.deb stamps` makes of it, into a folder, and name that as "
    "source.folder."
)


def make_sources(dataset: Dataset, folder: Path) -> None:
    """Write ``folder/images/*.png``, ``folder/skipped.csv`` and, last, ``folder/captions.json``.

    Every PNG with a caption is taken, in the order of paths, except those in ``symbols/`` (letters and coins) and those
    with the caption of an earlier one; the rest is listed in ``skipped.csv`` with its reason. An image is named after
    its path, with ``_`` between folders. Images that exist already are not written again.
    """
    where, store = f"config/datasets/{dataset.name}.yaml", folder / ".package"
    tree = _locate_stamps(dataset.source.folder, store, where)
    captions, skipped = choose_stamps(tree)
    if not captions:
        raise RewindError(f"{where}: no PNG with a caption in {tree}; is it the package {DEBIAN_PACKAGE}? {HOW_TO_GET}")
    sources = {_flat_name(name): tree / name for name in captions}
    for name, source in track(sources.items(), "stamps", len(sources), "images"):
        _copy_if_changed(source, folder / "images" / name)
    for path in (folder / "images").iterdir():
        if path.name not in sources:  # from another version of the package
            path.unlink()
    entries = [{"file_name": _flat_name(name), "caption": caption} for name, caption in captions.items()]
    write_csv(folder / "skipped.csv", pd.DataFrame(skipped, columns=["file", "reason"]))
    write_json(folder / "captions.json", entries)
    shutil.rmtree(store, ignore_errors=True)  # downloaded and unpacked here; the user's own files are elsewhere
    print(f"stamps: {len(entries)} images; skipped: {dict(Counter(r for _, r in skipped))}", file=sys.stderr)


@FORMATS.register("stamps", make_sources=make_sources)
def read(dataset: Dataset, sources: str) -> Annotations:
    """Items and captions of what :func:`make_sources` wrote into ``sources``; the notes also count skipped images."""
    folder = Path(sources)
    where = f"config/datasets/{dataset.name}.yaml"
    annotations = read_photos(folder / "captions.json", folder / "images", dataset.source, where)
    skipped = read_csv(folder / "skipped.csv", text=("file",))["reason"].value_counts().sort_index().to_dict()
    return Annotations(annotations.items, annotations.captions, annotations.notes | {"skipped": skipped})


def choose_stamps(tree: Path) -> tuple[dict[str, str], list[tuple[str, str]]]:
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
    """The first line of a stamp's text, which is English (the others are translations); empty without a text."""
    try:
        return path.read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _flat_name(name: str) -> str:
    return name.replace("/", "_")


def _copy_if_changed(source: Path, target: Path) -> None:
    if target.is_file() and filecmp.cmp(source, target, shallow=False):
        return  # its modification time stays, so that later stages see no new file
    with atomic_write(target) as temporary:
        shutil.copyfile(source, temporary)


def _locate_stamps(user_folder: str | None, store: Path, where: str) -> Path:
    """The folder of stamps: the user's, or unpacked from the user's package or from a downloaded one."""
    if user_folder is None:
        return _unpack_package(_download_package(store, where), store, where)
    if tree := _find_stamps(Path(user_folder)):
        return tree
    packages = sorted(Path(user_folder).glob(f"{DEBIAN_PACKAGE}_*.deb"))
    if not packages:
        raise RewindError(
            f"{where}: source.folder: {user_folder} contains neither {DEBIAN_PACKAGE}_*.deb nor its unpacked tree. "
            f"{HOW_TO_GET}"
        )
    return _unpack_package(packages[-1], store, where)


def _find_stamps(folder: Path) -> Path | None:
    candidates = (folder / STAMPS_FOLDER, *sorted(folder.glob(f"*/{STAMPS_FOLDER}")), folder)
    return next((path for path in candidates if any(path.rglob("*.png"))), None)


def _download_package(store: Path, where: str) -> Path:
    """Download the package into ``part`` and then rename it, so that a killed download never looks complete."""
    if ready := sorted(store.glob(f"{DEBIAN_PACKAGE}_*.deb")):
        return ready[-1]
    part = store / "part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    _run_debian_tool(["apt-get", "download", DEBIAN_PACKAGE], part, where)
    packages = sorted(part.glob(f"{DEBIAN_PACKAGE}_*.deb"))
    if not packages:
        raise RewindError(f"{where}: `apt-get download {DEBIAN_PACKAGE}` downloaded no package. {HOW_TO_GET}")
    os.replace(packages[0], store / packages[0].name)
    return store / packages[0].name


def _unpack_package(package: Path, store: Path, where: str) -> Path:
    target = store / "tree"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    _run_debian_tool(["dpkg-deb", "-x", str(package.resolve()), str(target.resolve())], store, where)
    tree = _find_stamps(target)
    if tree is None:
        raise RewindError(f"{where}: {package} contains no stamps; is it {DEBIAN_PACKAGE}? {HOW_TO_GET}")
    return tree


def _run_debian_tool(command: list[str], folder: Path, where: str) -> None:
    """Run a Debian program in ``folder``; it must be installed and succeed."""
    program = shutil.which(command[0])
    if program is None:
        raise RewindError(f"{where}: {command[0]} is not on PATH. {HOW_TO_GET}")
    done = subprocess.run([program, *command[1:]], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = " ".join(done.stderr.split())[-400:] or "no message"
        raise RewindError(f"{where}: `{' '.join(command)}` failed: {reason}. {HOW_TO_GET}")


# ---- Dummy data ----------------------------------------------------------------------------------------------------

PUBLISHED = PublishedSizes((348, 348), (74, 74), (76, 76), 498, "the package as it is in Debian 12")


@DUMMY_DATA.register("stamps", published=PUBLISHED)
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """The unpacked tree of the package: pictures with one caption each, and a translation below it."""
    for item in make_dummy_images(dataset.source, sizes, 1):
        path = folder / STAMPS_FOLDER / "shapes" / f"{item.name}.png"
        draw_picture(item, path)
        write_text(path.with_suffix(".txt"), f"{item.entry.captions(False)[0]}\nde.utf8=Eine Form.\n")
    return {"folder": str(folder)}
