"""``rewind doctor --gpu`` on a CPU: what it compares, what it prints and writes, and that planted faults are found."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_check import correctness, speed
from gpu_check.check import CannotRun, Check, PlannedCheck, Session, format_check, run_checks
from gpu_check.command import GpuCheckOptions, check_gpu, planned_checks
from gpu_check.correctness import StepCase
from messages import expect_message
from patience import patience
from rewind.cli.main import main
from rewind.errors import RewindError
from rewind.models.clip4clip import Clip4Clip
from rewind.models.lora import is_adapter
from rewind.registry import HEADS, LOSSES, SAMPLERS

OTHER = torch.device("cpu", 0)  # the CPU again, under a name by which faults can be planted into it alone


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(OTHER, tmp_path, speed.ON_CPU)


@pytest.fixture
def own_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a command sets for its process is put back."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG"):
        monkeypatch.setenv(name, os.environ.get(name, "1"))
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


# --- what is compared


def test_every_registered_head_loss_and_sampler_has_a_check():
    names = [plan.name for plan in planned_checks()]
    assert len(set(names)) == len(names)
    assert {f"head {name}" for name in HEADS.names()} <= set(names)
    assert {f"loss {name}" for name in LOSSES.names()} | {f"sampler {name}" for name in SAMPLERS.names()} <= set(names)


@pytest.mark.parametrize("head", ["meanP", "xpool"])
def test_a_device_that_computes_the_same_passes(session, head):
    check = correctness.check_head(session, head)
    assert check.state == "ok" and check.figures["gradients"] == 0 and 0 < check.figures["bf16 loss"] < 0.05


def test_adapters_are_what_is_trained_in_parts_and_twice_the_same(session):
    model = correctness.tiny_model(correctness.ADAPTED_HEAD, adapters=True)
    towers = [name for name, value in model.backbone.named_parameters() if value.requires_grad]
    assert any(is_adapter(name) for name in towers)
    assert [name for name in towers if not is_adapter(name)] == ["clip.logit_scale"]
    checks = {plan.name: plan.run(session) for plan in planned_checks() if "adapters" in plan.name}
    assert {name: check.state for name, check in checks.items()} == {
        "adapters": "ok",
        "same bits, adapters": "ok",
        "in parts, adapters": "ok",
    }


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES.names())
def test_every_loss_finds_a_head_that_it_takes(session, loss):
    assert correctness.check_loss(session, loss).state == "ok"


def scaled_on_device(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the device's scores, and not the CPU's, be too large by a factor."""
    real = correctness.take_steps

    def take_steps(case: StepCase, device: torch.device, precision: str) -> correctness.Steps:
        with monkeypatch.context() as patch:
            if device == OTHER:
                similarity = Clip4Clip.similarity
                patch.setattr(Clip4Clip, "similarity", lambda *given: factor * similarity(*given))
            return real(case, device, precision)

    monkeypatch.setattr(correctness, "take_steps", take_steps)


@pytest.mark.parametrize("factor", [1.001, float("nan")])
def test_a_head_whose_scores_are_scaled_on_the_device_has_failed(session, monkeypatch, factor):
    scaled_on_device(factor, monkeypatch)
    check = correctness.check_head(session, "meanP")
    assert check.state == "FAILED" and "loss differs by" in check.detail and "gradients differs" in check.detail


def test_a_gradient_that_is_missing_or_not_a_number_is_an_error():
    wanted = {"a": torch.ones(2), "b": torch.ones(2)}
    assert correctness.gradient_error({"a": torch.ones(2)}, wanted) == float("inf")
    broken = {"a": torch.ones(2), "b": torch.tensor([1.0, float("nan")])}
    assert not correctness.gradient_error(broken, wanted) <= 1.0


def test_another_order_of_captions_has_failed(session, monkeypatch):
    real = correctness._train_in_order

    def train_in_order(keys, device):
        rows, losses = real(keys, device)
        return [np.roll(batch, 1) if device == OTHER else batch for batch in rows], losses

    assert correctness.check_sampler(session, "pk").state == "ok"
    monkeypatch.setattr(correctness, "_train_in_order", train_in_order)
    assert correctness.check_sampler(session, "pk").detail == "the first epoch has another order"


