"""Training jobs: a run of a study, a trial of its sweep, its pre-training, and the over-fitting check before them.

:class:`TrainingJob` is what a run learns from, :func:`make_validator` computes the validation metrics that choose
checkpoints, :func:`train_run` trains and writes weights, history and ``run.json``.
"""

from __future__ import annotations

import dataclasses
import math
import resource
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F

from rewind.config import RunSpec
from rewind.config.checks import CACHED_FEATURES_FAULT
from rewind.config.evaluation import Evaluation
from rewind.config.study import TrackerName
from rewind.config.training import Sanity, opposites_file
from rewind.data.captions import load_split
from rewind.distributed import SINGLE_PROCESS, World, join_process_group
from rewind.errors import RewindError
from rewind.evaluation.ranking import RECALL_CUTOFFS, rank_table, validation_scores
from rewind.evaluation.similarity import similarity_matrix
from rewind.evaluation.zero_shot import ZeroShotTask, validation_file, validation_task
from rewind.hashing import stable_hash
from rewind.io.files import read_json, write_csv, write_json
from rewind.loading.encode import encode_all_items, frame_features, tower_features
from rewind.loading.run_data import (
    PreparedSplit,
    RunData,
    build_untrained_model,
    check_method,
    check_precomputed_ids,
    job_device,
)
from rewind.loading.splits import check_splits
from rewind.loading.text import IdentifiedText
from rewind.losses.base import same_item_mask
from rewind.models.blind import BlindBaseline
from rewind.models.checkpoint import save_model, weights_hash
from rewind.models.registry import model_hooks
from rewind.models.retriever import Retriever, is_overridden, masked_mean
from rewind.provenance import environment, file_hash, hardware
from rewind.torch_setup import seed_everything
from rewind.training import loop
from rewind.training.checkpoint import StateFile
from rewind.training.epoch_metrics import epoch_metrics
from rewind.training.loop import Validate, train_model
from rewind.training.tracking import NO_TRACKER, Tracker

# ---- Validation ----------------------------------------------------------------------------------------------------
# These scores choose checkpoints and the sweep's value. Test data are never read here.

TEXT_TO_ITEM, ITEM_TO_TEXT = "text_to_item", "item_to_text"


def make_validator(
    split: PreparedSplit,
    setting: str,
    keys: Evaluation,
    device: torch.device,
    world: World = SINGLE_PROCESS,
    workers: int = 0,
    zero_shot: ZeroShotTask | None = None,
    batch_size: int = 128,
) -> Validate:
    """A function that maps a model to its validation scores; all processes of ``world`` call it together.

    Scores of text→item search: ``valid_R@k`` in percent, ``valid_MdR``, ``valid_P75`` (the rank that three quarters of
    the captions reach), …, ``valid_sum`` = R@1 + R@5 + R@10; of item→text search ``valid_item_to_text R@k``; of both
    ``valid_mean R@1``; and ``valid_loss``, see :func:`infonce_of_scores`.

    Args:
        setting: setting of the scores; ``auto``: Hard where the split has twins, else Test.
        zero_shot: images to classify; adds ``zs_cifar10`` in percent, which chooses no checkpoint.
        batch_size: captions of a batch of ``valid_loss``.
    """
    if setting == "auto":
        setting = "hard" if (split.items["reversed"] == 1).any() else "test"

    row_of_item = {item: row for row, item in enumerate(split.items["item_id"])}
    item_of_caption = np.array([row_of_item[item] for item in split.captions["video_id"]])

    def validate(retriever: Retriever) -> dict[str, float]:
        similarity = similarity_matrix(retriever, split.text, split.inputs, keys, device, world, workers)
        ranks = rank_table(
            similarity, split.captions, split.items, [setting], [TEXT_TO_ITEM, ITEM_TO_TEXT], "validation"
        )
        text_to_item, item_to_text = (
            validation_scores(ranks[ranks["direction"] == direction]) for direction in (TEXT_TO_ITEM, ITEM_TO_TEXT)
        )
        scores = {f"valid_{name}": score for name, score in text_to_item.items()}
        scores["valid_P75"] = float(np.percentile(ranks.loc[ranks["direction"] == TEXT_TO_ITEM, "rank"], 75))
        scores |= {f"valid_{ITEM_TO_TEXT} {name}": item_to_text[name] for name in RECALL_CUTOFFS}
        scores["valid_mean R@1"] = (text_to_item["R@1"] + item_to_text["R@1"]) / 2
        scores["valid_loss"] = infonce_of_scores(similarity, item_of_caption, batch_size)
        if zero_shot is not None:
            scores["zs_cifar10"] = zero_shot.accuracy(retriever, device, world, workers)
        return {"valid_sum": sum(text_to_item[name] for name in RECALL_CUTOFFS)} | scores

    return validate


