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
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

MASK = "CUDA_VISIBLE_DEVICES"


def list_gpus() -> list[str]:
    """UUIDs of this machine's GPUs in their order, empty without a driver."""
    try:
        out = subprocess.run(
            ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in out.stdout.splitlines() if line.strip()] if out.returncode == 0 else []


def allowed(gpus: list[str], mask: str | None) -> list[str]:
    """Names of the devices that a mask allows; a mask's own entries are kept as they are.

    ``None`` (no mask) allows all of ``gpus``; an empty mask or ``-1`` allows none. Entries that are numbers are turned
    into the UUIDs they stand for, so that two jobs that name one device differently still meet at the same lock.
    """
    if mask is None:
        return gpus
    names = []
    for entry in mask.split(","):
        entry = entry.strip()
        if entry in ("", "-1"):
            break  # CUDA ignores everything from the first invalid entry on
        names.append(gpus[int(entry)] if entry.isdigit() and int(entry) < len(gpus) else entry)
    return names


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
    held: dict[str, IO] = {}
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


def _take(devices: list[str], count: int, folder: Path, poll: float) -> dict[str, IO]:
    """Lock ``count`` devices; all or none, so that two jobs wanting two each cannot starve one another."""
    waiting = False
    while True:
        held: dict[str, IO] = {}
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
