"""Training jobs: a run of a study, a sweep's trial, a pre-training."""

from __future__ import annotations

import math
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from rewind.errors import RewindError
from rewind.files import digest, read_json, write_csv, write_json
from rewind.jobs.data import DataFolder, Prepared, build_retriever, check_method, device
from rewind.jobs.splits import check_splits
from rewind.jobs.together import FEATURES
from rewind.jobs.validation import validator
from rewind.jobs.zero_shot import validation_file, validation_task
from rewind.models.baselines import pool
from rewind.models.retriever import Retriever, offers
from rewind.provenance import environment, file_hash, hardware
from rewind.study import RunSpec
from rewind.training.checkpoint import StateFile, save_model
from rewind.training.distributed import ALONE, World, joined
from rewind.training.epoch_metrics import epoch_metrics
from rewind.training.loop import seed_everything, train


@dataclass
class Job:
    """One training job as the workflow describes it.

    Attributes:
        name: for messages, for example ``seqTransf/seed0``.
        spec: the keys it depends on.
        seed: its seed.
        data: ``results/data/<dataset>``.
        dataset: the dataset's name.
        max_frames: frames per clip.
        state: the undeclared state file.
        code: fingerprint of the code.
        cache: cached features of frozen towers, or the index of a frame store, if any.
        pretrained: weights made by the study's own pre-training that the run starts from, if any.
    """

    name: str
    spec: RunSpec
    seed: int
    data: Path
    dataset: str
    max_frames: int
    state: Path
    code: str
    cache: Path | None = None
    pretrained: Path | None = None

    def __post_init__(self) -> None:
        if self.pretrained is not None:
            backbone = self.spec.backbone.model_copy(update={"weights": str(self.pretrained)})
            self.spec = self.spec.model_copy(update={"backbone": backbone})

    def folder(self) -> DataFolder:
        return DataFolder(Path(self.data), self.dataset, self.spec, self.max_frames, self.cache)

    def hashes(self) -> dict[str, str]:
        """Content hashes of the files that the run learns from."""
        captions = Path(self.data) / "captions"
        paths = [Path(self.data) / "items.csv", *(captions / f"{self.dataset}_{s}.csv" for s in ("train", "valid"))]
        weights = self.spec.backbone.weights  # the study's own pre-training included
        paths += [Path(path) for path in (self.cache, weights, validation_file(self.spec.evaluation)) if path]
        return {str(path): file_hash(path) for path in paths}

    def content(self) -> str | None:
        """Content hash of the data set's clips, images or vectors; none where they were made without one."""
        report = Path(self.data) / "captions" / "report.json"
        return read_json(report).get("digest") if report.is_file() else None

    def state_file(self) -> StateFile:
        mark = digest(self.code, self.spec.signature(), self.seed, self.max_frames, self.hashes(), self.content())
        return StateFile(self.state, mark)


def train_run(job: Job, model: Path, history: Path, record: Path, metrics: Path | None = None) -> dict[str, Any]:
    """Train one run and write its best checkpoint, per-epoch history and provenance, and ``metrics`` if asked for.

    Started by ``torchrun``, its processes share every batch, and rank 0 writes the files.

    Returns:
        The content of ``run.json``; on other ranks nothing.
    """
    with joined() as world:
        return _train_run(job, model, history, record, metrics, world)


def _train_run(
    job: Job, model: Path, history: Path, record: Path, metrics: Path | None, world: World
) -> dict[str, Any]:
    began = time.monotonic()
    seed_everything(job.seed, job.spec.method.training.deterministic)
    folder = job.folder()
    check_splits(folder.folder, job.spec, job.name)
    check_method(folder.spec)
    retriever = build_retriever(folder)
    state = job.state_file()
    if offers(retriever.fit):
        _fit(retriever, *(folder.split(name, retriever) for name in ("train", "valid")))
        rows = []
    elif not any(True for _ in retriever.parameters()):
        rows = []  # nothing to learn
    else:
        splits = (folder.split(name, retriever) for name in ("train", "valid"))
        rows = _train(retriever, *splits, job, state, world)
    if world.rank:
        return {}
    save_model(model, retriever, {"method": job.name, "code": job.code})
    write_csv(history, pd.DataFrame(rows))
    if metrics is not None:
        write_csv(metrics, epoch_metrics(rows))
    best = next((row for row in rows if row["epoch"] == rows[-1]["best_epoch"]), {})
    scores = {"best": _numbers(best), "last": _numbers(rows[-1] if rows else {})}
    content = _record(job, retriever, scores, rows, world, time.monotonic() - began)
    write_json(record, content)
    state.remove()
    return content


def _record(
    job: Job, retriever: Retriever, scores: dict[str, Any], rows: list[dict], world: World, seconds: float
) -> dict[str, Any]:
    """What ran, on what and how long, around the scores that it found. No result follows from it."""
    parameters = list(retriever.parameters())
    return {
        "run": job.name,
        "seed": job.seed,
        "max_frames": job.max_frames,
        "spec": job.spec.model_dump(mode="json"),
        "parameters": sum(p.numel() for p in parameters),
        "trained_parameters": sum(p.numel() for p in parameters if p.requires_grad),
        **scores,
        "processes": world.size,
        "seconds": round(seconds, 2),
        "examples_per_second": _throughput(rows),
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "peak_gpu_memory_mb": torch.cuda.max_memory_allocated() // 2**20 if torch.cuda.is_available() else None,
        "code": job.code,
        "data": job.hashes(),
        "data_digest": job.content(),
        "hardware": hardware(),
    } | environment()


def _numbers(row: dict[str, float]) -> dict[str, float | None]:
    """A row for JSON, which has no NaN."""
    return {name: None if math.isnan(value) else value for name, value in row.items()}


def _throughput(rows: list[dict[str, float]]) -> float | None:
    """Pairs a second while training, validation left out."""
    seconds = sum(row["seconds"] for row in rows)
    return round(sum(row["seconds"] * row["clips_per_second"] for row in rows) / seconds, 1) if seconds else None


def _train(
    retriever: Retriever, train_split: Prepared, valid: Prepared, job: Job, state: StateFile, world: World = ALONE
) -> list[dict]:
    keys, workers = job.spec.method.training, job.spec.frames.workers
    zero_shot = validation_task(job.spec)
    validate = validator(valid, keys.select_setting, job.spec.evaluation, device(), world, workers, zero_shot)
    return train(
        retriever,
        train_split.training_data(),
        keys,
        job.seed,
        device(),
        validate,
        state,
        job.name,
        workers,
        world,
    )


def _fit(retriever: Retriever, train_split: Prepared, valid: Prepared) -> None:
    pairs = [array for split in (train_split, valid) for array in _pooled_pairs(split)]
    retriever.fit(*pairs)


def _pooled_pairs(split: Prepared) -> tuple[torch.Tensor, torch.Tensor]:
    """Prepared captions (n, dt) and the time-averaged features of their items (n, di)."""
    batch = split.inputs.batch(np.arange(len(split.items)))
    if "frames" not in batch:
        raise RewindError(f"{FEATURES}.")
    described = torch.tensor(split.training_data().item_of_caption)
    return split.text, pool(batch["frames"], batch["mask"])[described]
