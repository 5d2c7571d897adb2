"""The machine under a run: processor, NVIDIA driver, and the instance type where it is one of EC2's."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path

_DMI = "sys/devices/virtual/dmi/id"
_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")


def processor() -> str:
    """Name of the processor."""
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def driver(root: Path = Path("/")) -> str | None:
    """Version of the NVIDIA driver: from ``nvidia-smi``, or, where a container lacks it, from the kernel's module."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        out = subprocess.run(query, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        out = None
    lines = out.stdout.split() if out is not None and out.returncode == 0 else []
    if lines:
        return lines[0]
    found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", _read(root / "proc/driver/nvidia/version"))
    return found[1] if found else _read(root / "sys/module/nvidia/version") or None


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory(root: Path = Path("/")) -> float | None:
    """Memory in GB; None where ``/proc`` does not tell.

    Args:
        root: where ``/proc`` is.
    """
    found = re.search(r"^MemTotal:\s+(\d+) kB", _read(root / "proc/meminfo"), re.MULTILINE)
    return int(found[1]) * 1024 / 1e9 if found else None


def instance(root: Path = Path("/")) -> str | None:
    """``EC2 p4d.24xlarge`` and the like, as the firmware says it; nothing is asked of the network.

    Args:
        root: where ``/sys`` is.
    """
    vendor, product = (_read(root / _DMI / name) for name in ("sys_vendor", "product_name"))
    return f"EC2 {product}" if vendor == "Amazon EC2" and _TYPE.fullmatch(product) else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
