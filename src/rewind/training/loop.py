"""The training loop: exact global batch, validation, best checkpoint, and resumption at any step.

``train_model`` is the entry point. A run that was killed and resumed ends with the same bits as an uninterrupted one on
the same hardware.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from rewind.config import Training
from rewind.distributed import SINGLE_PROCESS, World
from rewind.errors import RewindError
from rewind.loading.run_data import TrainingData
from rewind.losses.base import Objective, loss_module, make_objective
from rewind.models.retriever import Features, Retriever, is_overridden
from rewind.progress import Progress
from rewind.training.checkpoint import RunState, StateFile, check_run_state
from rewind.training.grad_cache import MicroBatch, StepLoss, exact_step, random_state, set_random_state
from rewind.training.optim import make_optimiser
from rewind.training.order import BatchOrder, encode_all_captions
from rewind.training.tracking import NO_TRACKER, Tracker

# ---- Gradient checkpointing and torch.compile: the same model with less memory or faster steps ---------------------

_MAX_COMPILED_PROGRAMS = 32  # most programs that torch compiles from one function
_BACKBONE_METHODS = {"gradient_checkpointing": "checkpoint_towers", "compile": "compile_towers"}


def check_speed(retriever: Retriever, keys: Training) -> None:
    """Refuse a retriever whose backbone cannot do what the keys ask for."""
    for key, method in _BACKBONE_METHODS.items():
        if not getattr(keys, key):
            continue
        if retriever.backbone is None:
            raise RewindError(f"training.{key}: this method has no backbone with {method}(); remove the key.")
        if not is_overridden(apply := getattr(retriever.backbone, method)):
            apply()  # the default, which raises and says that the backbone cannot


def speed_up(retriever: Retriever, keys: Training) -> None:
    """Apply ``training.gradient_checkpointing`` and ``training.compile`` to the backbone, in place.

    Call it once the retriever is on its device. Parameters, their names and the state dict stay as they are; a compiled
    tower computes the same up to rounding.
    """
    check_speed(retriever, keys)
    for key, method in _BACKBONE_METHODS.items():
        if not getattr(keys, key):
            continue
        if key == "compile":
            _try_to_compile(next(retriever.parameters()).device)
            # Two towers, each with and without gradient, with and without autocast, for one row and for more: 16
            # programs. The default limit is 8, and beyond it torch stops compiling without a word.
            torch._dynamo.config.cache_size_limit = max(_MAX_COMPILED_PROGRAMS, torch._dynamo.config.cache_size_limit)
        getattr(retriever.backbone, method)()


def _try_to_compile(device: torch.device) -> None:
    """Fail now and in one sentence, not in the first step with a page of compiler output."""
    try:
        torch.compile(lambda x: x.sin() + 1)(torch.zeros(2, device=device))
    except Exception as error:  # the compiler's tool chain raises many types
        needed = "Triton" if device.type == "cuda" else "a C++ compiler and Python's headers"
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise RewindError(
            f"training.compile: torch.compile does not work here ({reason}); it needs {needed} on a {device.type} "
            "device. Install these, or remove the key."
        ) from error


# ---- One step: forward and backward pass of the global batch, gradient clipping, optimiser -------------------------


class Learner(Protocol):
    """What a step needs and changes; :class:`rewind.training.checkpoint.RunState` is one."""

    retriever: Retriever
    objective: Objective
    optimiser: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    micro_batch: MicroBatch
    device: torch.device


def training_step(learner: Learner, batch: Features, keys: Training, world: World = SINGLE_PROCESS) -> StepLoss:
    """Update a learner with this process's share of a global batch; if the loss is not finite, nothing changes."""
    retriever, optimiser, scaler = learner.retriever, learner.optimiser, learner.scaler
    batch = {name: value.to(learner.device, non_blocking=True) for name, value in batch.items()}

    def step(rows: int | None, pairs: int | None) -> StepLoss:
        return exact_step(
            retriever,
            learner.objective,
            batch,
            rows,
            pairs=pairs,
            precision=keys.precision,
            scaler=scaler,
            world=world,
        )

    loss = learner.micro_batch.run(step, len(batch["rows"]), learner.device)
    if np.isfinite(loss.value):
        scaler.unscale_(optimiser)  # before clipping: the norm of scaled gradients means nothing
        if keys.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_([p for g in optimiser.param_groups for p in g["params"]], keys.clip_norm)
        scaler.step(optimiser)
        scaler.update()
        retriever.clamp()
    return loss


