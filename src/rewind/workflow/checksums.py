"""Checksums of outputs, written when a job ends and verified before the next job reads them.

They are stored next to the results, ``results/<study>/.seals/<path>.json``, and are copied with them. Of a file without
one (written by an earlier version, or in a bucket) only the structure is checked.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from rewind.commands import snakemake_command
from rewind.errors import RewindError
from rewind.hashing import crc32_of, sha256_of, stable_hash
from rewind.io.files import non_file_kind, reraise_system_error, write_text

if TYPE_CHECKING:
    from rewind.job_values import Job

# ---- Structure of the files between stages -------------------------------------------------------------------------
# The rows of the two tables below are the contract that results/README.md describes in words.

TABLE_COLUMNS: Mapping[str, tuple[str, ...]] = {
    r".*/items\.csv": ("item_id",),
    r"(.*/)?results/data/[^/]+/items\.csv": ("item_id", "path", "split", "cluster_id", "reversed", "status"),
    r".*/captions/[^/]+_(train|valid|test|test_origin)\.csv": ("video_id", "caption", "caption_id"),
    r".*/captions/groups\.csv": ("caption_id", "group"),
    r".*/captions/answers\.csv": ("setting", "caption_id", "item_id"),
    r".*/captions/caption_pairs\.csv": ("pair_id", "first", "second", "kind"),
    r".*/captions/foils\.csv": ("foil_id", "caption_id", "caption", "kind"),
    r".*/captions/proficiency\.csv": ("caption_id", "proficiency_id"),
    r".*/videos/inventory\.csv": ("item_id", "split", "source", "reversed_source", "twin", "shard"),
    r".*/videos/report\.csv": ("item_id", "status", "reason"),
    r".*/videos/shards/[^/.]+\.csv": ("item_id", "status", "reason", "sha256"),
    r".*/videos/shards/[^/]+\.index\.csv": ("name", "offset", "bytes", "sha256"),
    r".*/videos/clips\.csv": ("name", "shard", "offset", "bytes", "sha256"),
    r".*/videos/shards\.csv": ("shard", "files", "bytes", "sha256"),
    r".*/ranks/[^/]+/seed\d+\.parquet": ("query_id", "setting", "direction", "higher", "ties", "rank", "cluster_id"),
    r"(.*/)?results/[^/]+/metrics\.csv": ("method", "seed", "setting", "direction", "queries", "gallery"),
    r".*/sweep/max_frames\.csv": ("max_frames",),
    r".*/history\.csv": ("epoch", "seconds"),
    r".*/statistics/intervals\.csv": ("method", "setting", "direction", "metric", "estimate", "low", "high"),
    r".*/statistics/pairs\.csv": ("first", "second", "setting", "direction", "metric", "difference", "p"),
    r".*/statistics/gaps\.csv": ("method", "direction", "metric", "gap", "low", "high"),
    r".*/statistics/ranks\.csv": ("method", "setting", "direction", "metric", "rank", "low", "high"),
    r".*/statistics/chance\.csv": ("method", "setting", "direction", "metric", "estimate", "tied", "p", "p_holm"),
    r".*/similarity/[^/]+/seed\d+\.npz": ("similarity", "query_ids", "item_ids"),
    r".*/features.*/frames\d+\.npz": ("item_ids", "frames", "mask"),
    r".*/embedding/[^/]+\.npz": ("text", "items", "space", "query_ids", "item_ids"),
    r".*/zero_shot/[^/]+/seed\d+\.npz": ("credits", "sha256", "alike"),
}
"""Path → columns of a table, or entries of an npz, that must exist; an analysis declares those of its results."""

JSON_KEYS: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    r".*/sweep/best\.json": {"max_frames": int},
    r".*/run\.json": {"seed": int, "max_frames": int, "spec": dict, "best": dict, "code": str, "packages": dict},
    r".*/sweep/frames\d+\.json": {"max_frames": int, "spec": dict, "best": dict},
    r".*/sweep/[^/]+/seed\d+/trial\.[0-9a-f]+\.json": {"max_frames": int, "spec": dict, "best": dict},
    r".*/sweep/[^/]+/seed\d+/choice\.json": {"keys": dict},
    r".*/captions/report\.json": {"digest": str, "splits": dict},
    r".*/ranks/[^/]+/seed\d+\.json": {"metrics": list},
    r".*/sanity\.json": {"method": str, "clips": int},
    r".*/frames/frames\d+/index\.json": {"max_frames": int, "shards": (list, int, dict)},
    r".*/source/embeddings\.json": {"text_width": int, "item_width": int},
}
"""Path → keys of a JSON object, and their types."""


def structural_fault(path: Path, thoroughly: bool = False) -> str:
    """What is wrong with a file's structure, as the end of a sentence; empty for a sound file or an unknown suffix.

    ``thoroughly`` reads all of the file, not only its header or index.
    """
    if path.is_dir():
        return "a folder, where a file is needed" if path.suffix in _STRUCTURE_CHECKS else ""
    check = _STRUCTURE_CHECKS.get(path.suffix)
    if check is None:
        return ""
    if kind := non_file_kind(path):  # opening a named pipe would block for ever
        return f"{kind}, where a file is needed"
    try:
        return check(path, thoroughly)
    except Exception as error:  # each format and library raises kinds of its own
        reraise_system_error(error, path)
        return f"not a readable {_KIND_NAMES[path.suffix]}; it was truncated or changed ({_first_line(error)})"


def how_to_restore(lost: Sequence[str | Path]) -> str:
    """The message about :func:`lost_outputs`."""
    files = [str(path) for path in lost]
    names = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    return (
        f"{names}: written before, but missing now. Snakemake makes only what its targets lack; to make "
        f"{'it' if len(files) == 1 else 'them'} again: `{snakemake_command(*files)}`."
    )


def how_to_remake(path: str | Path) -> str:
    """A sentence with the command that makes an output again."""
    return f"To make it again: `{snakemake_command(path, force=True)}`."


def _check_csv(path: Path, thoroughly: bool) -> str:
    with path.open(encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream, strict=True)
        header = next(rows, None)
        if header is None:
            return "empty"
        # A run without epochs has a history of no columns; of another table, reading it reports that.
        if header and (fault := _missing_column(path, header)):
            return fault
        if thoroughly:
            for number, row in enumerate(rows, 2):
                if len(row) != len(header):
                    return f"row {number} has {len(row)} fields where the header names {len(header)}"
    return ""


def _check_json(path: Path, thoroughly: bool) -> str:
    content = json.loads(path.read_text(encoding="utf-8"))
    for pattern, keys in JSON_KEYS.items():
        if not re.fullmatch(pattern, path.as_posix()):
            continue
        if not isinstance(content, dict):
            return "not a JSON object"
        for name, kind in keys.items():
            if name not in content:
                return f"the key {name!r} is missing"
            if not isinstance(content[name], kind) or isinstance(content[name], bool):  # a bool is an int
                return f"{name!r} is {content[name]!r:.60}, which is of the wrong type"
    return ""


def _check_parquet(path: Path, thoroughly: bool) -> str:
    import pyarrow.parquet as parquet  # late: importing it takes half a second, and most jobs read none

    if thoroughly:
        parquet.read_table(path)
    return _missing_column(path, parquet.read_schema(path).names)


def _check_npz(path: Path, thoroughly: bool) -> str:
    import numpy as np

    with np.load(path, allow_pickle=False) as archive:
        if fault := _missing_column(path, archive.files):
            return fault
        # zipfile compares the CRC-32 of a member when its end is read.
        for name in archive.zip.namelist() if thoroughly else ():
            with archive.zip.open(name) as member:  # read in parts: a matrix may exceed memory
                while member.read(2**24):
                    pass
    return ""


def _check_npy(path: Path, thoroughly: bool) -> str:
    import numpy as np

    np.load(path, mmap_mode="r", allow_pickle=False)
    return ""


def _check_safetensors(path: Path, thoroughly: bool) -> str:
    from safetensors import safe_open

    with safe_open(path, "np") as file:
        file.keys()
    return ""


def _check_png(path: Path, thoroughly: bool) -> str:
    with path.open("rb") as stream:
        start = stream.read(24)  # the signature, and of the first chunk the width and height
    return "" if len(start) == 24 and start.startswith(b"\x89PNG\r\n\x1a\n") else "not a PNG"


def _check_tar(path: Path, thoroughly: bool) -> str:
    with tarfile.open(path) as archive:
        if thoroughly:
            archive.getmembers()
    return ""


_STRUCTURE_CHECKS: Mapping[str, Callable[[Path, bool], str]] = {
    ".csv": _check_csv,
    ".json": _check_json,
    ".parquet": _check_parquet,
    ".npz": _check_npz,
    ".npy": _check_npy,
    ".safetensors": _check_safetensors,
    ".png": _check_png,
    ".tar": _check_tar,
}
_KIND_NAMES = {suffix: f"{suffix[1:]} file" for suffix in _STRUCTURE_CHECKS} | {
    ".csv": "CSV table",
    ".json": "JSON file",
}


def _missing_column(path: Path, names: list[str]) -> str:
    """Which needed column or entry is missing, in words; empty if none is."""
    name = path.as_posix()
    found = [columns for pattern, columns in TABLE_COLUMNS.items() if re.fullmatch(pattern, name)]
    if not found and path.suffix == ".csv":
        found = [columns for pattern, columns in _analysis_columns().items() if re.fullmatch(pattern, name)]
    for required in (column for columns in found for column in columns):
        if required not in names:
            kind = "column" if path.suffix in (".csv", ".parquet") else "entry"
            return f"the {kind} {required!r} is missing"
    return ""


def _analysis_columns() -> dict[str, tuple[str, ...]]:
    from rewind.analyses import analysis_results  # late: most jobs read none, and need not read their modules at start

    return {f".*/{re.escape(result.file)}": result.columns for result in analysis_results().values()}


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


# ---- Checksums of outputs ------------------------------------------------------------------------------------------

CHECKSUM_FOLDER = ".seals"
MIN_CRC_BYTES = 2**28
"""Size from which a file is compared by CRC-32 where its size and time are unchanged.

