"""Estimate the cost of a whole study (time, disk, memory): measured times of its rehearsal × the study's counts.

:class:`TrainingRates` scales training and scoring, :func:`wall_time` schedules the jobs on cores and GPUs,
:func:`estimate_cost` puts both together.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from rewind.cli.rehearse import stages, weights
from rewind.cli.rehearse.data import DatasetCounts
from rewind.cli.rehearse.shrink import REHEARSED_SEEDS
from rewind.cli.rehearse.stages import FinishedJob, StepTimes, folder_bytes, rule_stage
from rewind.config import Dataset, Method, Study, Training
from rewind.registry import HEADS

# ---- When jobs would end on so many cores and GPUs -----------------------------------------------------------------


class ScheduledJob(NamedTuple):
    """A job of the whole study: its level (see :mod:`rewind.cli.rehearse.stages`), seconds, cores and GPUs."""

    level: int
    seconds: float
    threads: int
    gpus: int


def wall_time(jobs: Iterable[ScheduledJob], cores: int, gpus: int) -> float:
    """Seconds until the last job ends: level after level, in each the longest job first wherever it fits.

    A job that asks for more cores than there are takes all of them, as in Snakemake; without GPUs no job waits for one.

    >>> jobs = [ScheduledJob(0, 10.0, threads=1, gpus=0)] * 3 + [ScheduledJob(1, 5.0, threads=4, gpus=1)]
    >>> wall_time(jobs, cores=2, gpus=0)
    25.0
    """
    total = 0.0
    for _, level in groupby(sorted(jobs, key=lambda job: (job.level, -job.seconds)), key=lambda job: job.level):
        total += _level_time(list(level), cores, gpus)
    return total


def _level_time(waiting: list[ScheduledJob], cores: int, gpus: int) -> float:
    now, free_cores, free_gpus = 0.0, cores, gpus
    running: list[tuple[float, int, int]] = []  # a heap of (end, cores, GPUs)
    while waiting or running:
        for job in list(waiting):
            threads, job_gpus = min(job.threads, cores), min(job.gpus, gpus)
            if threads <= free_cores and job_gpus <= free_gpus:
                waiting.remove(job)
                heapq.heappush(running, (now + job.seconds, threads, job_gpus))
                free_cores, free_gpus = free_cores - threads, free_gpus - job_gpus
        now, threads, job_gpus = heapq.heappop(running)
        free_cores, free_gpus = free_cores + threads, free_gpus + job_gpus
    return now


# ---- Time of training and scoring, from a few measured steps -------------------------------------------------------

BACKWARD_COST = 2  # cost of a backward pass, in forward passes
# Measured by `benchmarks/brought.py` on 2 cores; a rehearsal has too few pairs to measure it.
SECONDS_PER_RANKED_SCORE = 1.5e-7
DEFAULT_GPU_TFLOPS = 100.0  # sustained by one GPU: about a third of the peak of an A100 or L40S in bf16


@dataclass
class TrainingRates:
    """Measured training steps of every method of a study, and the time that its whole jobs take by them.

    A step of a batch of B items takes (1 + BACKWARD_COST) · (B · item + B² · pair) seconds: ``item`` is the forward
    pass of an item with its caption, ``pair`` that of scoring one pair (heads that score pairs), see :meth:`forward`.

    Attributes:
        study: the real study.
        counts, rehearsed: sizes of its dataset, in whole and in the rehearsal.
        steps: measured steps by method; ``pretraining`` has those of the pre-training.
        gpus: GPUs that the whole study will have.
        tflops: TFLOP/s that one of them sustains, for steps that were not timed on a GPU.
        share: share of its visual layers that the rehearsed tower had.
        missing: number of parameters that it lacked.
        cores: CPU cores that the whole study will have.
        threads: CPU threads of the rehearsal's jobs: ``runs``, and ``pretraining``.
        guesses: assumptions behind the numbers besides measurement, in order; filled while numbers are computed.
    """

    study: Study
    counts: DatasetCounts
    rehearsed: DatasetCounts
    steps: dict[str, StepTimes]
    gpus: int
    tflops: float
    share: float
    missing: int
    cores: int
    threads: dict[str, int]
    guesses: dict[str, None] = field(default_factory=dict)

    def guess(self, sentence: str) -> None:
        self.guesses[sentence] = None

    def of(self, method: str) -> StepTimes | None:
        """Steps of a method, or else of the first method that has any: better than none."""
        return self.steps.get(method) or next(iter(self.steps.values()), None)

    def training(self, job: FinishedJob, method: str, keys: Training, frames: int, rows: int, valid: int) -> float:
        """Seconds of a whole training job.

        Args:
            job: the rehearsed one.
            method: whose steps it makes.
            keys: the real block ``training``.
            frames: of a clip.
            rows: captions of an epoch.
            valid: items of its validation.
        """
        steps = self.of(method)
        if steps is None:
            return job.seconds
        batch = min(keys.batch.size, max(rows, 1))
        item, pair = self.forward(steps, self._method(method), keys, frames)
        step = (1 + BACKWARD_COST) * (batch * item + batch**2 * pair)
        rehearsed_valid = self.rehearsed.items.get("valid", 0)
        validation = max(0, valid - rehearsed_valid) * item + max(0, valid**2 - rehearsed_valid**2) * pair
        # What the rehearsed job took besides its steps: loading, its own small validation, saving.
        fixed = max(0.0, job.seconds - (steps.trained if job.rule != "sanity" else 0.0))
        validations = -(-keys.epochs // keys.evaluate_every)  # rounded up
        return fixed + keys.epochs * max(1, rows // batch) * step + validations * validation

    def forward(self, steps: StepTimes, method: Method, keys: Training, frames: int) -> tuple[float, float]:
        """Seconds of a forward pass in the whole study: of an item with its caption, and of scoring one pair."""
        flops = self.pixels(method, keys, frames)
        if self.gpus and not steps.gpus:
            if flops:
                self.guess(
                    f"a GPU sustains {self.tflops:g} TFLOP/s (--gpu-tflops) in the visual tower, and the rest takes no "
                    "time; there was no GPU to time"
                )
                return flops / (self.tflops * 1e12), 0.0
            self.guess("steps on cached features and vectors take as long on a GPU as on this CPU")
        share = self.share if flops else 1.0
        if share < 1:
            self.guess("a tower's time is proportional to its layers, of which the rehearsal used few")
        pairs = self._pair_seconds(steps, method)
        # Both parts of a measured step (forward and backward), per item and per pair of the batch.
        scale = self._thread_factor(method) * frames / max(1, steps.frames) / (1 + BACKWARD_COST)
        return scale * (steps.seconds - pairs) / steps.rows / share, scale * pairs / steps.rows**2

    def _pair_seconds(self, steps: StepTimes, method: Method) -> float:
        """Seconds of a step in which a head scored pairs: those that the fastest method without such a head saves."""
        if not scores_pairs(method):
            return 0.0
        self.guess("the extra time of a head that scores pairs grows with the square of the batch size")
        names = [name for name in self.steps if name in self.study.methods and not scores_pairs(self._method(name))]
        others = [self.steps[name] for name in names]
        return max(0.0, steps.seconds - min((other.seconds / other.rows * steps.rows for other in others), default=0.0))

    def _thread_factor(self, method: Method) -> float:
        """Factor of a step's time from having another number of CPU threads than in the rehearsal."""
        pretraining = self.study.pretraining
        is_pretraining = pretraining is not None and method is pretraining.method
        requested = pretraining.threads if pretraining is not None and is_pretraining else None
        threads = min(requested or self.study.resources.threads, self.cores)
        rehearsed = self.threads["pretraining" if is_pretraining else "runs"]
        if threads != rehearsed:
            self.guess(f"{threads} threads are faster than the rehearsal's {rehearsed} in proportion to their number")
        return rehearsed / threads

    def pixels(self, method: Method, keys: Training, frames: int) -> float:
        """FLOPs of the visual tower for one item; 0 for a method that learns from features, or an unknown tower."""
        if "visual" in keys.freeze or method.noise:
            return 0.0
        backbone = method.own_backbone or self.study.backbone.model_dump()
        return weights.visual_tower_flops(backbone, frames, self.study.frames.size) or 0.0

    def scoring(self, job: FinishedJob, items: int, rehearsed: int, frames: int) -> float:
        """Seconds of a job that encodes items with a run's model and scores all pairs."""
        steps, method = self.of(job.method), self._method(job.method)
        if steps is None or method.baseline:
            # No steps to scale: in proportion to items; the time of baselines grows less, by its square root.
            return job.start + job.inside * max(1.0, items / max(1, rehearsed)) ** (0.5 if method.baseline else 1.0)
        item, pair = self.forward(steps, method, method.training, frames)
        return job.seconds + max(0, items - rehearsed) * item + max(0, items**2 - rehearsed**2) * pair

    def ranking(self, job: FinishedJob, pairs: float, rehearsed: float) -> float:
        """Seconds of a job that ranks a run's scores, of which a rehearsal has too few for timing."""
        self.guess(f"a score is ranked in {SECONDS_PER_RANKED_SCORE * 1e6:g} µs")
        return job.seconds + max(0.0, pairs - rehearsed) * SECONDS_PER_RANKED_SCORE

    def _method(self, name: str) -> Method:
        pretraining = self.study.pretraining
        if name == "pretraining" and pretraining is not None:
            return pretraining.method
        return self.study.methods.get(name) or next(iter(self.study.methods.values()))


