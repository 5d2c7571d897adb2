"""Whether a device computes what the CPU computes, twice the same, in parts, in processes, after a kill, out of memory.

Everything is computed with tiny towers (``config/models/tiny.json``), random weights and made-up frames.

Errors of gradients are relative, of the tensor in which they are largest: ``‖g − g'‖ / max(‖g'‖, ‖g*‖ / 1000)``, where
g* is the tensor with the largest norm. (Without the second term a gradient that is zero but for rounding, such as that
of an attention's key biases, would count as wrong.)
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import signal
import socket
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist
from torch import nn

from gpu_check.check import CannotRun, Check, Session
from rewind.config import Backbone, Method, Text, Training
from rewind.config.training import TWINS, Batch, Lora
from rewind.data.annotations import TWIN_SUFFIX
from rewind.distributed import SINGLE_PROCESS, World, join_process_group
from rewind.errors import RewindError
from rewind.loading.hard_negatives import negatives_of_twins
from rewind.loading.run_data import TrainingData
from rewind.losses.base import make_loss, make_objective
from rewind.models.checkpoint import save_model
from rewind.models.clip4clip import Clip4Clip
from rewind.models.registry import build_model
from rewind.models.retriever import Features
from rewind.packaged import workflow_home
from rewind.registry import HEADS
from rewind.torch_setup import seed_everything
from rewind.training.checkpoint import StateFile
from rewind.training.grad_cache import MicroBatch, exact_step
from rewind.training.loop import train_model, training_step
from rewind.training.samplers.base import make_sampler
from rewind.training.step_time import Stepper

CPU = torch.device("cpu")
Gradients = dict[str, torch.Tensor]

# ---- Made-up data and tiny models ----------------------------------------------------------------------------------

CAPTIONS = [
    f"a {colour} {shape} moves {way}" + " again" * (len(way) % 3)
    for colour in ("red", "blue")
    for shape in ("ring", "star")
    for way in ("up", "down", "in", "out")
]
FRAMES, SIZE = 4, 32
BATCH = 8


class MadeUpClips:
    """Clips of random pixels: ``pixels`` uint8 (n, T, 3, S, S) and ``mask`` (n, T).

    With ``padded`` every third clip has only half of the frames.

    >>> batch = MadeUpClips(3, frames=4, size=8, padded=True).batch(np.arange(2))
    >>> batch["pixels"].shape, batch["mask"].tolist()
    (torch.Size([2, 4, 3, 8, 8]), [[1, 1, 0, 0], [1, 1, 1, 1]])
    """

    copies = True

    def __init__(self, count: int, frames: int, size: int, padded: bool = False) -> None:
        draw = torch.Generator().manual_seed(1)
        self.pixels = torch.randint(0, 256, (count, frames, 3, size, size), generator=draw, dtype=torch.uint8)
        self.mask = torch.ones(count, frames, dtype=torch.uint8)
        if padded:
            self.mask[::3, frames // 2 :] = 0

    def __len__(self) -> int:
        return len(self.pixels)

    def batch(self, rows: np.ndarray) -> Features:
        """Some clips by their row number."""
        at = torch.as_tensor(rows)
        return {"pixels": self.pixels[at], "mask": self.mask[at]}


def tiny_model(head: str, adapters: bool = False) -> Clip4Clip:
    """A retriever with tiny towers and random weights, the same at every call; adapters as in ``training.lora``.

    Raises:
        CannotRun: for a head that cannot be built without options.
    """
    seed_everything(0)
    towers = Backbone(architecture=str(workflow_home() / "config/models/tiny.json"))
    try:
        keys = Training(lora=Lora(rank=2) if adapters else None)
        method = Method(head=head, head_layers=2, head_start="random", training=keys)
        model = build_model(method, towers, Text(tokenizer="words", max_words=12), CAPTIONS)
    except RewindError as error:
        raise CannotRun(str(error)) from error
    assert isinstance(model, Clip4Clip)
    return model


def tiny_data(model: Clip4Clip, opposed: bool = False) -> TrainingData:
    """16 captions of 8 clips, two for each; clip 1 is the twin of clip 0, and so on.

    With ``opposed`` captions of twins are hard negatives.
    """
    count = len(CAPTIONS) // 2
    names = [f"clip{n // 2}{TWIN_SUFFIX if n % 2 else ''}" for n in range(count)]
    captions = pd.DataFrame({"video_id": np.repeat(names, 2), "caption": CAPTIONS})
    text = model.backbone.prepare_text(CAPTIONS)
    return TrainingData(
        inputs=MadeUpClips(count, FRAMES, SIZE, padded=True),
        text=text,
        item_of_caption=np.arange(len(CAPTIONS)) // 2,
        cluster_of_item=np.arange(count) // 2,
        caption_ids=[f"caption{n}" for n in range(len(CAPTIONS))],
        captions=CAPTIONS,
        hard_negatives=negatives_of_twins(pd.DataFrame({"item_id": names}), captions, text) if opposed else None,
        reversed_items=np.arange(count) % 2 == 1,
    )


def gradient_error(found: Gradients, wanted: Gradients) -> float:
    """The largest relative error of a tensor, as this module's text defines it; infinite if one is missing.

    >>> wanted = {"weight": torch.tensor([3.0, 4.0]), "bias": torch.tensor([0.0])}
    >>> round(gradient_error({"weight": torch.tensor([3.0, 4.5]), "bias": torch.tensor([1e-9])}, wanted), 6)
    0.1
    """
    if found.keys() != wanted.keys() or not wanted:
        return float("inf")
    largest = max(value.norm() for value in wanted.values())
    errors = [(found[name] - value).norm() / max(value.norm(), largest / 1000) for name, value in wanted.items()]
    # torch's max lets a NaN through, which Python's would hide.
    return torch.stack(errors).max().item()


def gradients_of(model: nn.Module) -> Gradients:
    """Gradients on the CPU in double precision."""
    return {name: p.grad.detach().cpu().double() for name, p in model.named_parameters() if p.grad is not None}


# ---- A training step against the CPU's -----------------------------------------------------------------------------

LOSS_BOUND, GRADIENT_BOUND, LATER_BOUND, HALF_BOUND = 1e-5, 1e-3, 1e-3, 0.05
"""Bounds of relative differences: loss and gradients in float32; losses after an update (Adam divides a gradient by its
own size, so that where it is only rounding its sign decides the update); the loss in half precision against float32."""

LOSS_OPTIONS: dict[str, dict[str, Any]] = {
    "multi_positive": {"queue": [8, 16], "queue_from": 1, "hard_negatives": 3, "cross_batch": 2},
}
"""Options with which a loss keeps memory of its own on the device; losses that are not listed have their defaults."""
LOSS_KEYS: dict[str, dict[str, Any]] = {
    "negclip": {"hard_negatives": TWINS},
    "ceclip": {"hard_negatives": TWINS},
    "tact": {"batch": Batch(size=BATCH, twins_together=True)},
    "tara": {"hard_negatives": TWINS, "batch": Batch(size=BATCH, sampler="pk")},
}
"""What else a loss needs of a study."""
SAMPLER_OPTIONS: dict[str, dict[str, Any]] = {"topical": {"clusters": 4, "refresh_every": 1}}
"""Options that suit 16 captions."""


@dataclass(frozen=True)
class StepCase:
    """A head with a loss, the loss's options, an optimiser, and perhaps adapters in the towers."""

    head: str
    objective: str = "infonce"
    options: dict[str, Any] = field(default_factory=dict)
    optimiser: Literal["adamw", "bert_adam"] = "adamw"
    adapters: bool = False


