"""The exact global batch in bounded memory (GradCache; Gao et al., 2021): gradients are cached through the features.

Encode micro-batches without gradient; take the loss on the features of the whole global batch and its gradient with
respect to them; encode each micro-batch again and continue that gradient into the towers. Loss and gradients are those
of the whole batch at once, with any micro-batch and any number of processes; plain accumulation of gradients is not
(each part would see only its own negatives).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from rewind.distributed import ALONE, World
from rewind.errors import RewindError
from rewind.models.retriever import Features, Retriever, concatenate
from rewind.objectives.interface import Loss, Objective
from rewind.training.pairs import SharedPairs

INPUTS = ("pixels", "frames")  # entries of a batch that stay on their rank: large, and only encoders read them
REDUCED = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class StepLoss:
    """A step's loss and what it logs, as plain numbers; the same on every process."""

    value: float
    logs: dict[str, float]


def exact_step(
    retriever: Retriever,
    objective: Objective,
    batch: Features,
    micro_batch: int | None = None,
    *,
    pairs: int | None = None,
    precision: str = "fp32",
    scaler: torch.amp.GradScaler | None = None,
    world: World = ALONE,
) -> StepLoss:
    """The loss of a global batch, with its gradients left in ``.grad`` (whatever was there is dropped).

    Args:
        retriever: the model.
        objective: ``(retriever, text, items, batch) -> Loss``; it sees features and entries of the whole global batch
            (on several processes without ``pixels`` and ``frames``).
        batch: this process's share of the global batch, every entry (n, ...), on the model's device.
        micro_batch: rows encoded at once; none, 0 or n and more: all n. A retriever that scores pairs in chunks (it has
            a number ``pairs_at_once``) scores at most the pairs of so many texts at once.
        pairs: pairs scored at once by such a retriever, where that is less.
        precision: ``fp32`` (the model's own), or autocast to ``bf16`` or ``fp16``.
        scaler: scales the loss before it goes backward; the gradients come out scaled.
        world: the processes that share the global batch. Random numbers: all ranks must enter with the same state and
            leave with the same state; dropout in the towers differs by rank, in the loss it does not.

    Returns:
        The loss and its logs. Where the loss is not finite no gradients are made.

    Raises:
        RewindError: for a batch norm in training mode, whose result depends on the rows encoded together, unless the
            whole batch is encoded at once.
        ScoringOutOfMemory: if memory runs out behind the encoders, with micro-batches.
    """
    retriever.zero_grad(set_to_none=True)
    first = next(iter(batch.values()))
    step = _Step(retriever, objective, first.device, precision, scaler or torch.amp.GradScaler(enabled=False))
    size = min(micro_batch or len(first), len(first))
    with _chunks(retriever, size * len(first) * world.size, pairs):
        if world.size == 1 and size == len(first):
            return step.whole(batch)
        _refuse_batch_norm(retriever)
        return step.cached(batch, size, world)


class ScoringOutOfMemory(torch.cuda.OutOfMemoryError):
    """Memory ran out while similarities and loss were computed, where smaller micro-batches alone help nothing.

    Attributes:
        pairs: how many pairs were scored at once; None where the retriever has no such number.
    """

    def __init__(self, pairs: int | None, message: str) -> None:
        super().__init__(message)
        self.pairs = pairs


@contextlib.contextmanager
def _chunks(retriever: Retriever, most: int, pairs: int | None) -> Iterator[None]:
    """Let the retriever score at most so many pairs at once, if it has such a number."""
    own = retriever.pairs_at_once
    if own is None:
        yield
        return
    retriever.pairs_at_once = min(own, most, pairs or own)
    try:
        yield
    finally:
        retriever.pairs_at_once = own


@contextlib.contextmanager
def _scoring(retriever: Retriever) -> Iterator[None]:
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise ScoringOutOfMemory(retriever.pairs_at_once, str(error)) from None