Only a failing disk damages a file without changing its time, and CRC-32 finds that, about three times as fast as
SHA-256.
"""

# Each clip and each row of a frame store has a checksum of its own, which is compared when it is read.
_CHECKED_WHEN_READ = re.compile(r".*/videos/shards/[^/]+\.tar|.*/frames/frames\d+/shards")
_FOLDER_MARKERS = frozenset({"ready.json", "embeddings.json"})
"""Outputs that represent all files next to them, which the same job wrote."""


class FileChecksum(NamedTuple):
    """A file as its job left it."""

    bytes: int
    time: int  # of modification, in nanoseconds
    sha256: str
    crc32: int | None = None  # of files from MIN_CRC_BYTES on; earlier versions wrote none


def verify_inputs(job: Job) -> None:
    """Verify every input of a job that an earlier job made.

    Raises:
        RewindError: naming the first that is not as its job left it, what differs, and how to make it again.
    """
    for path in dict.fromkeys(job.input):
        verify_file(path)


def verify_file(path: str | Path) -> None:
    """Verify one file, or all files of a folder that is an output."""
    checksum_file = _checksum_path(path)
    if checksum_file is None or not Path(path).exists():
        return  # the code that reads a missing file reports it
    content = _read_checksums(checksum_file)
    if content is None:
        if difference := structural_fault(Path(path)):
            raise RewindError(f"{path}: {difference}. {how_to_remake(path)}")
        return
    for name, checksum in content["files"].items():
        file = _member_path(Path(path), name)
        if difference := _difference(file, FileChecksum(*checksum)):
            origin = f"the job {content['rule']}{_in_brackets(content['job'])} wrote on {content['when']}"
            raise RewindError(
                f"{file}: not the file that {origin}: {difference}. {how_to_remake(path)} If that is on purpose, "
                f"delete {checksum_file}, and it is taken as it is."
            )


def verify_files_below(folder: str | Path, *patterns: str) -> None:
    """Verify the files that a command is about to read; those without a checksum are left to the command itself.

    Raises:
        RewindError: if one is not as its job left it, or was written and is not there.
    """
    lost = [path for path in lost_outputs(Path(folder)) if any(path.match(f"{folder}/{one}") for one in patterns)]
    if lost:
        raise RewindError(how_to_restore(lost))
    for pattern in patterns:
        for path in sorted(Path(folder).glob(pattern)):
            if (checksum_file := _checksum_path(path)) and _read_checksums(checksum_file):
                verify_file(path)


def sealed_outputs(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Outputs with the content of their checksum files, whether they are still there or not.

    Args:
        folder: ``results/<study>`` or ``results/data/<dataset>``.
    """
    seals = folder / CHECKSUM_FOLDER
    for file in sorted(seals.rglob("[!.]*.json")):  # hidden ones are temporary files of killed jobs
        if content := _read_checksums(file):
            yield folder / file.relative_to(seals).with_suffix(""), content


