"""Rows of captions under whatever names their columns have: CSV, JSON lines, a JSON list."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath

from rewind.datasets.annotations import SPLITS
from rewind.datasets.photos import IMAGE_SUFFIXES, item_id
from rewind.datasets.table import COLUMNS
from rewind.errors import RewindError
from rewind.init.items import Brought
from rewind.reading.objects import check_characters, decoder, parsed
from rewind.reading.tables import Columns, read_table
from rewind.reading.text import lines, read_text
from rewind.video.inventory import VIDEO_SUFFIXES

KNOWN: Mapping[str, tuple[str, ...]] = {
    "item_id": ("item_id", "video_id", "clip_id", "image_id", "id"),
    "path": (
        "path",
        "file_name",
        "filename",
        "file",
        *(f"{k}{e}" for e in ("_path", "") for k in ("video", "clip", "image")),
    ),
    "caption": ("caption", "text", "sentence", "description", "captions"),
    "reverse_caption": ("reverse_caption", "reversed_caption", "caption_reversed", "reverse_text"),
    "split": ("split", "subset", "partition"),
    "cluster_id": ("cluster_id", "cluster"),
    "group": ("group", "category", "verb"),
}
"""Meaning → the names under which it is looked for, the first that is there."""
SPLIT_NAMES = {"train": "train", "training": "train", "test": "test", "testing": "test"} | dict.fromkeys(
    ("valid", "val", "validation", "dev"), "valid"
)
EXAMPLE = "item_id,path,caption,reverse_caption"
_FILES = IMAGE_SUFFIXES | VIDEO_SUFFIXES


def read_csv(path: Path) -> Brought:
    """A CSV with a row per caption.

    Raises:
        RewindError: for what is no CSV, or one without captions or names of clips.
    """
    found = Brought(path)
    rows = list(read_table(path, Columns((), others=True)))
    if not rows:
        raise RewindError(f"{path}: no rows below the header; write one row per caption, as in `{EXAMPLE}`.")
    names = meanings(list(rows[0].cells), str(path), found)
    plain = _collect(found, ((f"{path}: row {row.number}", row.cells) for row in rows), names)
    if plain and set(rows[0].cells) <= set(COLUMNS.known) and {"item_id", "caption"} <= set(rows[0].cells):
        found.table = str(path)
    return found


def read_json_lines(path: Path) -> Brought:
    """JSON lines, an object per caption.

    Raises:
        RewindError: for a line that is no object of texts.
    """
    objects = []
    for number, line in enumerate(lines(read_text(path)), start=1):
        if line.strip():
            where = f"{path}: line {number}"
            check_characters(line, where)
            objects.append((where, parsed(line, where, partial(decoder().decode, line))))
    return read_objects(path, objects)


def read_objects(path: Path, objects: Iterable[tuple[str, object]]) -> Brought:
    """Objects with a caption each, or a list of captions.

    Raises:
        RewindError: for what is no object, or a value that is no text.
    """
    found, rows = Brought(path), []
    for where, value in objects:
        if not isinstance(value, dict):
            raise RewindError(f'{where}: an object such as {{"file_name": "a.mp4", "caption": "…"}} is needed.')
        rows += [(where, cells) for cells in _cells(value, where)]
    if not rows:
        raise RewindError(f"{path}: no captions in it; write one object per caption.")
    names = meanings(list(dict.fromkeys(name for _, cells in rows for name in cells)), str(path), found)
    _collect(found, rows, names)
    return found


def _cells(value: dict[str, object], where: str) -> Iterator[dict[str, str]]:
    """The rows of an object: one for each caption where it has a list of them."""
    texts = {str(name): str(cell).strip() for name, cell in value.items() if isinstance(cell, str | int | float)}
    several = {name: cell for name, cell in value.items() if isinstance(cell, list) and name in KNOWN["caption"]}
    for name, cell in several.items():
        if not all(isinstance(text, str) for text in cell):
            raise RewindError(f"{where}: {name!r} must be a caption or a list of captions.")
        for text in cell:
            yield texts | {name: text}
    if not several:
        yield texts


def meanings(header: list[str], where: str, found: Brought) -> dict[str, str]:
    """Meaning → the column that has it; what is left out, and what has another name than ours, is said.

    Raises:
        RewindError: for a table without captions or without names of clips, or a column that looks misspelt.
    """
    by_case = {name.strip().lower(): name for name in header}
    names = {
        what: by_case[first]
        for what, known in KNOWN.items()
        if (first := next((name for name in known if name in by_case), None)) is not None
    }
    rest = [name for name in header if name not in names.values()]
    lacking = [] if "caption" in names else ["caption"]
    if not names.keys() & {"item_id", "path"}:
        lacking.append("item_id")
    for name in rest:
        near = difflib.get_close_matches(name.lower(), [what for what in KNOWN if what not in names], n=1, cutoff=0.75)
        if near:
            raise RewindError(
                f"{where}: the column {name!r} is unknown; did you mean {near[0]!r}? Columns: {', '.join(KNOWN)}."
            )
    if lacking:
        also = ", ".join(KNOWN[lacking[0]][1:])
        raise RewindError(
            f"{where}: the column {lacking[0]!r} is missing (it may also be called {also}); the file has "
            f"{', '.join(header)}. Rename one, or write rows as in `{EXAMPLE}`."
        )
    renamed = [f"{name!r} as {what}" for what, name in names.items() if name != what]
    if renamed:
        found.said.append(f"{where}: columns are read as: {', '.join(renamed)}")
    if rest:
        found.said.append(f"{where}: columns that are not used: {', '.join(map(repr, rest))}")
    return names


def _collect(found: Brought, rows: Iterable[tuple[str, Mapping[str, str]]], names: Mapping[str, str]) -> bool:
    """Add rows to the items; whether every id is as it was given and every split in our words."""
    plain = True
    for where, row in rows:
        cell = {what: row.get(name, "").strip() for what, name in names.items()}
        name = cell.get("item_id") or ""
        path = cell.get("path") or name
        if not path:
            found.faults.append(f"{where}: names no clip; fill in {names.get('item_id', names.get('path'))!r}.")
            continue
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            found.faults.append(f"{where}: the path {path!r} must name a file inside the folder of clips.")
            continue
        if not name:
            name = item_id(path) if PurePosixPath(path).suffix.lower() in _FILES else path
        given = cell.get("split", "")
        split = SPLIT_NAMES.get(given.lower(), "") if given else ""
        if given and not split:
            found.faults.append(f"{where}: the split {given!r} is unknown; use {', '.join(SPLITS)}.")
            continue
        plain &= split == given and bool(split or "split" not in names)
        more = {"split": split, "cluster_id": cell.get("cluster_id", ""), "reverse": cell.get("reverse_caption", "")}
        plain &= found.add(name, path, cell.get("caption", ""), where, group=cell.get("group", ""), **more)
    return plain


def as_json(rows: object) -> str:
    """Text of a JSON file."""
    return json.dumps(rows, ensure_ascii=False, indent=1) + "\n"
