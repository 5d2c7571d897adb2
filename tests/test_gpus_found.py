"""GPUs are found as a container shows them, with or without ``nvidia-smi``, and a job says where torch cannot use them.

Each case is a process of its own, with a PATH of its own and an invented ``/proc`` and ``/dev``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import ROOT
from rewind.platform import ec2_instance_type, nvidia_driver_version

UUIDS = [f"GPU-{n}2345678-1234-1234-1234-123456789abc" for n in range(3)]


def python(code: str, *arguments: object, path: Path | str = "/nowhere", ok: bool = True, **environment: str) -> str:
    """Output of a fresh process that sees no GPU of this machine unless PATH shows one."""
    env = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    env |= {"PATH": str(path), "PYTHONPATH": str(ROOT / "src")} | environment
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], env=env, capture_output=True, text=True)
    text = done.stdout + done.stderr
    assert (done.returncode == 0) == ok, text
    return text.strip()


def machine(root: Path, uuids: list[str], files: list[int]) -> Path:
    """``/proc`` with one GPU for each of ``uuids``, ``/dev`` with the device files of some."""
    for minor, uuid in enumerate(uuids):
        folder = root / f"proc/driver/nvidia/gpus/0000:0{minor}:00.0"
        folder.mkdir(parents=True)
        text = f"Model: \t\t NVIDIA A10G\nIRQ:   \t\t 29\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
        (folder / "information").write_text(text)
    (root / "dev").mkdir(parents=True, exist_ok=True)
    for minor in files:
        (root / f"dev/nvidia{minor}").touch()
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-modeset", "nvidia-caps"):
        (root / "dev" / name).touch()
    return root


LIST = "import sys; from pathlib import Path; from rewind.gpu import *; print(*list_gpus(Path(sys.argv[1])))"
LEASE = """
import os, sys
from pathlib import Path
from rewind.gpu import lease_gpus, list_gpus
with lease_gpus(2, lambda: list_gpus(Path(sys.argv[1])), Path(sys.argv[2])) as held:
    print(*held, os.environ["CUDA_VISIBLE_DEVICES"])
"""


def test_without_the_program_the_driver_names_them(tmp_path):
    root = machine(tmp_path, UUIDS, [0, 1, 2])
    assert python(LIST, root).split() == UUIDS
    assert python(LEASE, root, tmp_path / "locks").split() == [*UUIDS[:2], ",".join(UUIDS[:2])]
    for mask, expected in (("2", UUIDS[2:]), (UUIDS[1], UUIDS[1:2]), ("GPU-12", UUIDS[1:2]), ("MIG-7", ["MIG-7"])):
        held = python(LEASE, root, tmp_path / "locks", CUDA_VISIBLE_DEVICES=mask).split()
        assert held == [*expected, *expected], mask
    assert "no GPU is visible here" in python(LEASE, root, tmp_path / "locks", CUDA_VISIBLE_DEVICES="")


def test_what_has_no_device_file_here_belongs_to_another_container(tmp_path):
    assert python(LIST, machine(tmp_path, UUIDS, [1])).split() == UUIDS[1:2]


@pytest.mark.parametrize("uuid", [None, "GPU-????????-????-????-????-????????????"])
def test_device_files_count_from_zero(tmp_path, uuid):
    root = machine(tmp_path, [uuid] * 2 if uuid else [], [3, 5])
    assert python(LIST, root).split() == ["0", "1"]
    assert python(LEASE, root, tmp_path / "locks", CUDA_VISIBLE_DEVICES="1").split() == ["1", "1"]


def program(folder: Path, text: str) -> Path:
    """A folder with an ``nvidia-smi`` of ours."""
    folder.mkdir()
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "nvidia-smi").chmod(0o755)
    return folder


def test_the_program_comes_first_and_may_fail(tmp_path):
    root = machine(tmp_path, UUIDS, [0, 1, 2])
    good = program(tmp_path / "good", f"echo {UUIDS[0]}")
    assert python(LIST, root, path=good).split() == UUIDS[:1]
    broken = program(tmp_path / "broken", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    assert python(LIST, root, path=broken).split() == UUIDS


def test_a_machine_without_a_gpu_has_none(tmp_path):
    (tmp_path / "dev").mkdir()
    assert python(LIST, tmp_path, CUDA_VISIBLE_DEVICES="0") == "" or Path("/dev/nvidia0").exists()


JOB = """
import sys
from rewind.workflow.job import job_session
with job_session(sys.argv[1], gpus=1, require_gpu=sys.argv[2] == "yes"):
    import torch
    print("at work", torch.backends.cuda.matmul.allow_tf32)
