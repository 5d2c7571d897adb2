"""Inputs that only lie elsewhere: a version that stores clips in another way must not cost anybody a training run.

Snakemake compares lists of files. Where a job's list differs by nothing but files that say where clips and frames are,
and the data set holds the same content as when runs of the study were trained, ``rewind accept`` writes the new list
into Snakemake's record of the outputs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rewind.errors import RewindError
from rewind.files import read_json, sha256_of, write_text
from rewind.staleness.plan import Planned, record, record_path

_LAYOUT = re.compile(
    r"results/data/[^/]+/(videos/(report\.csv|shards\.csv|clips\.csv|shards/[^/]+\.tar)|captions/report\.json|source\.tar)"
    r"|results/[^/]+/frames/frames\d+/(index\.json|items\.csv|shards)"
)
"""Files that hold clips or frames, or say where they are: what these show is in the data set's digest."""


def only_moved(job: Planned) -> bool:
    """Whether all that changed of a job's files is where clips and frames lie, and their content is the same."""
    found = False
    for line in job.reason.split("; "):
        head, _, rest = line.partition(": ")
        if head == "Set of input files has changed since last execution":
            before = set(_recorded(job).get("input", ()))
            if not all(_LAYOUT.fullmatch(path) for path in before ^ set(job.inputs)):
                return False
            found = True
        elif head == "Updated input files":
            if not all(_LAYOUT.fullmatch(path) for path in rest.split(", ")):
                return False
            found = True
        elif head in ("Missing output files", "Incomplete output files", "Forced execution"):
            return False
    return found and same_content(job)


def same_content(job: Planned) -> bool:
    """Whether every run of the job's study was trained on what its data set holds now, by their digests."""
    study = job.wildcards.get("study")
    runs = [_read(path) for path in sorted(Path("results").glob(f"{study}/runs/*/*/run.json"))] if study else []
    trained = {run.get("data_digest") for run in runs}
    described = {path for path in job.inputs if path.endswith("/captions/report.json")} or {
        f"{Path(path).parent}/captions/report.json" for path in job.inputs if path.endswith("/items.csv")
    }
    now = {_read(Path(path)).get("digest") for path in described if "/frames/" not in path}
    return len(trained) == 1 and trained == now and None not in now


def rebase(job: Planned) -> None:
    """Make today's list of input files the one that a job's outputs were made from."""
    for output in job.outputs:
        if not (known := record(output)):
            continue
        known["input"] = sorted(job.inputs)
        sums = known.get("input_checksums") or {}
        kept = {path: value for path, value in sums.items() if path in job.inputs}
        known["input_checksums"] = kept | {path: f"sha256:{sha256_of(path)}" for path in _small(job.inputs)}
        write_text(record_path(output), json.dumps(known))


def _small(paths: Iterable[str]) -> list[str]:
    """Files that say where others are; they are small, and Snakemake compares them by checksum."""
    return [path for path in paths if _LAYOUT.fullmatch(path) and Path(path).suffix in (".csv", ".json")]


def _recorded(job: Planned) -> dict[str, Any]:
    return next((known for output in job.outputs if (known := record(output)).get("input")), {})


def _read(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
    except RewindError:
        return {}
    return content if isinstance(content, dict) else {}