def scores_pairs(method: Method) -> bool:
    """Whether a method's head scores pairs."""
    return method.model == "clip4clip" and method.head in HEADS.names() and HEADS.find(method.head).pairwise


def captions_per_epoch(keys: Training, counts: DatasetCounts) -> int:
    """Number of captions in an epoch."""
    return (counts.captions if keys.batch.captions == "all" else counts.items).get("train", 0)


# ---- Cost of the whole study ---------------------------------------------------------------------------------------

# Entries of a results folder → the quantity with which their size grows (see rewind.cli.rehearse.stages).
FOLDER_GROWTH = {
    "videos": "originals",
    "source": "originals",
    "source.tar": "originals",
    "made": "items",
    "features": "frames",
}
PRETRAINING_FOLDERS = ("pretrained", "features")  # these exist once for every pre-training
BYTES_PER_TRAINED_PARAMETER = 16  # fp32: value, gradient and AdamW's two moments
# Names of fields of the classes below, and of DatasetCounts, are keys of the file that `rewind rehearse --json` writes.


@dataclass
class Machine:
    """The machine of the whole study: CPU cores, GPUs, and TFLOP/s that one GPU sustains."""

    cores: int
    gpus: int
    tflops: float


@dataclass
class StageCost:
    """A rule in the rehearsal and in the whole study; seconds are of all its jobs, memory is MB of the largest."""

    rule: str
    jobs: int
    seconds: float
    memory: float | None
    whole_jobs: int
    whole_seconds: float


