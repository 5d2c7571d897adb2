"""Whether two folders of results hold the same, apart from what holds times; and what lies about that should not."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rewind.hashing import sha256_of
from rewind.workflow.checksums import CHECKSUM_FOLDER

CLOCKS = {"seconds", "clips_per_second", "examples_per_second", "peak_memory_mb", "date", "signature"}
"""Columns of histories and keys of records that say how long something took, how much memory, and when; the signature
of a clip holds the time of its source."""
ON_PAGE = re.compile(
    r"\d{4}-\d\d-\d\d|(?:<td class=\"number\">[\d.,]+</td>){2}(?=<td>[^<]*</td><td>[0-9a-f]{16}</td></tr>)"
)
"""What the page says of them: days, and of each run seconds and memory, before its hardware and its code."""
ASIDE = ("/logs/", "/benchmarks/")
"""Folders of what jobs say of themselves."""
DRAFT = re.compile(r"\..*\.part(\.[^.]*)?$|\.(tmp|draft|attempts)$")


class Difference(NamedTuple):
    """A file of results that is not as in the unbroken run, and how."""

    path: str
    how: str

    def __str__(self) -> str:
        return f"{self.path} {self.how}"


def compare_all(expected: Path, results: Path) -> list[Difference]:
    """Every difference between two folders of results, files that only one of them has included."""
    return _compared(declared(expected), declared(results))


def compare(expected: Path, results: Path, outputs: Iterable[str]) -> list[Difference]:
    """The same of a job's outputs (``results/…``), where a folder stands for all in it."""
    names = [Path(output).relative_to("results").as_posix() for output in outputs]
    return _compared(declared(expected, names), declared(results, names))


def _compared(expected: Mapping[str, Path], found: Mapping[str, Path]) -> list[Difference]:
    lacking = [Difference(name, "is missing") for name in expected.keys() - found.keys()]
    more = [Difference(name, "is not in the unbroken run") for name in found.keys() - expected.keys()]
    both = sorted(expected.keys() & found.keys())
    other = [Difference(name, "differs") for name in both if content(expected[name]) != content(found[name])]
    return sorted([*lacking, *more, *other])


def left_over(folder: Path, temporary: Path) -> list[str]:
    """Drafts, locks, marks of unfinished jobs, and temporary files that are not Snakemake's own or torch's."""
    ours = [folder / "results", folder / ".snakemake" / "rewind"]
    drafts = [path for place in ours for path in place.rglob("*") if DRAFT.search(path.name)]
    places = [folder / ".snakemake" / name for name in ("locks", "incomplete")]
    marks = [path for place in places if place.is_dir() for path in place.iterdir()]
    passing = [path for path in temporary.iterdir() if not path.name.startswith(("snakemake", "torchinductor"))]
    return [str(path) for path in sorted([*drafts, *marks, *passing])]


def declared(results: Path, names: Iterable[str] = (".",)) -> dict[str, Path]:
    """Every file of results, or of some files and folders in them, by its path."""
    found: dict[str, Path] = {}
    for place in (results / name for name in names):
        files = [place] if place.is_file() else [path for path in sorted(place.rglob("*")) if path.is_file()]
        found |= {path.relative_to(results).as_posix(): path for path in files}
    return {name: path for name, path in found.items() if not _aside(name)}


def _aside(name: str) -> bool:
    return any(part in f"/{name}" for part in ASIDE) or name.endswith(".snakemake_timestamp")


def content(path: Path) -> Any:
    """What must be the same in a file: its bytes, but for clocks."""
    if path.name == "history.csv" or (path.parent.name == "sweep" and path.suffix == ".csv"):
        with path.open(newline="", encoding="utf-8") as stream:
            rows = csv.DictReader(stream)  # of a baseline there are none
            return rows.fieldnames, [{key: row[key] for key in row if key not in CLOCKS} for row in rows]
    if (
        CHECKSUM_FOLDER in path.parts
    ):  # of a seal: of which job it is, and which files it covers, whose content is compared
        seal = json.loads(path.read_text(encoding="utf-8"))
        return seal["rule"], seal["job"], sorted(seal["files"])
    if path.suffix == ".json":
        return _timeless(json.loads(path.read_text(encoding="utf-8")))
    if path.name == "report.html":
        return ON_PAGE.sub("", path.read_text(encoding="utf-8"))
    return sha256_of(path)


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(inner) for key, inner in value.items() if key not in CLOCKS}
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value
