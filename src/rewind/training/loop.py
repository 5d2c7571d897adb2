"""The training loop: exact global batch, validation, best checkpoint, resumption at any step."""

from __future__ import annotations

import functools
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from rewind.distributed import ALONE, World
from rewind.errors import RewindError
from rewind.feeding.training_data import TrainingData
from rewind.models.retriever import Retriever
from rewind.objectives.interface import Objective, make_objective
from rewind.progress import Progress
from rewind.study import Training
from rewind.training.grad_cache import random_state, set_random_state
from rewind.training.optim import make_optimiser
from rewind.training.order import Order, text_vectors
from rewind.training.speed import speed_up
from rewind.training.state import RunState, StateFile
from rewind.training.step import training_step

__all__ = ["TrainingData", "Validate", "freeze", "seed_everything", "train"]

Validate = Callable[[Retriever], dict[str, float]]
"""Scores of a model on validation; ``valid_sum`` chooses the checkpoint."""


def seed_everything(seed: int, deterministic: bool = True) -> None:
    """Seed every source of random numbers; with ``deterministic`` also ask for kernels that repeat their bits.

    Data order and the choice of captions have generators of their own, made from the same seed.
    """
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    # Not use_deterministic_algorithms: it says the same, but imports torch's compiler for that, a second or two.
    torch.set_deterministic_debug_mode("warn" if deterministic else "default")
    # Else torch also fills all memory that it hands out empty, every batch's included. Nothing here reads it unwritten.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.deterministic = deterministic
    torch.backends.cudnn.benchmark = not deterministic


def freeze(retriever: Retriever, towers: Sequence[str]) -> None:
    """Stop gradients into the named towers (``text``, ``visual``)."""
    if towers and retriever.backbone is None:
        raise RewindError(
            f"training.freeze: {type(retriever).__name__} has no towers to freeze; give the method "
            "training: {freeze: []}."
        )
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
    keep: Callable[[int], None] | None = None,
) -> list[dict[str, float]]:
    """Train in place; the retriever ends with the weights of its best validation score, or of its last epoch.

    A run that was killed continues from ``state`` and ends with the same bits as an unbroken one on the same hardware.
    Every process of ``world`` calls this with the same arguments; all validate, rank 0 saves, and then calls ``keep``
    with the number of every ``keep_every``-th epoch; of the last saved one again where a run goes on from there.

    Returns:
        One row per epoch: epoch, loss, what the objective logs, lr, seconds, clips_per_second, doubtful negatives,
        logit_scale and the validation scores.

    Raises:
        RewindError: when the loss is not a number, with the captions of the batch, when memory runs out, or when the
            processes cannot share the batch equally; the saved state is kept.
    """
    retriever.to(device)
    freeze(retriever, keys.freeze)
    objective = make_objective(keys)
    saved = _load(state, world)
    order = Order(data, keys, seed, world, saved and saved["order"])
    steps = order.per_epoch * keys.epochs
    optimiser, schedule = make_optimiser(retriever, keys, steps)
    speed_up(retriever, keys)
    retriever.prepare(data)
    _prepare(objective, retriever, data, device, world)
    run = RunState(retriever, objective, order, optimiser, schedule, keys, device)
    run.restore(saved)
    world.copy_weights(retriever)
    kept = functools.partial(_keep, keep if world.rank == 0 else None, keys.keep_every)
    if saved and run.step == 0:
        kept(run.epoch)  # it may have died between the two
    progress = Progress(f"train {name}", steps, "steps")
    progress.done = first = order.per_epoch * run.epoch + run.step
    batches = order.feed(first, workers, device)
    while run.epoch < keys.epochs and not run.out_of_patience(keys.patience):
        if run.step == 0:
            order.refresh(run.epoch, functools.partial(text_vectors, retriever, data.text, device))
            run.start_epoch()
        began, seen = time.monotonic(), 0
        retriever.train()
        while run.step < order.per_epoch:
            batch = next(batches)
            loss = training_step(run, batch, keys, world)
            if not np.isfinite(loss.value):
                _refuse(loss.value, run, data, state, name)
            schedule.step()
            run.end_step(loss)
            seen += len(batch["rows"]) * world.size
            progress.advance(1, f"epoch {run.epoch + 1}/{keys.epochs}, loss {loss.value:.3f}, {_where(run)}")
            if run.step % keys.save_every_steps == 0 and run.step < order.per_epoch and world.rank == 0:
                state.save(run.saved())
        row = _row(run, time.monotonic() - began, seen)
        if (run.epoch + 1) % keys.evaluate_every == 0 or run.epoch + 1 == keys.epochs:
            row |= world.agree(validate(retriever.eval()))
            run.keep_if_best(row[f"valid_{keys.select_metric}"] * (-1 if keys.select_metric == "loss" else 1))
        run.end_epoch(row)
        if world.rank == 0:
            state.save(run.saved())
        kept(run.epoch)
    if run.epoch < keys.epochs:
        print(f"{name}: no better score in {keys.patience} validations; stopped after epoch {run.epoch}")
    if keys.keep == "best":
        retriever.load_state_dict(run.best["model"])
    retriever.eval()
    return run.history


def _load(state: StateFile, world: World) -> dict[str, Any] | None:
    world.agree(None)  # rank 0 is here, so that it saves nothing while the others read
    saved = state.load()
    place = (saved["epoch"], saved["step"]) if saved else None
    if place != world.agree(place):
        raise RewindError(
            f"{state.place}: the processes of this run read different states; put results on a file system that all "
            "of them share, and start again."
        )
    return saved


def _prepare(
    objective: Objective, retriever: Retriever, data: TrainingData, device: torch.device, world: World
) -> None:
    world.copy_weights(retriever)
    before = random_state(device)
    objective.prepare(retriever, data, device)
    set_random_state(before, device)


def _keep(keep: Callable[[int], None] | None, every: int | None, epoch: int) -> None:
    if keep is not None and every and epoch % every == 0:
        keep(epoch)


def _where(run: RunState) -> str:
    """Learning rate and temperature, as the console shows them."""
    towers = run.retriever.backbone
    rate = f"lr {run.optimiser.param_groups[-1]['lr']:.2g}"
    return rate if towers is None else f"{rate}, temperature {math.exp(-float(towers.logit_scale.detach())):.4f}"


def _row(run: RunState, seconds: float, seen: int) -> dict[str, float]:
    """The history's row of the epoch that ends, without validation."""
    towers = run.retriever.backbone
    return {
        "epoch": run.epoch + 1,
        **run.summary(),
        **run.order.describe(run.epoch),
        "lr": run.optimiser.param_groups[-1]["lr"],
        "seconds": round(seconds, 3),
        "clips_per_second": round(seen / max(seconds, 1e-9), 1),
        **run.order.doubtful(run.epoch),
        **({} if towers is None else {"logit_scale": float(towers.logit_scale.detach())}),
    }


def _refuse(loss: float, run: RunState, data: TrainingData, state: StateFile, name: str) -> None:
    names = [data.caption_ids[row] for row in run.order.whole(run.epoch)[run.step]]
    path = state.note(
        ".batch.json", {"loss": str(loss), "epoch": run.epoch + 1, "step": run.step + 1, "captions": names}
    )
    raise RewindError(
        f"{name}: the loss is {loss} in epoch {run.epoch + 1}, step {run.step + 1}; first captions {names[:3]}, all "
        f"{len(names)} in {path}. Check these clips, or lower training.lr; the last saved state is kept."
    )
