"""What the whole study will cost here: measured times of a rehearsal × the study's counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rewind.rehearsal import stages
from rewind.rehearsal.data import Counts
from rewind.rehearsal.measure import Job, bytes_below
from rewind.rehearsal.rates import Rates, rows_of_epoch
from rewind.rehearsal.schedule import Planned, wall_time
from rewind.rehearsal.shrink import SEEDS
from rewind.rehearsal.stages import stage_of
from rewind.study import Dataset, Study
from rewind.study.pretraining import random_features, seeds

# Folders below results → the quantity that their files grow with; those of every pre-training.
GROWING = {
    "videos": "originals",
    "source": "originals",
    "source.tar": "originals",
    "made": "items",
    "features": "frames",
}
PER_PRETRAINING = ("pretrained", "features")
TRAINED_BYTES = 16  # of a parameter: its value, its gradient, AdamW's two moments


@dataclass
class Machine:
    """What the whole study will have: cores, GPUs, and TFLOP/s that one GPU sustains."""

    cores: int
    gpus: int
    tflops: float


@dataclass
class Row:
    """A rule in the rehearsal and in the whole study; seconds are those of all its jobs."""

    rule: str
    jobs: int
    seconds: float
    memory: float | None
    whole_jobs: int
    whole_seconds: float


@dataclass
class Cost:
    """The whole study.

    Attributes:
        rows: by rule, in the order of stages.
        wall: seconds from first job to last, on the machine that was asked about.
        disk: bytes of results.
        memory: MB of the largest job.
        gpu_memory: MB on a GPU of the largest job; without a GPU here, of its weights, gradients and AdamW alone.
        counts: of the data set.
        guesses: what is not measured, a sentence each.
    """

    rows: list[Row]
    wall: float
    disk: float
    memory: float | None
    gpu_memory: float | None
    counts: Counts
    guesses: list[str] = field(default_factory=list)


@dataclass
class Measured:
    """What a rehearsal left: jobs and quantities of a results folder, and the folder itself."""

    folder: Path
    dataset: Dataset
    jobs: list[Job]
    whole: dict[str, float]
    rehearsed: dict[str, float]


def estimate(
    study: Study,
    parts: list[Measured],
    rates: Rates,
    machine: Machine,
    wall: float,
    cores: int,
    frames: int,
) -> Cost:
    """The cost of a whole study.

    Args:
        study: the real one.
        parts: what each data set's folder and the study's own hold; the study's last.
        rates: of its training jobs.
        machine: asked about.
        wall: seconds that the rehearsal took, from first job to last, on ``cores`` cores.
        cores: see ``wall``.
        frames: of a clip in the runs: the most of a sweep, whose choice is not known.
    """
    rows, planned, rehearsed = [], [], []
    for part in parts:
        for rule in sorted({job.rule for job in part.jobs}, key=lambda name: (stage_of(name).level, name)):
            jobs = [job for job in part.jobs if job.rule == rule]
            rehearsed += [Planned(stage_of(rule).level, job.seconds, 1, 0) for job in jobs]
            to_come = _whole(rule, jobs, study, part, rates, frames)
            planned += to_come
            memory = max((job.memory for job in jobs if job.memory is not None), default=None)
            whole = sum(job.seconds for job in to_come)
            rows.append(Row(rule, len(jobs), sum(job.seconds for job in jobs), memory, len(to_come), whole))
    # What Snakemake itself takes between jobs, as it was here.
    between = max(0.0, wall - wall_time(rehearsed, cores, 0)) * cores / max(1, len(rehearsed))
    planned = [job._replace(seconds=job.seconds + between) for job in planned]
    guesses = list(rates.guesses)
    if not rates.counts.known:
        guesses.insert(0, f"the data set's size: {rates.counts.said}")
    if study.training.patience:
        guesses.append("no run stops early (training.patience)")
    memory, gpu_memory = _memory(study, rows, rates, parts[-1])
    guesses = [*guesses, *(guess for guess in rates.guesses if guess not in guesses)]
    total = wall_time(planned, machine.cores, machine.gpus)
    return Cost(rows, total, _disk(study, parts, rates), memory, gpu_memory, rates.counts, guesses)


def _whole(rule: str, jobs: list[Job], study: Study, part: Measured, rates: Rates, frames: int) -> list[Planned]:
    """The jobs of a rule in the whole study."""
    if rule in stages.ON_REQUEST:
        return []
    stage = stage_of(rule)
    threads, gpus = _asks(rule, study, part.dataset)

    def plan(seconds: float, trained: bool = True) -> Planned:
        return Planned(stage.level, seconds, threads, gpus if trained else 0)

    if stage.per_run:
        return [plan(s, not study.methods[m].baseline) for m, s in _per_run(rule, jobs, study, part, rates, frames)]
    copies = _pretrainings(study, part) if stage.per_pretraining else 1.0
    if stage.trains:
        each = [_trial(rule, job, study, rates) for job in jobs]
        return [plan(each[at % len(each)]) for at in range(round(len(each) * copies))]
    count = round(stages.jobs_of(rule, part.dataset, len(jobs)) * copies)
    start = sum(job.start for job in jobs) / len(jobs)
    inside = sum(job.inside for job in jobs) * copies
    if stage.grows:
        inside *= max(1.0, part.whole[stage.grows] / max(1.0, part.rehearsed[stage.grows]))
        if stage.grows != "rounds":
            rates.guess("each item of the full dataset takes as long to prepare as in the rehearsal")
    else:
        inside *= count / (len(jobs) * copies)
    return [plan(start + inside / count)] * count


def _pretrainings(study: Study, part: Measured) -> float:
    """How many times as many pre-trainings, or random frozen towers, the whole study has as its rehearsal; or 1."""
    if random_features(study):
        return len(study.seeds) / min(len(study.seeds), SEEDS)
    rehearsed = sum(job.rule == "pretrain" for job in part.jobs)
    return len(seeds(study)) / rehearsed if rehearsed else 1.0


def _per_run(
    rule: str, jobs: list[Job], study: Study, part: Measured, rates: Rates, frames: int
) -> list[tuple[str, float]]:
    """Method and seconds of each job that there is for every run."""
    found = []
    for method, _ in study.runs():
        own = [job for job in jobs if job.method == method]
        if not own:
            continue
        keys, each = study.methods[method].training, []
        for job in own:
            if rule == "train" and not study.methods[method].baseline:
                rows, valid = rows_of_epoch(keys, rates.counts), rates.counts.items.get("valid", 0)
                each.append(rates.training(job, method, keys, frames, rows, valid))
            elif rule == "train":
                each.append(job.seconds)
            elif rule == "ranks":
                each.append(rates.ranking(job, part.whole["pairs"], part.rehearsed["pairs"]))
            else:
                grows = stage_of(rule).grows
                each.append(rates.scoring(job, int(part.whole[grows]), int(part.rehearsed[grows]), frames))
        found.append((method, sum(each) / len(each)))
    return found


def _trial(rule: str, job: Job, study: Study, rates: Rates) -> float:
    """Seconds of the over-fitting check, of a sweep's trial, or of a pre-training."""
    counts, valid = rates.counts, rates.counts.items.get("valid", 0)
    if rule == "sanity":
        keys = study.sanity.training
        rows = min(study.sanity.clips, counts.items.get("train", 0))
        method = "pretraining" if study.pretraining else study.sanity.method or study.trained()[0]
        return rates.training(job, method, keys, study.frames.max_frames, rows, rows)
    if rule == "pretrain":
        keys = study.pretraining.training
        frames = study.pretraining.max_frames or study.frames.max_frames
        return rates.training(job, "pretraining", keys, frames, rows_of_epoch(keys, counts), valid)
    keys, frames = study.sweep.training, int(job.name.removeprefix("frames"))
    return rates.training(job, study.sweep.method, keys, frames, rows_of_epoch(keys, counts), valid)


