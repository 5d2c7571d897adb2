"""What files between stages must look like: what is said of one that was cut, or is something else by its structure.

The rows of :data:`TABLES` and :data:`KEYS` are the contract that results/README.md describes in words.
"""

from __future__ import annotations

import csv
import json
import re
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

from rewind.files import kind_of_no_file, raise_machine_fault

TABLES: Mapping[str, tuple[str, ...]] = {
    r".*/items\.csv": ("item_id",),
    r"(.*/)?results/data/[^/]+/items\.csv": ("item_id", "path", "split", "cluster_id", "reversed", "status"),
    r".*/captions/[^/]+\.csv": ("video_id", "caption", "caption_id"),
    r".*/videos/inventory\.csv": ("item_id", "split", "source", "reversed_source", "twin", "shard"),
    r".*/videos/report\.csv": ("item_id", "status", "reason"),
    r".*/videos/shards/[^/.]+\.csv": ("item_id", "status", "reason", "sha256"),
    r".*/videos/shards/[^/]+\.index\.csv": ("name", "offset", "bytes", "sha256"),
    r".*/videos/clips\.csv": ("name", "shard", "offset", "bytes", "sha256"),
    r".*/videos/shards\.csv": ("shard", "files", "bytes", "sha256"),
    r".*/ranks/[^/]+/seed\d+\.parquet": ("query_id", "setting", "direction", "higher", "ties", "rank", "cluster_id"),
    r"(.*/)?results/[^/]+/metrics\.csv": ("method", "seed", "setting", "direction", "queries", "gallery"),
    r".*/statistics/intervals\.csv": ("method", "setting", "direction", "metric", "estimate", "low", "high"),
    r".*/statistics/pairs\.csv": ("first", "second", "setting", "direction", "metric", "difference", "p"),
    r".*/statistics/gaps\.csv": ("method", "direction", "metric", "gap", "low", "high"),
    r".*/statistics/ranks\.csv": ("method", "setting", "direction", "metric", "rank", "low", "high"),
    r".*/similarity/[^/]+/seed\d+\.npz": ("similarity", "query_ids", "item_ids"),
    r".*/features.*/frames\d+\.npz": ("item_ids", "frames", "mask"),
    r".*/embedding/[^/]+\.npz": ("text", "items", "space", "query_ids", "item_ids"),
    r".*/zero_shot/[^/]+/seed\d+\.npz": ("credits", "sha256", "alike"),
}
"""Path → columns of a table, or entries of an npz, that must be there."""

KEYS: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    r".*/sweep/best\.json": {"max_frames": int},
    r".*/run\.json": {"seed": int, "max_frames": int, "spec": dict, "best": dict, "code": str, "packages": dict},
    r".*/sweep/frames\d+\.json": {"max_frames": int, "spec": dict, "best": dict},
    r".*/captions/report\.json": {"digest": str, "splits": dict},
    r".*/ranks/[^/]+/seed\d+\.json": {"metrics": list},
    r".*/sanity\.json": {"method": str, "clips": int},
    r".*/frames/frames\d+/index\.json": {"max_frames": int, "shards": (list, int, dict)},
    r".*/source/embeddings\.json": {"text_width": int, "item_width": int},
}
"""Path → keys of a JSON object, and their types."""


def fault(path: Path, thoroughly: bool = False) -> str:
    """What is wrong with a file by its structure, as the end of a sentence; empty if nothing is, or nothing is known.

    Args:
        path: relative to the working folder.
        thoroughly: read all of it, and not only what says how it is laid out.
    """
    if path.is_dir():
        return "a folder, where a file is needed" if path.suffix in _READERS else ""
    reader = _READERS.get(path.suffix)
    if reader is None:
        return ""
    if kind := kind_of_no_file(path):  # to open a pipe would wait for ever
        return f"{kind}, where a file is needed"
    try:
        return reader(path, thoroughly)
    except Exception as error:  # of as many kinds as there are formats and libraries
        raise_machine_fault(error, path)
        return f"no {_KINDS[path.suffix]} that can be read, it was cut or changed ({_first_line(error)})"


def remedy(path: str | Path) -> str:
    """How an output comes back."""
    return f"To make it again: `snakemake --cores all --force {path}`."


def _csv(path: Path, thoroughly: bool) -> str:
    with path.open(encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream, strict=True)
        header = next(rows, [])
        if lacking := _lacking(path, header):
            return lacking
        if thoroughly:
            for number, row in enumerate(rows, 2):
                if len(row) != len(header):
                    return f"row {number} has {len(row)} fields where the header names {len(header)}"
    return ""


def _json(path: Path, thoroughly: bool) -> str:
    content = json.loads(path.read_text(encoding="utf-8"))
    for pattern, keys in KEYS.items():
        if not re.fullmatch(pattern, path.as_posix()):
            continue
        if not isinstance(content, dict):
            return "no JSON object"
        for name, kind in keys.items():
            if name not in content:
                return f"the key {name!r} is missing"
            if not isinstance(content[name], kind) or isinstance(content[name], bool):
                return f"{name!r} is {content[name]!r:.60}, which cannot be"
    return ""


def _parquet(path: Path, thoroughly: bool) -> str:
    import pyarrow.parquet as parquet  # only where there is one: it takes half a second

    if thoroughly:
        parquet.read_table(path)
    return _lacking(path, parquet.read_schema(path).names)


def _npz(path: Path, thoroughly: bool) -> str:
    import numpy as np

    with np.load(path, allow_pickle=False) as archive:
        if lacking := _lacking(path, archive.files):
            return lacking
        for name in archive.files if thoroughly else ():
            archive[name]
    return ""


def _npy(path: Path, thoroughly: bool) -> str:
    import numpy as np

    np.load(path, mmap_mode="r", allow_pickle=False)
    return ""


def _safetensors(path: Path, thoroughly: bool) -> str:
    from safetensors import safe_open

    with safe_open(path, "np") as file:
        file.keys()
    return ""


def _tar(path: Path, thoroughly: bool) -> str:
    with tarfile.open(path) as archive:
        if thoroughly:
            archive.getmembers()
    return ""


_READERS: Mapping[str, Callable[[Path, bool], str]] = {
    ".csv": _csv,
    ".json": _json,
    ".parquet": _parquet,
    ".npz": _npz,
    ".npy": _npy,
    ".safetensors": _safetensors,
    ".tar": _tar,
}
_KINDS = {suffix: f"{suffix[1:]} file" for suffix in _READERS} | {".csv": "CSV table", ".json": "JSON file"}


def _lacking(path: Path, names: list[str]) -> str:
    """Which column or entry is not there."""
    for pattern, needed in TABLES.items():
        if re.fullmatch(pattern, path.as_posix()):
            for name in needed:
                if name not in names:
                    what = "column" if path.suffix in (".csv", ".parquet") else "entry"
                    return f"the {what} {name!r} is missing"
    return ""


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