@dataclass
class Steps:
    """Losses of some steps, and the gradients of the first, by parameter."""

    losses: list[float]
    gradients: Gradients


def take_steps(case: StepCase, device: torch.device, precision: str) -> Steps:
    """Four training steps from the same weights and batches on any device, without dropout."""
    model = tiny_model(case.head, case.adapters)
    common = {"lr": 1e-3, "backbone_lr_multiplier": 1.0, "clip_norm": None, "micro_batch": None}
    own = {"optimiser": case.optimiser, "precision": precision, "objective_options": case.options}
    keys = _loss_training(case.objective, common | own)
    data = tiny_data(model, opposed=keys.hard_negatives is not None)
    stepper = Stepper(model, data, keys, device)
    stepper.objective.start_epoch(1, model)  # what a loss adds after its first epoch (a queue) is to take part
    _stop_dropout(model)
    steps = Steps([], {})
    for epoch in range(2):
        drawn = None if data.hard_negatives is None else data.hard_negatives.draw(0, epoch)
        sampler = make_sampler(keys.batch)
        for rows in sampler.batches(data.item_of_caption, data.cluster_of_item, keys.batch, 0, epoch, {}):
            batch = data.batch(rows if drawn is None else np.stack([rows, drawn[rows]]))
            steps.losses.append(training_step(stepper, batch, keys).value)
            steps.gradients = steps.gradients or gradients_of(model)
            stepper.schedule.step()
    return steps


