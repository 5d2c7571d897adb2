"""Time of a training step of several methods, in turn on the same batches."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from rewind.config import Training
from rewind.config.study import trial_words
from rewind.io.files import write_csv
from rewind.loading.run_data import TrainingData, build_untrained_model, job_device
from rewind.losses.base import loss_module, make_objective
from rewind.models.retriever import Features, Retriever
from rewind.progress import Progress
from rewind.provenance import hardware
from rewind.torch_setup import seed_everything, synchronise
from rewind.training.batches import epoch_batches
from rewind.training.grad_cache import MicroBatch
from rewind.training.loop import freeze, speed_up, training_step
from rewind.training.optim import make_optimiser
from rewind.training.run import TrainingJob

# ---- Time of a training step ---------------------------------------------------------------------------------------
# Methods take turns on the same batches in one process. In a round each makes a step, then all make another one in the
# opposite order, and the faster of a method's two steps counts: no method is always first, and a disturbance of the
# machine affects all alike. The median over rounds of the ratio to the baseline leaves further disturbances out.

WARM_UP_ROUNDS = 3  # not counted: kernels are chosen and memory is allocated


def measure_step_times(jobs: Mapping[str, TrainingJob], baseline: str, rounds: int, result: str) -> None:
    """Write ``step_time.csv``, one row for each of ``jobs``, which learn from the same data.

    Columns: method, baseline, rounds, batch, seconds of a step (median over rounds), seconds_low, seconds_high
    (quartiles), ratio (median over rounds of the method's time over the baseline's), ratio_low, ratio_high, device.
    """
    first = jobs[baseline]
    seed_everything(first.seed, first.spec.method.training.deterministic)
    steppers: dict[str, Stepper] = {}
    data: TrainingData | None = None
    for name, training_job in jobs.items():
        if training_job.tuned:
            print(f"{name}: timed with the keys that its trials chose: {trial_words(training_job.tuned)}")
        run_data = training_job.folder()
        retriever = build_untrained_model(run_data)
        keys, opposed = training_job.spec.method.training, None
        if data is None or keys.hard_negatives is not None:
            own = run_data.split("train", retriever).training_data()
            data, opposed = data or own, own.hard_negatives
        steppers[name] = Stepper(retriever, replace(data, hard_negatives=opposed), keys, job_device(), first.seed)
    assert data is not None  # the baseline is among the jobs
    seconds = time_interleaved(steppers, data, first.spec.method.training, first.seed, rounds)
    batch = first.spec.method.training.batch.size
    shared_columns = {
        "baseline": baseline,
        "rounds": rounds,
        "batch": batch,
        "device": ", ".join(hardware()["devices"]),
    }
    table = pd.DataFrame([row | shared_columns for row in summarise_times(seconds, baseline)])
    write_csv(result, table)
    print(table[["method", "seconds", "ratio"]].to_string(index=False))


class Stepper:
    """A method ready to train: its model, loss and optimiser; each call is one complete training step."""

    def __init__(
        self, retriever: Retriever, data: TrainingData, keys: Training, device: torch.device, seed: int = 0
    ) -> None:
        self.retriever, self.keys, self.device = retriever.to(device), keys, device
        self.opposed = data.hard_negatives
        self.drawn = self.opposed.draw(seed, 0) if self.opposed else None
        freeze(retriever, keys.freeze)
        self.objective = make_objective(keys, device)
        per_epoch = max(1, len(data.item_of_caption) // keys.batch.size)
        self.optimiser, self.schedule = make_optimiser(
            retriever, keys, per_epoch * keys.epochs, loss_module(self.objective)
        )
        speed_up(retriever, keys)
        self.objective.prepare(retriever, data, device)
        retriever.start_epoch(0)
        self.objective.start_epoch(0, retriever)
        self.scaler = torch.amp.GradScaler(device.type, enabled=keys.precision == "fp16")
        self.micro_batch = MicroBatch(keys.micro_batch)
        retriever.train()

    def own(self, batch: Features, rows: np.ndarray) -> Features:
        """A batch of these captions with the hard negatives that this method reads, if it reads any."""
        if self.opposed is None or self.drawn is None:
            return batch
        negatives = self.opposed.batch(self.drawn[rows])
        return batch | {name: value.to(self.device) for name, value in negatives.items()}

    def __call__(self, batch: Features) -> None:
        training_step(self, batch, self.keys)
        self.schedule.step()


def time_interleaved(
    steppers: Mapping[str, Stepper], data: TrainingData, keys: Training, seed: int, rounds: int
) -> dict[str, np.ndarray]:
    """Seconds (rounds,) of each method's faster step; the order of methods rotates by one from round to round.

    Batches are loaded before the clock starts; they are those of the first epochs, as training draws them.
    """
    batches = _draw_batches(data, keys, seed, WARM_UP_ROUNDS + rounds)
    names, device = list(steppers), next(iter(steppers.values())).device
    seconds: dict[str, list[float]] = {name: [] for name in names}
    progress = Progress("step time", len(batches), "rounds")
    for turn, rows in enumerate(batches):
        batch = {name: value.to(device) for name, value in data.batch(rows).items()}
        offset = turn % len(names)
        order = names[offset:] + names[:offset]
        fastest = dict.fromkeys(names, np.inf)
        for name in order + order[::-1]:
            own = steppers[name].own(batch, rows)
            fastest[name] = min(fastest[name], _time_step(steppers[name], own, device))
        for name in names if turn >= WARM_UP_ROUNDS else ():
            seconds[name].append(fastest[name])
        progress.advance()
    return {name: np.array(values) for name, values in seconds.items()}


def summarise_times(seconds: Mapping[str, np.ndarray], baseline: str) -> list[dict[str, float | str]]:
    """Medians and quartiles of each method's seconds, and of their ratios to the baseline's in the same round."""
    rows = []
    for name, values in seconds.items():
        row: dict[str, float | str] = {"method": name}
        for column, numbers in (("seconds", values), ("ratio", values / seconds[baseline])):
            low, middle, high = np.quantile(numbers, [0.25, 0.5, 0.75])
            row |= {column: middle, f"{column}_low": low, f"{column}_high": high}
        rows.append(row)
    return rows


def _draw_batches(data: TrainingData, keys: Training, seed: int, count: int) -> list[np.ndarray]:
    """Rows of captions of the first ``count`` batches."""
    batches: list[np.ndarray] = []
    epoch = 0
    while len(batches) < count:
        batches += epoch_batches(data.item_of_caption, data.cluster_of_item, keys.batch, seed, epoch)
        epoch += 1
    return batches[:count]


def _time_step(stepper: Stepper, batch: Features, device: torch.device) -> float:
    synchronise(device)
    began = time.perf_counter()
    stepper(batch)
    synchronise(device)
    return time.perf_counter() - began
