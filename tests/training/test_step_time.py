"""Step times: real steps, taken in turn on the same batches; ratios of a known price."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from rewind.training.batches import epoch_batches
from rewind.training.checkpoint import StateFile
from rewind.training.loop import train_model
from rewind.training.run import TrainingJob
from rewind.training.step_time import WARM_UP_ROUNDS, Stepper, measure_step_times, summarise_times, time_interleaved
from search_runs import make_data, spec_of
from slow_losses import WAIT
from training_runs import data, keys, retriever

CPU = torch.device("cpu")


def test_medians_are_of_ratios_within_a_round():
    base, new = np.array([1.0, 2.0, 4.0, 1.0]), np.array([1.5, 3.0, 8.0, 1.5])
    first, second = summarise_times({"base": base, "new": new}, "base")
    assert first["ratio"] == first["ratio_low"] == first["ratio_high"] == 1 and first["seconds"] == 1.5
    assert second["ratio"] == 1.5 and second["ratio_high"] == pytest.approx(1.625) and second["seconds"] == 2.25


class Recorder:
    """Takes a step's place and notes who saw what."""

    device = CPU

    def __init__(self, name: str, seen: list) -> None:
        self.name, self.seen = name, seen

    def own(self, batch, rows):
        assert batch["rows"].tolist() == rows.tolist()
        return batch

    def __call__(self, batch) -> None:
        self.seen.append((self.name, tuple(batch["rows"].tolist())))


def test_every_method_sees_every_batch_in_an_order_that_moves_on():
    seen, names = [], ["a", "b", "c"]
    found = time_interleaved({n: Recorder(n, seen) for n in names}, data(retriever("meanP")), keys(), 0, 5)
    rounds = [seen[at : at + 6] for at in range(0, len(seen), 6)]
    assert len(rounds) == WARM_UP_ROUNDS + 5 and all(len(values) == 5 for values in found.values())
    assert all(len({rows for _, rows in turn}) == 1 for turn in rounds), "one batch a round"
    assert [turn[0][0] for turn in rounds[:4]] == ["a", "b", "c", "a"]
    assert all([name for name, _ in turn[3:]] == [name for name, _ in turn[2::-1]] for turn in rounds)
    assert all(sorted(name for name, _ in turn[:3]) == names for turn in rounds)
    assert len({turn[0][1] for turn in rounds}) > 2, "batches differ from round to round"


def test_a_step_is_the_training_loops_own(tmp_path):
    """After the same batches the weights are those of :func:`rewind.training.loop.train_model`."""
    training = keys(epochs=2, evaluate_every=2)
    trained, stepped = retriever("seqTransf"), retriever("seqTransf")
    content = data(trained)

    def validate(model):
        return {"valid_sum": 0.0}

    train_model(trained, content, training, 0, CPU, validate, StateFile(tmp_path / "x.pt", "x"), "test")
    stepper = Stepper(stepped, content, training, CPU)
    for epoch in range(2):
        for rows in epoch_batches(content.item_of_caption, content.cluster_of_item, training.batch, 0, epoch):
            stepper(content.batch(rows))
    for (name, ours), theirs in zip(stepped.state_dict().items(), trained.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), name


def job(root: Path, name: str, objective: str) -> TrainingJob:
    spec = spec_of("meanP", 2)
    training = spec.method.training.model_copy(update={"objective": objective})
    spec = spec.model_copy(update={"method": spec.method.model_copy(update={"training": training})})
    return TrainingJob(name, spec, 0, Path("results/data/walls"), "walls", 2, root / "unused", "code")


@pytest.mark.slow
def test_a_loss_that_waits_is_found_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_data(tmp_path)
    losses = {"base": "infonce", "slow": "slow_losses.waiting", "ready": "slow_losses.Prepared"}
    measure_step_times(
        {n: job(tmp_path, n, loss) for n, loss in losses.items()}, "base", 9, str(tmp_path / "step_time.csv")
    )
    found = pd.read_csv(tmp_path / "step_time.csv").set_index("method")
    assert list(found.index) == ["base", "slow", "ready"] and (found["baseline"] == "base").all()
    assert (found["rounds"] == 9).all() and (found["batch"] == 6).all() and found["device"].str.len().gt(0).all()
    assert found.loc["slow", "ratio"] > 1 + 0.5 * WAIT / found.loc["base", "seconds"]  # half, on a busy machine
    assert found.loc["base", "ratio"] == 1 and found.loc["slow", "seconds_low"] >= WAIT
    assert not (tmp_path / "unused").exists()


@pytest.mark.slow
def test_a_loss_with_hard_negatives_is_timed_with_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_data(tmp_path)
    rows = [(f"train_{colour}0#0", "a wall of no colour") for colour in ("red", "blue")]
    pd.DataFrame(rows, columns=["caption_id", "opposite"]).to_csv("opposites.csv", index=False)
    opposed = job(tmp_path, "opposed", "negclip")
    training = opposed.spec.method.training.model_copy(update={"hard_negatives": "opposites.csv"})
    opposed.spec = opposed.spec.model_copy(
        update={"method": opposed.spec.method.model_copy(update={"training": training})}
    )
    jobs = {"base": job(tmp_path, "base", "infonce"), "opposed": opposed}
    measure_step_times(jobs, "base", 3, str(tmp_path / "step_time.csv"))
    assert pd.read_csv(tmp_path / "step_time.csv")["method"].tolist() == ["base", "opposed"]