def lost_outputs(folder: Path) -> list[Path]:
    """Outputs that a job made and that are not there any more, of runs that the study still has."""
    runs = _read_columns(folder / "metrics.csv", "method", "seed")
    shards = _read_columns(folder / "videos/shards.csv", "shard")

    def belongs(path: Path, rule: str) -> bool:
        if rule.endswith("trial") and path.suffix == ".safetensors":
            return False  # temporary: Snakemake itself removes it
        name = path.relative_to(folder).as_posix()
        if run := re.match(r"(?:.*/)?([^/]+)[/.]seed(\d+)\b", name):
            return run.groups() in runs if runs else (folder / "runs" / run[1] / f"seed{run[2]}").exists()
        if shard := re.match(r"videos/(shards/\d+-of-\d+)\.", name):
            return not shards or (f"{shard[1]}.tar",) in shards
        # Other keys have other folders of these, and users who need the disk remove them.
        return path.parent.exists() or not name.startswith(("vectors/", "features/", "frames/", "figures/"))

    gone = [(path, content["rule"]) for path, content in sealed_outputs(folder) if not path.exists()]
    return [path for path, rule in gone if belongs(path, rule)]


def _read_columns(table: Path, *names: str) -> set[tuple[str, ...]]:
    """The different values of some columns of a CSV file; none where it cannot be read."""
    try:
        with table.open(encoding="utf-8", newline="") as stream:
            return {tuple(row[name] for name in names) for row in csv.DictReader(stream)}
    except (OSError, ValueError, KeyError, csv.Error):
        return set()


