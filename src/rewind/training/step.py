"""One training step: forward and backward pass of the global batch, clipped gradients, the optimiser."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch

from rewind.distributed import ALONE, World
from rewind.models.retriever import Features, Retriever
from rewind.objectives.interface import Objective
from rewind.study import Training
from rewind.training.grad_cache import StepLoss, exact_step
from rewind.training.micro_batch import MicroBatch


class Learner(Protocol):
    """What a step needs and changes."""

    retriever: Retriever
    objective: Objective
    optimiser: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    micro_batch: MicroBatch
    device: torch.device


def training_step(learner: Learner, batch: Features, keys: Training, world: World = ALONE) -> StepLoss:
    """Move a learner by this process's share of a global batch; where the loss is not finite, nothing moves."""
    retriever, optimiser, scaler = learner.retriever, learner.optimiser, learner.scaler
    batch = {name: value.to(learner.device, non_blocking=True) for name, value in batch.items()}

    def step(rows: int | None, pairs: int | None) -> StepLoss:
        how = {"pairs": pairs, "precision": keys.precision, "scaler": scaler, "world": world}
        return exact_step(retriever, learner.objective, batch, rows, **how)

    loss = learner.micro_batch.run(step, len(batch["rows"]), learner.device)
    if np.isfinite(loss.value):
        scaler.unscale_(optimiser)
        if keys.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_([p for g in optimiser.param_groups for p in g["params"]], keys.clip_norm)
        scaler.step(optimiser)
        scaler.update()
        retriever.clamp()
    return loss
