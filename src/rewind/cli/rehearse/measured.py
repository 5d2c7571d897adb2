"""What jobs took in a rehearsal: Snakemake's benchmarks, the jobs' logs, histories and records of training."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rewind.io.files import read_csv, read_json
from rewind.workflow.stages import LAST_LEVEL, RULES, Stage

_FINISHED_LINE = re.compile(r"^finished in ([\d.]+) s$", re.M)
# Folder of benchmarks → rule, where it is not named after its rule.
_RULES_OF_FOLDERS = {"videos": "video_shard", "sweep": "sweep_trial"}


def rule_stage(rule: str) -> Stage:
    """The line of a rule; one of the user's own is of the last level, and takes as long as rehearsed."""
    return RULES.get(rule, Stage(LAST_LEVEL))


@dataclass(frozen=True)
class FinishedJob:
    """A finished job and what it took.

    >>> job = FinishedJob("train", "meanP.seed0", seconds=12.0, inside=9.0, memory=850.0)
    >>> job.method, job.start
    ('meanP', 3.0)
    """

    rule: str
    name: str  # among the jobs of its rule, for example `meanP.seed0`; empty for a rule with one job
    seconds: float  # wall time of its process
    inside: float  # seconds of that after Python and its libraries were loaded
    memory: float | None  # largest resident memory in MB; None where the job was too short to measure it

    @property
    def start(self) -> float:
        """Seconds to load Python and libraries."""
        return max(0.0, self.seconds - self.inside)

    @property
    def method(self) -> str:
        """Method of a job that belongs to one run."""
        return self.name.rpartition(".seed")[0] or self.name.partition("/")[0]


def finished_jobs(results: Path) -> list[FinishedJob]:
    """Every job that left a benchmark below ``results`` (``results/<study>`` or ``results/data/<dataset>``)."""
    folder = results / "benchmarks"
    return [_read_job(path, folder) for path in sorted(folder.rglob("*.tsv"))]


def _read_job(path: Path, folder: Path) -> FinishedJob:
    parts = path.relative_to(folder).with_suffix("").parts
    rule = _RULES_OF_FOLDERS.get(parts[0], parts[0]) if len(parts) > 1 else parts[0]
    row = pd.read_csv(path, sep="\t", na_values="-").iloc[-1]
    log = folder.parent / "logs" / path.relative_to(folder).with_suffix(".log")
    finished = _FINISHED_LINE.findall(log.read_text(encoding="utf-8")) if log.exists() else []
    seconds = float(row["s"])
    memory = None if pd.isna(row["max_rss"]) else float(row["max_rss"])
    return FinishedJob(rule, "/".join(parts[1:]), seconds, float(finished[-1]) if finished else seconds, memory)


def jobs_by_rule(jobs: list[FinishedJob]) -> dict[str, list[FinishedJob]]:
    """Jobs by rule, rules in the order in which they run."""
    rules = sorted({job.rule for job in jobs}, key=lambda rule: (rule_stage(rule).level, rule))
    return {rule: [job for job in jobs if job.rule == rule] for rule in rules}


def peak_memory(jobs: list[FinishedJob]) -> float | None:
    """MB of the largest job; None if none was measured."""
    return max((job.memory for job in jobs if job.memory is not None), default=None)


@dataclass(frozen=True)
class StepTimes:
    """How fast a training job stepped."""

    seconds: float  # of one step, in the fastest epoch (the first one warms up)
    trained: float  # seconds of all epochs together, without validation
    rows: int  # captions in a step
    frames: int  # of a clip
    gpus: int  # that it ran on
    gpu_memory: float | None  # largest GPU memory in MB; None on a CPU
    parameters: int  # of the model


PRETRAINING = ""  # represents the pre-training among names of methods, of which none is empty


def fastest_steps(results: Path) -> dict[str, StepTimes]:
    """The fastest steps of every method, and of any pre-training as :data:`PRETRAINING`, over their seeds."""
    records = [(path.parents[1].name, path) for path in sorted(results.glob("runs/*/seed*/run.json"))]
    records += [(PRETRAINING, path) for path in sorted(results.glob("pretrained/**/run.json"))]
    fastest: dict[str, StepTimes] = {}
    for method, record in records:
        steps = read_step_times(record.with_name("history.csv"), record)
        if steps and (method not in fastest or steps.seconds < fastest[method].seconds):
            fastest[method] = steps
    return fastest


def read_step_times(history: Path, record: Path) -> StepTimes | None:
    """The steps of a run, from its ``history.csv`` and ``run.json``; None where nothing was trained."""
    if not history.read_text(encoding="utf-8").strip():
        return None
    rows, values = read_csv(history), read_json(record)
    size = values["spec"]["method"]["training"]["batch"]["size"]
    clips = (rows["seconds"] * rows["clips_per_second"]).round()
    batch = int(min(size, clips.max()))
    per_step = (rows["seconds"] / (clips / batch).clip(lower=1)).min()
    gpus, gpu_memory = values["hardware"]["gpus"], values["peak_gpu_memory_mb"]
    trained = float(rows["seconds"].sum())
    return StepTimes(float(per_step), trained, batch, values["max_frames"], gpus, gpu_memory, values["parameters"])


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder; a file with several names (hard links, as of kept shards) counts once."""
    stats = (path.stat() for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum({(stat.st_dev, stat.st_ino): stat.st_size for stat in stats}.values())
