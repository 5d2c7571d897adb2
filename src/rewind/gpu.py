"""Assigns GPUs to jobs: which devices exist, which may be used, and a lock for each while a job runs.

Snakemake's ``--resources gpu=4`` only counts jobs; it does not tell a job *which* GPU is free. A lease takes one
lock file per device for the life of the job (``flock``: the kernel releases it when the process ends, however it
ends) and sets ``CUDA_VISIBLE_DEVICES``. If the user or the cluster's scheduler has set that variable, only its
devices are leased.

A job that states how much GPU memory it may use shares a device with others while the sum fits. A whole device is
locked exclusively, a shared one with a shared lock and a file for each share, with its size, which its job has locked.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True)
class GpuMemory:
    """Memory of a device in MB: all of it, and what no process uses now."""

    total: int
    free: int


def read_gpu_memory() -> dict[str, GpuMemory]:
    """UUID → memory, as ``nvidia-smi`` tells; empty where it is missing, and then no device is shared."""
    lines = _output_lines(["nvidia-smi", "--query-gpu=uuid,memory.total,memory.free", "--format=csv,noheader,nounits"])
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    return {
        row[0]: GpuMemory(int(row[1]), int(row[2]))
        for row in rows
        if len(row) == 3 and row[1].isdigit() and row[2].isdigit()
    }


def jobs_per_gpu(share_mb: int) -> int:
    """How many jobs with so much memory each the smallest GPU that may be used takes; 1 without a GPU."""
    memory = read_gpu_memory()
    allowed = allowed_gpus(list(memory), os.environ.get(VISIBLE_DEVICES))
    sizes = [memory[name].total for name in allowed if name in memory]
    return max(1, int(_USABLE * min(sizes)) // (share_mb + CONTEXT_MB)) if sizes else 1


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


CONTEXT_MB = 700
"""What CUDA itself takes of a device for each process, besides the tensors: kernels and cuBLAS's workspace."""

_USABLE = 0.95  # of a device's memory is given to jobs that share it; the rest is the driver's and lost to fragments


@contextlib.contextmanager
def lease_gpus(
    count: int,
    gpus: Callable[[], list[str]] = list_gpus,
    folder: Path | None = None,
    poll: float = 2.0,
    share_mb: int | None = None,
    memory: Callable[[], dict[str, GpuMemory]] = read_gpu_memory,
) -> Iterator[list[str]]:
    """Hold up to ``count`` GPUs while the block runs, make only these visible to CUDA, and yield their names.

    Call it before CUDA starts. Without any GPU the job runs on the CPU and prints that it does. With fewer devices than
    ``count`` it takes all there are. When they are busy it tries again every ``poll`` seconds. The lock files are in
    ``folder``, by default one per user in the temporary folder.

    Args:
        share_mb: memory of tensors that a job of one GPU may use; others that state theirs are on the same device while
            all fit, the emptiest device first. A job that fits on no device, or whose device does not tell its memory,
            has one alone. A job that waits for a whole device goes before those that share.
    """
    devices = allowed_gpus(gpus(), os.environ.get(VISIBLE_DEVICES))
    if count and not devices:
        print("no GPU is visible here: running on the CPU")
    count = min(count, len(devices))
    folder = folder or Path(tempfile.gettempdir()) / f"rewind-gpu-{os.getuid()}"
    before = os.environ.get(VISIBLE_DEVICES)
    held: dict[str, contextlib.ExitStack] = {}
    try:
        if count:
            folder.mkdir(parents=True, exist_ok=True)
            held = _lock_gpus(devices, count, folder, poll, share_mb, memory)
        os.environ[VISIBLE_DEVICES] = ",".join(held)
        yield list(held)
    finally:
        for locks in held.values():
            locks.close()
        os.environ.pop(VISIBLE_DEVICES, None)
        if before is not None:
            os.environ[VISIBLE_DEVICES] = before


