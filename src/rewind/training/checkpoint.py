"""The state of a run in progress: what is saved, in a file that survives any kill, and how it is restored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rewind.config import Training
from rewind.errors import RewindError
from rewind.io.files import require_intact_archive, require_regular_file, reraise_system_error, write_json
from rewind.losses.base import Objective
from rewind.models.retriever import Retriever
from rewind.training.checkpoint_store import check_training_state, open_checkpoint_store
from rewind.training.grad_cache import MicroBatch, StepLoss, random_state, set_random_state
from rewind.training.order import BatchOrder

RESERVED_COLUMNS = frozenset(
    {"epoch", "loss", "lr", "seconds", "clips_per_second", "logit_scale", "best_epoch"}
    | {"same_text_negatives", "twin_negatives"}
)
"""Columns of the history that the training loop writes."""


class RunState:
    """Everything a resumed run needs besides data and configuration."""

    def __init__(
        self,
        retriever: Retriever,
        objective: Objective,
        order: BatchOrder,
        optimiser: torch.optim.Optimizer,
        schedule: torch.optim.lr_scheduler.LambdaLR,
        keys: Training,
        device: torch.device,
    ) -> None:
        self.retriever, self.objective, self.order, self.device = retriever, objective, order, device
        self.optimiser, self.schedule = optimiser, schedule
        self.scaler = torch.amp.GradScaler(device.type, enabled=keys.precision == "fp16")
        self.micro_batch = MicroBatch(keys.micro_batch)
        self.epoch = self.step = 0  # both counted from 0; the step within the epoch
        self.losses: list[float] = []  # of the epoch's steps so far
        self.logs: dict[str, list[float]] = {}  # what the loss logged in them, by name
        self.history: list[dict[str, float]] = []  # one row per finished epoch
        self.best: dict[str, Any] = {"score": -np.inf, "epoch": 0, "model": None}  # epoch from 1

    def saved(self) -> dict[str, Any]:
        """Plain values and tensors, for the training state file.

        Nothing else: the file is read with ``weights_only``, which runs no code from it.
        """
        return {
            "epoch": self.epoch,
            "step": self.step,
            "losses": self.losses,
            "logs": self.logs,
            "history": self.history,
            "best": self.best,
            "model": self.retriever.state_dict(),
            "objective": self.objective.state_dict(),
            "order": self.order.saved(),
            "optimiser": self.optimiser.state_dict(),
            "schedule": {"last_epoch": self.schedule.last_epoch},  # its factors follow from the keys
            "scaler": self.scaler.state_dict(),
            "micro_batch": [self.micro_batch.rows, self.micro_batch.pairs],
            "random": random_state(self.device),
        }

    def restore(self, saved: dict[str, Any] | None) -> None:
        """Continue from what :meth:`saved` returned (the order has read its part already)."""
        if saved is None:
            return
        self.epoch, self.step = saved["epoch"], saved["step"]
        self.losses, self.logs = saved["losses"], saved["logs"]
        self.history, self.best = saved["history"], saved["best"]
        self.retriever.load_state_dict(saved["model"])
        self.optimiser.load_state_dict(saved["optimiser"])
        # The rate itself is in the optimiser's groups; the schedule only has to know where it is.
        self.schedule.last_epoch = saved["schedule"]["last_epoch"]
        self.scaler.load_state_dict(saved["scaler"])
        self.micro_batch.rows, self.micro_batch.pairs = saved["micro_batch"]
        # In the middle of an epoch the loop does not start it again. The objective's own state comes after it, and the
        # random numbers last, since both hooks may draw some.
        if self.step:
            self.start_epoch()
        if saved["objective"] is not None:
            self.objective.load_state_dict(saved["objective"])
        set_random_state(saved["random"], self.device)
        print(f"resumed after epoch {self.epoch}, step {self.step}")

    def start_epoch(self) -> None:
        """Tell the retriever and the loss which epoch it is."""
        self.retriever.start_epoch(self.epoch)
        self.objective.start_epoch(self.epoch, self.retriever)

    def end_step(self, loss: StepLoss) -> None:
        """Record a step's loss and logs."""
        self.losses.append(loss.value)
        for name, value in loss.logs.items():
            self.logs.setdefault(name, []).append(value)
        self.step += 1

    def summary(self) -> dict[str, float]:
        """Means over the epoch's steps: the loss, and what the objective makes of its logs."""
        means = {name: float(np.mean(values)) for name, values in self.logs.items()}
        columns = self.objective.summary(means)
        if taken := [name for name in columns if name in RESERVED_COLUMNS or name.startswith(("valid_", "zs_"))]:
            raise RewindError(
                f"training.objective: it logs {taken[0]!r}, a name that history.csv already uses for something else."
            )
        return {"loss": float(np.mean(self.losses))} | columns

    def keep_if_best(self, score: float) -> None:
        """Keep the weights, on the CPU, if this epoch's score is better than all before."""
        if score > self.best["score"]:
            # clone, because on a CPU .cpu() copies nothing and training goes on in place.
            state = {name: value.detach().clone().cpu() for name, value in self.retriever.state_dict().items()}
            self.best = {"score": score, "epoch": self.epoch + 1, "model": state}

    def out_of_patience(self, patience: int | None) -> bool:
        """Whether the last ``patience`` validations were no better than the best before them."""
        validated = [row["epoch"] for row in self.history if "valid_sum" in row]  # not every epoch is
        return patience is not None and sum(epoch > self.best["epoch"] for epoch in validated) >= patience

    def end_epoch(self, row: dict[str, float]) -> None:
        """Close the epoch with its row of the history."""
        row["best_epoch"] = self.best["epoch"]
        self.history.append(row)
        self.epoch, self.step, self.losses, self.logs = self.epoch + 1, 0, [], {}