def restore_times(folder: Path, recorded_time: Callable[[str], float | None] = lambda output: None) -> None:
    """Give outputs that were touched or copied, and have the same content, the time back that they had.

    Snakemake compares files above a size only by their times. Only files of another time are read, and each once.

    Args:
        recorded_time: the time of an output by Snakemake's own record, which jobs in one submission share; None: the
            time at which its job wrote it.
    """
    made = list(sealed_outputs(folder))
    for path, content in made:
        files = content["files"]
        # Snakemake takes the time of a file that it leaves in a folder for the folder's.
        stamp = path / ".snakemake_timestamp" if path.is_dir() else path
        checksum = max(files.values(), key=lambda one: one[1], default=None) if path.is_dir() else files.get("")
        with contextlib.suppress(OSError):  # a read-only folder goes by times
            stat = stamp.stat()
            if checksum and stat.st_mtime_ns == checksum[1]:
                continue
            recorded = recorded_time(str(path))
            if stat.st_mtime == recorded or any(_differs(_member_path(path, name), *files[name]) for name in files):
                continue
            if recorded is not None:
                os.utime(stamp, (stat.st_atime, recorded))
            elif checksum:
                os.utime(stamp, ns=(stat.st_atime_ns, checksum[1]))
            if checksum and stamp.stat().st_mtime != recorded and stamp.stat().st_mtime_ns != checksum[1]:
                checksum[1] = stamp.stat().st_mtime_ns  # a file system with coarser times
                write_text(cast(Path, _checksum_path(path)), json.dumps(content, indent=1) + "\n")
    # What has no checksum is never an input that counts, but an old time of it would make its own job stale.
    times = [checksum[1] for _, content in made for checksum in content["files"].values()]
    for pattern in ("benchmarks/**/*.tsv", "videos/shards/*.tar", "frames/*/shards/.snakemake_timestamp"):
        for file in folder.glob(pattern) if times else ():
            with contextlib.suppress(OSError):
                if file.stat().st_mtime_ns < min(times):
                    os.utime(file, ns=(max(times), max(times)))


