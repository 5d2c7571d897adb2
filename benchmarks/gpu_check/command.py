"""The list of checks, the options of ``rewind doctor --gpu``, and the file of figures."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gpu_check import correctness, speed
from gpu_check.check import (
    FAILED,
    Check,
    PlannedCheck,
    Session,
    format_check,
    format_summary,
    run_checks,
)
from rewind.errors import RewindError
from rewind.gpu import count_visible_gpus
from rewind.io.files import write_json
from rewind.platform import usable_cores
from rewind.provenance import environment, hardware
from rewind.registry import HEADS, LOSSES, SAMPLERS
from rewind.workflow.job import acquire_resources

_REMEDY = "`rewind doctor` lists what is missing. --device cpu shows on any machine that the checks run."


@dataclass(frozen=True)
class GpuCheckOptions:
    """Options of the command line."""

    device: str = "cuda"  # or `cpu`, to see that the checks run
    minutes: float = 10.0  # after which no further check is started
    demo: bool = False  # whether the demo is run
    json: Path | None = None  # file of figures


def planned_checks() -> list[PlannedCheck]:
    """All checks, the most important ones first; heads, losses and samplers are those that are registered.

    >>> names = [check.name for check in planned_checks()]
    >>> names[:3], names[-1]
    (['device', 'matrix product', 'head meanP'], 'demo')
    """
    heads, losses, samplers = HEADS.names(), LOSSES.names(), SAMPLERS.names()
    repeated = ("seqTransf", "seqLSTM", "tightTransf")
    adapted = correctness.ADAPTED_HEAD
    return [
        PlannedCheck("device", speed.check_device),
        PlannedCheck("matrix product", speed.check_matmul),
        *(PlannedCheck(f"head {name}", partial(correctness.check_head, head=name)) for name in heads),
        *(PlannedCheck(f"loss {name}", partial(correctness.check_loss, loss=name)) for name in losses),
        *(PlannedCheck(f"sampler {name}", partial(correctness.check_sampler, sampler=name)) for name in samplers),
        PlannedCheck("optimiser bert_adam", partial(correctness.check_optimiser, optimiser="bert_adam")),
        PlannedCheck("adapters", correctness.check_adapters),
        *(PlannedCheck(f"same bits, {name}", partial(correctness.check_determinism, head=name)) for name in repeated),
        PlannedCheck("same bits, adapters", partial(correctness.check_determinism, head=adapted, adapters=True)),
        *(PlannedCheck(f"in parts, {name}", partial(correctness.check_micro_batches, head=name)) for name in heads),
        PlannedCheck("in parts, adapters", partial(correctness.check_micro_batches, head=adapted, adapters=True)),
        PlannedCheck("two processes, one device", correctness.check_two_processes),
        PlannedCheck("NCCL", correctness.check_nccl),
        PlannedCheck("two GPUs", correctness.check_two_gpus),
        PlannedCheck("killed and resumed", correctness.check_kill),
        PlannedCheck("too little memory", correctness.check_memory),
        PlannedCheck("training step", speed.check_step),
        PlannedCheck("training step, compiled", partial(speed.check_step, compiled=True)),
        PlannedCheck("training step, open_clip's blocks", partial(speed.check_step, library_blocks=True)),
        PlannedCheck("training step, not deterministic", partial(speed.check_step, deterministic=False)),
        PlannedCheck("waiting for frames", speed.check_waiting),
        *(PlannedCheck(f"scoring, {name}", partial(speed.check_scoring, head=name)) for name in heads),
        PlannedCheck("demo", speed.check_demo),
    ]


def check_gpu(options: GpuCheckOptions, planned: Sequence[PlannedCheck] | None = None) -> int:
    """Run the checks, print a line for each and a summary, and return the exit code: 1 if any has failed.

    Raises:
        RewindError: where ``device`` is ``cuda`` and there is no GPU, or torch sees none.
    """
    if options.device == "cuda" and not count_visible_gpus():
        raise RewindError(f"there is no GPU here: {_REMEDY}")
    planned = planned_checks() if planned is None else planned
    # As in a job: leased, TF32, a fixed workspace of cuBLAS. A second GPU, where there is one, for NCCL.
    gpus = 2 if options.device == "cuda" else 0
    with acquire_resources(usable_cores(), gpus, False), tempfile.TemporaryDirectory() as folder:
        if options.device == "cuda" and not torch.cuda.is_available():
            raise RewindError(f"there is a GPU, but torch does not see it: {_REMEDY}")
        sizes = speed.ON_GPU if options.device == "cuda" else speed.ON_CPU
        session = Session(torch.device(options.device), Path(folder), sizes, options.demo)
        width = max(len(plan.name) for plan in planned)
        checks = run_checks(
            planned, session, options.minutes, lambda check: print(format_check(check, width), flush=True)
        )
        if options.json is not None:
            write_json(options.json, figures_record(checks, session.device))
    print(f"\n{format_summary(checks)}")
    if options.json is not None:
        print(f"all figures: {options.json}")
    return int(any(check.state == FAILED for check in checks))


def figures_record(checks: Sequence[Check], device: torch.device) -> dict[str, Any]:
    """What the file of figures holds: machine, versions and commit as in ``run.json``, and every check.

    >>> record = figures_record([Check(True, {"GB": 80.0}, name="device")], torch.device("cpu"))
    >>> record["device"], record["checks"][0]["state"], record["checks"][0]["figures"]
    ('cpu', 'ok', {'GB': 80.0})
    """
    return {
        "device": str(device),
        "checks": [asdict(check) | {"state": check.state} for check in checks],
        "hardware": hardware(),
        **environment(),
    }
