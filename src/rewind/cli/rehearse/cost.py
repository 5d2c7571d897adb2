"""The cost of a whole study: for every stage a rate, measured in its rehearsal, times a count of the whole study.

A job of the whole study takes ``start + rate × count`` seconds: ``start`` is what it takes before its own work, the
rate is seconds per unit, and the unit is what the stage's work consists of:

- a *forward pass* of an item with its caption, where a model is trained or scores. A caption that is trained on costs
  three, since a backward pass costs about two;
- a *score* that is ranked;
- else what the table of stages states (``Stage.grows``): originals, items, frames, …; or the job itself.

:class:`CostEstimate` finds rates and counts; :func:`wall_time` places the jobs on cores and GPUs.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from rewind.cli.rehearse import weights
from rewind.cli.rehearse.counts import DatasetCounts, count_dataset, count_rehearsed
from rewind.cli.rehearse.measured import (
    PRETRAINING,
    FinishedJob,
    StepTimes,
    fastest_steps,
    finished_jobs,
    folder_bytes,
    jobs_by_rule,
    peak_memory,
    rule_stage,
)
from rewind.cli.rehearse.shrink import REHEARSED_SEEDS, PreparedRehearsal
from rewind.config import Dataset, Method, Study, Training
from rewind.data.formats.cifar10 import PUBLISHED_IMAGES
from rewind.gpu import jobs_per_gpu
from rewind.registry import HEADS

# ---- Jobs of the whole study, and when they would end on given cores and GPUs - ------------------------------------


class PlannedJob(NamedTuple):
    """A job of the whole study.

    >>> PlannedJob(start=3.0, rate=0.5, units=100).seconds
    53.0
    """

    start: float  # seconds before its own work
    rate: float = 0.0  # seconds per unit
    units: float = 0.0
    level: int = 0  # see rewind.workflow.stages.Stage
    threads: int = 1
    gpus: int = 0

    @property
    def seconds(self) -> float:
        """Wall time of its process."""
        return self.start + self.rate * self.units


def wall_time(jobs: Iterable[PlannedJob], cores: int, gpus: int) -> float:
    """Seconds until the last job ends: level after level, in each the longest job first wherever it fits.

    A job that asks for more cores than there are takes all of them, as in Snakemake; without GPUs no job waits for one.

    >>> wall_time([PlannedJob(10.0)] * 3 + [PlannedJob(5.0, level=1, threads=4, gpus=1)], cores=2, gpus=0)
    25.0
    """
    total = 0.0
    for _, level in groupby(sorted(jobs, key=lambda job: (job.level, -job.seconds)), key=lambda job: job.level):
        total += _level_time(list(level), cores, gpus)
    return total


def _level_time(waiting: list[PlannedJob], cores: int, gpus: int) -> float:
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


# ---- Rates and counts ----------------------------------------------------------------------------------------------

BACKWARD_COST = 2  # cost of a backward pass, in forward passes
# Measured by `benchmarks/brought.py` on 2 cores; a rehearsal has too few pairs to measure it.
SECONDS_PER_RANKED_SCORE = 1.5e-7
DEFAULT_GPU_TFLOPS = 100.0  # sustained by one GPU: about a third of the peak of an A100 or L40S in bf16
BYTES_PER_TRAINED_PARAMETER = 16  # fp32: value, gradient and AdamW's two moments
# Names of fields of the next three classes, and of DatasetCounts, are keys of what `rewind rehearse --json` writes.


@dataclass
class Machine:
    """The machine of the whole study: CPU cores, GPUs, TFLOP/s that one GPU sustains, and the price of an hour."""

    cores: int
    gpus: int
    tflops: float
    price: float | None = None  # in any currency


@dataclass
class StageCost:
    """A rule in the rehearsal and in the whole study."""

    rule: str
    jobs: int  # in the rehearsal, like the next two
    seconds: float  # of all jobs
    memory: float | None  # MB of the largest job
    unit: str  # what is counted
    rate: float  # mean seconds per unit
    count: float  # units of all jobs in the whole study
    whole_jobs: int  # in the whole study, like the next
    whole_seconds: float


@dataclass
class StudyCost:
    """The estimated cost of a whole study."""

    rows: list[StageCost]  # by rule, in the order of stages
    wall: float  # seconds from the first job to the last, on the machine of the whole study
    disk: float  # bytes of results
    memory: float | None  # MB of the largest job
    gpu_memory: float | None  # MB likewise; without a GPU here only of weights, gradients and AdamW's state
    counts: DatasetCounts
    guesses: list[str]  # assumptions that were not measured, a sentence each


@dataclass
class MeasuredFolder:
    """A results folder of a rehearsal, its jobs, and how much of everything the whole study has, and the rehearsal."""

    folder: Path
    dataset: Dataset
    jobs: list[FinishedJob]
    whole: Mapping[str, float]
    rehearsed: Mapping[str, float]


def estimate_cost(
    study: Study,
    datasets: Mapping[str, Dataset],
    prepared: PreparedRehearsal,
    machine: Machine,
    items: tuple[int, int, int] | None,
    wall: float,
    cores: int,
) -> StudyCost:
    """Estimate the cost of a whole study from the files that its rehearsal left.

    Args:
        study, datasets: the real ones.
        machine: that of the whole study.
        items: originals of each split, in place of counted or published numbers.
        wall: seconds that the rehearsal took, from the first job to the last, on ``cores`` cores.
    """
    results = prepared.folder / "results"
    frames = max(study.frames_sweep.max_frames) if study.frames_sweep else study.frames.max_frames
    rounds = study.tables.verdict.rounds if study.tables.verdict else 1
    own = datasets[study.dataset]
    made_from = own.source.made_from if own.vectors else None
    counts, rehearsed, parts = {}, {}, []
    for name, dataset in datasets.items():
        origin = datasets.get(made_from.dataset) if made_from and dataset is own else None
        counts[name] = count_dataset(dataset, items, origin)
        rehearsed[name] = count_rehearsed(results / "data" / name, name)
    for folder, name in [*((results / "data" / name, name) for name in datasets), (results / study.name, own.name)]:
        whole = counts[name].units(frames, PUBLISHED_IMAGES, rounds)
        parts.append(
            MeasuredFolder(folder, datasets[name], finished_jobs(folder), whole, rehearsed[name].units(frames))
        )
    steps = fastest_steps(parts[-1].folder)
    rates = CostEstimate(study, machine, prepared, counts[own.name], rehearsed[own.name], frames, steps)
    return rates.whole_study(parts, wall, cores)


@dataclass
class CostEstimate:
    """Rates of a study's stages, measured in its rehearsal, and what the whole study costs by them.

    Attributes:
        study: the real study.
        machine: that of the whole study.
        counts, rehearsed: sizes of the study's dataset, in whole and in the rehearsal.
        frames: of a clip in the runs; the largest number of a sweep, whose choice is not known.
        steps: measured steps by method, and of the pre-training (:data:`PRETRAINING`).
        guesses: assumptions behind the numbers besides measurement, in order; filled while numbers are computed.
    """

    study: Study
    machine: Machine
    prepared: PreparedRehearsal
    counts: DatasetCounts
    rehearsed: DatasetCounts
    frames: int
    steps: Mapping[str, StepTimes]
    guesses: dict[str, None] = field(default_factory=dict)

    def guess(self, sentence: str) -> None:
        self.guesses[sentence] = None

    def whole_study(self, parts: list[MeasuredFolder], wall: float, cores: int) -> StudyCost:
        """The cost of the whole study from the results folder of each dataset, then the study's own."""
        if not self.counts.known:
            self.guess(f"the data set's size: {self.counts.said}")
        rows, planned, rehearsed = [], [], []
        for part in parts:
            for rule, jobs in jobs_by_rule(part.jobs).items():
                rehearsed += [PlannedJob(job.seconds, level=rule_stage(rule).level) for job in jobs]
                whole = self.planned_jobs(rule, jobs, part)
                planned += whole
                seconds, whole_seconds = (sum(job.seconds for job in some) for some in (jobs, whole))
                units, count = (_unit(rule), _mean_rate(whole), sum(job.units for job in whole)), len(whole)
                rows.append(StageCost(rule, len(jobs), seconds, peak_memory(jobs), *units, count, whole_seconds))
        # What Snakemake itself takes between jobs: what the rehearsal took beyond its jobs, spread over them.
        between = max(0.0, wall - wall_time(rehearsed, cores, 0)) * cores / max(1, len(rehearsed))
        planned = [job._replace(start=job.start + between) for job in planned]
        self.guess_about_models()
        if self.study.training.patience:
            self.guess("no run stops early (training.patience)")
        share = self.study.resources.shared_gpu_mb
        gpus = self.machine.gpus * (jobs_per_gpu(share) if share else 1)  # as many jobs at a time
        total, disk = wall_time(planned, self.machine.cores, gpus), self._disk(parts)
        memory, gpu_memory = self._memory(rows, parts[-1]), self._gpu_memory()
        return StudyCost(rows, total, disk, memory, gpu_memory, self.counts, list(self.guesses))

    def guess_about_models(self) -> None:
        """Of models by name in whose place random vectors are: their time is not known, and what they are asked."""
        test, settings = self.counts.items.get("test", 0), self.study.evaluation.settings
        for name, encoding in self.study.encodings().items():
            if encoding.local() is not None:
                continue
            pairs, rerank = test * self.counts.captions.get("test", 0), self.study.methods[name].rerank
            if rerank is not None:
                top = 0 if rerank.binary_only else rerank.top
                of_query = sum(2 if setting == "binary" else top for setting in settings)
                pairs = of_query * test * len(self.study.evaluation.directions) * len(self.study.seeds_of(name))
            asked = f", which scores up to {pairs:,} pairs, each in a pass" if encoding.encoder == "video_llm" else ""
            self.guess(f"{name} takes as long as random vectors: {encoding.title()} was not loaded{asked}")

    def planned_jobs(self, rule: str, jobs: list[FinishedJob], part: MeasuredFolder) -> list[PlannedJob]:
        """The jobs of a rule in the whole study: each is like the mean of those that stand for it in the rehearsal."""
        stage = rule_stage(rule)
        if stage.on_request:
            return []
        if stage.per_run:
            runs = Counter(method for method, _ in self.study.runs())
            groups = [([job for job in jobs if job.method == method], number) for method, number in runs.items()]
        elif rule == "sweep_trial":
            groups = [([job], 1) for job in jobs]
        elif rule in ("trial", "tune"):
            groups = [
                ([job for job in jobs if job.method == name], self._trials_in_all(name, rule))
                for name in self.study.trained()
            ]
        else:
            copies = self._pretraining_factor(part) if stage.per_pretraining else 1
            groups = [(jobs, part.dataset.media.shards if rule == "video_shard" else round(len(jobs) * copies))]
        threads, gpus = self._requested_cores_gpus(rule, part.dataset)
        planned = []
        for group, number in groups:
            if group:
                costs = [self.job_cost(job, part, len(jobs), number) for job in group]
                start, units = fmean(cost.start for cost in costs), fmean(cost.units for cost in costs)
                job_gpus = 0 if stage.per_run and self.study.methods[group[0].method].baseline else gpus
                planned += [PlannedJob(start, _mean_rate(costs), units, stage.level, threads, job_gpus)] * number
        return planned

    def _trials_in_all(self, method: str, rule: str) -> int:
        """Trials of a method in the whole study, or choices between them."""
        choices = len({self.study.trial_seed(seed) for seed in self.study.seeds_of(method)})
        return choices * (len(self.study.trials_of(method)) if rule == "trial" else 1)

    def job_cost(self, job: FinishedJob, part: MeasuredFolder, shards: int = 1, whole_shards: int = 1) -> PlannedJob:
        """A job of the whole study, from a rehearsed one that is like it, in the folder ``part``.

        Clips are divided into ``shards`` jobs of this rule in the rehearsal, into ``whole_shards`` in the study.
        """
        stage = rule_stage(job.rule)
        method = self.study.methods[job.method] if stage.per_run else None
        learns = bool(self.steps) and not (method and method.baseline)
        if stage.trains:
            return self.training(job) if learns else PlannedJob(job.seconds)
        if not stage.grows:
            return PlannedJob(job.start, job.inside, 1)
        few = max(1.0, part.rehearsed[stage.grows])
        many = max(few, part.whole[stage.grows])
        if method and stage.grows == "pairs":
            self.guess(f"a score is ranked in {SECONDS_PER_RANKED_SCORE * 1e6:g} µs")
            return PlannedJob(job.seconds, SECONDS_PER_RANKED_SCORE, many - few)
        if method and learns:
            item, pair = self.forward(job.method, method.training, self.frames)
            return PlannedJob(job.seconds, item + pair * (many + few), many - few)  # many² − few² pairs more
        if not method and stage.grows != "rounds":
            self.guess("each item of the full dataset takes as long to prepare as in the rehearsal")
        if job.rule == "video_shard":
            few, many = few / shards, many / whole_shards
        elif stage.grows == "frames" and (own := re.search(r"frames(\d+)$", job.name)):
            few, many = (count * int(own[1]) / self.frames for count in (few, many))  # a job for each number of frames
        # The time of baselines grows less than their items, by their square root.
        growth = (many / few) ** (0.5 if method and method.baseline else 1.0)
        return PlannedJob(job.start, job.inside * growth / many, many)

    # Training, and forward passes

    def training(self, job: FinishedJob) -> PlannedJob:
        """A training job of the whole study: each caption of an epoch costs three passes, each validated item one."""
        study, frames, captions, valid = self.study, self.frames, 0, self.counts.items.get("valid", 0)
        if job.rule == "pretrain" and study.pretraining:
            name, keys = PRETRAINING, study.pretraining.training
            frames = study.pretraining.max_frames or study.frames.max_frames
        elif job.rule == "sweep_trial" and study.sweep:
            name, keys, frames = study.sweep.method, study.sweep.training, int(job.name.removeprefix("frames"))
        elif job.rule == "sanity" and study.sanity:
            name = PRETRAINING if study.pretraining else study.sanity.method or study.trained()[0]
            keys, frames = study.sanity.training, study.frames.max_frames
            captions = valid = min(study.sanity.clips, self.counts.items.get("train", 0))
        else:
            name, keys = job.method, study.methods[job.method].training
        captions = captions or captions_per_epoch(keys, self.counts)
        item, pair = self.forward(name, keys, frames)
        batch = min(keys.batch.size, max(captions, 1))
        trained = (1 + BACKWARD_COST) * keys.epochs * max(1, captions // batch) * batch
        validations, rehearsed = math.ceil(keys.epochs / keys.evaluate_every), self.rehearsed.items.get("valid", 0)
        passes = trained + validations * max(0, valid - rehearsed)
        pairs = trained * batch + validations * max(0, valid**2 - rehearsed**2)
        # What the rehearsed job took besides its steps: loading, its own small validation, saving.
        start = max(0.0, job.seconds - (0.0 if job.rule == "sanity" else self._steps_of(name).trained))
        return PlannedJob(start, item + pair * pairs / passes, passes)

    def forward(self, name: str, keys: Training, frames: int) -> tuple[float, float]:
        """Seconds of a forward pass in the whole study: of an item with its caption, and of scoring one pair.

        A measured step of B items took (1 + BACKWARD_COST) · (B · item + B² · pair) seconds.
        """
        steps, method, machine = self._steps_of(name), self._method(name), self.machine
        flops = self._visual_flops(method, keys, frames)
        if machine.gpus and not steps.gpus:
            if flops:
                self.guess(
                    f"a GPU sustains {machine.tflops:g} TFLOP/s (--gpu-tflops) in the visual tower, and the rest takes "
                    "no time; there was no GPU to time"
                )
                return flops / (machine.tflops * 1e12), 0.0
            self.guess("steps on cached features and vectors take as long on a GPU as on this CPU")
        if (named := self.study.backbone.encoding()) and named.local() is None:
            self.guess(f"the towers of {named.name} take as long as the small ones in their place: a lower bound")
        share = self.prepared.share if flops else 1.0
        if share < 1:
            self.guess("a tower's time is proportional to its layers, of which the rehearsal used few")
        pairs = self._pair_seconds(steps, method)
        scale = self._thread_factor(name) * frames / max(1, steps.frames) / (1 + BACKWARD_COST)
        return scale * (steps.seconds - pairs) / steps.rows / share, scale * pairs / steps.rows**2

    def _steps_of(self, name: str) -> StepTimes:
        """Steps of a method, or else of the first that has any: better than none."""
        return self.steps.get(name) or next(iter(self.steps.values()))

    def _method(self, name: str) -> Method:
        pretraining = self.study.pretraining
        return pretraining.method if pretraining and name == PRETRAINING else self.study.methods[name]

    def _visual_flops(self, method: Method, keys: Training, frames: int) -> float:
        """FLOPs of the visual tower for one item; 0 for a method that learns from features, or an unknown tower."""
        if "visual" in keys.freeze or method.noise:
            return 0.0
        backbone = method.own_backbone or self.study.backbone.model_dump()
        return weights.visual_tower_flops(backbone, frames, self.study.frames.size) or 0.0

    def _pair_seconds(self, steps: StepTimes, method: Method) -> float:
        """Seconds of a step in which a head scored pairs: those that the fastest method without such a head saves."""
        if not scores_pairs(method):
            return 0.0
        self.guess("the extra time of a head that scores pairs grows with the square of the batch size")
        names = [name for name in self.steps if name != PRETRAINING and not scores_pairs(self._method(name))]
        others = [self.steps[name] for name in names]
        return max(0.0, steps.seconds - min((other.seconds / other.rows * steps.rows for other in others), default=0.0))

    def _thread_factor(self, name: str) -> float:
        """Factor of a step's time from having another number of CPU threads than in the rehearsal."""
        requested, rehearsed = self.study.resources.threads, self.prepared.study["resources"]["threads"]
        if name == PRETRAINING and self.study.pretraining:
            requested = self.study.pretraining.threads or requested
            rehearsed = self.prepared.study["pretraining"]["threads"] or rehearsed
        threads = min(requested, self.machine.cores)
        if threads != rehearsed:
            self.guess(f"{threads} threads are faster than the rehearsal's {rehearsed} in proportion to their number")
        return rehearsed / threads

    # Jobs, memory, disk

    def _pretraining_factor(self, part: MeasuredFolder) -> float:
        """Pre-trainings, or random frozen towers, of the whole study for each of the rehearsal; 1 if there are none."""
        seeds = len(self.study.seeds)
        if self.study.has_random_features:
            return seeds / min(seeds, REHEARSED_SEEDS)
        rehearsed = sum(job.rule == "pretrain" for job in part.jobs)
        return len(self.study.pretraining_seeds()) / rehearsed if rehearsed else 1.0

    def _requested_cores_gpus(self, rule: str, dataset: Dataset) -> tuple[int, int]:
        """Cores and GPUs of a job of the whole study."""
        stage, resources, pretraining = rule_stage(rule), self.study.resources, self.study.pretraining
        if rule in ("sources", "video_shard"):
            return dataset.media.workers, 0
        if rule == "encode_dataset":
            return dataset.source.made_from.threads if dataset.vectors and dataset.source.made_from else 1, 1
        if rule == "frames":
            return max(1, self.study.frames.workers), 0
        if rule == "pretrain" and pretraining:
            return pretraining.threads or resources.threads, resources.gpus
        if rule == "features":
            return resources.feature_threads or resources.threads, resources.gpus
        if rule == "step_time":
            return 1024, min(1, resources.gpus)  # timings must not be disturbed: it takes all cores
        if stage.per_run or stage.trains or rule in ("export_vectors", "submission", "efficiency"):
            return resources.threads, resources.gpus
        return 1, 0

    def _memory(self, rows: list[StageCost], part: MeasuredFolder) -> float | None:
        """Resident memory of the largest job in MB."""
        memory = max((row.memory for row in rows if row.memory is not None), default=None)
        if memory is not None and self.prepared.missing:
            self.guess("memory: 16 bytes per parameter of the layers that were left out")
            memory += self.prepared.missing * BYTES_PER_TRAINED_PARAMETER / 1e6
        if memory is not None and self.study.frames.keep_in_memory:
            extra_frames = part.whole["frames"] - part.rehearsed["frames"]
            memory += max(0.0, extra_frames) * self.study.frames.size**2 * 3 / 1e6
        return memory

    def _gpu_memory(self) -> float | None:
        """GPU memory of the largest job in MB."""
        measured = [steps.gpu_memory for steps in self.steps.values() if steps.gpu_memory is not None]
        if measured or not self.machine.gpus:
            return max(measured, default=None)
        self.guess("GPU memory: only weights, gradients and AdamW; activations use the rest (micro_batch: auto)")
        parameters = max((steps.parameters for steps in self.steps.values()), default=0)
        return (parameters + self.prepared.missing) * BYTES_PER_TRAINED_PARAMETER / 1e6

    def _disk(self, parts: list[MeasuredFolder]) -> float:
        """Bytes below ``results`` when the study has finished."""
        total = 0.0
        for part in parts:
            for path in sorted(part.folder.iterdir()) if part.folder.is_dir() else []:
                size = folder_bytes(path) if path.is_dir() else path.stat().st_size
                total += size * self._growth_of_entry(path.name, part)
        if self.study.frames.store:
            sweep = self.study.frames_sweep
            frame_counts = sweep.max_frames if sweep else [self.study.frames.max_frames]
            total += self.counts.originals * sum(frame_counts) * self.study.frames.size**2 * 3
        return total

    def _growth_of_entry(self, name: str, part: MeasuredFolder) -> float:
        """Size of an entry of a results folder in the whole study, as a multiple of its size in the rehearsal."""

        def growth(unit: str) -> float:
            return part.whole[unit] / max(1.0, part.rehearsed[unit])

        def runs(*rules: str) -> float:
            return len(self.study.runs()) / max(1, sum(job.rule in rules for job in part.jobs))

        match name:
            case "videos" | "source" | "source.tar":
                return growth("originals")
            case "made":
                return growth("items")
            case "features":
                return self._pretraining_factor(part) * growth("frames")
            case "pretrained":
                return self._pretraining_factor(part)
            case "similarity" | "cosines":
                return runs("similarity", "untrained_run", "blind_run") * growth("pairs")
            case "probes":
                return runs("probes") * growth("test")
            case "order":
                return runs("order_controls") * growth("test")
            case "runs":
                return runs("train", "untrained_run", "blind_run")
            case "frames":
                return 0.0  # computed, not scaled
        return 0.0 if rule_stage(name).on_request else 1.0


def _mean_rate(jobs: list[PlannedJob]) -> float:
    """Seconds per unit, over all units."""
    units = sum(job.units for job in jobs)
    return sum(job.rate * job.units for job in jobs) / units if units else 0.0


def _unit(rule: str) -> str:
    """What a stage's cost counts."""
    stage = rule_stage(rule)
    if stage.trains or stage.per_run:
        return "scores" if stage.grows == "pairs" else "forward passes"
    return stage.grows or "jobs"


def scores_pairs(method: Method) -> bool:
    """Whether a method's head scores pairs."""
    return method.model == "clip4clip" and method.head in HEADS.names() and HEADS.find(method.head).pairwise


def captions_per_epoch(keys: Training, counts: DatasetCounts) -> int:
    """Number of captions in an epoch."""
    return (counts.captions if keys.batch.captions == "all" else counts.items).get("train", 0)
