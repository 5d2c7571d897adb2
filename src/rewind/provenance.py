"""What ran, on what, from which data; which code computed it is :mod:`rewind.identity`."""

from __future__ import annotations

import datetime
import importlib
import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from rewind.command import command
from rewind.errors import RewindError
from rewind.files import sha256_of
from rewind.machine import driver, instance, processor
from rewind.packaged import checkout, version

PACKAGES = (
    "torch",
    "torchvision",
    "open-clip-torch",
    "decord",
    "decord2",
    "ffmpeg-python",
    "imageio-ffmpeg",
    "pillow",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "scikit-learn",
    "safetensors",
    "snakemake",
)


def file_hash(path: str | Path) -> str:
    """sha256 of a file, 16 hex digits."""
    return sha256_of(path)[:16]


def environment() -> dict[str, Any]:
    """Versions, the code's commit, day, machine and the user's command, for ``run.json``; what is not there is None."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in PACKAGES if _installed(name)},
        "ffmpeg": _ffmpeg(),
        "driver": driver(),
        "platform": platform.platform(),
        "processor": processor(),
        "instance": instance(),
        "version": version(),
        "git": _git(),
        "command": command(),
    }


def hardware() -> dict[str, Any]:
    """Devices as torch sees them now, the CUDA and cuDNN that it was built with, whether products are in TF32.

    Also the CPU's cores that this process may use, and the vector instructions that torch and oneDNN compute with:
    others round otherwise, and training on a CPU ends at other weights. What a CPU (build) does not have is None.
    """
    import torch

    devices = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    threads = torch.get_num_threads()
    return {
        "devices": devices or [f"CPU ({processor()}, {threads} thread{'s' * (threads > 1)})"],
        "gpus": len(devices),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
        "tf32": _tf32(torch.backends.cuda.matmul.allow_tf32) if devices else None,
        "cores": len(os.sched_getaffinity(0)),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "onednn_max": os.environ.get("ONEDNN_MAX_CPU_ISA"),
    }


def _tf32(allowed: bool) -> bool:
    return allowed and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"


def _ffmpeg() -> str | None:
    # Found at run time: a run's record names the program, but its code does not depend on the module that runs it.
    ffmpeg = importlib.import_module("rewind.video.ffmpeg")
    try:
        return ffmpeg.version()
    except RewindError:
        return None


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _git() -> dict[str, Any]:
    """Commit of the code that runs: its checkout's; of a wheel, the one that its version names."""
    if (folder := checkout()) is None:
        return _commit_in(version())

    def ask(*arguments: str) -> str | None:
        try:
            out = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return out.stdout.strip() if out.returncode == 0 else None

    status = ask("status", "--porcelain", "--untracked-files=no")
    return {"commit": ask("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}


def _commit_in(text: str) -> dict[str, Any]:
    """Commit in a version such as ``0.1.1.dev345+gc51ba5204.d20261123``: the last part is there where it was edited."""
    found = re.search(r"\+(?:.*\.)?g([0-9a-f]{7,40})(\.d\d{8})?$", text)
    return {"commit": found[1] if found else None, "dirty": bool(found[2]) if found else None}
