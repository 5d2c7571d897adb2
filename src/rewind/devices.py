"""Which GPUs a job may use: real devices behind Snakemake's counter.

``--resources gpu=4`` only counts jobs; nothing tells a job *which* GPU is free. A lease takes one lock file per device
for the life of the job (``flock``: the kernel lets go when the process ends, however it ends) and sets
``CUDA_VISIBLE_DEVICES``. A mask set by the user or by the cluster's scheduler is respected: only its devices are
leased.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

MASK = "CUDA_VISIBLE_DEVICES"


def list_gpus(root: Path = Path("/")) -> list[str]:
    """Names of this machine's GPUs as ``CUDA_VISIBLE_DEVICES`` takes them, empty where there is none.

    UUIDs in the order of ``nvidia-smi``. A container may have GPUs without that program: then what the driver shows
    under ``/proc``, the device files (numbers instead of UUIDs), or what CUDA itself says, asked in another process,
    since CUDA reads the mask once, when it starts.

    Args:
        root: where ``/proc`` and ``/dev`` are.
    """
    return _from_program() or _from_driver(root) or _from_files(root) or _from_cuda()


def _from_program() -> list[str]:
    return _lines(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"])


def _from_driver(root: Path) -> list[str]:
    """UUIDs under ``/proc/driver/nvidia``, of those devices that have a file here: a container may see all the rest."""
    files, found = _device_files(root), []
    for path in sorted(root.glob("proc/driver/nvidia/gpus/*/information")):
        try:
            rows = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        uuid, minor = rows.get("GPU UUID", "").strip(), rows.get("Device Minor", "").strip()
        if files and minor.isdigit() and int(minor) not in files:
            continue
        if not UUID.fullmatch(uuid):  # question marks, before anything has used the device
            return []
        found.append(uuid)
    return found


def _from_files(root: Path) -> list[str]:
    """``/dev/nvidia0``, … count from 0 in CUDA, whatever their own numbers."""
    return [str(place) for place in range(len(_device_files(root)))]


def _device_files(root: Path) -> list[int]:
    names = [path.name.removeprefix("nvidia") for path in root.glob("dev/nvidia*")]
    return sorted(int(name) for name in names if name.isdigit())


def _from_cuda() -> list[str]:
    return _lines([sys.executable, "-I", "-c", ASK_CUDA])


def _lines(command: list[str]) -> list[str]:
    """What a program printed, without the mask; nothing where it is not there or fails."""
    everything = {name: value for name, value in os.environ.items() if name != MASK}
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=30, env=everything)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in out.stdout.splitlines() if line.strip()] if out.returncode == 0 else []


UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# CUDA's own library, without torch, whose import takes seconds.
ASK_CUDA = """
import ctypes
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError:
    raise SystemExit
count = ctypes.c_int()
if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0:
    print(*range(count.value), sep="\\n")
"""


def allowed(gpus: list[str], mask: str | None) -> list[str]:
    """Names of the devices that a mask allows.

    ``None`` (no mask) allows all of ``gpus``; an empty mask or ``-1`` allows none. Entries that are numbers, or the
    beginning of one UUID, are turned into the names they stand for, so that two jobs that name one device differently
    still meet at the same lock; others (MIG) are kept as they are. Where ``gpus`` could not be found, the mask's own
    entries are believed.
    """
    if mask is None:
        return gpus
    names = []
    for entry in mask.split(","):
        entry = entry.strip()
        beyond = entry.isdigit() and gpus and int(entry) >= len(gpus)
        if entry in ("", "-1") or beyond:
            break  # CUDA ignores everything from the first invalid entry on
        names.append(_full(entry, gpus))
    return names


def _full(entry: str, gpus: list[str]) -> str:
    if entry.isdigit():
        return gpus[int(entry)] if gpus else entry
    meant = [name for name in gpus if name.startswith(entry)]
    return meant[0] if len(meant) == 1 else entry


def visible_gpus() -> int:
    """GPUs that jobs on this machine may lease."""
    return len(allowed(list_gpus(), os.environ.get(MASK)))


@contextlib.contextmanager
def lease(
    count: int,
    gpus: Callable[[], list[str]] = list_gpus,
    folder: Path | None = None,
    poll: float = 2.0,
) -> Iterator[list[str]]:
    """Hold up to ``count`` GPUs while the block runs, and show them alone to CUDA.

    Without any GPU the job runs on the CPU and says so once. With fewer devices than asked for it takes all there are.
    When they are busy it waits.

    Yields:
        The device names, empty on CPU.
    """
    devices = allowed(gpus(), os.environ.get(MASK))
    if count and not devices:
        print("no GPU is visible here: running on the CPU")
    count = min(count, len(devices))
    folder = folder or Path(tempfile.gettempdir()) / f"rewind-gpu-{os.getuid()}"
    before = os.environ.get(MASK)
    held: dict[str, IO[Any]] = {}
    try:
        if count:
            folder.mkdir(parents=True, exist_ok=True)
            held = _take(devices, count, folder, poll)
        os.environ[MASK] = ",".join(held)
        yield list(held)
    finally:
        for handle in held.values():
            handle.close()
        os.environ.pop(MASK, None)
        if before is not None:
            os.environ[MASK] = before


def _take(devices: list[str], count: int, folder: Path, poll: float) -> dict[str, IO[Any]]:
    """Lock ``count`` devices; all or none, so that two jobs wanting two each cannot starve one another."""
    waiting = False
    while True:
        held: dict[str, IO[Any]] = {}
        for device in devices:
            handle = (folder / f"{device.replace('/', '_')}.lock").open("w")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                handle.close()
                continue
            held[device] = handle
            if len(held) == count:
                return held
        for handle in held.values():
            handle.close()
        if not waiting:
            print(f"waiting for {count} of {len(devices)} GPUs to become free", flush=True)
            waiting = True
        time.sleep(poll)