def _lock_gpus(
    devices: list[str],
    count: int,
    folder: Path,
    poll: float,
    share_mb: int | None,
    memory: Callable[[], dict[str, GpuMemory]],
) -> dict[str, contextlib.ExitStack]:
    files = [_DeviceFiles(device, folder) for device in devices]
    needed, waiting = (share_mb + CONTEXT_MB if share_mb else 0), False
    with contextlib.ExitStack() as queue:
        while True:
            sizes = memory() if share_mb and count == 1 else {}
            if shares := any(needed <= int(_USABLE * size.total) for name, size in sizes.items() if name in devices):
                held = _take_share(files, needed, sizes)
            else:
                held = _take_whole(files, count)
            if held:
                return held
            if not waiting:
                waiting = True
                busy = f"{needed:,} MB of GPU memory" if shares else f"{count} of {len(devices)} GPUs"
                print(f"waiting for {busy} to become free", flush=True)
                for device in [] if shares else files:
                    queue.enter_context(_lock_file(device.queue, fcntl.LOCK_SH) or contextlib.nullcontext())
            time.sleep(poll)


class _DeviceFiles:
    """The lock files of one device.

    Attributes:
        lock: held exclusively by a job that has the device alone, and shared by each of those that share it.
        queue: held by jobs that wait for the whole device: no further share is given meanwhile.
        register: held while shares are counted or given.
    """

    def __init__(self, device: str, folder: Path) -> None:
        self.device, self.folder, self.stem = device, folder, device.replace("/", "_")
        self.lock, self.queue, self.register = (folder / f"{self.stem}.{end}" for end in ("lock", "queue", "register"))

    @contextlib.contextmanager
    def registered(self) -> Iterator[int]:
        """Hold the register, and yield the MB of all shares whose jobs live; files of others are removed."""
        with self.register.open("w") as register:
            fcntl.flock(register, fcntl.LOCK_EX)
            given = 0
            for path in self.folder.glob(f"{glob.escape(self.stem)}.share-*"):
                if ended := _lock_file(path, fcntl.LOCK_EX):
                    with ended:
                        path.unlink()
                else:
                    given += int(path.read_text() or 0)
            yield given

    def new_share(self, size: int) -> contextlib.ExitStack:
        """A share's file, locked by this process and removed when it is given back."""
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(tempfile.NamedTemporaryFile("w", prefix=f"{self.stem}.share-", dir=self.folder))
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(str(size))
            file.flush()
            return stack.pop_all()


def _take_whole(files: list[_DeviceFiles], count: int) -> dict[str, contextlib.ExitStack]:
    """Lock ``count`` devices, all or none: two jobs with half of their devices each would wait for ever."""
    held: dict[str, contextlib.ExitStack] = {}
    with contextlib.ExitStack() as taken:
        for device in files:
            if handle := _lock_file(device.lock, fcntl.LOCK_EX):
                held[device.device] = taken.enter_context(contextlib.ExitStack())
                held[device.device].enter_context(handle)
            if len(held) == count:
                taken.pop_all()
                return held
    return {}


def _take_share(files: list[_DeviceFiles], needed: int, sizes: dict[str, GpuMemory]) -> dict[str, contextlib.ExitStack]:
    """A share of the device with most room, counted by what all may use and by what is free now; or nothing."""

    def room(device: _DeviceFiles, given: int) -> int:
        size = sizes[device.device]
        return min(int(_USABLE * size.total) - given, size.free)

    rooms = []
    for device in files:
        if device.device in sizes:
            with device.registered() as given:
                rooms.append((room(device, given), device))
    for _, device in sorted(rooms, key=lambda pair: -pair[0]):
        # Counted anew, since another job may have been given a share in between.
        with device.registered() as given, contextlib.ExitStack() as held:
            nobody_waits = _lock_file(device.queue, fcntl.LOCK_EX)
            lock = _lock_file(device.lock, fcntl.LOCK_SH)
            for handle in filter(None, (nobody_waits, lock)):
                held.enter_context(handle)
            if nobody_waits and lock and room(device, given) >= needed:
                held.enter_context(device.new_share(needed))
                nobody_waits.close()  # closing it once more does nothing
                return {device.device: held.pop_all()}
    return {}


def _lock_file(path: Path, kind: int) -> IO[Any] | None:
    """An open file with a lock on it, exclusive or shared; None where another process has it."""
    handle = path.open("a")
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        return None
    return handle