def _differs(file: Path, size: int, _time: int, sha256: str, _crc32: int | None = None) -> bool:
    return file.stat().st_size != size or sha256_of(file) != sha256


def job_origin(params: Mapping[str, Any], inputs: Iterable[str]) -> str:
    """A hash of what a job's outputs follow from: its parameters, and the content of inputs that jobs made."""
    counted = {name: value for name, value in params.items() if name != "execution"}
    made = {path: content["files"] for path in inputs if (content := _sealed(path))}
    return stable_hash(counted, {path: sorted((n, f[2]) for n, f in files.items()) for path, files in made.items()})


def is_made_otherwise(shard: str, origin: str | None = None) -> bool:
    """Whether a shard of clips that is gone was being made again, from other sources or by other keys than before.

    Args:
        origin: :func:`job_origin` of the job that would make it; None: as far as files tell.
    """
    index = str(Path(shard).with_suffix(".index.csv"))
    table, made = _sealed(Path(shard).parents[1] / "shards.csv"), _sealed(index)
    if table is None:
        return False
    before: str | None = table.get("inputs", {}).get(index)
    if before is None:  # an earlier version wrote none; a job that was killed left no checksum of its index
        return made is None
    if origin is not None:
        return before != origin
    # Snakemake removes both outputs before a job that may be killed before it has removed their checksums.
    return made is None or not Path(index).is_file() or before != made.get("origin")


def _sealed(path: str | Path) -> dict[str, Any] | None:
    file = _checksum_path(path)
    return _read_checksums(file) if file else None


def recorded_files(folder: str | Path) -> dict[Path, FileChecksum]:
    """Files of a study as their jobs left them; none if the study has no checksums."""
    return {
        _member_path(output, name): FileChecksum(*checksum)
        for output, content in sealed_outputs(Path(folder))
        for name, checksum in content["files"].items()
    }


def explain_failure(job: Job, error: Exception) -> RewindError | None:
    """The error to raise where a job failed with an unexpected exception because an input cannot be read.

    None if all inputs can be read: then the failure is a bug in Rewind.
    """
    for path in dict.fromkeys(job.input):
        checksum_file = _checksum_path(path)
        if checksum_file is None or not Path(path).exists() or _read_checksums(checksum_file) is not None:
            continue
        if fault := structural_fault(Path(path), thoroughly=True):
            return RewindError(f"{path}: {fault}. {how_to_remake(path)} (What failed: {type(error).__name__}: {error})")
    return None


def clear_checksums(job: Job) -> None:
    """Remove the checksums of a job's outputs before it makes them again, so that a killed job leaves no stale ones."""
    for path in job.output:
        if checksum_file := _checksum_path(path):
            temporary = checksum_file.parent.glob(f".{checksum_file.stem}.*.part*")  # of a killed attempt
            for old in (checksum_file, *temporary):
                old.unlink(missing_ok=True)


