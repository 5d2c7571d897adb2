"""Data-parallel training and encoding: each process computes its share of the global batch.

Features and gradients are exchanged between processes, so that the loss is always that of the whole batch, in which
every caption is compared with every clip.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rewind.errors import RewindError

CPU = torch.device("cpu")
COLLECTIVE_TIMEOUT = timedelta(hours=6)  # the other ranks wait while rank 0 validates


@dataclass(frozen=True)
class World:
    """The processes of one run; with ``size`` 1 nothing is communicated.

    >>> World(rank=1, size=4).share(128)
    slice(32, 64, None)
    """

    rank: int = 0  # this process; rank 0 writes files and validates
    size: int = 1
    device: torch.device = CPU

    def share(self, rows: int) -> slice:
        """This rank's rows of a global batch of ``rows``: consecutive, and equally many on every rank, else refused."""
        if rows % self.size:
            raise RewindError(
                f"training.batch.size: a batch of {rows} rows cannot be divided equally among {self.size} processes; "
                "set a multiple of that number, or use fewer GPUs."
            )
        each = rows // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    def gather(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """The rows of all ranks in the order of ranks: (n, …) each → (size · n, …). No gradient flows back."""
        return {name: self._gather(value.detach()) for name, value in features.items()}

    def _gather(self, value: Tensor) -> Tensor:
        if self.size == 1:
            return value
        # Collectives want contiguous tensors, and empty_like alone would keep other strides.
        parts = [torch.empty_like(value, memory_format=torch.contiguous_format) for _ in range(self.size)]
        dist.all_gather(parts, value.contiguous())
        return torch.cat(parts)

    def sum(self, value: Tensor) -> Tensor:
        """The sum over ranks of a tensor of the same shape on each."""
        if self.size == 1:
            return value
        total = value.contiguous().clone()  # all_reduce works in place
        dist.all_reduce(total)
        return total

    def sum_gradients(self, module: nn.Module) -> None:
        """Replace every ``.grad`` by its sum over ranks; parameters without a gradient on any rank keep None."""
        if self.size == 1:
            return
        parameters = [p for p in module.parameters() if p.requires_grad]
        used = torch.tensor([p.grad is not None for p in parameters], dtype=torch.int32, device=self.device)
        dist.all_reduce(used, dist.ReduceOp.MAX)
        # All ranks must take part in the same calls, also those whose share of the batch did not use a parameter.
        parameters = [p for p, is_used in zip(parameters, used.tolist(), strict=True) if is_used]
        for dtype in sorted({p.dtype for p in parameters}, key=str):  # in one order on every rank
            _all_reduce_gradients([p for p in parameters if p.dtype == dtype])

    def any(self, flag: bool) -> bool:
        """Whether ``flag`` is true on any rank."""
        if self.size == 1:
            return flag
        largest = torch.tensor(int(flag), dtype=torch.int32, device=self.device)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return bool(largest.item())

    def agree(self, value: Any) -> Any:
        """Rank 0's value, on every rank; it is pickled."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, device=self.device)
        return values[0]

    def copy_weights(self, module: nn.Module) -> None:
        """Give every rank rank 0's parameters and buffers."""
        if self.size > 1:
            with torch.no_grad():
                for value in module.state_dict().values():
                    received = value.contiguous()  # a copy where the tensor is not contiguous, so it is written back
                    dist.broadcast(received, src=0)
                    value.copy_(received)

    @contextlib.contextmanager
    def one_memory(self) -> Iterator[None]:
        """If one rank runs out of GPU memory in the block, all raise ``OutOfMemoryError`` at its end.

        A rank that raised alone would leave the others waiting for it. No rank may communicate inside the block.
        """
        failure = None
        try:
            yield
        except torch.cuda.OutOfMemoryError as error:
            failure = error
        try:
            if self.any(failure is not None):
                raise failure or torch.cuda.OutOfMemoryError("another process of this run is out of GPU memory")
        finally:
            failure = None  # its traceback holds this frame: the cycle would keep the block's tensors alive


def _all_reduce_gradients(parameters: list[nn.Parameter]) -> None:
    """Sum gradients of one dtype over ranks, in one all-reduce of all of them concatenated."""
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = torch.cat([grad.reshape(-1) for grad in grads])
    dist.all_reduce(flat)
    for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        parameter.grad = part.view_as(parameter).clone()  # a view would keep the whole buffer alive


SINGLE_PROCESS = World()


@contextlib.contextmanager
def join_process_group() -> Iterator[World]:
    """Join the processes that ``torchrun`` started (by its environment variables); without it, a world of size 1.

    NCCL where there are GPUs, one for each process of a machine, else gloo. Ranks other than 0 print nothing. A process
    can do this only once, because torchrun's rendezvous cannot be used again.

    Raises:
        RewindError: if a machine has more processes than GPUs.
    """
    size, rank, local = (int(os.environ.get(n, d)) for n, d in (("WORLD_SIZE", 1), ("RANK", 0), ("LOCAL_RANK", 0)))
    if size == 1:
        yield World()
        return
    device = _local_device(local)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo", rank=rank, world_size=size, timeout=COLLECTIVE_TIMEOUT
    )
    try:
        with contextlib.nullcontext() if rank == 0 else _silence_output():
            yield World(rank, size, device)
    finally:
        dist.destroy_process_group()


def _local_device(local: int) -> torch.device:
    if not torch.cuda.is_available():
        return CPU
    if local >= torch.cuda.device_count():
        raise RewindError(
            f"process {local + 1} of this machine has no GPU ({torch.cuda.device_count()} visible); "
            "start one process per GPU."
        )
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


@contextlib.contextmanager
def _silence_output() -> Iterator[None]:
    with (
        open(os.devnull, "w") as null,
        contextlib.redirect_stdout(null),
        contextlib.redirect_stderr(null),
    ):
        yield