# ---- The loop ------------------------------------------------------------------------------------------------------

Validate = Callable[[Retriever], dict[str, float]]
"""A model's scores on the validation split, as columns of the history (``valid_sum``, …)."""


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


def train_model(
    retriever: Retriever,
    data: TrainingData,
    keys: Training,
    seed: int,
    device: torch.device,
    validate: Validate,
    state: StateFile,
    name: str,
    workers: int = 0,
    world: World = SINGLE_PROCESS,
    keep: Callable[[int], None] | None = None,
    tracker: Tracker = NO_TRACKER,
) -> list[dict[str, float]]:
    """Train in place; the retriever ends with the weights of its best validation score, or of its last epoch.

    A run that was killed continues from ``state``. Every process of ``world`` calls this with the same arguments; all
    validate, and rank 0 saves.

    Args:
        seed: of the run; the caller has called :func:`seed_everything` with it.
        keep: called on rank 0 with the number of every ``keep_every``-th epoch, counted from 1, once it is saved; a
            second time for the last one if the run is resumed there, since the kill may have come between the two.

    Returns:
        One row per epoch: epoch, loss, what the objective logs, lr, seconds, clips_per_second, doubtful negatives,
        logit_scale and the validation scores.

    Raises:
        RewindError: if the loss is not a number, with the captions of the batch, if memory runs out, or if the
            processes cannot share the batch equally; the saved state is kept.
    """
    # The order matters. Parameters go to the device before the optimiser, which is fused on a GPU; frozen ones get no
    # moments. The objective sees the weights that training starts from, before a saved state replaces them.
    retriever.to(device)
    freeze(retriever, keys.freeze)
    objective = make_objective(keys, device)
    saved = _load_state(state, world)
    order = BatchOrder(data, keys, seed, world, saved and saved["order"])
    steps = order.per_epoch * keys.epochs
    optimiser, schedule = make_optimiser(retriever, keys, steps, loss_module(objective))
    speed_up(retriever, keys)
    retriever.prepare(data)
    _prepare_objective(objective, retriever, data, device, world)
    _check_loss_parameters(objective, retriever, optimiser)
    run = RunState(retriever, objective, order, optimiser, schedule, keys, device)
    run.restore(saved)
    world.copy_weights(retriever)
    keep_epoch = functools.partial(_keep_epoch, keep if world.rank == 0 else None, keys.keep_every)
    if saved and run.step == 0:
        keep_epoch(run.epoch)  # the kill may have come after the state was saved and before the epoch was kept
    progress = Progress(f"train {name}", steps, "steps")
    progress.done = first = order.per_epoch * run.epoch + run.step
    tracker.expect(steps, first)
    batches = order.feed(first, workers, device)
    while run.epoch < keys.epochs and not run.out_of_patience(keys.patience):
        if run.step == 0:
            order.refresh(run.epoch, functools.partial(encode_all_captions, retriever, data.text, device))
            run.start_epoch()
        began, seen = time.monotonic(), 0
        retriever.train()
        while run.step < order.per_epoch:
            batch = next(batches)
            loss = training_step(run, batch, keys, world)
            if not np.isfinite(loss.value):
                _refuse_loss(loss.value, run, data, state, name)
            schedule.step()
            run.end_step(loss)
            seen += len(batch["rows"]) * world.size
            values = {"loss": loss.value, **_rate_and_temperature(run)}
            progress.advance(1, f"epoch {run.epoch + 1}/{keys.epochs}, {_progress_text(values)}")
            tracker.log_step(progress.done, {f"step/{name}": value for name, value in values.items()})
            # The last step of an epoch is saved only after validation, together with its row of the history.
            if run.step % keys.save_every_steps == 0 and run.step < order.per_epoch and world.rank == 0:
                state.save(run.saved())
        row = _history_row(run, time.monotonic() - began, seen)
        if (run.epoch + 1) % keys.evaluate_every == 0 or run.epoch + 1 == keys.epochs:
            # Rank 0's scores, on all ranks: they must choose the same best epoch, and stop at the same one.
            row |= world.agree(validate(retriever.eval()))
            run.keep_if_best(row[f"valid_{keys.select_metric}"] * (-1 if keys.select_metric == "loss" else 1))
        run.end_epoch(row)
        tracker.log(progress.done, {f"epoch/{name}": value for name, value in row.items()})
        if world.rank == 0:
            state.save(run.saved())
        keep_epoch(run.epoch)
    if run.epoch < keys.epochs:
        print(f"{name}: no better score in {keys.patience} validations; stopped after epoch {run.epoch}")
    if keys.keep == "best":
        retriever.load_state_dict(run.best["model"])
    retriever.eval()
    return run.history


