"""What the time of each rule grows with, and how long its jobs took."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rewind.cli.rehearse.data import DatasetCounts
from rewind.config import Dataset
from rewind.io.files import read_csv, read_json
from rewind.workflow.stages import LAST_LEVEL, RULES, Stage

# ---- Rules, and the quantity that the time of each grows with ------------------------------------------------------

ZERO_SHOT_IMAGES = 10_000  # CIFAR-10's test images
REHEARSED_IMAGES = 20
REHEARSED_ROUNDS = 5  # rounds of step times (tables.verdict.rounds) in a rehearsal


def rule_stage(rule: str) -> Stage:
    """The line of a rule; one of the user's own is of the last level, and takes as long as rehearsed."""
    return RULES.get(rule, Stage(LAST_LEVEL))


def growth_quantities(counts: DatasetCounts, frames: int, labelled: int, rounds: int) -> dict[str, float]:
    """Quantity → its value: what the time of stages and the size of files are proportional to.

    Args:
        counts: sizes of the dataset.
        frames: of a clip.
        labelled: images of zero-shot classification.
        rounds: of measuring step times.
    """
    items = sum(counts.items.values())
    valid, test = counts.items.get("valid", 0), counts.items.get("test", 0)
    return {
        "originals": counts.originals,
        "items": items,
        "frames": items * frames,
        "test": test,
        "valid_test": valid + test,
        "pairs": test * counts.captions.get("test", 0),
        "labelled": labelled,
        "rounds": rounds,
    }


def full_job_count(rule: str, dataset: Dataset, rehearsed: int) -> int:
    """Number of jobs of a rule in the whole study, for rules whose jobs are not counted by runs."""
    return dataset.media.shards if rule == "video_shard" else rehearsed


# ---- Measured times: Snakemake's benchmarks, the jobs' logs, training histories and records ------------------------

_FINISHED_LINE = re.compile(r"^finished in ([\d.]+) s$", re.M)
# Folder of benchmarks (one file per job) or lone file → rule, where they are not named after their rule.
_RULES_OF_FOLDERS = {"videos": "video_shard", "sweep": "sweep_trial"}
_RULES_OF_FILES = {"zero_shot": "zero_shot_table"}


@dataclass(frozen=True)
class FinishedJob:
    """A finished job and what it took.

    Attributes:
        rule: of the workflow.
        name: of the job among those of its rule, for example ``meanP.seed0``; empty for a rule with one job.
        seconds: wall time of its process.
        inside: seconds of that after Python and its libraries were loaded.
        memory: largest resident memory in MB; None where the job was too short to measure it.

    >>> job = FinishedJob("train", "meanP.seed0", seconds=12.0, inside=9.0, memory=850.0)
    >>> job.method, job.start
    ('meanP', 3.0)
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
        """Method of a job that belongs to one run."""
        return self.name.rpartition(".seed")[0] or self.name.partition("/")[0]


def finished_jobs(results: Path) -> list[FinishedJob]:
    """Every job that left a benchmark below ``results`` (``results/<study>`` or ``results/data/<dataset>``)."""
    folder = results / "benchmarks"
    return [_read_job(path, folder) for path in sorted(folder.rglob("*.tsv"))]


def _read_job(path: Path, folder: Path) -> FinishedJob:
    parts = path.relative_to(folder).with_suffix("").parts
    rule = _RULES_OF_FOLDERS.get(parts[0], parts[0]) if len(parts) > 1 else _RULES_OF_FILES.get(parts[0], parts[0])
    row = pd.read_csv(path, sep="\t", na_values="-").iloc[-1]
    log = folder.parent / "logs" / path.relative_to(folder).with_suffix(".log")
    finished = _FINISHED_LINE.findall(log.read_text(encoding="utf-8")) if log.exists() else []
    seconds = float(row["s"])
    memory = None if pd.isna(row["max_rss"]) else float(row["max_rss"])
    return FinishedJob(rule, "/".join(parts[1:]), seconds, float(finished[-1]) if finished else seconds, memory)


@dataclass(frozen=True)
class StepTimes:
    """How fast a training job stepped.

    Attributes:
        seconds: of one step, in the fastest epoch (the first one warms up).
        trained: seconds of all epochs together, without validation.
        rows: captions in a step.
        frames: frames of a clip.
        gpus: number of GPUs that it ran on.
        gpu_memory: largest GPU memory in MB; None on a CPU.
        parameters: number of the model's parameters.
    """

    seconds: float
    trained: float
    rows: int
    frames: int
    gpus: int
    gpu_memory: float | None
    parameters: int


def read_step_times(history: Path, record: Path) -> StepTimes | None:
    """The steps of a run.

    Args:
        history: ``history.csv``, a row per epoch.
        record: ``run.json``.

    Returns:
        None where nothing was trained.
    """
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