def _loss_training(loss: str, keys: dict[str, Any]) -> Training:
    return Training.model_validate({"objective": loss, "batch": Batch(size=BATCH)} | keys | LOSS_KEYS.get(loss, {}))


def _stop_dropout(model: nn.Module) -> None:
    """Devices draw different numbers. Recurrent layers stay in training mode: cuDNN has their gradient only there."""
    for module in model.modules():
        module.training = isinstance(module, nn.RNNBase)


@contextlib.contextmanager
def full_float32() -> Iterator[None]:
    """Inside the block, float32 products on a GPU keep all bits (jobs round their factors to TF32)."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def check_head(session: Session, head: str) -> Check:
    """A head's training step on the device, compared with the CPU's."""
    return compare_steps(session, StepCase(head))


ADAPTED_HEAD = "seqTransf"


def check_adapters(session: Session) -> Check:
    """Training steps of adapters on the device, compared with the CPU's."""
    return compare_steps(session, StepCase(ADAPTED_HEAD, adapters=True))


def check_optimiser(session: Session, optimiser: Literal["adamw", "bert_adam"]) -> Check:
    """An optimiser's training steps on the device, compared with the CPU's."""
    return compare_steps(session, StepCase("meanP", optimiser=optimiser))


def check_loss(session: Session, loss: str) -> Check:
    """A loss's training step on the device, compared with the CPU's, with the first head that it takes."""
    options = LOSS_OPTIONS.get(loss, {})
    keys = _loss_training(loss, {"objective_options": options})
    objective, reasons = make_objective(keys), []
    for head in HEADS.names():
        try:
            objective.check(tiny_model(head).eval(), keys)
        except RewindError as error:
            reasons.append(str(error))
            continue
        return compare_steps(session, StepCase(head, loss, options))
    raise CannotRun(reasons[0])


def compare_steps(session: Session, case: StepCase) -> Check:
    """Losses and gradients of a case in float32, and the loss in half precision, compared with the CPU's float32."""
    wanted = take_steps(case, CPU, "fp32")
    with full_float32():
        found = take_steps(case, session.device, "fp32")
    figures = {
        "loss": _relative(found.losses[0], wanted.losses[0]),
        "gradients": gradient_error(found.gradients, wanted.gradients),
        "later losses": max(map(_relative, found.losses[1:], wanted.losses[1:])),
    }
    bounds = dict(zip(figures, (LOSS_BOUND, GRADIENT_BOUND, LATER_BOUND), strict=True))
    said = f"{case.head}, {case.objective}, {case.optimiser}{', adapters' if case.adapters else ''}"
    # TF32 is how jobs compute float32 on a GPU; fp16 scales the loss, which torch does only on GPUs.
    precisions = {"TF32": "fp32", "fp16": "fp16"} if session.on_gpu else {}
    if has_bf16(session.device):
        precisions["bf16"] = "bf16"
    else:
        said += "; this device has no bf16"
    for name, precision in precisions.items():
        rounded = take_steps(case, session.device, precision)
        figures[f"{name} loss"] = _relative(rounded.losses[0], wanted.losses[0])
        bounds[f"{name} loss"] = HALF_BOUND
    wrong = [
        f"{name} differs by {figures[name]:.1e} (bound {bounds[name]:g})"
        for name in figures
        if not figures[name] <= bounds[name]  # a NaN is wrong too
    ]
    return Check(not wrong, figures, "; ".join([*wrong, said]))


def _relative(found: float, wanted: float) -> float:
    return abs(found - wanted) / abs(wanted)


