"""How torch computes in a job: its threads, its memory, and on a GPU how it rounds."""

from __future__ import annotations

import contextlib
import ctypes


def settle(threads: int) -> None:
    """Set up torch in a process that computes: CPU threads, memory, and on a GPU products of float32 in TF32.

    Random numbers begin at one place, so that a job which seeds nothing draws the same each time it is run.

    TF32 rounds the factors of a product to 10 bits and sums in float32, many times as fast. It is for jobs on a GPU
    alone, and ``NVIDIA_TF32_OVERRIDE=0``, NVIDIA's own switch, forbids it; ``run.json`` says which it was.
    """
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(threads)
    keep_memory()
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True


def keep_memory() -> None:
    """Let this process keep the memory that tensors free, as far as the C library can be asked (glibc).

    Otherwise every large tensor is fetched from the kernel and zeroed anew: more than half of the time of an
    EfficientNet on a CPU.
    """
    mmap_threshold, trim_threshold = -3, -1  # of mallopt(3)
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, 1 << 30)
        libc.mallopt(trim_threshold, (1 << 31) - 1)