def _asks(rule: str, study: Study, dataset: Dataset) -> tuple[int, int]:
    """Cores and GPUs of a job of the whole study."""
    stage = stage_of(rule)
    if rule in ("sources", "video_shard"):
        return dataset.media.workers, 0
    if rule == "encode_dataset":
        return dataset.source.made_from.threads if dataset.vectors and dataset.source.made_from else 1, 1
    if rule == "frames":
        return max(1, study.frames.workers), 0
    if rule == "pretrain":
        return study.pretraining.threads or study.resources.threads, study.resources.gpus
    if rule == "features":
        return study.resources.feature_threads or study.resources.threads, study.resources.gpus
    if rule == "step_time":
        return 1024, min(1, study.resources.gpus)
    if stage.per_run or stage.trains or rule in ("export_vectors", "submission", "efficiency"):
        return study.resources.threads, study.resources.gpus
    return 1, 0


def _memory(study: Study, rows: list[Row], rates: Rates, part: Measured) -> tuple[float | None, float | None]:
    """MB of the largest job, on the machine and on its GPU."""
    here = max((row.memory for row in rows if row.memory is not None), default=None)
    if here is not None and rates.missing:
        rates.guess("memory: 16 bytes per parameter of the layers that were left out")
        here += rates.missing * TRAINED_BYTES / 1e6
    if here is not None and study.frames.keep_in_memory:
        more = part.whole["frames"] - part.rehearsed["frames"]
        here += max(0.0, more) * study.frames.size**2 * 3 / 1e6
    timed = [steps.gpu_memory for steps in rates.steps.values() if steps.gpu_memory is not None]
    if timed or not rates.gpus:
        return here, max(timed, default=None)
    rates.guess("GPU memory: only weights, gradients and AdamW; activations use the rest (micro_batch: auto)")
    most = max((steps.parameters for steps in rates.steps.values()), default=0)
    return here, (most + rates.missing) * TRAINED_BYTES / 1e6


def _disk(study: Study, parts: list[Measured], rates: Rates) -> float:
    """Bytes below ``results`` at the end."""
    total = 0.0
    for part in parts:
        for path in sorted(part.folder.iterdir()) if part.folder.is_dir() else []:
            size = bytes_below(path) if path.is_dir() else path.stat().st_size
            total += size * _growth(path.name, study, part)
    if study.frames.store:
        numbers = study.sweep.max_frames if study.sweep else [study.frames.max_frames]
        total += rates.counts.originals * sum(numbers) * study.frames.size**2 * 3
    return total


def _growth(name: str, study: Study, part: Measured) -> float:
    copies = _pretrainings(study, part) if name in PER_PRETRAINING else 1.0
    if name in GROWING:
        key = GROWING[name]
        return copies * part.whole[key] / max(1.0, part.rehearsed[key])
    if name in stages.ON_REQUEST:
        return 0.0
    if name in ("similarity", "cosines"):
        runs = len(study.runs()) / max(1, sum(job.rule == "similarity" for job in part.jobs))
        return runs * part.whole["pairs"] / max(1.0, part.rehearsed["pairs"])
    if name == "runs":
        return len(study.runs()) / max(1, sum(job.rule == "train" for job in part.jobs))
    if name == "frames":
        return 0.0  # computed, not scaled
    return copies
