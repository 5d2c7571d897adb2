"""Seals: what each file was when the job that made it ended, so that the next job refuses another one in its place.

A seal lies beside the results, ``results/<study>/.seals/<path>.json``, and goes where they go. A file without one (made
by an earlier version, or in a bucket) is looked at for its structure alone, see :mod:`rewind.jobs.structure`.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rewind.errors import RewindError
from rewind.files import crc32_of, sha256_of, write_text
from rewind.jobs.given import Given
from rewind.jobs.structure import fault, remedy

FOLDER = ".seals"
LARGE = 2**28
"""Bytes of a file from which it is compared by CRC-32 where its size and time are the same.

What damages a file and leaves its time is a disk, and that CRC-32 finds, about three times as fast as SHA-256.
"""

# Each clip and each row of a frame store has a checksum of its own, which whoever reads it compares.
_CHECKED_WHEN_READ = re.compile(r".*/videos/shards/[^/]+\.tar|.*/frames/frames\d+/shards")
_WITH_FOLDER = frozenset({"ready.json", "embeddings.json"})
"""Outputs that stand for the files beside them, which are of the same job."""


class Sealed(NamedTuple):
    """A file as its job left it."""

    bytes: int
    time: int
    sha256: str
    crc32: int | None = None  # of large files; earlier versions have none


def check(given: Given) -> None:
    """Look at every input of a job that an earlier job made.

    Raises:
        RewindError: naming the first that is not as it was made, with what it is instead and how to make it again.
    """
    for path in dict.fromkeys(given.input):
        check_file(path)


def check_file(path: str | Path) -> None:
    """Look at one file, or at all files of a folder that is an output.

    Raises:
        RewindError: if it is not as it was made.
    """
    place = _place(path)
    if place is None or not Path(path).exists():
        return  # what is missing says who needs it
    content = _read(place)
    if content is None:
        if why := fault(Path(path)):
            raise RewindError(f"{path}: {why}. {remedy(path)}")
        return
    for name, known in content["files"].items():
        file = _member(Path(path), name)
        if why := _difference(file, Sealed(*known)):
            made = f"the job {content['rule']}{_of(content['job'])} wrote on {content['when']}"
            raise RewindError(
                f"{file}: not the file that {made}: {why}. {remedy(path)} If it is there on purpose, delete {place}, "
                "and it is taken as it is."
            )


def check_below(folder: str | Path, *patterns: str) -> None:
    """Look at the files that a command is about to read; of one without a seal the command itself says what it lacks.

    Raises:
        RewindError: if one is not as it was made.
    """
    for pattern in patterns:
        for path in sorted(Path(folder).glob(pattern)):
            if (place := _place(path)) and _read(place):
                check_file(path)


def explained(given: Given, error: Exception) -> RewindError | None:
    """What to say where a job failed by something else than a message for people: an input that cannot be read.

    Returns:
        None if all inputs can: then the fault is the program's own.
    """
    for path in dict.fromkeys(given.input):
        place = _place(path)
        if place is None or not Path(path).exists() or _read(place) is not None:
            continue
        if why := fault(Path(path), thoroughly=True):
            return RewindError(f"{path}: {why}. {remedy(path)} (What failed: {type(error).__name__}: {error})")
    return None


def withdraw(given: Given) -> None:
    """Forget what outputs of a job were, before it makes them anew."""
    for path in given.output:
        if place := _place(path):
            for old in (place, *place.parent.glob(f".{place.stem}.*.part*")):  # drafts of a killed attempt too
                old.unlink(missing_ok=True)


def seal(given: Given) -> None:
    """Write down what a job's outputs are; where that is impossible, they go without."""
    job = ", ".join(f"{name}={value}" for name, value in given.wildcards.items())
    about = {"rule": given.rule, "job": job, "when": time.strftime("%Y-%m-%d %H:%M")}
    for path in given.output:
        place = _place(path)
        if place is None or not Path(path).exists() or _CHECKED_WHEN_READ.fullmatch(str(path)):
            continue
        files = {name: list(_state(_member(Path(path), name))) for name in _names(Path(path))}
        with contextlib.suppress(OSError):
            write_text(place, json.dumps(about | {"files": files}, indent=1) + "\n")


def _place(path: str | Path) -> Path | None:
    """Where a file's seal lies; of files outside ``results/`` there is none."""
    parts = Path(path).parts
    if "results" not in parts or ".snakemake" in parts:  # the latter: what was fetched from a bucket
        return None
    at = len(parts) - 1 - parts[::-1].index("results")
    below = at + (3 if parts[at + 1 : at + 2] == ("data",) else 2)
    if len(parts) <= below:
        return None
    return Path(*parts[:below], FOLDER, *parts[below:-1], f"{parts[-1]}.json")


def _read(place: Path) -> dict[str, Any] | None:
    """A seal; None where there is none, or where it is none: it says nothing then."""
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
        [Sealed(*known) for known in content["files"].values()]
        return content if {"rule", "job", "when"} <= content.keys() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _names(path: Path) -> Iterator[str]:
    """Names of the files that an output consists of: relative to it, or, with ``../``, beside it."""
    if path.is_dir():
        yield from sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
        return
    yield ""
    if path.name in _WITH_FOLDER:
        beside = sorted(file.name for file in path.parent.iterdir() if file.is_file() and file.name[0] != ".")
        yield from (f"../{name}" for name in beside if name not in _WITH_FOLDER)


def _member(path: Path, name: str) -> Path:
    if name.startswith("../"):
        return path.with_name(Path(name).name)
    return path / name if name else path


def _state(path: Path) -> Sealed:
    stat = path.stat()
    large = stat.st_size >= LARGE
    return Sealed(stat.st_size, stat.st_mtime_ns, sha256_of(path), crc32_of(path) if large else None)


def _difference(path: Path, known: Sealed) -> str:
    """What a file is instead of what it was; empty if it is that."""
    if not path.is_file():
        return "it is a folder" if path.is_dir() else "it is not there"
    stat = path.stat()
    if stat.st_size == known.bytes:
        quickly = known.crc32 is not None and stat.st_mtime_ns == known.time
        if quickly and crc32_of(path) == known.crc32:
            return ""
        found = sha256_of(path)
        if found == known.sha256:
            return ""
    else:
        found = sha256_of(path)
    changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(stat.st_mtime))
    if other := _owner(path, found):
        return f"it is a copy of {other} (since {changed})"
    if stat.st_size < known.bytes:
        return f"it has {stat.st_size:,} bytes where there were {known.bytes:,} (since {changed})"
    return f"its content is another one (since {changed})"


def _owner(path: Path, digest: str) -> Path | None:
    """Another file of the results that was sealed with this content, if it is one of the same kind."""
    place = _place(path)
    if place is None:
        return None
    home = next(folder for folder in place.parents if folder.name == FOLDER)
    for other in home.rglob(f"*{path.suffix}.json"):
        content = _read(other)
        if content and other != place and any(known[2] == digest for known in content["files"].values()):
            return home.parent / other.relative_to(home).with_suffix("")
    return None


def _of(job: str) -> str:
    return f" ({job})" if job else ""
