"""What a rehearsal's jobs took: Snakemake's benchmarks, the jobs' own logs, histories and records."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rewind.files import read_csv, read_json

_FINISHED = re.compile(r"^finished in ([\d.]+) s$", re.M)
# Benchmarks that stand in a folder, a file per job → rule; one that stands alone is named after its rule.
_IN_FOLDERS = {"videos": "video_shard", "sweep": "sweep_trial"}
_ALONE = {"zero_shot": "zero_shot_table"}


@dataclass(frozen=True)
class Job:
    """A finished job.

    Attributes:
        rule: of the workflow.
        name: of the job among those of its rule, for example ``meanP.seed0``; empty for a rule with one job.
        seconds: wall time of its process.
        inside: of these, seconds after Python and its libraries were loaded.
        memory: largest resident memory in MB, None where the job was too short to tell.
    """

    rule: str
    name: str
    seconds: float
    inside: float
    memory: float | None

    @property
    def start(self) -> float:
        """Seconds to load Python and libraries."""
        return max(0.0, self.seconds - self.inside)

    @property
    def method(self) -> str:
        """Of a job of one run."""
        return self.name.rpartition(".seed")[0] or self.name.partition("/")[0]


def jobs_in(results: Path) -> list[Job]:
    """Every job that left a benchmark below ``results`` (``results/<study>`` or ``results/data/<dataset>``)."""
    folder = results / "benchmarks"
    return [_job(path, folder) for path in sorted(folder.rglob("*.tsv"))]


def _job(path: Path, folder: Path) -> Job:
    parts = path.relative_to(folder).with_suffix("").parts
    rule = _IN_FOLDERS.get(parts[0], parts[0]) if len(parts) > 1 else _ALONE.get(parts[0], parts[0])
    row = pd.read_csv(path, sep="\t", na_values="-").iloc[-1]
    log = folder.parent / "logs" / path.relative_to(folder).with_suffix(".log")
    found = _FINISHED.findall(log.read_text(encoding="utf-8")) if log.exists() else []
    seconds = float(row["s"])
    memory = None if pd.isna(row["max_rss"]) else float(row["max_rss"])
    return Job(rule, "/".join(parts[1:]), seconds, float(found[-1]) if found else seconds, memory)


@dataclass(frozen=True)
class Steps:
    """How fast a training job stepped.

    Attributes:
        seconds: of one step, in the fastest epoch (the first one warms up).
        trained: seconds of all epochs together, validation left out.
        rows: captions in a step.
        frames: frames of a clip.
        gpus: that it ran on.
        gpu_memory: MB at most, None on a CPU.
        parameters: of the model.
    """

    seconds: float
    trained: float
    rows: int
    frames: int
    gpus: int
    gpu_memory: float | None
    parameters: int


def steps_of(history: Path, record: Path) -> Steps | None:
    """The steps of a run by its history and its record; None where nothing was trained."""
    if not history.read_text(encoding="utf-8").strip():
        return None
    rows, found = read_csv(history), read_json(record)
    size = found["spec"]["method"]["training"]["batch"]["size"]
    seen = (rows["seconds"] * rows["clips_per_second"]).round()
    batch = int(min(size, seen.max()))
    per_step = (rows["seconds"] / (seen / batch).clip(lower=1)).min()
    gpus, memory = found["hardware"]["gpus"], found["peak_gpu_memory_mb"]
    trained = float(rows["seconds"].sum())
    return Steps(float(per_step), trained, batch, found["max_frames"], gpus, memory, found["parameters"])


def bytes_below(folder: Path) -> int:
    """Bytes of all files below a folder; one that has several names (a kept shard) counts once."""
    found = (path.stat() for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum({(stat.st_dev, stat.st_ino): stat.st_size for stat in found}.values())
