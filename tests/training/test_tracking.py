"""Curves of runs: what trackers are told, and that whatever they do leaves a run as it is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from broken_runs import BreakingFile, Interrupt
from rewind import optional_packages
from rewind.training import tracking
from rewind.training.loop import train_model
from rewind.training.tracking import Tracker, write_messages
from training_runs import data, keys, retriever, same

FACTS = {"study": "tiny", "run": "meanP/seed0", "fingerprint": "abc", "spec": {"method": {"head": "meanP"}}}
STEPS, EPOCHS = 8, 4


def train(folder: Path, kind: str | None = None, stop_after: int | None = None, name: str = "meanP/seed0"):
    """A run of eight steps in four epochs, tracked in ``folder/tracking``; with ``stop_after`` it is killed."""
    model = retriever("meanP", 0)
    tracker = Tracker(kind, folder / "tracking", name, FACTS)
    state = BreakingFile(folder / "state.pt", "x", stop_after)
    training = keys(save_every_steps=1, epochs=EPOCHS, evaluate_every=2)
    validate = lambda current: {"valid_sum": 100.0, "valid_R@1": 40.0}  # noqa: E731
    try:
        history = train_model(
            model, data(model), training, 0, torch.device("cpu"), validate, state, "test", tracker=tracker
        )
    except Interrupt:
        tracker._process.stdin.close()  # as the end of the process does
        tracker._process.wait()
        raise
    tracker.finish({"best_epoch": 2, "valid_R@1": history[1]["valid_R@1"]})
    for row in history:
        row.pop("seconds"), row.pop("clips_per_second")
    return model, history


@pytest.fixture
def fake_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A package wandb that does what a test writes."""

    def write(body: str) -> Path:
        (tmp_path / "packages").mkdir(exist_ok=True)
        (tmp_path / "packages/wandb.py").write_text(body)
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'packages'}:{Path(tracking.__file__).parents[2]}")
        return tmp_path / "told.jsonl"

    return write


TELLS = """
import json, os, random
print("hello from the tracker")
random.seed(1)
class Run:
    summary = {}
    def log(self, values, step):
        tell({"step": step, **values})
    def finish(self, exit_code):
        tell({"finished": exit_code, **self.summary})
def tell(what):
    with open(os.environ["TOLD"], "a") as stream:
        stream.write(json.dumps(what) + "\\n")
def init(**keys):
    tell({"init": {name: keys[name] for name in ("project", "name", "resume", "config")}})
    return Run()
"""


def test_a_tracker_is_told_every_step_and_epoch_and_the_run_keeps_its_bits(tmp_path, fake_wandb, monkeypatch):
    told = fake_wandb(TELLS)
    monkeypatch.setenv("TOLD", str(told))
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    plain, history = train(tmp_path / "plain")
    model, tracked = train(tmp_path / "tracked", "wandb")
    assert same(plain, model) and history == tracked
    begin, *points, end = [json.loads(line) for line in told.read_text().splitlines()]
    assert begin == {"init": {"project": "tiny", "name": "meanP/seed0", "resume": None, "config": FACTS}}
    assert end == {"finished": 0, "best_epoch": 2, "valid_R@1": 40.0}
    steps = [point for point in points if "step/loss" in point]
    epochs = [point for point in points if "epoch/loss" in point]
    assert [point["step"] for point in steps] == list(range(1, STEPS + 1))
    assert [point["step"] for point in epochs] == [2, 4, 6, 8]
    assert {"step/lr", "step/temperature"} <= steps[0].keys() and epochs[1]["epoch/valid_R@1"] == 40.0
    assert "epoch/valid_R@1" not in epochs[0]
    assert [point["epoch/loss"] for point in epochs] == [row["loss"] for row in history]
    assert "hello from the tracker" in (tmp_path / "tracked/tracking/logs/meanP-seed0.log").read_text()


@pytest.mark.parametrize(
    "body",
    [
        "raise RuntimeError('no such server')",
        "def init(**keys):\n    raise SystemExit(3)",
        TELLS.replace('tell({"step"', "os.kill(os.getpid(), 9); tell({").replace("{: step", "{'step': step"),
        "import time\ntime.sleep(600)",
        "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.close(0)\nimport time\ntime.sleep(600)",
    ],
    ids=["raises", "exits", "dies", "hangs", "stops reading and hangs"],
)
def test_whatever_becomes_of_a_tracker_the_run_ends_as_it_would(tmp_path, fake_wandb, monkeypatch, capfd, body):
    monkeypatch.setenv("TOLD", str(fake_wandb(body)))
    monkeypatch.setattr(tracking, "END_SECONDS", 1.0)
    plain, history = train(tmp_path / "plain")
    model, tracked = train(tmp_path / "tracked", "wandb")
    assert same(plain, model) and history == tracked
    said = capfd.readouterr().err
    assert "tracking: wandb" in said and "the run is not affected" in said


