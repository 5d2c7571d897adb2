"""Training jobs: a run of a study, a sweep's trial, a pre-training."""

from __future__ import annotations

import math
import resource
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from rewind.distributed import World, joined
from rewind.errors import RewindError
from rewind.feeding.brought import check_ids
from rewind.feeding.encode import encode_all, tower_features
from rewind.feeding.folder import DataFolder, Prepared, build_retriever, check_method, device
from rewind.feeding.ids import IdentifiedText
from rewind.files import write_csv, write_json
from rewind.jobs.given import Given
from rewind.jobs.launch import on_all_gpus
from rewind.jobs.splits import check_splits
from rewind.jobs.training_job import Job, training_job
from rewind.jobs.validation import validator
from rewind.jobs.zero_shot import validation_task
from rewind.models.checkpoint import save_model, weights_hash
from rewind.models.making import maker
from rewind.models.retriever import Retriever, masked_mean, offers
from rewind.provenance import environment, hardware
from rewind.study.brought import BROUGHT
from rewind.study.model import scored_as_it_is
from rewind.study.together import FEATURES
from rewind.training import loop
from rewind.training.epoch_metrics import epoch_metrics
from rewind.training.state import StateFile

BATCH = 64  # items at once whose features a closed form is fitted on


def train(given: Given) -> None:
    """Rule ``train``; also a trial of the sweep, and a pre-training."""
    output, metrics = given.output, given.output.get("metrics")
    model, history, record = Path(output.model), Path(output.history), Path(output.record)
    on_all_gpus(
        train_run, training_job(given), model, history, record, Path(metrics) if metrics else None, log=given.log
    )


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
    loop.seed_everything(job.seed, job.spec.method.training.deterministic)
    folder = job.folder()
    check_splits(folder.folder, job.spec, job.name)
    check_method(folder.spec)
    retriever = build_retriever(folder)
    folder.check_tower(retriever)
    notes, start = _brought(job, folder, retriever), weights_hash(retriever)
    state = job.state_file()
    rows: list[dict[str, Any]] = []
    learns = not scored_as_it_is(job.spec.method)
    if learns and offers(retriever.fit):
        _fit(retriever, folder.split("train", retriever), folder.split("valid", retriever))
    elif learns and any(True for _ in retriever.parameters()):
        splits = folder.split("train", retriever), folder.split("valid", retriever)
        rows = _train(retriever, splits[0], splits[1], job, state, world, model)
    if world.rank:
        return {}
    save_model(model, retriever, _marked(job))
    write_csv(history, pd.DataFrame(rows))
    if metrics is not None:
        write_csv(metrics, epoch_metrics(rows))
    best = next((row for row in rows if row["epoch"] == rows[-1]["best_epoch"]), {})
    scores = {"best": _numbers(best), "last": _numbers(rows[-1] if rows else {})}
    content = _record(job, retriever, scores, rows, world, time.monotonic() - began)
    content |= {"notes": notes, "start": start}
    write_json(record, content)
    state.remove()
    return content


def _brought(job: Job, folder: DataFolder, retriever: Retriever) -> list[str]:
    """Check the files that a model brings against the data set; what tables must say of them."""
    method = job.spec.method
    if method.model not in BROUGHT:
        return []
    check_ids(retriever, folder.folder, folder.dataset)
    return maker(method.model).notes(method, retriever)


def _record(
    job: Job, retriever: Retriever, scores: dict[str, Any], rows: list[dict[str, Any]], world: World, seconds: float
) -> dict[str, Any]:
    """What ran, on what and how long, around the scores that it found. No result follows from it."""
    parameters = list(retriever.parameters())
    return {
        "run": job.name,
        "seed": job.seed,
        "max_frames": job.max_frames,
        **({"max_frames_tried": job.max_frames_tried} if job.max_frames_tried else {}),
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


def _marked(job: Job) -> dict[str, str]:
    """What a file of weights says of itself."""
    return {"method": job.name, "code": job.code}


def _train(
    retriever: Retriever,
    train_split: Prepared,
    valid: Prepared,
    job: Job,
    state: StateFile,
    world: World,
    model: Path,
) -> list[dict[str, Any]]:
    keys, workers = job.spec.method.training, job.spec.frames.workers
    zero_shot = validation_task(job.spec)
    evaluation, size = job.spec.evaluation, keys.batch.size
    validate = validator(valid, keys.select_setting, evaluation, device(), world, workers, zero_shot, size)

    def keep(epoch: int) -> None:
        path = model.parent / "epochs" / f"{model.stem}.epoch{epoch}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_model(path, retriever, _marked(job))

    return loop.train(
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
        keep,
    )


def _fit(retriever: Retriever, train_split: Prepared, valid: Prepared) -> None:
    pairs = [array for split in (train_split, valid) for array in _pooled_pairs(split, retriever)]
    retriever.fit(*pairs)


def _pooled_pairs(split: Prepared, retriever: Retriever) -> tuple[torch.Tensor, torch.Tensor]:
    """Prepared captions (n, dt) and the time-averaged features of their items (n, di)."""
    if retriever.backbone is not None:
        encode = partial(tower_features, retriever.backbone)
        batch = encode_all(encode, split.inputs, BATCH, torch.device("cpu"), workers=split.workers)
    else:
        batch = split.inputs.batch(np.arange(len(split.items)))
    if "frames" not in batch:
        raise RewindError(f"{FEATURES}.")
    described = torch.tensor(split.training_data().item_of_caption)
    text = split.text.text if isinstance(split.text, IdentifiedText) else split.text
    return text, masked_mean(batch["frames"], batch["mask"])[described]
