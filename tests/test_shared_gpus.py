"""Jobs that state their GPU memory share a device: invented devices, real processes and locks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from checkout import ROOT
from messages import expect_message
from mini_study import Workflow
from patience import patience
from rewind.config import Study
from rewind.gpu import CONTEXT_MB, VISIBLE_DEVICES, GpuMemory, jobs_per_gpu, lease_gpus
from rewind.torch_setup import limit_gpu_memory

JOB = """
import sys, time
from pathlib import Path
from rewind.gpu import GpuMemory, lease_gpus
name, share, folder, size = sys.argv[1], int(sys.argv[2]) or None, Path(sys.argv[3]), int(sys.argv[4])
memory = {"GPU-a": GpuMemory(size, size)}
with lease_gpus(1, lambda: ["GPU-a"], folder / "locks", poll=0.02, share_mb=share, memory=lambda: memory):
    (folder / f"{name}.has").touch()
    while not (folder / f"{name}.end").exists():
        time.sleep(0.02)
"""


FOUR_RUNS = """
dataset: shapes
backbone: {architecture: config/models/tiny.json}
frames: {max_frames: 2, size: 32}
text: {tokenizer: words, max_words: 24}
training: {epochs: 1, freeze: [], batch: {size: 8, captions: one}}
methods: {meanP: {head: meanP}}
seeds: [0, 1, 2, 3]
sanity: null
resources: {gpu_mem_mb: 4000}
"""


class Jobs:
    """Processes that each hold what they were given until they are told to end."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.running = folder, {}

    def start(self, name: str, share: int = 0, size: int = 20_000) -> None:
        command = [sys.executable, "-c", JOB, name, str(share), str(self.folder), str(size)]
        env = {key: value for key, value in os.environ.items() if key != VISIBLE_DEVICES}
        env["PYTHONPATH"] = str(ROOT / "src")
        self.running[name] = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)

    def has(self, name: str) -> bool:
        return (self.folder / f"{name}.has").exists()

    def wait(self, name: str) -> None:
        until = time.monotonic() + patience(30)
        while not self.has(name):
            assert time.monotonic() < until and self.running[name].poll() is None, name
            time.sleep(0.02)

    def end(self, name: str) -> None:
        (self.folder / f"{name}.end").touch()
        assert self.running.pop(name).wait(patience(30)) == 0

    def kill(self, name: str) -> None:
        self.running[name].kill()
        self.running.pop(name).wait()


@pytest.fixture
def jobs(tmp_path):
    jobs = Jobs(tmp_path)
    yield jobs
    for name in list(jobs.running):
        jobs.kill(name)


def test_twelve_small_jobs_share_a_device_and_a_thirteenth_waits_for_room(jobs):
    share = 19_000 // 12 - CONTEXT_MB  # 95% of the device are given away
    for number in range(12):
        jobs.start(f"small{number}", share)
    for number in range(12):
        jobs.wait(f"small{number}")  # all at once: none has ended
    jobs.start("more", share)
    time.sleep(1)
    assert not jobs.has("more")
    jobs.kill("small7")
    jobs.wait("more")  # the share of a killed job is free again
    for number in (0, 1):
        jobs.end(f"small{number}")


def test_a_job_for_a_whole_device_goes_before_shares_that_come_later(jobs):
    jobs.start("small", 1000)
    jobs.wait("small")
    jobs.start("whole")
    until = time.monotonic() + patience(30)
    while not list(jobs.folder.glob("locks/*.queue")) and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.5)
    jobs.start("later", 1000)
    time.sleep(1)
    assert not jobs.has("whole") and not jobs.has("later")
    jobs.end("small")
    jobs.wait("whole")
    assert not jobs.has("later")
    jobs.end("whole")
    jobs.wait("later")


def test_what_fits_on_no_device_has_one_alone(jobs):
    jobs.start("large", 30_000)
    jobs.wait("large")
    jobs.start("small", 1000)
    time.sleep(1)
    assert not jobs.has("small")
    jobs.end("large")
    jobs.wait("small")


def lease(folder, share, memory, devices=("GPU-a",), count=1):
    return lease_gpus(count, lambda: list(devices), folder, poll=0.02, share_mb=share, memory=lambda: memory)