def check_run_state(state: Any) -> None:
    """Refuse a state that :meth:`RunState.restore` cannot continue from: training would silently be another one.

    >>> check_run_state({"epoch": 1})
    Traceback (most recent call last):
        ...
    rewind.errors.RewindError: it holds no best
    """
    keys = {"epoch", "step", "losses", "logs", "history", "best", "model", "objective", "order", "optimiser"}
    keys |= {"schedule", "scaler", "micro_batch", "random"}
    missing = sorted(keys - set(state)) if isinstance(state, dict) else ["state of a run"]
    if not missing:
        moments = state["optimiser"]
        whole = isinstance(moments, dict) and {"state", "param_groups"} <= moments.keys()
        # An optimiser without moments is right only before the first step.
        missing = [] if whole and (moments["state"] or not (state["epoch"] or state["step"])) else ["optimiser state"]
    if missing:
        raise RewindError(f"it holds no {missing[0]}")


class StateFile:
    """The file from which a killed run resumes, not declared to Snakemake: a path, or an address outside this machine.

    (Snakemake deletes declared outputs of a job that is killed.) The file carries the fingerprint of the code, the
    configuration and the data that wrote it. State of another fingerprint is never mixed in: it is moved aside
    (``<name>.other.pt``), and the run reports that and starts again.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     state = StateFile(f"{folder}/state.pt", fingerprint="abc")
    ...     state.save({"epoch": 3})
    ...     state.load()
    {'epoch': 3}
    """

    def __init__(self, path: str | Path, fingerprint: str) -> None:
        self.store, self.fingerprint = open_checkpoint_store(path), fingerprint

    def load(self, check: Callable[[Any], None] = lambda state: None) -> dict[str, Any] | None:
        """The saved state, or None if there is none of this fingerprint, or ``check`` raises because of it."""
        with self.store.reading() as path:
            if path is None:
                return None
            try:
                require_regular_file(path)
                require_intact_archive(path)
                # To the CPU, whatever device saved it: load_state_dict copies to where the weights are.
                saved = torch.load(path, map_location="cpu", weights_only=True)
                check_training_state(saved)
                check(saved["state"])
            except Exception as error:  # any unreadable file means the same thing here
                reraise_system_error(error, path)  # a disk that does not answer is not a reason to begin again
                print(f"{self.store}: this training state cannot be read ({error}); {self._set_aside()}")
                return None
        if saved["fingerprint"] != self.fingerprint:
            print(
                f"{self.store}: this training state belongs to other code, configuration or data; {self._set_aside()}"
            )
            return None
        return saved["state"]

    def _set_aside(self) -> str:
        aside = self.store.beside(".other.pt")
        self.store.move(aside)  # does nothing if another process of this run has done it already
        return f"it is kept as {Path(str(aside)).name}, and training starts anew."

    def save(self, state: dict[str, Any]) -> None:
        """Replace the saved state atomically: a kill while it is written leaves the former one."""
        with self.store.writing() as path:
            torch.save({"fingerprint": self.fingerprint, "state": state}, path)

    def note(self, suffix: str, value: Any) -> str:
        """Write ``value`` as JSON next to the state, with another suffix; returns its path or URL."""
        store = self.store.beside(suffix)
        with store.writing() as path:
            write_json(path, value)
        return str(store)

    def remove(self) -> None:
        """Delete the state of a finished run."""
        self.store.remove()