@dataclass
class StudyCost:
    """The estimated cost of a whole study.

    Attributes:
        rows: by rule, in the order of stages.
        wall: seconds from the first job to the last, on the machine of the whole study.
        disk: bytes of results.
        memory: MB of the largest job.
        gpu_memory: MB of the largest job on a GPU; without a GPU here, of weights, gradients and AdamW's state alone.
        counts: sizes of the dataset.
        guesses: assumptions that were not measured, a sentence each.
    """

    rows: list[StageCost]
    wall: float
    disk: float
    memory: float | None
    gpu_memory: float | None
    counts: DatasetCounts
    guesses: list[str] = field(default_factory=list)


@dataclass
class MeasuredFolder:
    """A results folder of a rehearsal with its jobs, and the quantities that they grow with.

    ``whole`` and ``rehearsed`` are from :func:`rewind.cli.rehearse.stages.growth_quantities`.
    """

    folder: Path
    dataset: Dataset
    jobs: list[FinishedJob]
    whole: dict[str, float]
    rehearsed: dict[str, float]


def estimate_cost(
    study: Study,
    parts: list[MeasuredFolder],
    rates: TrainingRates,
    machine: Machine,
    wall: float,
    cores: int,
    frames: int,
) -> StudyCost:
    """Estimate the cost of a whole study.

    Args:
        study: the real one.
        parts: the results folder of each dataset, then the study's own.
        rates: of its training jobs.
        machine: that of the whole study.
        wall: seconds that the rehearsal took, from the first job to the last, on ``cores`` cores.
        cores: see ``wall``.
        frames: of a clip in the runs; the largest number of a sweep, whose choice is not known.
    """
    rows, planned, rehearsed = [], [], []
    for part in parts:
        for rule in sorted({job.rule for job in part.jobs}, key=lambda name: (rule_stage(name).level, name)):
            jobs = [job for job in part.jobs if job.rule == rule]
            rehearsed += [ScheduledJob(rule_stage(rule).level, job.seconds, 1, 0) for job in jobs]
            full_jobs = _full_study_jobs(rule, jobs, study, part, rates, frames)
            planned += full_jobs
            memory = max((job.memory for job in jobs if job.memory is not None), default=None)
            full_seconds = sum(job.seconds for job in full_jobs)
            seconds = sum(job.seconds for job in jobs)
            rows.append(StageCost(rule, len(jobs), seconds, memory, len(full_jobs), full_seconds))
    # What Snakemake itself takes between jobs: what the rehearsal took beyond its jobs, spread over them.
    between = max(0.0, wall - wall_time(rehearsed, cores, 0)) * cores / max(1, len(rehearsed))
    planned = [job._replace(seconds=job.seconds + between) for job in planned]
    guesses = list(rates.guesses)
    if not rates.counts.known:
        guesses.insert(0, f"the data set's size: {rates.counts.said}")
    if study.training.patience:
        guesses.append("no run stops early (training.patience)")
    memory, gpu_memory = _peak_memory(study, rows, rates, parts[-1])
    guesses = [*guesses, *(guess for guess in rates.guesses if guess not in guesses)]
    total = wall_time(planned, machine.cores, machine.gpus)
    return StudyCost(rows, total, _disk_bytes(study, parts, rates), memory, gpu_memory, rates.counts, guesses)