def infonce_of_scores(similarity: np.ndarray, item_of_caption: np.ndarray, size: int) -> float:
    """InfoNCE of a model's similarities, symmetric over both directions: comparable whatever loss trains the model.

    ``similarity`` are (n, m) logits, ``item_of_caption`` (n,) columns. Captions are taken in their order, ``size`` at a
    time, each with its item; the mean over batches weights each by its captions. A batch of fewer than two has no
    negatives and is left out. An item is not a negative of its other captions.

    >>> logits = np.array([[9.0, 0.0], [0.0, 9.0]], np.float32)
    >>> infonce_of_scores(logits, np.array([0, 1]), size=2) < 0.001
    True
    """
    total = count = 0.0
    for top in range(0, len(similarity), size):
        rows = np.arange(top, min(top + size, len(similarity)))
        if len(rows) < 2:
            continue
        items = torch.from_numpy(item_of_caption[rows])
        logits = torch.from_numpy(similarity[np.ix_(rows, item_of_caption[rows])]).double()
        logits = logits.masked_fill(same_item_mask(items), -torch.inf)
        truth = torch.arange(len(rows))
        total += len(rows) * float(F.cross_entropy(logits, truth) + F.cross_entropy(logits.T, truth)) / 2
        count += len(rows)
    return total / count if count else float("nan")


# ---- What a run learns from -------------------------------------------------------------------


@dataclass
class TrainingJob:
    """What one training job learns from and resumes from."""

    name: str  # for messages, for example seqTransf/seed0
    spec: RunSpec
    seed: int
    data: Path  # results/data/<dataset>
    dataset: str
    max_frames: int
    state: str | Path  # path or URL of the state that a killed job resumes from; not an output of the rule
    code: str  # hash of the stage's code
    cache: Path | None = None  # cached features of frozen towers, or the index of a frame store
    pretrained: Path | None = None  # weights of the study's own pre-training that the run starts from
    max_frames_tried: list[int] | None = None  # values that the study's sweep chose max_frames from
    tuned: dict[str, Any] = field(default_factory=dict)  # keys that trials chose for its method; spec has them already
    tracking: TrackerName | None = None  # what logs its curves, in tracking_folder
    tracking_folder: Path = Path()

    def __post_init__(self) -> None:
        if self.pretrained is not None:
            backbone = self.spec.backbone.model_copy(update={"weights": str(self.pretrained)})
            self.spec = self.spec.model_copy(update={"backbone": backbone})

    def folder(self) -> RunData:
        return RunData(Path(self.data), self.dataset, self.spec, self.max_frames, self.cache)

    def hashes(self) -> dict[str, str]:
        """Content hashes of the files that the run learns from."""
        captions = Path(self.data) / "captions"
        paths = [Path(self.data) / "items.csv", *(captions / f"{self.dataset}_{s}.csv" for s in ("train", "valid"))]
        weights = self.spec.backbone.weights  # also those of the study's own pre-training
        paths += [Path(path) for path in (self.cache, weights, validation_file(self.spec.evaluation)) if path]
        encoding = self.spec.backbone.encoding()
        paths += [Path(path) for path in (encoding.files() if encoding else [])]
        paths += [Path(path) for path in self.spec.method.precomputed_files()]
        opposites = opposites_file(self.spec.method.training)
        paths += [Path(opposites)] if opposites else []
        return {str(path): file_hash(path) for path in paths}

    def content(self) -> str | None:
        """Content hash of the data set's clips, images or vectors; None where an earlier version wrote none."""
        report = Path(self.data) / "captions" / "report.json"
        return read_json(report).get("digest") if report.is_file() else None

    def state_file(self) -> StateFile:
        """The training state, valid only for the same code, configuration, seed and content of all input files."""
        fingerprint = stable_hash(
            self.code, self.spec.fingerprint(), self.seed, self.max_frames, self.hashes(), self.content()
        )
        return StateFile(self.state, fingerprint)