def has_bf16(device: torch.device) -> bool:
    """Whether the device computes in bf16 itself; the CPU does, slowly."""
    return device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)


# ---- A sampler's order, from vectors of the device -----------------------------------------------------------------


def check_sampler(session: Session, sampler: str) -> Check:
    """Two epochs with a sampler: the order of captions and the losses, compared with the CPU's.

    A sampler that forms its batches again from vectors of the model (``topical``) may order captions differently where
    these are rounded differently, so that the first epoch decides; the share of equal batches is a figure.
    """
    batch = Batch(size=BATCH, sampler=sampler, sampler_options=SAMPLER_OPTIONS.get(sampler, {}))
    keys = Training(epochs=2, lr=1e-4, backbone_lr_multiplier=1.0, batch=batch, micro_batch=None, keep="last")
    with full_float32():
        wanted, found = (_train_in_order(keys, device) for device in (CPU, session.device))
    half = len(wanted[0]) // 2
    alike = [np.array_equal(a, b) for a, b in zip(wanted[0], found[0], strict=True)]
    figures = {"loss": _relative(found[1][0], wanted[1][0]), "batches alike": sum(alike) / len(alike)}
    wrong = [] if all(alike[:half]) else ["the first epoch has another order"]
    wrong += [] if figures["loss"] <= LATER_BOUND else [f"loss differs by {figures['loss']:.1e}"]
    return Check(not wrong, figures, "; ".join(wrong))


def _train_in_order(keys: Training, device: torch.device) -> tuple[list[np.ndarray], list[float]]:
    model = tiny_model("meanP")
    data, seen = tiny_data(model), []
    made = data.batch

    def watched(rows: np.ndarray) -> Features:
        seen.append(rows)
        return made(rows)

    data.batch = watched  # type: ignore[method-assign] # only of this object
    seed_everything(0)
    with tempfile_state() as state:
        history = train_model(model, data, keys, 0, device, _no_scores, state, "sampler")
    return seen, [row["loss"] for row in history]


@contextlib.contextmanager
def tempfile_state() -> Iterator[StateFile]:
    """A training state that is gone after the block."""
    with tempfile.TemporaryDirectory() as folder:
        yield StateFile(Path(folder) / "state.pt", "gpu check")


def _no_scores(retriever: Any) -> dict[str, float]:
    """A validation that prefers no weights; ``keep: last`` keeps the last ones."""
    return {"valid_sum": 0.0}


# ---- The same bits twice -------------------------------------------------------------------------------------------


def check_determinism(session: Session, head: str, adapters: bool = False) -> Check:
    """Two trainings of a head with dropout, ``training.deterministic``: the same bits, and what torch warns about."""
    precision = "bf16" if has_bf16(session.device) else "fp32"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first, second = (train_weights(session.device, head, precision, adapters) for _ in range(2))
    differ = [name for name, value in first.items() if not torch.equal(value, second[name])]
    lacking = sorted({str(w.message).split()[0] for w in caught if "does not have a deterministic" in str(w.message)})
    detail = f"{len(differ)} of {len(first)} tensors differ, first {differ[0]}" if differ else precision
    if lacking:
        detail += f"; without a deterministic kernel: {', '.join(lacking)}"
    return Check(not differ, {"tensors": len(first)}, detail)


def train_weights(device: torch.device, head: str, precision: str, adapters: bool = False) -> Gradients:
    """Weights on the CPU after a short deterministic training with micro-batches."""
    model = tiny_model(head, adapters)
    keys = short_training(precision)
    seed_everything(3, keys.deterministic)
    with tempfile_state() as state:
        train_model(model, tiny_data(model), keys, 3, device, _no_scores, state, "determinism")
    return {name: value.detach().cpu() for name, value in model.state_dict().items()}


def short_training(precision: str) -> Training:
    """Keys of eight steps with micro-batches of 3, saved after every step."""
    return Training(
        epochs=4,
        lr=1e-3,
        backbone_lr_multiplier=1.0,
        batch=Batch(size=BATCH),
        precision=precision,  # type: ignore[arg-type] # one of the key's words
        micro_batch=3,
        save_every_steps=1,
        deterministic=True,
        keep="last",
    )