def _load_state(state: StateFile, world: World) -> dict[str, Any] | None:
    world.agree(None)  # wait for rank 0: it must not save while the others read
    saved = state.load(check_run_state)
    position = (saved["epoch"], saved["step"]) if saved else None
    if position != world.agree(position):
        raise RewindError(
            f"{state.store}: the processes of this run read different states; put results on a file system that all "
            "of them share, and start again."
        )
    return saved


def _prepare_objective(
    objective: Objective, retriever: Retriever, data: TrainingData, device: torch.device, world: World
) -> None:
    world.copy_weights(retriever)  # rank 0's, so that all processes prepare the same
    before = random_state(device)
    objective.prepare(retriever, data, device)
    set_random_state(before, device)


def _check_loss_parameters(objective: Objective, retriever: Retriever, optimiser: torch.optim.Optimizer) -> None:
    """Refuse a parameter of the loss that learns and would not: one that its ``prepare`` made."""
    loss = loss_module(objective)
    optimised = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
    optimised |= {id(parameter) for parameter in retriever.parameters()}  # whether they are trained is its own matter
    for name, parameter in () if loss is None else loss.named_parameters():
        if parameter.requires_grad and id(parameter) not in optimised:
            raise RewindError(
                f"training.objective: {type(loss).__name__} made or replaced its parameter {name!r} in prepare(), "
                "where the optimiser does not see it: make it in the constructor, or give it requires_grad=False."
            )


def _keep_epoch(keep: Callable[[int], None] | None, every: int | None, epoch: int) -> None:
    if keep is not None and every and epoch % every == 0:
        keep(epoch)


def _rate_and_temperature(run: RunState) -> dict[str, float]:
    """Learning rate of the next step, and temperature, exp(−logit_scale), after this one."""
    towers = run.retriever.backbone
    rate = {"lr": run.optimiser.param_groups[-1]["lr"]}
    return rate if towers is None else rate | {"temperature": math.exp(-float(towers.logit_scale.detach()))}


def _progress_text(values: dict[str, float]) -> str:
    """The values of a step, for the console."""
    text = f"loss {values['loss']:.3f}, lr {values['lr']:.2g}"
    return f"{text}, temperature {values['temperature']:.4f}" if "temperature" in values else text


def _history_row(run: RunState, seconds: float, seen: int) -> dict[str, float]:
    """The history's row of the epoch that ends, without validation scores."""
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


def _refuse_loss(loss: float, run: RunState, data: TrainingData, state: StateFile, name: str) -> None:
    names = [data.caption_ids[row] for row in run.order.whole(run.epoch)[run.step]]
    path = state.note(
        ".batch.json", {"loss": str(loss), "epoch": run.epoch + 1, "step": run.step + 1, "captions": names}
    )
    raise RewindError(
        f"{name}: the loss is {loss} in epoch {run.epoch + 1}, step {run.step + 1}; first captions {names[:3]}, all "
        f"{len(names)} in {path}. Check these clips, or lower training.lr; the last saved state is kept."
    )