# ---- Training a run ------------------------------------------------------------------------------------------------

FIT_BATCH_SIZE = 64  # items that are encoded at once for a fit in closed form


def train_run(
    training_job: TrainingJob, model: Path, history: Path, record: Path, metrics: Path | None = None
) -> dict[str, Any]:
    """Train one run and write its best checkpoint, per-epoch history and provenance.

    Started by ``torchrun``, its processes share every batch, and rank 0 writes the files. Returns the content of
    ``run.json`` (``record``); empty on other ranks.
    """
    with join_process_group() as world:
        return _train_run(training_job, model, history, record, metrics, world)


def _untrained(training_job: TrainingJob) -> tuple[RunData, Retriever]:
    """Data of a checked run, and its model before the first step, with every random generator seeded."""
    seed_everything(training_job.seed, training_job.spec.method.training.deterministic)
    run_data = training_job.folder()
    check_splits(run_data.folder, training_job.spec, training_job.name)
    check_method(run_data.spec)
    retriever = build_untrained_model(run_data)
    run_data.check_tower(retriever)
    return run_data, retriever


def _train_run(
    training_job: TrainingJob, model: Path, history: Path, record: Path, metrics: Path | None, world: World
) -> dict[str, Any]:
    began = time.monotonic()
    run_data, retriever = _untrained(training_job)
    notes, start = _check_precomputed(training_job, run_data, retriever), weights_hash(retriever)
    state = training_job.state_file()
    rows: list[dict[str, Any]] = []
    learns = not training_job.spec.method.scored_as_it_is
    if learns and is_overridden(retriever.fit):
        _fit_closed_form(retriever, run_data.split("train", retriever), run_data.split("valid", retriever))
    elif learns and any(True for _ in retriever.parameters()):
        splits = run_data.split("train", retriever), run_data.split("valid", retriever)
        rows = _train_by_gradient(retriever, splits[0], splits[1], training_job, state, world, model)
    if world.rank:
        return {}
    save_model(model, retriever, _weights_metadata(training_job))
    write_csv(history, pd.DataFrame(rows))
    if metrics is not None:
        write_csv(metrics, epoch_metrics(rows))
    best = next((row for row in rows if row["epoch"] == rows[-1]["best_epoch"]), {})
    scores = {"best": _json_numbers(best), "last": _json_numbers(rows[-1] if rows else {})}
    content = _run_record(training_job, retriever, scores, rows, world, time.monotonic() - began)
    towers = retriever.backbone
    notes = [*notes, *(towers.notes if towers is not None else ())]
    content |= {"notes": notes, "start": start}
    write_json(record, content)
    # Last of all: after a kill before this line the run resumes at its end and writes these files again.
    state.remove()
    return content


def _check_precomputed(training_job: TrainingJob, run_data: RunData, retriever: Retriever) -> list[str]:
    """Check the ids of precomputed files against the data set; notes for tables on these files."""
    method = training_job.spec.method
    if not method.precomputed:
        return []
    check_precomputed_ids(retriever, run_data.folder, run_data.dataset)
    return model_hooks(method.model).notes(method, retriever)


def _run_record(
    training_job: TrainingJob,
    retriever: Retriever,
    scores: dict[str, Any],
    rows: list[dict[str, Any]],
    world: World,
    seconds: float,
) -> dict[str, Any]:
    """The content of ``run.json``: what ran, on which hardware, how long, with its scores. No result depends on it."""
    parameters = list(retriever.parameters())
    return {
        "run": training_job.name,
        "seed": training_job.seed,
        "max_frames": training_job.max_frames,
        **({"max_frames_tried": training_job.max_frames_tried} if training_job.max_frames_tried else {}),
        **({"tuned": training_job.tuned} if training_job.tuned else {}),
        "spec": training_job.spec.model_dump(mode="json"),
        "parameters": sum(p.numel() for p in parameters),
        "trained_parameters": sum(p.numel() for p in parameters if p.requires_grad),
        **scores,
        "processes": world.size,
        "seconds": round(seconds, 2),
        "examples_per_second": _throughput(rows),
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,  # Linux counts in kilobytes
        "peak_gpu_memory_mb": torch.cuda.max_memory_allocated() // 2**20 if torch.cuda.is_available() else None,
        "code": training_job.code,
        "data": training_job.hashes(),
        "data_digest": training_job.content(),
        "hardware": hardware(),
    } | environment()


