"""Starts one process per granted GPU: torchrun inside a job, through its Python interface."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVarTuple

import torch

from rewind.errors import RewindError
from rewind.torch_setup import set_deterministic
from rewind.workflow.job import exit_on_error, tee_output

Arguments = TypeVarTuple("Arguments")


def run_on_all_gpus(
    work: Callable[[*Arguments], Any],
    *arguments: *Arguments,
    log: str | os.PathLike[str],
    processes: int | None = None,
) -> None:
    """Run ``work(*arguments)`` here, or, where the job was granted several GPUs, in one process for each.

    The processes find one another by torchrun's environment variables, see
    :func:`rewind.distributed.join_process_group`. All append to this job's log, where ranks other than 0 only report
    failures. If one fails, the others are ended and :class:`RewindError` is raised.

    Args:
        work: a module-level function, and ``arguments`` for it: both are pickled.
        processes: their number; None: that of the visible GPUs.
    """
    count = torch.cuda.device_count() if processes is None else processes
    if count <= 1:
        work(*arguments)
        return
    # Late: most jobs use one GPU and never need them.
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    print(f"{count} GPUs: {count} processes share every batch")
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",  # port 0: any that is free, since other jobs may run here
        max_restarts=0,
        start_method="spawn",  # CUDA cannot be used in a process that was forked after it started
    )
    threads = max(1, torch.get_num_threads() // count)  # more busy threads than cores slow a step down many times
    try:
        elastic_launch(config, _worker_process)(work, arguments, str(log), threads, os.getpid())
    except ChildFailedError as error:
        rank, failure = next(iter(error.failures.items()))
        raise RewindError(
            f"process {rank} of {count} ended with exit code {failure.exitcode}; its messages are above. The "
            "last saved state is kept."
        ) from None


def _worker_process(work: Callable[..., Any], arguments: tuple[Any, ...], log: str, threads: int, parent: int) -> None:
    _kill_with_parent(parent)
    set_deterministic(threads)
    with Path(log).open("a", encoding="utf-8") as stream, tee_output(stream), exit_on_error():
        work(*arguments)


def _kill_with_parent(parent: int) -> None:
    """End this process when the job's main process is killed with SIGKILL: nothing else would free its GPU."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG
        if os.getppid() != parent:  # the parent died before the line above took effect
            os._exit(1)
