"""Assigns GPUs to jobs: which devices exist, which may be used, and a lock for each while a job runs.

Snakemake's ``--resources gpu=4`` only counts jobs; it does not tell a job *which* GPU is free. A lease takes one
lock file per device for the life of the job (``flock``: the kernel releases it when the process ends, however it
ends) and sets ``CUDA_VISIBLE_DEVICES``. If the user or the cluster's scheduler has set that variable, only its
devices are leased.
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

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
GPU_UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# Counts GPUs with CUDA's own library: importing torch for it would take seconds.
CUDA_COUNT_SCRIPT = """
import ctypes
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError:
    raise SystemExit
count = ctypes.c_int()
if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0:
    print(*range(count.value), sep="\\n")
"""

# ---- Which GPUs there are ------------------------------------------------------------------------------------------


def list_gpus(root: Path = Path("/")) -> list[str]:
    """Names of this machine's GPUs as ``CUDA_VISIBLE_DEVICES`` takes them; empty without any.

    UUIDs in the order of ``nvidia-smi``. A container may have GPUs without that program: then the UUIDs that the driver
    shows under ``/proc``, else numbers, from the device files or from CUDA itself. CUDA is asked in another process,
    because it reads ``CUDA_VISIBLE_DEVICES`` only once, when it starts.
    """
    return _gpus_from_nvidia_smi() or _gpus_from_proc(root) or _gpus_from_device_files(root) or _gpus_from_cuda()


def _gpus_from_nvidia_smi() -> list[str]:
    return _output_lines(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"])


def _gpus_from_proc(root: Path) -> list[str]:
    """UUIDs under ``/proc/driver/nvidia`` of devices with a file in ``/dev``.

    A container's ``/proc`` lists all GPUs of its host; only those that it may use have a device file.
    """
    files, uuids = _device_files(root), []
    for path in sorted(root.glob("proc/driver/nvidia/gpus/*/information")):
        try:
            fields = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        uuid, minor = fields.get("GPU UUID", "").strip(), fields.get("Device Minor", "").strip()
        if files and minor.isdigit() and int(minor) not in files:
            continue
        if not GPU_UUID.fullmatch(uuid):  # the driver shows question marks before anything has used the device
            return []
        uuids.append(uuid)
    return uuids


def _gpus_from_device_files(root: Path) -> list[str]:
    """Numbers of the devices for CUDA, which counts them from 0 whatever their files are called."""
    return [str(number) for number in range(len(_device_files(root)))]


def _device_files(root: Path) -> list[int]:
    """Numbers of ``/dev/nvidia0``, … (without ``/dev/nvidiactl`` and the like), sorted."""
    names = [path.name.removeprefix("nvidia") for path in root.glob("dev/nvidia*")]
    return sorted(int(name) for name in names if name.isdigit())


def _gpus_from_cuda() -> list[str]:
    return _output_lines([sys.executable, "-I", "-c", CUDA_COUNT_SCRIPT])


def _output_lines(command: list[str]) -> list[str]:
    """Lines that a program prints when run without ``CUDA_VISIBLE_DEVICES``; none where it is missing or fails."""
    environment = {name: value for name, value in os.environ.items() if name != VISIBLE_DEVICES}
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in out.stdout.splitlines() if line.strip()] if out.returncode == 0 else []


# ---- Which of them may be used, and a lock for each while a job runs -----------------------------------------------


def allowed_gpus(gpus: list[str], mask: str | None) -> list[str]:
    """Names of the devices that a mask, the value of ``CUDA_VISIBLE_DEVICES``, allows.

    Entries that are numbers, or the beginning of one UUID, are turned into the names they stand for, so that two jobs
    that name one device differently still meet at the same lock; others (MIG) are kept as they are.

    Args:
        gpus: names from :func:`list_gpus`; if it is empty, the mask's own entries are trusted.
        mask: None (not set) allows all of ``gpus``, an empty mask or ``-1`` none.

    >>> allowed_gpus(["GPU-aaa", "GPU-bbb", "GPU-ccc"], "2,GPU-a")
    ['GPU-ccc', 'GPU-aaa']
    >>> allowed_gpus(["GPU-aaa", "GPU-bbb"], None), allowed_gpus(["GPU-aaa", "GPU-bbb"], "1,7,0")
    (['GPU-aaa', 'GPU-bbb'], ['GPU-bbb'])
    """
    if mask is None:
        return gpus
    names = []
    for entry in mask.split(","):
        entry = entry.strip()
        out_of_range = entry.isdigit() and gpus and int(entry) >= len(gpus)
        if entry in ("", "-1") or out_of_range:
            break  # CUDA ignores everything from the first invalid entry on
        names.append(_full_name(entry, gpus))
    return names


def _full_name(entry: str, gpus: list[str]) -> str:
    if entry.isdigit():
        return gpus[int(entry)] if gpus else entry
    matches = [name for name in gpus if name.startswith(entry)]
    return matches[0] if len(matches) == 1 else entry


def count_visible_gpus() -> int:
    """Number of GPUs that jobs on this machine may lease."""
    return len(allowed_gpus(list_gpus(), os.environ.get(VISIBLE_DEVICES)))


@contextlib.contextmanager
def lease_gpus(
    count: int,
    gpus: Callable[[], list[str]] = list_gpus,
    folder: Path | None = None,
    poll: float = 2.0,
) -> Iterator[list[str]]:
    """Hold up to ``count`` GPUs while the block runs, make only these visible to CUDA, and yield their names.

    Call it before CUDA starts. Without any GPU the job runs on the CPU and prints that it does. With fewer devices than
    ``count`` it takes all there are. When they are busy it tries again every ``poll`` seconds. The lock files are in
    ``folder``, by default one per user in the temporary folder.
    """
    devices = allowed_gpus(gpus(), os.environ.get(VISIBLE_DEVICES))
    if count and not devices:
        print("no GPU is visible here: running on the CPU")
    count = min(count, len(devices))
    folder = folder or Path(tempfile.gettempdir()) / f"rewind-gpu-{os.getuid()}"
    before = os.environ.get(VISIBLE_DEVICES)
    held: dict[str, IO[Any]] = {}
    try:
        if count:
            folder.mkdir(parents=True, exist_ok=True)
            held = _lock_gpus(devices, count, folder, poll)
        os.environ[VISIBLE_DEVICES] = ",".join(held)
        yield list(held)
    finally:
        for handle in held.values():
            handle.close()  # which releases the lock
        os.environ.pop(VISIBLE_DEVICES, None)
        if before is not None:
            os.environ[VISIBLE_DEVICES] = before


def _lock_gpus(devices: list[str], count: int, folder: Path, poll: float) -> dict[str, IO[Any]]:
    """Lock ``count`` devices, all or none: two jobs with half of their devices each would wait for ever."""
    waiting = False
    while True:
        held: dict[str, IO[Any]] = {}
        for device in devices:
            handle: IO[Any] = (folder / f"{device.replace('/', '_')}.lock").open("w")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                handle.close()
                continue
            held[device] = handle
            if len(held) == count:
                return held
        for lock in held.values():
            lock.close()
        if not waiting:
            print(f"waiting for {count} of {len(devices)} GPUs to become free", flush=True)
            waiting = True
        time.sleep(poll)