def test_a_run_without_its_seed_has_other_bits(session, monkeypatch):
    monkeypatch.setattr(correctness, "seed_everything", lambda seed, deterministic=True: None)
    check = correctness.check_determinism(session, "meanP")
    assert check.state == "FAILED" and "tensors differ" in check.detail


def test_an_inexact_part_of_a_batch_has_failed(session, monkeypatch):
    real = correctness.exact_step

    def exact_step(model, objective, batch, rows, **keys):
        loss = real(model, objective, batch, rows, **keys)
        if rows:
            next(model.parameters()).grad *= 1 + 1e-6
        return loss

    assert correctness.check_micro_batches(session, "meanP").state == "ok"
    monkeypatch.setattr(correctness, "exact_step", exact_step)
    assert correctness.check_micro_batches(session, "meanP").state == "FAILED"


@pytest.mark.slow
def test_two_processes_agree_with_one_and_a_fault_in_one_is_found(session, monkeypatch):
    assert correctness.check_two_processes(session).state == "ok"
    real = correctness.step_in_parts
    # In this process alone: those that are started import the module anew.
    monkeypatch.setattr(
        correctness,
        "step_in_parts",
        lambda head, *given: correctness.Steps([1.001 * real(head, *given).losses[0]], real(head, *given).gradients),
    )
    assert correctness.check_two_processes(session).state == "FAILED"


@pytest.mark.slow
def test_a_killed_run_goes_on_and_a_run_that_does_not_go_on_is_found(session, monkeypatch):
    check = correctness.check_kill(session)
    assert check.state == "ok" and check.detail.startswith("resumed after epoch 2, step 1")
    for file in session.folder.iterdir():
        file.unlink()
    real = correctness._run_process

    def run_process(session, head, precision, model, at, expected=(0,)):
        said = real(session, head, precision, model, at, expected)
        if at:
            model.with_suffix(".pt").write_bytes(b"torn")
        return said

    monkeypatch.setattr(correctness, "_run_process", run_process)
    assert correctness.check_kill(session).detail == "the second start did not go on from the state"


def failing(rank: int, size: int) -> None:
    raise ValueError("not today")


def one_fails(rank: int, size: int) -> None:
    if rank:
        failing(rank, size)
    time.sleep(100_000)


@pytest.mark.slow
def test_nobody_waits_for_a_process_that_failed(session, monkeypatch):
    monkeypatch.setattr(correctness, "PROCESS_SECONDS", patience(correctness.PROCESS_SECONDS))
    began = time.monotonic()
    with pytest.raises(RewindError, match="one_fails ended with exit code 1: ValueError: not today"):
        correctness.start_processes(one_fails, 2, (), session.folder)
    assert time.monotonic() - began < correctness.PROCESS_SECONDS / 2


@pytest.mark.slow
def test_processes_that_never_end_are_ended(session, monkeypatch):
    monkeypatch.setattr(correctness, "PROCESS_SECONDS", 1)
    with pytest.raises(RewindError, match="one_fails: no end after 1 s"):
        correctness.start_processes(one_fails, 1, (), session.folder)


@pytest.mark.slow
def test_a_process_that_fails_says_why(session):
    planned = [PlannedCheck("a", lambda session: correctness.start_processes(failing, 1, (), session.folder))]
    check = run_checks(planned, session, minutes=1)[0]
    assert check.state == "FAILED" and check.detail == "failing ended with exit code 1: ValueError: not today"


# --- memory, of an invented GPU on which a row takes a megabyte


