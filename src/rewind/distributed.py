"""Several processes as one: each encodes its share of the global batch, all see its features and its gradients."""

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
PATIENCE = timedelta(hours=6)  # the other ranks wait while rank 0 validates


@dataclass(frozen=True)
class World:
    """The processes of one run; with ``size`` 1 nothing is sent.

    Attributes:
        rank: this process, from 0; rank 0 writes files and validates.
        size: number of processes.
        device: where this process computes.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = CPU

    def share(self, rows: int) -> slice:
        """This rank's rows of a global batch of ``rows``: consecutive, as many as any other rank's.

        Raises:
            RewindError: if the processes cannot have equal shares.
        """
        if rows % self.size:
            raise RewindError(
                f"a global batch of {rows} rows cannot be divided equally among {self.size} processes: "
                "set training.batch.size to a multiple of that number, or use fewer GPUs."
            )
        each = rows // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    def gather(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Rows of all ranks in their order: (n, ...) of each → (size · n, ...). No gradient flows back."""
        return {name: self._gather(value.detach()) for name, value in features.items()}

    def _gather(self, value: Tensor) -> Tensor:
        if self.size == 1:
            return value
        parts = [torch.empty_like(value, memory_format=torch.contiguous_format) for _ in range(self.size)]
        dist.all_gather(parts, value.contiguous())
        return torch.cat(parts)

    def sum(self, value: Tensor) -> Tensor:
        """The sum over ranks of a tensor of one shape."""
        if self.size == 1:
            return value
        total = value.contiguous().clone()
        dist.all_reduce(total)
        return total

    def sum_gradients(self, module: nn.Module) -> None:
        """Replace every ``.grad`` by the sum over ranks; what no rank has a gradient of keeps none."""
        if self.size == 1:
            return
        parameters = [p for p in module.parameters() if p.requires_grad]
        used = torch.tensor([p.grad is not None for p in parameters], dtype=torch.int32, device=self.device)
        dist.all_reduce(used, dist.ReduceOp.MAX)
        parameters = [p for p, some in zip(parameters, used.tolist(), strict=True) if some]
        for kind in sorted({p.dtype for p in parameters}, key=str):
            _sum([p for p in parameters if p.dtype == kind])

    def any(self, flag: bool) -> bool:
        """Whether the flag is up on some rank."""
        if self.size == 1:
            return flag
        raised = torch.tensor(int(flag), dtype=torch.int32, device=self.device)
        dist.all_reduce(raised, dist.ReduceOp.MAX)
        return bool(raised.item())

    def agree(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    def copy_weights(self, module: nn.Module) -> None:
        """Give every rank rank 0's parameters and buffers."""
        if self.size > 1:
            with torch.no_grad():
                for value in module.state_dict().values():
                    whole = value.contiguous()
                    dist.broadcast(whole, src=0)
                    value.copy_(whole)

    @contextlib.contextmanager
    def one_memory(self) -> Iterator[None]:
        """Where one rank runs out of GPU memory, all raise ``OutOfMemoryError`` at the block's end.

        A rank that gave up alone would leave the others waiting for it. No rank may communicate inside the block.
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


def _sum(parameters: list[nn.Parameter]) -> None:
    """One all-reduce of all gradients laid end to end."""
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = torch.cat([grad.reshape(-1) for grad in grads])
    dist.all_reduce(flat)
    for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        parameter.grad = part.view_as(parameter).clone()


ALONE = World()


@contextlib.contextmanager
def joined() -> Iterator[World]:
    """Join the processes that ``torchrun`` started (by its environment variables); alone without it.

    NCCL where there are GPUs, one for each process of a machine, else gloo. Ranks other than 0 print nothing.
    Once in the life of a process: torchrun's meeting place cannot be used again.

    Raises:
        RewindError: if a machine has more processes than GPUs.
    """
    size, rank, local = (int(os.environ.get(n, d)) for n, d in (("WORLD_SIZE", 1), ("RANK", 0), ("LOCAL_RANK", 0)))
    if size == 1:
        yield World()
        return
    device = _own_device(local)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", rank=rank, world_size=size, timeout=PATIENCE)
    try:
        with contextlib.nullcontext() if rank == 0 else _silence():
            yield World(rank, size, device)
    finally:
        dist.destroy_process_group()


def _own_device(local: int) -> torch.device:
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
def _silence() -> Iterator[None]:
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        yield