def write_checksums(job: Job) -> None:
    """Write the checksums of a job's outputs; in a read-only folder they go without."""
    wildcards = ", ".join(f"{name}={value}" for name, value in job.wildcards.items())
    header = {"rule": job.rule, "job": wildcards, "when": time.strftime("%Y-%m-%d %H:%M")}
    header["origin"] = job_origin(job.params.items(), job.input)
    # What clips follow from decides whether a shard that is gone would come back with the same bytes.
    indexes = {
        str(path): origin
        for path in job.input
        if path.endswith(".index.csv") and (origin := (_sealed(path) or {}).get("origin"))
    }
    content = header | ({"inputs": indexes} if indexes else {})
    for path in job.output:
        checksum_file = _checksum_path(path)
        if checksum_file is None or not Path(path).exists() or _CHECKED_WHEN_READ.fullmatch(str(path)):
            continue
        files = {name: list(_file_checksum(_member_path(Path(path), name))) for name in _file_names(Path(path))}
        with contextlib.suppress(OSError):
            write_text(checksum_file, json.dumps(content | {"files": files}, indent=1) + "\n")


def _checksum_path(path: str | Path) -> Path | None:
    """The checksum file of a result; None for files outside ``results/``."""
    parts = Path(path).parts
    if "results" not in parts or ".snakemake" in parts:  # the latter: a local copy of a file in a bucket
        return None
    # The folder is that of a study, results/<study>, or of a data set, results/data/<dataset>.
    at = len(parts) - 1 - parts[::-1].index("results")  # the last one: a folder above may be called so too
    below = at + (3 if parts[at + 1 : at + 2] == ("data",) else 2)
    if len(parts) <= below:
        return None
    return Path(*parts[:below], CHECKSUM_FOLDER, *parts[below:-1], f"{parts[-1]}.json")


def _read_checksums(path: Path) -> dict[str, Any] | None:
    """The content of a checksum file; None where it is missing or damaged: the output then counts as one without."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        [FileChecksum(*checksum) for checksum in content["files"].values()]  # raises for an entry of another form
        return content if {"rule", "job", "when"} <= content.keys() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _file_names(path: Path) -> Iterator[str]:
    """Names of the files that an output consists of, relative to it; those next to it begin with ``../``."""
    if path.is_dir():
        yield from sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
        return
    yield ""
    if path.name in _FOLDER_MARKERS:
        siblings = sorted(file.name for file in path.parent.iterdir() if file.is_file() and file.name[0] != ".")
        yield from (f"../{name}" for name in siblings if name not in _FOLDER_MARKERS)


def _member_path(path: Path, name: str) -> Path:
    if name.startswith("../"):
        return path.with_name(Path(name).name)
    return path / name if name else path


def _file_checksum(path: Path) -> FileChecksum:
    stat = path.stat()
    large = stat.st_size >= MIN_CRC_BYTES
    return FileChecksum(stat.st_size, stat.st_mtime_ns, sha256_of(path), crc32_of(path) if large else None)


def _difference(path: Path, known: FileChecksum) -> str:
    """How a file differs from what its job wrote, in words; empty if it does not."""
    if not path.is_file():
        return "it is a folder" if path.is_dir() else "it is missing"
    stat = path.stat()
    if stat.st_size == known.bytes:
        quickly = known.crc32 is not None and stat.st_mtime_ns == known.time
        if quickly and crc32_of(path) == known.crc32:
            return ""
        digest = sha256_of(path)
        if digest == known.sha256:
            return ""
    else:
        digest = sha256_of(path)
    changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(stat.st_mtime))
    if original := _find_original(path, digest):
        return f"it is a copy of {original} (since {changed})"
    if stat.st_size < known.bytes:
        return f"it has {stat.st_size:,} bytes where there were {known.bytes:,} (since {changed})"
    return f"its content has changed (since {changed})"


def _find_original(path: Path, digest: str) -> Path | None:
    """Another result of the same suffix that was written with this content: two files were swapped or copied."""
    checksum_file = _checksum_path(path)
    if checksum_file is None:
        return None
    root = next(folder for folder in checksum_file.parents if folder.name == CHECKSUM_FOLDER)
    for candidate in root.rglob(f"*{path.suffix}.json"):
        content = _read_checksums(candidate)
        if (
            content
            and candidate != checksum_file
            and any(checksum[2] == digest for checksum in content["files"].values())
        ):
            return root.parent / candidate.relative_to(root).with_suffix("")
    return None


def _in_brackets(job: str) -> str:
    return f" ({job})" if job else ""
