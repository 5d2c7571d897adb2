"""How torch computes in a job: seed, threads, memory, and TF32 on a GPU."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random

import numpy as np
import torch


def set_deterministic(threads: int) -> None:
    """Set up torch in a process that computes: seed 0, CPU threads, memory, and float32 products in TF32 on a GPU.

    The seed makes a job that seeds nothing itself draw the same numbers each time it is run.

    TF32 rounds the factors of a product to 10 bits of mantissa and sums in float32, many times as fast. It is used only
    on GPUs, and ``NVIDIA_TF32_OVERRIDE=0``, NVIDIA's own switch, forbids it; ``run.json`` states which it was.
    """
    reproduce_on_cpu()
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    keep_freed_memory()
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True


def limit_gpu_memory(mb: int) -> None:
    """Let the tensors of this process take so much memory of its first GPU and no more: others share the device.

    Beyond it torch raises ``OutOfMemoryError`` as on a smaller device, so that ``training.micro_batch: auto`` fits
    itself into the share.
    """
    total = torch.cuda.get_device_properties(0).total_memory
    if (share := mb * 2**20 / total) < 1:
        torch.cuda.set_per_process_memory_fraction(share, 0)
        print(f"this job shares its GPU: it may use {mb:,} MB of it (resources.gpu_mem_mb)")


def reproduce_on_cpu() -> None:
    """Make MKL, where torch has it, give the same bits wherever in memory the same numbers are.

    A resumed run has its tensors elsewhere. By itself MKL rounds by their alignment, and by how rows are divided among
    threads. It reads the variable at its first product; a user's own value stays.
    """
    if torch.backends.mkl.is_available():
        branch = "AVX512" if torch.backends.cpu.get_cpu_capability() == "AVX512" else "AVX2"
        os.environ.setdefault("MKL_CBWR", f"{branch},STRICT")


def keep_freed_memory() -> None:
    """Let this process keep the memory that tensors free, where the C library can do so (glibc).

    Otherwise every large tensor is mapped from the kernel and zeroed again: more than half of the time of an
    EfficientNet on a CPU.
    """
    mmap_threshold, trim_threshold = -3, -1  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of mallopt(3)
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, 1 << 30)
        libc.mallopt(trim_threshold, (1 << 31) - 1)


def seed_everything(seed: int, deterministic: bool = True) -> None:
    """Seed every source of random numbers; with ``deterministic`` also ask for kernels with reproducible bits.

    Data order and the choice of captions have generators of their own, seeded with the same number.
    """
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    # Not use_deterministic_algorithms: it does the same, but first imports torch's compiler, a second or two.
    torch.set_deterministic_debug_mode("warn" if deterministic else "default")
    # Deterministic mode would also fill all memory that torch.empty hands out, every batch's included. Nothing here
    # reads memory that was not written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined] # set by its module class
    torch.backends.cudnn.deterministic = deterministic
    torch.backends.cudnn.benchmark = not deterministic


def synchronise(device: torch.device) -> None:
    """Wait for a GPU: its kernels run asynchronously, so a clock would stop before they end."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
