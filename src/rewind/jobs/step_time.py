"""How long a training step of each method takes: in turn, on the same batches, in one process.

In a round each method makes a step, and then again in the opposite order, and the faster of the two counts: none is
always first, and what the machine does meanwhile hits all of them alike. The median over rounds of the ratio to the
baseline leaves further disturbances out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
import pandas as pd
import torch

from rewind.feeding.folder import build_retriever, device
from rewind.feeding.training_data import TrainingData
from rewind.files import write_csv
from rewind.jobs.given import Given
from rewind.jobs.training_job import Job, timed_jobs
from rewind.models.retriever import Features, Retriever
from rewind.objectives.interface import make_objective
from rewind.progress import Progress
from rewind.provenance import hardware
from rewind.study import Training
from rewind.training.batches import epoch_batches
from rewind.training.loop import freeze, seed_everything
from rewind.training.micro_batch import MicroBatch
from rewind.training.optim import make_optimiser
from rewind.training.speed import speed_up
from rewind.training.step import training_step

WARM_UP = 3  # rounds that are not counted: kernels are chosen, memory is fetched


def step_time(given: Given) -> None:
    """Rule ``step_time``."""
    measure_steps(timed_jobs(given), given.params.baseline, given.params.rounds, given.output[0])


def measure_steps(jobs: Mapping[str, Job], baseline: str, rounds: int, result: str) -> None:
    """Write ``step_time.csv``, one row per method.

    Columns: method, baseline, rounds, batch, seconds of a step (median over rounds), seconds_low, seconds_high
    (quartiles), ratio (median over rounds of the method's time over the baseline's), ratio_low, ratio_high, device.

    Args:
        jobs: the methods' training jobs, on the same data, the baseline's among them.
        baseline: whose steps are 1.
        rounds: how often each method makes two steps.
        result: the CSV file.
    """
    first = jobs[baseline]
    seed_everything(first.seed, first.spec.method.training.deterministic)
    steppers, data = {}, None
    for name, job in jobs.items():
        folder = job.folder()
        retriever = build_retriever(folder)
        data = data or folder.split("train", retriever).training_data()
        steppers[name] = Stepper(retriever, data, job.spec.method.training, device())
    seconds = interleaved(steppers, data, first.spec.method.training, first.seed, rounds)
    batch = first.spec.method.training.batch.size
    place = {"baseline": baseline, "rounds": rounds, "batch": batch, "device": ", ".join(hardware()["devices"])}
    table = pd.DataFrame([row | place for row in summarised(seconds, baseline)])
    write_csv(result, table)
    print(table[["method", "seconds", "ratio"]].to_string(index=False))


class Stepper:
    """A method ready to train: its model, loss and optimiser; each call is one step with all that training does."""

    def __init__(self, retriever: Retriever, data: TrainingData, keys: Training, place: torch.device) -> None:
        self.retriever, self.keys, self.device = retriever.to(place), keys, place
        freeze(retriever, keys.freeze)
        self.objective = make_objective(keys)
        per_epoch = max(1, len(data.item_of_caption) // keys.batch.size)
        self.optimiser, self.schedule = make_optimiser(retriever, keys, per_epoch * keys.epochs)
        speed_up(retriever, keys)
        self.objective.prepare(retriever, data, place)
        retriever.start_epoch(0)
        self.objective.start_epoch(0, retriever)
        self.scaler = torch.amp.GradScaler(place.type, enabled=keys.precision == "fp16")
        self.micro_batch = MicroBatch(keys.micro_batch)
        retriever.train()

    def __call__(self, batch: Features) -> None:
        training_step(self, batch, self.keys)
        self.schedule.step()


def interleaved(
    steppers: Mapping[str, Stepper], data: TrainingData, keys: Training, seed: int, rounds: int
) -> dict[str, np.ndarray]:
    """Seconds (rounds,) of each method's faster step: on the same batch, in an order that moves on and is then turned.

    Batches are read before they are timed; the first epochs' are taken, as uniform training draws them.
    """
    batches = _batches(data, keys, seed, WARM_UP + rounds)
    names, place = list(steppers), next(iter(steppers.values())).device
    seconds: dict[str, list[float]] = {name: [] for name in names}
    progress = Progress("step time", len(batches), "rounds")
    for turn, rows in enumerate(batches):
        batch = {name: value.to(place) for name, value in data.batch(rows).items()}
        at = turn % len(names)
        order = names[at:] + names[:at]
        spent = dict.fromkeys(names, np.inf)
        for name in order + order[::-1]:
            spent[name] = min(spent[name], _timed(steppers[name], batch, place))
        for name in names if turn >= WARM_UP else ():
            seconds[name].append(spent[name])
        progress.advance()
    return {name: np.array(values) for name, values in seconds.items()}


def summarised(seconds: Mapping[str, np.ndarray], baseline: str) -> list[dict[str, float | str]]:
    """Medians and quartiles of each method's seconds, and of their ratios to the baseline's in the same round."""
    rows = []
    for name, values in seconds.items():
        row: dict[str, float | str] = {"method": name}
        for column, numbers in (("seconds", values), ("ratio", values / seconds[baseline])):
            low, middle, high = np.quantile(numbers, [0.25, 0.5, 0.75])
            row |= {column: middle, f"{column}_low": low, f"{column}_high": high}
        rows.append(row)
    return rows


def _batches(data: TrainingData, keys: Training, seed: int, count: int) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    epoch = 0
    while len(found) < count:
        found += epoch_batches(data.item_of_caption, data.cluster_of_item, keys.batch, seed, epoch)
        epoch += 1
    return found[:count]


def _timed(stepper: Stepper, batch: Features, place: torch.device) -> float:
    _wait(place)
    began = time.perf_counter()
    stepper(batch)
    _wait(place)
    return time.perf_counter() - began


def _wait(place: torch.device) -> None:
    if place.type == "cuda":
        torch.cuda.synchronize(place)