class _Step:
    def __init__(self, retriever: Any, objective: Any, device: torch.device, precision: str, scaler: Any) -> None:
        self.retriever, self.objective, self.scaler = retriever, objective, scaler
        self.device, self.precision = device, precision

    def whole(self, batch: Features) -> StepLoss:
        with self.autocast():
            text, items = self.retriever.encode_text(batch), self.retriever.encode_items(batch)
            loss = self.objective(self.retriever, text, items, batch)
        return self.backward(loss)

    def cached(self, batch: Features, size: int, world: World) -> StepLoss:
        rows, before = len(next(iter(batch.values()))), torch.get_rng_state()
        chunks = [{name: value[at : at + size] for name, value in batch.items()} for at in range(0, rows, size)]
        with world.one_memory():
            parts, states = self.encode(chunks, world)
        text, items = ([part[side] for part in parts] for side in (0, 1))
        text, items = (_leaves(world.gather(concatenate(side))) for side in (text, items))
        given = batch if world.size == 1 else world.gather({k: v for k, v in batch.items() if k not in INPUTS})
        pairs = SharedPairs(self.retriever, world, text, items)
        with _scoring(self.retriever), world.one_memory(), self.autocast():
            pairs.score()
        pairs.gather()
        with _scoring(self.retriever), world.one_memory():
            with self.autocast():
                loss = self.objective(pairs, text, items, given)
            found = self.backward(loss)
            if math.isfinite(found.value):
                if world.rank:  # every rank has the gradients of what the loss itself uses: they count once
                    self.retriever.zero_grad(set_to_none=True)
                pairs.backward()
        if math.isfinite(found.value):
            pairs.collect()
            own = world.share(rows * world.size)
            with world.one_memory():
                self.continue_backward(chunks, states, [_gradients(text, own), _gradients(items, own)])
            world.sum_gradients(self.retriever)
        if world.size > 1 and torch.equal(torch.get_rng_state(), before):
            torch.rand(1)  # the loss drew nothing: on every rank, that the next step's towers draw other numbers
        return found

    def encode(self, chunks: list[Features], world: World) -> tuple[list[tuple[Features, Features]], list[Any]]:
        """Features of every micro-batch without gradient, and the random state before each."""
        shared = random_state(self.device)
        if world.size > 1:
            torch.manual_seed(_drawn(shared[0]) + world.rank)
        parts, states = [], []
        with torch.no_grad():
            for chunk in chunks:
                states.append(random_state(self.device))
                parts.append(self.features(chunk))
        if world.size > 1:
            set_random_state(shared, self.device)
        return parts, states

    def continue_backward(self, chunks: list[Features], states: list[Any], gradients: list[Features]) -> None:
        after = random_state(self.device)
        start = 0
        for chunk, state in zip(chunks, states, strict=True):
            set_random_state(state, self.device)
            end = start + len(next(iter(chunk.values())))
            outputs, cached = [], []
            for features, gradient in zip(self.features(chunk), gradients, strict=True):
                for name, value in gradient.items():
                    if features[name].requires_grad:
                        outputs.append(features[name])
                        cached.append(value[start:end])
            if outputs:
                torch.autograd.backward(outputs, cached)
            start = end
        set_random_state(after, self.device)

    def features(self, chunk: Features) -> tuple[Features, Features]:
        # An autocast region of its own: casts of weights made without gradient must not be reused with one.
        with self.autocast():
            return self.retriever.encode_text(chunk), self.retriever.encode_items(chunk)

    def backward(self, loss: Loss) -> StepLoss:
        value = loss.value.item()
        if math.isfinite(value):
            self.scaler.scale(loss.value).backward()
        return StepLoss(value, {name: _number(entry) for name, entry in loss.logs.items()})

    def autocast(self) -> Any:
        if self.precision not in REDUCED:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, REDUCED[self.precision])


def random_state(device: torch.device) -> list[Tensor]:
    """State of torch's CPU generator and, on CUDA, of the device's."""
    return [torch.get_rng_state()] + ([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])


def set_random_state(state: list[Tensor], device: torch.device) -> None:
    """Put back what :func:`random_state` took; a state taken without CUDA leaves CUDA's as it is."""
    torch.set_rng_state(state[0])
    if device.type == "cuda" and len(state) > 1:
        torch.cuda.set_rng_state(state[1], device)


def _number(entry: float | Tensor) -> float:
    return entry.item() if isinstance(entry, Tensor) else float(entry)


def _drawn(state: Tensor) -> int:
    """A seed that follows from a random state without moving it."""
    generator = torch.Generator()
    generator.set_state(state)
    return int(torch.randint(2**62, (), generator=generator))


def _leaves(features: Features) -> Features:
    return {name: value.requires_grad_(value.is_floating_point()) for name, value in features.items()}


def _gradients(features: Features, rows: slice) -> Features:
    return {name: value.grad[rows] for name, value in features.items() if value.grad is not None}


def _refuse_batch_norm(retriever: Retriever) -> None:
    for name, module in retriever.named_modules():
        if isinstance(module, _BatchNorm) and module.training:
            raise RewindError(
                f"{name} is a batch norm in training mode: its result depends on the rows encoded together, so the "
                "result for the global batch would not be exact. Freeze that tower (training.freeze, or .eval() in the "
                "model), or encode the whole batch at once on one device (training.micro_batch: null)."
            )