def _full_study_jobs(
    rule: str, jobs: list[FinishedJob], study: Study, part: MeasuredFolder, rates: TrainingRates, frames: int
) -> list[ScheduledJob]:
    """The jobs of a rule in the whole study."""
    if rule_stage(rule).on_request:
        return []
    stage = rule_stage(rule)
    threads, gpus = _requested_cores_gpus(rule, study, part.dataset)

    def plan(seconds: float, trained: bool = True) -> ScheduledJob:
        return ScheduledJob(stage.level, seconds, threads, gpus if trained else 0)

    if stage.per_run:
        runs = _run_seconds(rule, jobs, study, part, rates, frames)
        return [plan(each, trained=not study.methods[method].baseline) for method, each in runs]
    copies = _pretraining_factor(study, part) if stage.per_pretraining else 1.0
    if stage.trains:
        trial_seconds = [_trial_seconds(rule, job, study, rates) for job in jobs]
        return [plan(trial_seconds[n % len(trial_seconds)]) for n in range(round(len(trial_seconds) * copies))]
    count = round(stages.full_job_count(rule, part.dataset, len(jobs)) * copies)
    start = sum(job.start for job in jobs) / len(jobs)
    inside = sum(job.inside for job in jobs) * copies
    if stage.grows:
        inside *= max(1.0, part.whole[stage.grows] / max(1.0, part.rehearsed[stage.grows]))
        if stage.grows != "rounds":
            rates.guess("each item of the full dataset takes as long to prepare as in the rehearsal")
    else:
        inside *= count / (len(jobs) * copies)
    return [plan(start + inside / count)] * count


def _pretraining_factor(study: Study, part: MeasuredFolder) -> float:
    """Pre-trainings, or random frozen towers, of the whole study for each of the rehearsal; 1 where there are none."""
    if study.has_random_features:
        return len(study.seeds) / min(len(study.seeds), REHEARSED_SEEDS)
    rehearsed = sum(job.rule == "pretrain" for job in part.jobs)
    return len(study.pretraining_seeds()) / rehearsed if rehearsed else 1.0


def _run_seconds(
    rule: str, jobs: list[FinishedJob], study: Study, part: MeasuredFolder, rates: TrainingRates, frames: int
) -> list[tuple[str, float]]:
    """(method, seconds) of the job of a rule for every run; seconds are means over the rehearsed seeds."""
    result = []
    for method, _ in study.runs():
        own_jobs = [job for job in jobs if job.method == method]
        if not own_jobs:
            continue
        keys, seconds = study.methods[method].training, []
        for job in own_jobs:
            if rule == "train" and not study.methods[method].baseline:
                rows, valid = captions_per_epoch(keys, rates.counts), rates.counts.items.get("valid", 0)
                seconds.append(rates.training(job, method, keys, frames, rows, valid))
            elif rule == "train":
                seconds.append(job.seconds)
            elif rule in ("ranks", "untrained_run"):
                seconds.append(rates.ranking(job, part.whole["pairs"], part.rehearsed["pairs"]))
            else:
                grows = rule_stage(rule).grows
                seconds.append(rates.scoring(job, int(part.whole[grows]), int(part.rehearsed[grows]), frames))
        result.append((method, sum(seconds) / len(seconds)))
    return result