def test_the_emptiest_device_comes_first_and_what_others_use_counts(tmp_path, monkeypatch):
    monkeypatch.delenv(VISIBLE_DEVICES, raising=False)
    memory = {"GPU-a": GpuMemory(20_000, 9_000), "GPU-b": GpuMemory(20_000, 20_000)}
    held = []
    for expected in ("GPU-b", "GPU-b", "GPU-a"):
        with_share = lease(tmp_path, 6000, memory, memory)
        assert with_share.__enter__() == [expected]
        monkeypatch.delenv(VISIBLE_DEVICES)
        held.append(with_share)
    assert sorted(path.read_text() for path in tmp_path.glob("*.share-*")) == ["6700"] * 3
    for one in held:
        one.__exit__(None, None, None)
    assert not list(tmp_path.glob("*.share-*"))


def test_without_a_memory_that_is_known_or_with_several_devices_nothing_is_shared(tmp_path, monkeypatch):
    monkeypatch.delenv(VISIBLE_DEVICES, raising=False)
    with lease(tmp_path, 1000, {}) as devices:
        assert devices == ["GPU-a"] and not list(tmp_path.glob("*.share-*"))
    two = {name: GpuMemory(20_000, 20_000) for name in ("GPU-a", "GPU-b")}
    with lease(tmp_path, 1000, two, two, count=2) as devices:
        assert devices == ["GPU-a", "GPU-b"] and not list(tmp_path.glob("*.share-*"))


def test_waiting_for_room_is_announced(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv(VISIBLE_DEVICES, raising=False)
    sizes = iter([GpuMemory(20_000, 100), GpuMemory(20_000, 100), GpuMemory(20_000, 20_000)])
    with lease_gpus(
        1, lambda: ["GPU-a"], tmp_path, poll=0.02, share_mb=1000, memory=lambda: {"GPU-a": next(sizes)}
    ) as devices:
        assert devices == ["GPU-a"]
    expect_message(capsys.readouterr().out)


def test_no_job_takes_more_than_its_share(monkeypatch, capsys):
    set_to = []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: type("Device", (), {"total_memory": 2**34}))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda *given: set_to.append(given))
    limit_gpu_memory(2**12)
    assert set_to == [(0.25, 0)]
    expect_message(capsys.readouterr().out)
    limit_gpu_memory(2**15)
    assert len(set_to) == 1, "larger than the device, which is its own"


def smi(folder: Path, monkeypatch) -> None:
    """An ``nvidia-smi`` with one device of 20,000 MB."""
    folder.mkdir()
    program = folder / "nvidia-smi"
    program.write_text('#!/bin/sh\ncase "$1" in *memory*) echo GPU-a, 20000, 19000;; *) echo GPU-a;; esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv(VISIBLE_DEVICES, raising=False)


def test_jobs_are_counted_on_the_smallest_device(tmp_path, monkeypatch):
    smi(tmp_path / "bin", monkeypatch)
    assert (jobs_per_gpu(4000), jobs_per_gpu(15_000), jobs_per_gpu(40_000)) == (4, 1, 1)
    monkeypatch.setenv("PATH", "/nowhere")
    assert jobs_per_gpu(4000) == 1


@pytest.mark.workflow
def test_a_limit_of_one_gpu_starts_as_many_jobs_as_share_it(tmp_path, monkeypatch):
    """torch sees no GPU here, says so and uses the CPU: what is leased, and how many jobs start, is real."""
    smi(tmp_path / "bin", monkeypatch)
    workflow = Workflow(tmp_path)
    (tmp_path / "config/studies/mini.yaml").write_text(FOUR_RUNS)
    said = workflow.run("trained", "--cores", "8", "--resources", "gpu=1")
    begun = [text for text in said.split("Execute ") if "rule train:" in text]
    assert max(text.count("rule train:") for text in begun) == 4
    log = (workflow.folder / "results/mini/logs/train/meanP.seed0.log").read_text()
    assert "torch cannot use the 1 GPU of this job" in log


def test_a_job_of_several_devices_shares_none():
    def execution(**resources):
        return Study(name="s", dataset="d", methods={"a": {}}, resources=resources).resources.shared_gpu_mb

    assert execution(gpus=1, gpu_mem_mb=4000) == 4000
    assert execution(gpus=2, gpu_mem_mb=4000) is execution(gpus=1) is execution(gpus=0, gpu_mem_mb=4000) is None
