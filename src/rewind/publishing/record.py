"""Where published results come from: commit, date, machine. In a file, and in a sentence for readers."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rewind.files import read_json
from rewind.provenance import environment, hardware
from rewind.study import Study

_PAUSE = 60  # seconds without a job that Snakemake needs at most between two


def study_record(study: Study, folder: Path) -> dict[str, Any]:
    """What the runs of a finished study recorded, once.

    Args:
        study: its keys.
        folder: its results.
    """
    files = [folder / f"runs/{method}/seed{seed}/run.json" for method, seed in study.runs()]
    runs = [read_json(file) for file in files]
    trained = [run for run, (method, _) in zip(runs, study.runs(), strict=True) if method in study.trained()] or runs
    dates = [run.get("date") or _day(file) for run, file in zip(runs, files, strict=True)]
    found = _record(study.name, "study", runs, trained) | {"date": max(dates)}
    data = folder.parent / "data" / study.dataset / "benchmarks"
    return found | {
        "wall_seconds": wall_seconds([folder / "benchmarks", data], max(found["machine"]["cores"], default=0))
    }


def benchmark_record(name: str, figures: Path) -> dict[str, Any]:
    """Of a benchmark, whose figures name no machine: this checkout on this machine, on the day of the figures."""
    here = environment() | {"hardware": hardware()}
    return _record(name, "benchmark", [here], [here]) | {"date": _day(figures)}


def _record(name: str, kind: str, runs: Sequence[dict[str, Any]], trained: Sequence[dict[str, Any]]) -> dict[str, Any]:
    sets = [run["hardware"] for run in trained]
    gits = [run.get("git") or {} for run in runs]
    return {
        "name": name,
        "kind": kind,
        "commits": _distinct(git.get("commit") for git in gits),
        "dirty": any(git.get("dirty") for git in gits),
        "machine": {
            "processor": _distinct(run.get("processor") for run in trained),
            "instance": _distinct(run.get("instance") for run in trained),
            "cores": _distinct(found.get("cores") for found in sets),
            "instructions": _distinct(found.get("instructions") for found in sets),
            "onednn_max": _distinct(found.get("onednn_max") for found in sets),
            "devices": _distinct(device for found in sets if found["gpus"] for device in found["devices"]),
        },
        "python": _distinct(run.get("python") for run in trained),
        "packages": trained[0].get("packages", {}),
        "ffmpeg": _distinct(run.get("ffmpeg") for run in trained),
        "driver": _distinct(run.get("driver") for run in trained),
    }


def machine_name(record: dict[str, Any]) -> str:
    """A folder's name for the machine: its GPU, else the instructions that torch chose, ``avx512``."""
    machine = record["machine"]
    parts = machine["devices"] or machine["instructions"] or machine["processor"] or ["unknown"]
    parts = [*parts, *(f"onednn {name}" for name in machine["onednn_max"] if not machine["devices"])]
    return "-".join("".join(c if c.isalnum() else "-" for c in part.lower()).strip("-") for part in parts)


def where(record: dict[str, Any]) -> str:
    """``commit 8a66043, 22 November 2026, AMD EPYC, 2 cores, AVX512``."""
    machine = record["machine"]
    commits = " and ".join(commit[:7] for commit in record["commits"])
    changed = " with uncommitted changes" if record["dirty"] else ""
    cores = " or ".join(map(str, machine["cores"]))
    parts = [
        f"commit {commits}{changed}" if commits else "unknown commit",
        _date(record["date"]),
        *machine["instance"],
        *machine["devices"],
        *machine["processor"],
        f"{cores} {'core' if cores == '1' else 'cores'}" if cores else "",
        instructions(record),
    ]
    return ", ".join(part for part in parts if part)


def instructions(record: dict[str, Any]) -> str:
    """The vector instructions that torch and oneDNN might use."""
    machine = record["machine"]
    named = " and ".join(machine["instructions"]).replace("DEFAULT", "torch's default instructions")
    limit = " and ".join(machine["onednn_max"])
    return f"{named} (oneDNN at most {limit})" if named and limit else named


def duration(seconds: float) -> str:
    """``6:34``: minutes and seconds; with hours from one hour on."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def wall_seconds(folders: Iterable[Path], cores: int) -> float | None:
    """From the start of the first job to the end of the last, where all ran in one go; None where that is not known.

    Snakemake's measurements say how long a job took, and the file's time when it ended. Where these leave a pause, or
    more work than ``cores`` can do, jobs ran on another day or the files were copied.

    Args:
        folders: of measurements; one that did not run in the same go as the first (data that was there) is left out.
        cores: of the machine; 0: not known, and then nor is the time.
    """
    spans: list[tuple[float, float]] = []
    for folder in folders:
        found = spans + [_span(file) for file in sorted(folder.rglob("*.tsv"))]
        if not spans or _at_once(found, cores):
            spans = found
    if not spans or not _at_once(spans, cores):
        return None
    return round(max(end for _, end in spans) - min(start for start, _ in spans), 1)


def _span(file: Path) -> tuple[float, float]:
    with file.open(newline="") as stream:
        seconds = float(next(csv.DictReader(stream, delimiter="\t"))["s"])
    end = file.stat().st_mtime
    return end - seconds, end


def _at_once(spans: list[tuple[float, float]], cores: int) -> bool:
    last = min(start for start, _ in spans)
    first = last
    for start, end in sorted(spans):
        if start > last + _PAUSE:
            return False
        last = max(last, end)
    return sum(end - start for start, end in spans) <= 1.1 * cores * (last - first)


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(value for value in values if value is not None))


def _day(file: Path) -> str:
    return datetime.datetime.fromtimestamp(file.stat().st_mtime, datetime.UTC).date().isoformat()


def _date(text: str) -> str:
    day = datetime.date.fromisoformat(text)
    return f"{day.day} {day:%B %Y}"
