"""The state of a run in progress: what is saved, in a file that survives any kill, and restored where a run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from rewind.errors import RewindError
from rewind.files import raise_machine_fault, require_regular_file, require_whole_archive, write_json
from rewind.models.retriever import Retriever
from rewind.objectives.interface import Objective
from rewind.study import Training
from rewind.training.grad_cache import StepLoss, random_state, set_random_state
from rewind.training.micro_batch import MicroBatch
from rewind.training.order import Order
from rewind.training.places import check_state, place_of


class RunState:
    """Everything a resumed run needs besides data and configuration.

    Attributes:
        epoch, step: where the run is, counted from 0; the step within the epoch.
        losses: of the epoch's steps so far.
        logs: what the loss logged in them, by name.
        history: one row per finished epoch.
        best: score, epoch (from 1) and weights of the best validation.
    """

    def __init__(
        self,
        retriever: Retriever,
        objective: Objective,
        order: Order,
        optimiser: torch.optim.Optimizer,
        schedule: torch.optim.lr_scheduler.LambdaLR,
        keys: Training,
        device: torch.device,
    ) -> None:
        self.retriever, self.objective, self.order, self.device = retriever, objective, order, device
        self.optimiser, self.schedule = optimiser, schedule
        self.scaler = torch.amp.GradScaler(device.type, enabled=keys.precision == "fp16")
        self.micro_batch = MicroBatch(keys.micro_batch)
        self.epoch = self.step = 0
        self.losses: list[float] = []
        self.logs: dict[str, list[float]] = {}
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Any] = {"score": -np.inf, "epoch": 0, "model": None}

    def saved(self) -> dict[str, Any]:
        """Plain values and tensors, for the training state file."""
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
            "schedule": {"last_epoch": self.schedule.last_epoch},
            "scaler": self.scaler.state_dict(),
            "micro_batch": [self.micro_batch.rows, self.micro_batch.pairs],
            "random": random_state(self.device),
        }

    def restore(self, saved: dict[str, Any] | None) -> None:
        """Go on from what :meth:`saved` gave (the order has its part already)."""
        if saved is None:
            return
        self.epoch, self.step, self.losses, self.logs = (saved[n] for n in ("epoch", "step", "losses", "logs"))
        self.history, self.best = saved["history"], saved["best"]
        self.retriever.load_state_dict(saved["model"])
        self.optimiser.load_state_dict(saved["optimiser"])
        self.schedule.last_epoch = saved["schedule"]["last_epoch"]
        self.scaler.load_state_dict(saved["scaler"])
        self.micro_batch.rows, self.micro_batch.pairs = saved["micro_batch"]
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
        """Keep what a step gave."""
        self.losses.append(loss.value)
        for name, value in loss.logs.items():
            self.logs.setdefault(name, []).append(value)
        self.step += 1

    def summary(self) -> dict[str, float]:
        """What the epoch's steps gave on average: the loss, and what the objective makes of its logs.

        Raises:
            RewindError: if the objective gives a column a name that the history has for something else.
        """
        means = {name: float(np.mean(values)) for name, values in self.logs.items()}
        columns = self.objective.summary(means)
        if taken := [name for name in columns if name in TAKEN or name.startswith("valid_")]:
            raise RewindError(
                f"training.objective: it logs {taken[0]!r}, a name that history.csv already uses for something else."
            )
        return {"loss": float(np.mean(self.losses))} | columns

    def keep_if_best(self, score: float) -> None:
        """Keep the weights where this epoch's score is better than all before."""
        if score > self.best["score"]:
            state = {name: value.detach().clone().cpu() for name, value in self.retriever.state_dict().items()}
            self.best = {"score": score, "epoch": self.epoch + 1, "model": state}

    def out_of_patience(self, patience: int | None) -> bool:
        """Whether the last ``patience`` validations were no better."""
        scored = [row["epoch"] for row in self.history if "valid_sum" in row]
        return patience is not None and sum(epoch > self.best["epoch"] for epoch in scored) >= patience

    def end_epoch(self, row: dict[str, float]) -> None:
        """Close the epoch with its row of the history."""
        row["best_epoch"] = self.best["epoch"]
        self.history.append(row)
        self.epoch, self.step, self.losses, self.logs = self.epoch + 1, 0, [], {}


TAKEN = frozenset(
    {"epoch", "loss", "lr", "seconds", "clips_per_second", "logit_scale", "best_epoch"}
    | {"same_text_negatives", "twin_negatives"}
)
"""Columns of the history that the loop writes."""


class StateFile:
    """The undeclared file from which a killed run resumes: a path, or an address outside this machine.

    It carries the fingerprint of the code, the configuration and the data that wrote it. State of another fingerprint
    is never mixed in: it is set aside (``<name>.other.pt``), the run says so and begins anew.
    """

    def __init__(self, path: str | Path, fingerprint: str) -> None:
        self.place, self.fingerprint = place_of(path), fingerprint

    def load(self) -> dict[str, Any] | None:
        """The saved state, or None if there is none of this fingerprint."""
        with self.place.reading() as path:
            if path is None:
                return None
            try:
                require_regular_file(path)
                require_whole_archive(path)
                saved = torch.load(path, map_location="cpu", weights_only=True)
                check_state(saved)
            except Exception as error:  # any unreadable file means the same thing here
                raise_machine_fault(error, path)  # a disk that does not answer is no reason to begin anew
                print(f"{self.place}: this training state cannot be read ({error}); {self._set_aside()}")
                return None
        if saved["fingerprint"] != self.fingerprint:
            print(
                f"{self.place}: this training state belongs to other code, configuration or data; {self._set_aside()}"
            )
            return None
        return saved["state"]

    def _set_aside(self) -> str:
        kept = self.place.beside(".other.pt")
        self.place.move(kept)  # nothing is moved where another process of this run did it
        return f"it is kept as {Path(str(kept)).name}, and training starts anew."

    def save(self, state: dict[str, Any]) -> None:
        """Replace the saved state, atomically."""
        with self.place.writing() as draft:
            torch.save({"fingerprint": self.fingerprint, "state": state}, draft)

    def note(self, suffix: str, value: Any) -> str:
        """Write ``value`` as JSON beside the state, with another suffix; returns where."""
        place = self.place.beside(suffix)
        with place.writing() as draft:
            write_json(draft, value)
        return str(place)

    def remove(self) -> None:
        """Forget the state of a finished run."""
        self.place.remove()