# ---- Parts of a batch, and processes -------------------------------------------------------------------------------

EXACT_BOUND = 1e-9
"""Bound of relative differences in float64 between a batch at once and in parts."""
PROCESS_SECONDS = 180


def step_in_parts(
    head: str, device: torch.device, rows: int | None, world: World = SINGLE_PROCESS, adapters: bool = False
) -> Steps:
    """One exact step of all captions in float64, dropout of the head included, ``rows`` encoded at once."""
    model = tiny_model(head, adapters).double().to(device).train()
    data = tiny_data(model)
    batch = data.batch(np.arange(len(CAPTIONS))[world.share(len(CAPTIONS))])
    torch.manual_seed(7)
    loss = exact_step(
        model, make_loss("infonce"), {name: value.to(device) for name, value in batch.items()}, rows, world=world
    )
    return Steps([loss.value], gradients_of(model))


def check_micro_batches(session: Session, head: str, adapters: bool = False) -> Check:
    """Loss and gradients of a batch in parts of 3, compared with those of the whole batch, in float64."""
    whole, parts = (step_in_parts(head, session.device, rows, adapters=adapters) for rows in (None, 3))
    return _compare_exactly({head: parts}, {head: whole}, "float64, parts of 3 of 16 pairs")


def _compare_exactly(found: dict[str, Steps], wanted: dict[str, Steps], said: str) -> Check:
    """The larger error of loss and gradients by head, each within :data:`EXACT_BOUND`."""
    figures = {
        head: max(
            _relative(steps.losses[0], wanted[head].losses[0]),
            gradient_error(steps.gradients, wanted[head].gradients),
        )
        for head, steps in found.items()
    }
    wrong = [
        f"{head} differs by {error:.1e} (bound {EXACT_BOUND:g})"
        for head, error in figures.items()
        if not error <= EXACT_BOUND
    ]
    return Check(not wrong, figures, "; ".join(wrong) or said)


def check_two_processes(session: Session) -> Check:
    """Two processes on one device, which exchange through gloo, compared with one process."""
    if not dist.is_gloo_available():
        raise CannotRun("torch was built without gloo")
    return _compare_processes(session, "gloo")


def check_two_gpus(session: Session) -> Check:
    """Two processes with a GPU each, which exchange through NCCL, compared with one process."""
    if not session.on_gpu or torch.cuda.device_count() < 2:
        raise CannotRun("there is no second GPU")
    if not dist.is_nccl_available():
        raise CannotRun("torch was built without NCCL")
    return _compare_processes(session, "nccl")


def _compare_processes(session: Session, backend: str) -> Check:
    out = session.folder / f"{backend}.pt"
    start_processes(step_of_rank, 2, (str(session.device), backend, _free_port(), out), session.folder)
    found: dict[str, Steps] = torch.load(out, weights_only=False)  # written by our own process
    whole = {head: step_in_parts(head, session.device, None) for head in found}
    return _compare_exactly(found, whole, f"float64, {backend}, parts of 3 of 16 pairs")


def step_of_rank(rank: int, size: int, device: str, backend: str, port: int, out: Path) -> None:
    """In a process of its own: this rank's share of the step, with every head; rank 0 writes what all agree on."""
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in variables.items()}
    with join_process_group() if backend == "nccl" else _join_through_gloo(rank, size, torch.device(device)) as world:
        found = {head: step_in_parts(head, world.device, 3, world) for head in HEADS.names()}
    if rank == 0:
        torch.save(found, out)


@contextlib.contextmanager
def _join_through_gloo(rank: int, size: int, device: torch.device) -> Iterator[World]:
    """Jobs give every process a GPU of its own; here several share one, which NCCL refuses."""
    dist.init_process_group("gloo", rank=rank, world_size=size)
    try:
        yield World(rank, size, device)
    finally:
        dist.destroy_process_group()


def check_nccl(session: Session) -> Check:
    """NCCL with one process: it starts, and does what :class:`rewind.distributed.World` asks of it."""
    if not session.on_gpu:
        raise CannotRun("NCCL needs a GPU")
    if not dist.is_nccl_available():
        raise CannotRun("torch was built without NCCL")
    start_processes(reduce_through_nccl, 1, (_free_port(),), session.folder)
    return Check(True, detail=f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}, one process")


