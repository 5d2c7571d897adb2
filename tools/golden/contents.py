"""What a file of results holds, part by part, without what no two runs have in common.

A part is a tensor, an array, a column, a key or a whole text; its value is a checksum, or a text that a person can
compare. Two runs of the same code on the same machine give the same parts.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

LEFT_OUT_FILES = {
    r"(.*/)?logs/.*": "times and paths",
    r"(.*/)?benchmarks/.*": "times and memory",
    r"(.*/)?\.(seals|checksums|state)/.*": "times",
    r"(.*/)?accepted\.json": "written by hand",
    r"(.*/)?\.snakemake_timestamp": "time",
    r"(.*/)?figures/.*\.(png|pdf)": "the same pictures are compared as SVG",
    r"(.*/)?step_time\.csv": "times",
    r"(.*/)?efficiency/.*": "times",
    r"data/[^/]*/source(/.*|\.tar)": "the clips that come of it are compared",
}
LEFT_OUT_KEYS = {
    "seconds": "time",
    "examples_per_second": "time",
    "clips_per_second": "time",
    "peak_memory_mb": "of the process",
    "peak_gpu_memory_mb": "of the process",
    "when": "date",
    "date": "date",
    "started": "date",
    "finished": "date",
    "host": "machine",
    "commit": "of the code",
    "code": "checksum of the code",
    "rewind": "version of the code",
    "version": "version of the code",
    "dirty": "of the checkout",
    "command": "what was typed",
    "path": "of this machine",
    "python": "of this machine",
}
LEFT_OUT_OF_TEXT = [
    (re.compile(r"\b[0-9a-f]{40}\b|\b[0-9a-f]{7,12}(?=\b.{0,3}commit)|(?<=commit )[0-9a-f]{7,12}\b"), "<commit>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)?)?"), "<date>"),
    (re.compile(r"\b\d+\.\d+\.\d+(\.post\d+)?\.dev\d+\+g[0-9a-f]+(\.d\d+)?"), "<version>"),
]
TEXTS = {".md", ".tex", ".html", ".txt", ".svg", ".yaml", ".rst", ".js", ".css"}


def left_out(name: str) -> str:
    """Why a file, named relative to ``results/``, is not compared; empty if it is."""
    return next((why for pattern, why in LEFT_OUT_FILES.items() if re.fullmatch(pattern, name)), "")


def parts(path: Path) -> dict[str, str]:
    """The parts of a file by name, each with a checksum or a short text."""
    match path.suffix:
        case ".safetensors":
            return dict(_tensors(path))
        case ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return {name: _array(arrays[name]) for name in sorted(arrays.files)}
        case ".parquet":
            return _columns(pd.read_parquet(path))
        case ".csv":
            empty = not path.read_bytes().strip()  # a run that learns nothing has no history
            return {} if empty else _columns(pd.read_csv(path, dtype=str, keep_default_na=False, low_memory=False))
        case ".json":
            return dict(_keys(json.loads(path.read_text(encoding="utf-8"))))
        case suffix if suffix in TEXTS:
            return {"text": text(path.read_text(encoding="utf-8"))}
    return {"bytes": hashlib.sha256(path.read_bytes()).hexdigest()}


def shape(path: Path) -> list[str]:
    """Names of the columns, arrays or keys of a file, without their values."""
    return [re.sub(r"\[\d+\]", "[]", name) for name in parts(path)] if path.suffix not in TEXTS else []


def text(content: str) -> str:
    """A text without dates, commits and versions."""
    for pattern, instead in LEFT_OUT_OF_TEXT:
        content = pattern.sub(instead, content)
    return content


def _tensors(path: Path) -> Iterator[tuple[str, str]]:
    """Tensors of a safetensors file; its metadata name the code, and are left out."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    for name in sorted(header):
        if name != "__metadata__":
            about = header[name]
            begin, end = about["data_offsets"]
            yield name, f"{about['dtype']} {about['shape']} {hashlib.sha256(data[begin:end]).hexdigest()[:16]}"


def _array(array: np.ndarray) -> str:
    if array.dtype == object:
        array = array.astype(str)
    return f"{array.dtype} {list(array.shape)} {hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]}"


def _columns(table: pd.DataFrame) -> dict[str, str]:
    found = {}
    for position, name in enumerate(table.columns):
        if name not in LEFT_OUT_KEYS:
            values = "\0".join(map(repr, table.iloc[:, position].tolist()))
            found[str(name)] = f"{len(table)} rows {hashlib.sha256(values.encode()).hexdigest()[:16]}"
    return found


def _keys(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Leaves of a JSON value by their path, such as ``best.epoch`` or ``notes[0]``."""
    if isinstance(value, Mapping):
        for name in sorted(value):
            if name not in LEFT_OUT_KEYS:
                yield from _keys(value[name], f"{at}.{name}" if at else name)
    elif isinstance(value, list):
        for position, part in enumerate(value):
            yield from _keys(part, f"{at}[{position}]")
    else:
        yield at, text(json.dumps(value, ensure_ascii=False))
