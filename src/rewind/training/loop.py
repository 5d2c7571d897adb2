"""The training loop: exact global batch, validation, best checkpoint, resumption at any step."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rewind.errors import RewindError
from rewind.files import write_json
from rewind.models.retriever import Features, Retriever, find
from rewind.progress import Progress
from rewind.study import Training
from rewind.training.batches import epoch_batches
from rewind.training.checkpoint import StateFile
from rewind.training.distributed import ALONE, World
from rewind.training.grad_cache import MicroBatch, exact_step, random_state, set_random_state
from rewind.training.inputs import Inputs, load
from rewind.training.optim import make_optimiser
from rewind.training.speed import speed_up

Validate = Callable[[Retriever], dict[str, float]]
"""Scores of a model on validation; ``valid_sum`` chooses the checkpoint."""


@dataclass
class TrainingData:
    """The training split.

    Attributes:
        inputs: the items.
        text: prepared captions, one row each.
        item_of_caption: (n,) item row of each caption.
        cluster_of_item: (m,) cluster of each item.
        caption_ids: names for messages.
    """

    inputs: Inputs
    text: Tensor
    item_of_caption: np.ndarray
    cluster_of_item: np.ndarray
    caption_ids: list[str]


def seed_everything(seed: int, deterministic: bool = True) -> None:
    """Seed every source of random numbers; with ``deterministic`` also ask for kernels that repeat their bits.

    Data order and the choice of captions have generators of their own, made from the same seed.
    """
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    torch.backends.cudnn.deterministic = deterministic
    torch.backends.cudnn.benchmark = not deterministic


def freeze(retriever: Retriever, towers: list[str]) -> None:
    """Stop gradients into the named towers (``text``, ``visual``)."""
    for tower in towers:
        for parameter in getattr(retriever.backbone, f"{tower}_parameters")():
            parameter.requires_grad_(False)


def train(
    retriever: Retriever,
    data: TrainingData,
    keys: Training,
    seed: int,
    device: torch.device,
    validate: Validate,
    state: StateFile,
    name: str,
    workers: int = 0,
    world: World = ALONE,
) -> list[dict[str, float]]:
    """Train in place; the retriever ends with the weights of its best validation score.

    A run that was killed continues from ``state`` and ends with the same bits as an unbroken one on the same hardware.
    Every process of ``world`` calls this with the same arguments; all validate, rank 0 saves.

    Returns:
        One row per epoch: epoch, loss, lr, seconds, clips_per_second and the validation scores.

    Raises:
        RewindError: when the loss is not a number, with the captions of the batch, when memory runs out, or when the
            processes cannot share the batch equally; the saved state is kept.
    """
    objective = find(keys.objective, "rewind.objectives", "training.objective")
    objective = getattr(objective, "objective", objective)
    retriever.to(device)
    freeze(retriever, keys.freeze)
    order = _Order(data, keys, seed, world)
    steps = order.per_epoch * keys.epochs
    optimiser, schedule = make_optimiser(retriever, keys, steps)
    speed_up(retriever, keys)
    run = _Run(retriever, optimiser, schedule, keys, device)
    _resume(run, state, world)
    progress = Progress(f"train {name}", steps, "steps")
    progress.done = first = order.per_epoch * run.epoch + run.step
    # One loader serves the whole run: the next epoch's first batches are made while this one is validated.
    shares = (order.share(place) for place in range(first, steps))
    batches = load(functools.partial(_batch, data), shares, data.inputs, workers, device)
    while run.epoch < keys.epochs and not run.out_of_patience(keys.patience):
        began, seen = time.monotonic(), 0
        retriever.train()
        while run.step < order.per_epoch:
            batch = next(batches)
            loss = _step(run, objective, batch, keys, world)
            if not np.isfinite(loss):
                _refuse(loss, run, data, order.whole(run.epoch)[run.step], state, name)
            schedule.step()
            run.losses.append(loss)
            run.step += 1
            seen += len(batch["rows"]) * world.size
            progress.advance(1, f"epoch {run.epoch + 1}/{keys.epochs}, loss {loss:.3f}")
            if run.step % keys.save_every_steps == 0 and run.step < order.per_epoch and world.rank == 0:
                state.save(run.saved())
        seconds = time.monotonic() - began
        row = {
            "epoch": run.epoch + 1,
            "loss": float(np.mean(run.losses)),
            "lr": optimiser.param_groups[-1]["lr"],
            "seconds": round(seconds, 3),
            "clips_per_second": round(seen / max(seconds, 1e-9), 1),
        }
        if (run.epoch + 1) % keys.evaluate_every == 0 or run.epoch + 1 == keys.epochs:
            row |= world.agree(validate(retriever.eval()))
            run.keep_if_best(row[f"valid_{keys.select_metric}"], run.epoch + 1)
        run.end_epoch(row)
        if world.rank == 0:
            state.save(run.saved())
    if run.epoch < keys.epochs:
        print(f"{name}: no better score in {keys.patience} validations: stopped after epoch {run.epoch}")
    retriever.load_state_dict(run.best["model"])
    retriever.eval()
    return run.history


def _refuse(loss: float, run: _Run, data: TrainingData, rows: np.ndarray, state: StateFile, name: str) -> None:
    names = [data.caption_ids[row] for row in rows]
    path = state.path.with_suffix(".batch.json")
    write_json(path, {"loss": str(loss), "epoch": run.epoch + 1, "step": run.step + 1, "captions": names})
    raise RewindError(
        f"{name}: the loss is {loss} in epoch {run.epoch + 1}, step {run.step + 1}; first captions {names[:3]}, all "
        f"{len(names)} in {path}. Look at these clips, or lower training.lr; the last saved state is kept."
    )


def _resume(run: _Run, state: StateFile, world: World) -> None:
    world.agree(None)  # rank 0 is here, so that it saves nothing while the others read
    run.restore(state.load())
    if (run.epoch, run.step) != world.agree((run.epoch, run.step)):
        raise RewindError(
            f"{state.path}: the processes of this run read different states; put results on a file system that all "
            "of them see, and start again."
        )
    world.copy_weights(run.retriever)


def _step(run: _Run, objective, batch: Features, keys: Training, world: World) -> float:
    retriever, optimiser, scaler = run.retriever, run.optimiser, run.scaler
    batch = {name: value.to(run.device, non_blocking=True) for name, value in batch.items()}

    def step(rows: int | None) -> float:
        return exact_step(retriever, objective, batch, rows, precision=keys.precision, scaler=scaler, world=world)

    value = run.micro_batch.run(step, len(batch["rows"]), run.device)
    if np.isfinite(value):
        scaler.unscale_(optimiser)
        torch.nn.utils.clip_grad_norm_([p for g in optimiser.param_groups for p in g["params"]], keys.clip_norm)
        scaler.step(optimiser)
        scaler.update()
        if hasattr(retriever, "clamp"):
            retriever.clamp()
    return value


class _Order:
    """Which caption rows every step sees: of all processes together, and of this one."""

    def __init__(self, data: TrainingData, keys: Training, seed: int, world: World) -> None:
        self.data, self.keys, self.seed, self.world = data, keys.batch, seed, world
        self.epoch, self.batches = 0, self._of(0)
        self.per_epoch = len(self.batches)
        world.share(len(self.batches[0]))  # a batch that cannot be shared is refused before anything runs

    def _of(self, epoch: int) -> list[np.ndarray]:
        return epoch_batches(self.data.item_of_caption, self.data.cluster_of_item, self.keys, self.seed, epoch)

    def whole(self, epoch: int) -> list[np.ndarray]:
        """The global batches of an epoch."""
        if epoch != self.epoch:
            self.epoch, self.batches = epoch, self._of(epoch)
        return self.batches

    def share(self, place: int) -> np.ndarray:
        """This process's rows of the step ``place``, counted from the run's beginning."""
        rows = self.whole(place // self.per_epoch)[place % self.per_epoch]
        return rows[self.world.share(len(rows))]


def _batch(data: TrainingData, rows: np.ndarray) -> Features:
    items = data.item_of_caption[rows]
    index = torch.from_numpy(rows)
    return {"rows": index, "text": data.text[index], "items": torch.from_numpy(items)} | data.inputs.batch(items)


class _Run:
    """Everything a resumed run needs besides data and configuration."""

    def __init__(self, retriever: Retriever, optimiser, schedule, keys: Training, device: torch.device) -> None:
        self.retriever, self.optimiser, self.schedule, self.device = retriever, optimiser, schedule, device
        self.scaler = torch.amp.GradScaler(device.type, enabled=keys.precision == "fp16")
        self.micro_batch = MicroBatch(keys.micro_batch)
        self.epoch = self.step = 0
        self.losses: list[float] = []
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Any] = {"score": -np.inf, "epoch": 0, "model": None}

    def saved(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "step": self.step,
            "losses": self.losses,
            "history": self.history,
            "best": self.best,
            "model": self.retriever.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "schedule": {"last_epoch": self.schedule.last_epoch},
            "scaler": self.scaler.state_dict(),
            "micro_batch": self.micro_batch.rows,
            "random": random_state(self.device),
        }

    def restore(self, saved: dict[str, Any] | None) -> None:
        if saved is None:
            return
        self.retriever.load_state_dict(saved["model"])
        self.optimiser.load_state_dict(saved["optimiser"])
        self.schedule.last_epoch = saved["schedule"]["last_epoch"]
        self.scaler.load_state_dict(saved["scaler"])
        self.micro_batch.rows = saved["micro_batch"]
        set_random_state(saved["random"], self.device)
        self.epoch, self.step, self.losses = saved["epoch"], saved["step"], saved["losses"]
        self.history, self.best = saved["history"], saved["best"]
        print(f"resumed after epoch {self.epoch}, step {self.step}")

    def keep_if_best(self, score: float, epoch: int) -> None:
        if score > self.best["score"]:
            state = {name: value.detach().clone().cpu() for name, value in self.retriever.state_dict().items()}
            self.best = {"score": score, "epoch": epoch, "model": state}

    def out_of_patience(self, patience: int | None) -> bool:
        scored = [row["epoch"] for row in self.history if "valid_sum" in row]
        return patience is not None and sum(epoch > self.best["epoch"] for epoch in scored) >= patience

    def end_epoch(self, row: dict[str, float]) -> None:
        row["best_epoch"] = self.best["epoch"]
        self.history.append(row)
        self.epoch, self.step, self.losses = self.epoch + 1, 0, []