"""


@pytest.mark.slow
def test_a_gpu_that_torch_cannot_use_is_none(tmp_path):
    """A driver that does not fit, or a CPU build of torch beside a GPU: the job would train on the CPU for weeks."""
    lie = program(tmp_path / "bin", "echo GPU-ffffffff-ffff-ffff-ffff-ffffffffffff")
    text = python(JOB, tmp_path / "a.log", "yes", path=lie, ok=False)
    assert "require_gpu is set, but torch cannot use the 1 GPU of this job" in text
    assert "at work" not in text and "Traceback" not in text
    text = python(JOB, tmp_path / "b.log", "no", path=lie)
    assert "torch cannot use the 1 GPU of this job" in text and "running on the CPU" in text
    assert "at work False" in text, "products on a CPU stay as they are"


TF32 = """
import sys
import torch
torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: 1
torch.cuda.get_device_name = lambda place: "NVIDIA A10G"
from rewind.workflow.job import job_session
from rewind.provenance import hardware
before = torch.backends.cuda.matmul.allow_tf32
with job_session(sys.argv[1], gpus=1):
    print(before, torch.backends.cuda.matmul.allow_tf32, hardware()["tf32"])
"""


@pytest.mark.slow
def test_a_job_on_a_gpu_multiplies_in_tf32_and_records_it(tmp_path):
    found = program(tmp_path / "bin", f"echo {UUIDS[0]}")
    assert python(TF32, tmp_path / "a.log", path=found) == "False True True"
    assert python(TF32, tmp_path / "b.log", path=found, NVIDIA_TF32_OVERRIDE="0") == "False True False"


@pytest.mark.slow
def test_the_doctor_says_what_is_wrong(tmp_path):
    lie = program(tmp_path / "bin", "case $1 in *driver*) echo 580.1;; *) echo GPU-x;; esac")
    code = "from rewind.cli.main import main; main(['doctor'])"
    text = python(code, path=f"{lie}:{os.environ['PATH']}")
    assert "GPU-x" in text and "580.1" in text


def test_the_drivers_version_without_the_program(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert nvidia_driver_version(tmp_path) is None
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/version").write_text("570.86.15\n")
    assert nvidia_driver_version(tmp_path) == "570.86.15"
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024\nGCC version:  12\n"
    (tmp_path / "proc/driver/nvidia/version").write_text(text)
    assert nvidia_driver_version(tmp_path) == "550.90.07"


def test_the_instance_type_is_the_firmwares(tmp_path):
    assert ec2_instance_type(tmp_path) is None
    folder = tmp_path / "sys/devices/virtual/dmi/id"
    folder.mkdir(parents=True)
    (folder / "sys_vendor").write_text("Amazon EC2\n")
    (folder / "product_name").write_text("p4d.24xlarge\n")
    (folder / "board_asset_tag").write_text("i-0123456789abcdef0\n")
    assert ec2_instance_type(tmp_path) == "EC2 p4d.24xlarge"
    (folder / "product_name").write_text("HVM domU\n")
    assert ec2_instance_type(tmp_path) is None
    (folder / "sys_vendor").write_text("QEMU\n")
    assert ec2_instance_type(tmp_path) is None
