"""The machine: where ffmpeg is, the processor, memory, NVIDIA driver and EC2 instance type."""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from rewind.errors import RewindError

FFMPEG_REMEDY = (
    "pip install imageio-ffmpeg, which includes one, or name another (9 or newer, with libx264) in the "
    "environment variable IMAGEIO_FFMPEG_EXE"
)
_FIRMWARE_FOLDER = "sys/devices/virtual/dmi/id"
_EC2_INSTANCE_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")  # such as p4d.24xlarge


@functools.cache
def ffmpeg_path() -> str:
    """Path of ffmpeg: what ``IMAGEIO_FFMPEG_EXE`` names, else the one in the package imageio-ffmpeg, else one on PATH.

    The package's goes before the system's: releases differ in which damage they see and which files they read, and a
    clip must not depend on what else is installed.
    """
    try:
        import imageio_ffmpeg  # here, because it is not always installed

        return imageio_ffmpeg.get_ffmpeg_exe()  # without a binary of its own it looks on PATH
    except (ImportError, RuntimeError) as error:
        if path := shutil.which("ffmpeg"):
            return path
        raise RewindError(f"ffmpeg was not found: {FFMPEG_REMEDY}.") from error


def processor_name() -> str:
    """Name of the processor, as Linux reports it in ``/proc/cpuinfo``, else as Python does."""
    for line in _read_or_empty(Path("/proc/cpuinfo")).splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def nvidia_driver_version(root: Path = Path("/")) -> str | None:
    """Version of the NVIDIA driver, such as ``550.54.15``; None where there is none.

    It is what ``nvidia-smi`` prints, or, where a container lacks that, what the kernel module states.
    """
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        out = subprocess.run(query, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        out = None
    lines = out.stdout.split() if out is not None and out.returncode == 0 else []
    if lines:
        return lines[0]
    match = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", _read_or_empty(root / "proc/driver/nvidia/version"))
    return match[1] if match else _read_or_empty(root / "sys/module/nvidia/version") or None


def usable_cores() -> int:
    """Processor cores that this process may use; a scheduler may have pinned it to some of the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def total_memory_gb(root: Path = Path("/")) -> float | None:
    """Memory of the machine in GB (10⁹ bytes); None where there is no ``/proc/meminfo``."""
    match = re.search(r"^MemTotal:\s+(\d+) kB", _read_or_empty(root / "proc/meminfo"), re.MULTILINE)
    return int(match[1]) * 1024 / 1e9 if match else None  # its kB are 1024 bytes


def ec2_instance_type(root: Path = Path("/")) -> str | None:
    """``EC2 p4d.24xlarge`` and the like, from the firmware's tables (no network request); None elsewhere."""
    vendor, product = (_read_or_empty(root / _FIRMWARE_FOLDER / name) for name in ("sys_vendor", "product_name"))
    return f"EC2 {product}" if vendor == "Amazon EC2" and _EC2_INSTANCE_TYPE.fullmatch(product) else None


def _read_or_empty(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