def reduce_through_nccl(rank: int, size: int, port: int) -> None:
    """In a process of its own: the collective calls of a training step, with their results compared."""
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    try:
        given = torch.arange(6.0, device="cuda")
        summed, gathered, largest = given.clone(), [torch.empty_like(given)], torch.tensor(1, device="cuda")
        dist.all_reduce(summed)
        dist.all_gather(gathered, given)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        objects = [{"epoch": 3}]
        dist.broadcast_object_list(objects, src=0, device=torch.device("cuda"))
        same = torch.equal(summed, given) and torch.equal(gathered[0], given) and largest.item() == 1
        if not same or objects != [{"epoch": 3}]:
            raise RuntimeError(f"NCCL gave {summed.tolist()} for {given.tolist()}")
    finally:
        dist.destroy_process_group()


def start_processes(
    work: Callable[..., None],
    count: int,
    arguments: tuple[Any, ...],
    folder: Path,
    expected: tuple[int, ...] = (0,),
) -> None:
    """Run ``work(rank, count, *arguments)`` in ``count`` new processes, and wait for them.

    ``work`` is a module-level function, and its arguments are pickled; ``folder`` is for what the processes print,
    ``expected`` are exit codes that are right.

    Raises:
        CannotRun: where a new process sees no GPU although this one does.
        RewindError: if one fails or takes longer than :data:`PROCESS_SECONDS`; with its last line.
    """
    context = multiprocessing.get_context("spawn")
    needs_gpu = torch.cuda.is_available()
    logs = [folder / f"{work.__name__}{rank}.log" for rank in range(count)]
    processes = [
        # daemon: they end with this process, also after Ctrl-C.
        context.Process(target=_work_into_log, args=(work, rank, count, arguments, logs[rank], needs_gpu), daemon=True)
        for rank in range(count)
    ]
    for process in processes:
        process.start()
    end = time.monotonic() + PROCESS_SECONDS
    # The others wait for one that failed, and would never end.
    while any(p.exitcode is None for p in processes) and all(p.exitcode in (None, *expected) for p in processes):
        if time.monotonic() > end:
            break
        time.sleep(0.05)
    late = [process for process in processes if process.is_alive()]
    for process in late:
        process.kill()
        process.join()
    codes = [None if process in late else process.exitcode for process in processes]
    if NO_GPU in codes:
        raise CannotRun("a newly started process sees no GPU")
    for code, log in zip(codes, logs, strict=True):
        if code not in (None, *expected):
            lines = log.read_text(encoding="utf-8").strip().splitlines() if log.is_file() else []
            raise RewindError(f"{work.__name__} ended with exit code {code}: {lines[-1] if lines else 'no message'}")
    if late:
        raise RewindError(f"{work.__name__}: no end after {PROCESS_SECONDS} s; they wait for each other, or for a GPU.")


NO_GPU = 77  # exit code of a process that sees no GPU


def _work_into_log(
    work: Callable[..., None], rank: int, count: int, arguments: tuple[Any, ...], log: Path, needs_gpu: bool
) -> None:
    if needs_gpu and not torch.cuda.is_available():
        raise SystemExit(NO_GPU)
    torch.set_num_threads(1)
    with (
        log.open("w", encoding="utf-8") as stream,
        contextlib.redirect_stdout(stream),
        contextlib.redirect_stderr(stream),
    ):
        try:
            work(rank, count, *arguments)
        except Exception:
            stream.write(traceback.format_exc())
            stream.flush()
            raise SystemExit(1) from None


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


# ---- A run that is killed ------------------------------------------------------------------------------------------


class KilledState(StateFile):
    """Kills its process as the ``at``-th state is to be saved: the step before it is lost."""

    def __init__(self, path: Path, at: int) -> None:
        super().__init__(path, "gpu check")
        self.left = at

    def save(self, state: dict[str, Any]) -> None:
        """Save, or end the process."""
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        super().save(state)