def _json_numbers(row: dict[str, float]) -> dict[str, float | None]:
    """A row for JSON, which has no NaN: these become null."""
    return {name: None if math.isnan(value) else value for name, value in row.items()}


def _throughput(rows: list[dict[str, float]]) -> float | None:
    """Pairs per second while training, without validation."""
    seconds = sum(row["seconds"] for row in rows)
    return round(sum(row["seconds"] * row["clips_per_second"] for row in rows) / seconds, 1) if seconds else None


def _weights_metadata(training_job: TrainingJob) -> dict[str, str]:
    """Metadata of the file of weights."""
    return {"method": training_job.name, "code": training_job.code}


def _train_by_gradient(
    retriever: Retriever,
    train_split: PreparedSplit,
    valid: PreparedSplit,
    training_job: TrainingJob,
    state: StateFile,
    world: World,
    model: Path,
) -> list[dict[str, Any]]:
    keys, workers = training_job.spec.method.training, training_job.spec.frames.workers
    zero_shot = validation_task(training_job.spec)
    evaluation, size = training_job.spec.evaluation, keys.batch.size
    validate = make_validator(valid, keys.select_setting, evaluation, job_device(), world, workers, zero_shot, size)

    tracker = _start_tracker(training_job, state, retriever) if world.rank == 0 else NO_TRACKER

    def save_epoch(epoch: int) -> None:
        path = model.parent / "epochs" / f"{model.stem}.epoch{epoch}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_model(path, retriever, _weights_metadata(training_job))

    rows = loop.train_model(
        retriever,
        train_split.training_data(),
        keys,
        training_job.seed,
        job_device(),
        validate,
        state,
        training_job.name,
        workers,
        world,
        save_epoch,
        tracker,
    )
    best = rows[-1]["best_epoch"]
    tracker.finish({"best_epoch": best, **_json_numbers(next(row for row in rows if row["epoch"] == best))})
    return rows


def _start_tracker(training_job: TrainingJob, state: StateFile, retriever: Retriever) -> Tracker:
    """A tracker that knows which run it is, with what it was trained, and where."""
    if training_job.tracking is None:
        return NO_TRACKER
    facts = {
        "study": training_job.tracking_folder.parent.name,
        "run": training_job.name,
        "seed": training_job.seed,
        "dataset": training_job.dataset,
        "fingerprint": state.fingerprint,
        "code": training_job.code,
        "max_frames": training_job.max_frames,
        "parameters": sum(parameter.numel() for parameter in retriever.parameters()),
        "spec": training_job.spec.model_dump(mode="json"),
        "hardware": hardware(),
    }
    return Tracker(training_job.tracking, training_job.tracking_folder, training_job.name, facts | environment())


def _fit_closed_form(retriever: Retriever, train_split: PreparedSplit, valid: PreparedSplit) -> None:
    pairs = [array for split in (train_split, valid) for array in _pooled_pairs(split, retriever)]
    retriever.fit(*pairs)


def _pooled_pairs(split: PreparedSplit, retriever: Retriever) -> tuple[torch.Tensor, torch.Tensor]:
    """Prepared captions (n, dt) and the time-averaged features of their items (n, di)."""
    if retriever.backbone is not None:
        encode = partial(tower_features, retriever.backbone)
        batch = encode_all_items(encode, split.inputs, FIT_BATCH_SIZE, torch.device("cpu"), workers=split.workers)
    else:
        batch = split.inputs.batch(np.arange(len(split.items)))
    if "frames" not in batch:
        raise RewindError(f"{CACHED_FEATURES_FAULT}.")
    item_of_caption = torch.tensor(split.training_data().item_of_caption)
    text = split.text.text if isinstance(split.text, IdentifiedText) else split.text
    return text, masked_mean(batch["frames"], batch["mask"])[item_of_caption]


# ---- Blind baselines: fitted on the training split, chosen on validation in Binary -----------------------------------