class Memory:
    """Stands in for torch.cuda: encoding more rows than are allowed raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, limited: bool) -> None:
        self.allowed, self.peak = float("inf"), 0
        encode = Clip4Clip.encode_items

        def encode_items(model: Clip4Clip, batch: dict) -> dict:
            self.peak = max(self.peak, len(batch["mask"]) * 10**6)
            if self.peak > self.allowed:
                self.peak = 0
                raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
            return encode(model, batch)

        monkeypatch.setattr(Clip4Clip, "encode_items", encode_items)
        monkeypatch.setattr(Session, "on_gpu", True)
        given = {
            "empty_cache": lambda: None,
            "synchronize": lambda: None,
            "reset_peak_memory_stats": lambda: setattr(self, "peak", 0),
            "max_memory_reserved": lambda: self.peak,
            "get_device_properties": lambda device: type("Properties", (), {"total_memory": 10**9}),
            "set_per_process_memory_fraction": lambda share: setattr(
                self, "allowed", share * 10**9 if limited else float("inf")
            ),
        }
        for name, function in given.items():
            monkeypatch.setattr(torch.cuda, name, function)


def test_a_batch_that_does_not_fit_is_halved_until_it_does(session, monkeypatch):
    Memory(monkeypatch, limited=True)
    check = correctness.check_memory(session)
    assert check.state == "ok", check.detail
    assert check.figures["rows at once"] == 32 and check.figures["GB allowed"] == pytest.approx(0.040)


def test_memory_that_is_never_short_shows_nothing(session, monkeypatch):
    Memory(monkeypatch, limited=False)
    check = correctness.check_memory(session)
    assert check.state == "FAILED" and "nothing was halved" in check.detail


# --- how they are run, printed and written


def fails(session: Session) -> Check:
    return Check(False, {"loss": 0.5}, "loss differs by 5.0e-01 (bound 1e-05)")


def crashes(session: Session) -> Check:
    print("before it")
    raise IndexError("index 7 is out of range")


def lacks(session: Session) -> Check:
    raise CannotRun("there is no second GPU")


def slow_enough(session: Session) -> Check:
    return Check(True, {"clips/s": 1234.5, "% of peak": 31.4}, "bf16", ("31% of the peak; the goal is 40%",))


PLANNED = [
    PlannedCheck("step", slow_enough),
    PlannedCheck("head meanP", fails),
    PlannedCheck("loss sanw", crashes),
    PlannedCheck("two GPUs", lacks),
    PlannedCheck("device", lambda session: Check(True, {"GB": 80.0})),
]


def test_a_crash_stops_no_other_check(session):
    checks = run_checks(PLANNED, session, minutes=1)
    assert [check.state for check in checks] == ["below goal", "FAILED", "FAILED", "not run", "ok"]
    assert checks[2].detail == "IndexError: index 7 is out of range"
    assert checks[2].log.startswith("before it\nTraceback") and checks[0].log == ""


def test_no_check_is_started_once_the_minutes_are_over(session):
    checks = run_checks(PLANNED, session, minutes=0)
    assert {check.state for check in checks} == {"not run"} and "0 minutes" in checks[0].detail


def test_once_the_device_answers_no_more_nothing_is_blamed_on_the_other_checks(session, monkeypatch):
    def synchronise(device):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr("gpu_check.check.synchronise", synchronise)
    checks = run_checks(PLANNED, session, minutes=1)
    assert [check.state for check in checks] == ["below goal", *["not run"] * 4]
    assert "since “step”" in checks[1].detail


def test_a_line_says_state_name_seconds_and_figures(session):
    lines = [format_check(check, width=12) for check in run_checks(PLANNED, session, minutes=1)]
    assert lines == [
        "below goal  step             0.0 s  clips/s 1,234, % of peak 31.4; 31% of the peak; the goal is 40%; bf16",
        "FAILED      head meanP       0.0 s  loss 0.5; loss differs by 5.0e-01 (bound 1e-05)",
        "FAILED      loss sanw        0.0 s  IndexError: index 7 is out of range",
        "not run     two GPUs         0.0 s  there is no second GPU",
        "ok          device           0.0 s  GB 80",
    ]


def test_the_command_prints_a_summary_writes_json_and_says_by_its_code_whether_any_failed(
    own_process, tmp_path, capsys
):
    out = tmp_path / "gpu.json"
    assert check_gpu(GpuCheckOptions("cpu", json=out), PLANNED) == 1
    table, summary = capsys.readouterr().out.split("\n\n")
    assert len(table.splitlines()) == len(PLANNED)
    assert summary.splitlines() == [
        "5 checks: 1 ok, 1 below goal, 2 FAILED, 1 not run",
        "below goal  step: 31% of the peak; the goal is 40%",
        "FAILED      head meanP: loss differs by 5.0e-01 (bound 1e-05)",
        "FAILED      loss sanw: IndexError: index 7 is out of range",
        f"all figures: {out}",
    ]
    record = json.loads(out.read_text())
    assert record["packages"]["torch"] and {"driver", "git", "hardware", "device"} <= record.keys()
    assert [check["state"] for check in record["checks"]] == ["below goal", "FAILED", "FAILED", "not run", "ok"]
    assert record["checks"][0]["figures"] == {"clips/s": 1234.5, "% of peak": 31.4}
    assert check_gpu(GpuCheckOptions("cpu"), [PLANNED[0], PLANNED[3], PLANNED[4]]) == 0, "a missed goal is no failure"


def test_without_a_checkout_the_command_says_where_the_checks_are(monkeypatch, capsys):
    monkeypatch.setattr("rewind.cli.main.checkout_folder", lambda: None)
    assert main(["doctor", "--gpu"]) == 1
    expect_message(capsys.readouterr().err)


def test_without_a_gpu_the_command_says_what_to_do(capsys, monkeypatch):
    monkeypatch.setattr("gpu_check.command.count_visible_gpus", lambda: 0)
    assert main(["doctor", "--gpu"]) == 1
    expect_message(capsys.readouterr().err)


# --- speed


def test_a_step_is_timed_and_a_share_of_the_peak_below_the_goal_is_no_failure(session):
    session.sizes = replace(speed.ON_CPU, has_goals=True, steps=1)
    session.matmul_tflops["bf16"] = 1e6
    check = speed.check_step(session)
    assert check.state == "below goal" and "the goal is 40%" in check.below_goal[0]
    assert check.figures["clips/s"] == pytest.approx(8 / check.figures["s/step"])
    assert check.figures["TFLOP/s"] == pytest.approx(check.figures["TFLOP"] / check.figures["s/step"])


def test_a_batch_that_does_not_fit_is_followed_by_the_next_size(session, monkeypatch):
    real = speed.training_step

    def training_step(stepper, batch, keys):
        if len(batch["rows"]) > 4:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return real(stepper, batch, keys)

    monkeypatch.setattr(speed, "training_step", training_step)
    check = speed.check_step(session)
    assert check.figures["clips"] == 4 and "8 clips do not fit" in check.detail


def test_without_a_compiler_the_compiled_step_is_not_run(session, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no Triton")

    monkeypatch.setattr(torch, "compile", broken)
    checks = run_checks([PlannedCheck("compiled", partial(speed.check_step, compiled=True))], session, minutes=1)
    assert checks[0].state == "not run" and "no Triton" in checks[0].detail


@pytest.mark.parametrize("slow, state", [(0.0, "ok"), (0.3, "below goal")])
def test_a_step_that_waits_for_frames_is_below_the_goal(session, monkeypatch, slow, state):
    ticks = iter([0.1, 0.1 + slow])  # seconds of a step by itself, and fed
    monkeypatch.setattr(speed, "seconds_each", lambda work, device, count: (work(), next(ticks))[1])
    session.sizes = replace(speed.ON_CPU, has_goals=True)
    check = speed.check_waiting(session)
    assert check.state == state and check.figures["% added"] == pytest.approx(1000 * slow)


def test_scoring_that_takes_too_long_is_extrapolated(session):
    assert "all pairs" in speed.check_scoring(session, "meanP").detail
    session.sizes = replace(speed.ON_CPU, scoring_seconds=1e-6)
    check = speed.check_scoring(session, "xpool")
    assert check.detail == "64 × 64, extrapolated from 8 × 8"


def test_a_wrong_product_has_failed(session, monkeypatch):
    monkeypatch.setitem(speed.FORMATS, "fp32", torch.float16)  # computes with fewer bits than it says
    check = speed.check_matmul(session)
    assert check.state == "FAILED" and check.detail.startswith("fp32: the product is wrong")


def test_the_demo_is_only_run_when_asked_for(session):
    with pytest.raises(CannotRun, match="make demo"):
        speed.check_demo(session)
