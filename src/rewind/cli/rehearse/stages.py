"""The workflow's rules in the order in which they run, what the time of each grows with, and how long jobs took.

:data:`STAGE_PROFILES` has one line per rule; a rule without a line counts as one job that takes as long as rehearsed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from rewind.cli.rehearse.data import DatasetCounts
from rewind.config import Dataset
from rewind.io.files import read_csv, read_json

# ---- Rules, and the quantity that the time of each grows with ------------------------------------------------------

ZERO_SHOT_IMAGES = 10_000  # CIFAR-10's test images
REHEARSED_IMAGES = 20
REHEARSED_ROUNDS = 5  # rounds of step times (tables.verdict.rounds) in a rehearsal


class StageProfile(NamedTuple):
    """How the cost of a rule depends on the study.

    Attributes:
        level: rules of a lower level finish first; rules of one level run side by side.
        grows: quantity (see :func:`growth_quantities`) to which the time inside its jobs is proportional; empty: none.
        per_run: whether there is a job for every run.
        trains: whether its jobs consist of training steps.
        per_pretraining: whether there are jobs for every pre-training of a study that has any.

    >>> stage_profile("ranks")
    StageProfile(level=18, grows='pairs', per_run=True, trains=False, per_pretraining=False)
    """

    level: int
    grows: str = ""
    per_run: bool = False
    trains: bool = False
    per_pretraining: bool = False


STAGE_PROFILES = {
    "sources": StageProfile(0, "originals"),
    "inventory": StageProfile(1),
    "video_shard": StageProfile(2, "originals"),
    "videos": StageProfile(3),
    "encode_dataset": StageProfile(5, "items"),
    "vectors": StageProfile(6, "items"),
    "vector_report": StageProfile(7),
    "captions": StageProfile(8),
    "frames": StageProfile(9, "frames"),
    "encode_vectors": StageProfile(9, "test"),
    "sanity": StageProfile(10, trains=True),
    "pretrain": StageProfile(11, trains=True, per_pretraining=True),
    "features": StageProfile(12, "frames", per_pretraining=True),
    "sweep_trial": StageProfile(13, trains=True),
    "sweep": StageProfile(14),
    "train": StageProfile(15, per_run=True, trains=True),
    "step_time": StageProfile(16, "rounds"),
    "similarity": StageProfile(17, "test", per_run=True),
    "cosines": StageProfile(17, "valid_test", per_run=True),
    "zero_shot": StageProfile(17, "labelled", per_run=True),
    "export_vectors": StageProfile(17, "test"),
    "submission": StageProfile(17),
    "ranks": StageProfile(18, "pairs", per_run=True),
    "metrics": StageProfile(18),
    "cosine_gap": StageProfile(18),
    "zero_shot_table": StageProfile(18),
    "trec": StageProfile(18, "pairs"),
    "efficiency": StageProfile(18),
    "groups": StageProfile(18),
    "statistics": StageProfile(19, "test"),
    "group_results": StageProfile(19, "test"),
    "control": StageProfile(19, "test"),
    "batches": StageProfile(19),
    "cosine_gap_figure": StageProfile(19),
    "figures": StageProfile(20),
    "group_figure": StageProfile(20),
    "examples": StageProfile(20),
    "tables": StageProfile(20),
    "page": StageProfile(21, "test"),
}
ON_REQUEST_RULES = ("trec", "submission", "efficiency")  # rehearsed too, but no part of a study's cost
LAST_LEVEL = max(stage.level for stage in STAGE_PROFILES.values())


def stage_profile(rule: str) -> StageProfile:
    """The line of a rule; one without a line is of the last level."""
    return STAGE_PROFILES.get(rule, StageProfile(LAST_LEVEL))


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