def _trial_seconds(rule: str, job: FinishedJob, study: Study, rates: TrainingRates) -> float:
    """Seconds of the over-fitting check, of a trial of the sweep, or of a pre-training."""
    counts, valid = rates.counts, rates.counts.items.get("valid", 0)
    sanity, pretraining, sweep = study.sanity, study.pretraining, study.sweep  # each rule is of studies that have it
    if rule == "sanity":
        assert sanity is not None
        rows = min(sanity.clips, counts.items.get("train", 0))
        method = "pretraining" if pretraining else sanity.method or study.trained()[0]
        return rates.training(job, method, sanity.training, study.frames.max_frames, rows, rows)
    if rule == "pretrain":
        assert pretraining is not None
        keys, frames = pretraining.training, pretraining.max_frames or study.frames.max_frames
        return rates.training(job, "pretraining", keys, frames, captions_per_epoch(keys, counts), valid)
    assert sweep is not None
    keys, frames = sweep.training, int(job.name.removeprefix("frames"))
    return rates.training(job, sweep.method, keys, frames, captions_per_epoch(keys, counts), valid)


def _requested_cores_gpus(rule: str, study: Study, dataset: Dataset) -> tuple[int, int]:
    """Cores and GPUs of a job of the whole study."""
    stage = rule_stage(rule)
    if rule in ("sources", "video_shard"):
        return dataset.media.workers, 0
    if rule == "encode_dataset":
        return dataset.source.made_from.threads if dataset.vectors and dataset.source.made_from else 1, 1
    if rule == "frames":
        return max(1, study.frames.workers), 0
    if rule == "pretrain":
        assert study.pretraining is not None  # the rule is of studies that have it
        return study.pretraining.threads or study.resources.threads, study.resources.gpus
    if rule == "features":
        return study.resources.feature_threads or study.resources.threads, study.resources.gpus
    if rule == "step_time":
        return 1024, min(1, study.resources.gpus)  # timings must not be disturbed: it takes all cores
    if stage.per_run or stage.trains or rule in ("export_vectors", "submission", "efficiency"):
        return study.resources.threads, study.resources.gpus
    return 1, 0


def _peak_memory(
    study: Study, rows: list[StageCost], rates: TrainingRates, part: MeasuredFolder
) -> tuple[float | None, float | None]:
    """MB of the largest job: resident memory, and memory of a GPU."""
    memory = max((row.memory for row in rows if row.memory is not None), default=None)
    if memory is not None and rates.missing:
        rates.guess("memory: 16 bytes per parameter of the layers that were left out")
        memory += rates.missing * BYTES_PER_TRAINED_PARAMETER / 1e6
    if memory is not None and study.frames.keep_in_memory:
        extra_frames = part.whole["frames"] - part.rehearsed["frames"]
        memory += max(0.0, extra_frames) * study.frames.size**2 * 3 / 1e6
    measured = [steps.gpu_memory for steps in rates.steps.values() if steps.gpu_memory is not None]
    if measured or not rates.gpus:
        return memory, max(measured, default=None)
    rates.guess("GPU memory: only weights, gradients and AdamW; activations use the rest (micro_batch: auto)")
    parameters = max((steps.parameters for steps in rates.steps.values()), default=0)
    return memory, (parameters + rates.missing) * BYTES_PER_TRAINED_PARAMETER / 1e6


def _disk_bytes(study: Study, parts: list[MeasuredFolder], rates: TrainingRates) -> float:
    """Bytes below ``results`` when the study has finished."""
    total = 0.0
    for part in parts:
        for path in sorted(part.folder.iterdir()) if part.folder.is_dir() else []:
            size = folder_bytes(path) if path.is_dir() else path.stat().st_size
            total += size * _folder_growth_factor(path.name, study, part)
    if study.frames.store:
        frame_counts = study.sweep.max_frames if study.sweep else [study.frames.max_frames]
        total += rates.counts.originals * sum(frame_counts) * study.frames.size**2 * 3
    return total


def _folder_growth_factor(name: str, study: Study, part: MeasuredFolder) -> float:
    copies = _pretraining_factor(study, part) if name in PRETRAINING_FOLDERS else 1.0
    if name in FOLDER_GROWTH:
        quantity = FOLDER_GROWTH[name]
        return copies * part.whole[quantity] / max(1.0, part.rehearsed[quantity])
    if rule_stage(name).on_request:
        return 0.0
    if name in ("similarity", "cosines"):
        runs = len(study.runs()) / max(1, sum(job.rule in ("similarity", "untrained_run") for job in part.jobs))
        return runs * part.whole["pairs"] / max(1.0, part.rehearsed["pairs"])
    if name == "runs":
        return len(study.runs()) / max(1, sum(job.rule in ("train", "untrained_run") for job in part.jobs))
    if name == "frames":
        return 0.0  # computed, not scaled
    return copies