def test_a_tracker_that_cannot_start_is_told_once(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
    train(tmp_path, "tensorboard")
    assert capfd.readouterr().err.count("tracking: tensorboard cannot be started") == 1


def test_long_runs_are_thinned_out(tmp_path):
    tracker = Tracker(None, tmp_path, "x", {})
    tracker.expect(20 * tracking.MAX_POINTS, 0)
    assert tracker.every == 20


def test_messages_end_with_the_summary_or_with_the_run():
    class Fake:
        def __init__(self):
            self.calls = []

        def start(self, facts, first):
            self.calls.append(("start", facts, first))

        def write(self, step, values):
            self.calls.append((step, values))

        def end(self, summary):
            self.calls.append(("end", summary))

    lines = [{"facts": {"a": 1}}, {"first": 3}, {"step": 4, "values": {"loss": 1.0}}, {"summary": {"b": 2}}, "never"]
    whole, killed = Fake(), Fake()
    write_messages(map(json.dumps, lines), whole)
    assert whole.calls == [("start", {"a": 1}, 3), (4, {"loss": 1.0}), ("end", {"b": 2})]
    write_messages(map(json.dumps, lines[:3]), killed)
    assert killed.calls[-1] == ("end", {})


def broken_and_resumed(folder: Path, kind: str):
    with pytest.raises(Interrupt):
        train(folder, kind, stop_after=5)
    return train(folder, kind)


@pytest.mark.skipif(not optional_packages.is_installed("tensorboard"), reason="tensorboard is not installed")
def test_tensorboard_has_each_point_of_a_resumed_run_once(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _, history = broken_and_resumed(tmp_path, "tensorboard")
    events = EventAccumulator(str(tmp_path / "tracking/tensorboard/meanP-seed0")).Reload()
    losses = events.Scalars("step/loss")
    assert [point.step for point in losses] == list(range(1, STEPS + 1))
    assert [point.value for point in events.Scalars("epoch/loss")] == pytest.approx([row["loss"] for row in history])
    assert events.Scalars("epoch/valid_R@1")[-1].value == 40.0
    assert b"fingerprint" in events.Tensors("run/text_summary")[0].tensor_proto.string_val[0]

    train(tmp_path / "again", "tensorboard")
    folder = tmp_path / "again/tracking/tensorboard/meanP-seed0"
    (tmp_path / "again/state.pt").unlink()
    train(tmp_path / "again", "tensorboard")
    assert len(EventAccumulator(str(folder)).Reload().Scalars("step/loss")) == STEPS, "a new run replaces the old one"


@pytest.mark.skipif(not optional_packages.is_installed("wandb"), reason="wandb is not installed")
def test_wandb_works_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    train(tmp_path, "wandb")
    (run,) = (tmp_path / "tracking/wandb").glob("offline-run-*")
    content = next(run.glob("*.wandb")).read_bytes()
    assert b"step/loss" in content and b"epoch/valid_R@1" in content and b"fingerprint" in content


@pytest.mark.skipif(not optional_packages.is_installed("mlflow"), reason="mlflow is not installed")
def test_mlflow_goes_on_with_the_run_that_was_killed(tmp_path, monkeypatch):
    from mlflow import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    broken_and_resumed(tmp_path, "mlflow")
    train(tmp_path / "other", "mlflow", name="meanP/seed1")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = MlflowClient((tmp_path / "tracking/mlflow").as_uri())
    experiment = client.get_experiment_by_name("tiny").experiment_id
    (run,) = client.search_runs([experiment])
    assert run.info.status == "FINISHED" and run.info.run_name == "meanP/seed0"
    steps = [metric.step for metric in client.get_metric_history(run.info.run_id, "step/loss")]
    assert sorted(set(steps)) == list(range(1, STEPS + 1))
    assert client.get_run(run.info.run_id).data.metrics["epoch/valid_R_at_1"] == 40.0