def check_kill(session: Session) -> Check:
    """A run that is killed in its sixth step (SIGKILL) and started again, compared with one that nobody disturbed."""
    precision = "bf16" if has_bf16(session.device) else "fp32"
    run = partial(_run_process, session, "tightTransf", precision)
    killed, unbroken = session.folder / "killed.safetensors", session.folder / "unbroken.safetensors"
    run(killed, at=6, expected=(-signal.SIGKILL,))
    if killed.exists() or not killed.with_suffix(".pt").is_file():
        return Check(False, detail="the killed run left no state, or finished")
    said = run(killed, at=0)
    run(unbroken, at=0)
    resumed = next((line for line in said.splitlines() if line.startswith("resumed after epoch")), "")
    if not resumed:
        return Check(False, detail="the second start did not go on from the state")
    same = killed.read_bytes() == unbroken.read_bytes()
    return Check(same, detail=f"{resumed}; {precision}; {'same bits' if same else 'other bits'} at the end")


def _run_process(
    session: Session, head: str, precision: str, model: Path, at: int, expected: tuple[int, ...] = (0,)
) -> str:
    arguments = (str(session.device), head, precision, model, at)
    start_processes(train_in_process, 1, arguments, session.folder, expected)
    return (session.folder / "train_in_process0.log").read_text(encoding="utf-8")


def train_in_process(rank: int, size: int, device: str, head: str, precision: str, model: Path, at: int) -> None:
    """In a process of its own: a short run, whose weights go to a file; it is killed at its ``at``-th save, if any."""
    retriever, keys = tiny_model(head), short_training(precision)
    seed_everything(3, keys.deterministic)
    state = KilledState(model.with_suffix(".pt"), at)
    train_model(retriever, tiny_data(retriever), keys, 3, torch.device(device), _no_scores, state, "run")
    save_model(model, retriever, {"method": head})


# ---- Too little memory ---------------------------------------------------------------------------------------------


def check_memory(session: Session) -> Check:
    """A batch too large for the memory that torch may use is encoded in parts, prints that, and gives its loss."""
    if not session.on_gpu:
        raise CannotRun("a CPU's memory is not limited")
    count = session.sizes.memory_clips
    model, objective = tiny_model("meanP").to(session.device).train(), make_loss("infonce")
    text = model.backbone.prepare_text(CAPTIONS).repeat(count // len(CAPTIONS) + 1, 1)[:count]
    clips = MadeUpClips(count, 3 * FRAMES, SIZE).batch(np.arange(count))
    batch = {"text": text, **clips, "items": torch.arange(count), "rows": torch.arange(count)}
    batch = {name: value.to(session.device) for name, value in batch.items()}

    def step(rows: int | None, pairs: int | None = None) -> float:
        return exact_step(model, objective, batch, rows, pairs=pairs).value

    step(16)  # what libraries allocate once
    (whole, at_once), (_, in_parts) = (_reserved_by(partial(step, rows)) for rows in (None, count // 4))
    if not at_once > 1.1 * in_parts:
        raise CannotRun(f"the whole batch takes {at_once / 1e9:.2f} GB, parts {in_parts / 1e9:.2f} GB: too similar")
    total = torch.cuda.get_device_properties(session.device).total_memory
    micro_batch, said = MicroBatch("auto"), io.StringIO()
    torch.cuda.set_per_process_memory_fraction((at_once + in_parts) / 2 / total)
    try:
        with contextlib.redirect_stdout(said):
            value = micro_batch.run(step, count, session.device)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    figures = {
        "GB at once": at_once / 1e9,
        "GB allowed": (at_once + in_parts) / 2e9,
        "rows at once": float(micro_batch.rows or count),
        "loss": _relative(value, whole),
    }
    wrong = [] if micro_batch.rows else ["nothing was halved: memory was not limited"]
    wrong += [] if "do not fit into GPU memory" in said.getvalue() else ["it does not say that it encodes fewer rows"]
    wrong += [] if figures["loss"] <= LOSS_BOUND * 100 else [f"the loss differs by {figures['loss']:.1e}"]
    return Check(not wrong, figures, "; ".join(wrong) or f"{count} clips of 12 frames")


def _reserved_by(step: Callable[[], float]) -> tuple[float, int]:
    """A step's loss, and the bytes that torch held for it at most."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    value = step()
    torch.cuda.synchronize()
    return value, torch.cuda.max_memory_reserved()