def fit_blind_run(training_job: TrainingJob, model: Path, history: Path, record: Path, metrics: Path) -> None:
    """Fit a run of :mod:`rewind.models.blind` and write the files of :func:`train_run`; it has no epochs.

    Each split must have captions of both directions.
    """
    began = time.monotonic()
    run_data, retriever = _untrained(training_job)
    assert isinstance(retriever, BlindBaseline)  # the rule is only for these models
    start = weights_hash(retriever)
    train, valid = (_with_frame_features(run_data.split(name, retriever), retriever) for name in ("train", "valid"))
    keys = training_job.spec.evaluation
    retriever.fit_splits(train, valid, make_validator(valid, "binary", keys, job_device(), workers=valid.workers))
    save_model(model, retriever, _weights_metadata(training_job))
    write_csv(history, pd.DataFrame())
    write_csv(metrics, epoch_metrics([]))
    content = _run_record(
        training_job, retriever, {"best": {}, "last": {}}, [], SINGLE_PROCESS, time.monotonic() - began
    )
    write_json(record, content | {"notes": [], "start": start})


def _with_frame_features(split: PreparedSplit, retriever: Retriever) -> PreparedSplit:
    """The split with its frames as features: several candidates are scored, and the towers are the same for all."""
    if retriever.backbone is None:
        return split
    frames = frame_features(retriever.backbone, split.inputs, FIT_BATCH_SIZE, job_device(), workers=split.workers)
    return dataclasses.replace(split, inputs=frames)


# ---- The over-fitting check: a tiny subset must be memorised before real runs start --------------------------------


def sanity_check(training_job: TrainingJob, keys: Sanity, result: Path) -> None:
    """Over-fit a tiny subset of the training split; nothing else starts unless training R@1 reaches ``keys.min_r1``."""
    with join_process_group() as world:
        _sanity_check(training_job, keys, result, world)


def _sanity_check(training_job: TrainingJob, keys: Sanity, result: Path, world: World) -> None:
    seed_everything(training_job.seed, training_job.spec.method.training.deterministic)
    run_data = training_job.folder()
    check_splits(run_data.folder, training_job.spec, training_job.name)
    retriever = build_untrained_model(run_data)
    run_data.check_tower(retriever)
    items, captions, _ = load_split(run_data.folder, training_job.dataset, "train")
    # Without twins: a head that is blind to order ties a clip with its twin, and could never memorise both.
    originals = items[items["reversed"] == 0]
    clips = originals.sample(min(keys.clips, len(originals)), random_state=training_job.seed).sort_index()
    captions_used = captions[captions["video_id"].isin(clips["item_id"])].drop_duplicates("video_id")
    captions_used = captions_used.drop_duplicates("caption")  # two clips under one caption cannot both come first
    clips = clips[clips["item_id"].isin(captions_used["video_id"])].reset_index(drop=True)
    split = run_data.prepare(clips, captions_used.reset_index(drop=True), retriever)
    state = StateFile(training_job.state, stable_hash(training_job.state_file().fingerprint, keys.fingerprint("check")))
    rows = _train_on_itself(retriever, split, training_job, state, world)
    best = max(row.get("valid_R@1", 0.0) for row in rows) / 100
    print(f"sanity: training R@1 {best:.3f} on {len(clips)} clips (at least {keys.min_r1} needed)")
    if best < keys.min_r1:
        raise RewindError(
            f"sanity: {training_job.name} reaches a training R@1 of only {best:.2f} on {len(clips)} clips, "
            f"{keys.min_r1} is needed before real runs start. Look at videos/report.csv and a few captions: do they "
            "belong together? Then try a larger sanity.training.lr or backbone_lr_multiplier, more "
            "sanity.training.epochs, or pretrained backbone.weights."
        )
    if world.rank == 0:
        content = {"method": training_job.name, "clips": len(clips), "train_R@1": round(best, 4), "needed": keys.min_r1}
        write_json(result, content)
        state.remove()


def _train_on_itself(
    retriever: Retriever, split: PreparedSplit, training_job: TrainingJob, state: StateFile, world: World
) -> list[dict[str, float]]:
    workers = training_job.spec.frames.workers
    return train_model(
        retriever,
        split.training_data(),
        training_job.spec.method.training,
        training_job.seed,
        job_device(),
        make_validator(split, "test", training_job.spec.evaluation, job_device(), world, workers),
        state,
        training_job.name,
        workers,
        world,
    )
