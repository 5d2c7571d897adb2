"""Exact steps of the global batch in bounded memory (GradCache; Gao et al., 2021), with micro-batches that fit the GPU.

A contrastive loss L depends on the parameters Θ of the encoders f only through the features f(x_i) of the batch, so

    dL/dΘ = Σ_i ∂L/∂f(x_i) · ∂f(x_i)/∂Θ,

and the sum can be taken in parts once all ∂L/∂f(x_i) are known. A step therefore has three parts (Gao et al., 2021,
arXiv 2101.06983, section 3):

1. encode micro-batches without gradient, remembering the random state before each;
2. compute the loss on the features of the whole global batch, and its gradient with respect to them, ∂L/∂f(x_i);
3. encode each micro-batch again, under the same random state, and continue that gradient into the towers.

Loss and gradients are those of the whole batch at once, with any micro-batch and any number of processes. Parameters
that the loss itself uses (the logit scale, a head that scores pairs) get their gradient in part 2, once. Plain gradient
accumulation is not exact: each part would see only its own negatives.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from rewind.distributed import SINGLE_PROCESS, World
from rewind.errors import RewindError
from rewind.loading.hard_negatives import take_negatives
from rewind.losses.base import Loss, Objective, loss_module
from rewind.models.retriever import Features, Retriever, concatenate

# ---- Micro-batch size, halved when GPU memory runs out -------------------------------------------------------------

T = TypeVar("T")


class MicroBatch:
    """How many rows are encoded at once: a number, all (None or 0), or ``auto``, which halves when GPU memory runs out.

    If memory runs out after the encoders, ``auto`` halves the number of pairs that a head scores at once instead.
    """

    def __init__(self, key: int | str | None) -> None:
        self.shrinks = key == "auto"
        self.rows: int | None = None if self.shrinks else (cast("int | None", key) or None)  # None: the whole batch
        self.pairs: int | None = None  # None: what rows and head allow

    def run(self, step: Callable[[int | None, int | None], T], total: int, device: torch.device) -> T:
        """``step(rows, pairs)``, repeated with half of what was too much while memory runs out; what fits is kept.

        The step, of ``total`` rows of this process, must be repeatable from the same random state of ``device``.
        """
        before, rows, pairs = random_state(device), self.rows, self.pairs
        while (value := self._try(step, total)) is None:
            # The failed attempt has drawn numbers; the next one begins with the same ones.
            set_random_state(before, device)
            # The allocator keeps blocks of the failed attempt's sizes, which may leave no room for the next one's.
            if device.type == "cuda":
                torch.cuda.empty_cache()
        if self.rows != rows:
            print(
                f"training.micro_batch: {min(rows or total, total)} rows at once do not fit into GPU memory; "
                f"{self.rows} are encoded at once from now on, with the same loss and gradients."
            )
        if self.pairs != pairs:
            print(
                f"training.micro_batch: this many pairs do not fit into GPU memory at once; {self.pairs:,} "
                "are scored at once from now on, with the same loss and gradients."
            )
        return value

    def _try(self, step: Callable[[int | None, int | None], T], total: int) -> T | None:
        try:
            return step(self.rows, self.pairs)
        except ScoringOutOfMemory as error:
            self._fewer_pairs(error)
        except torch.cuda.OutOfMemoryError as error:
            self._fewer_rows(min(self.rows or total, total), error)
        return None

    def _fewer_rows(self, size: int, error: Exception) -> None:
        if not self.shrinks:
            smaller = f" or to less than {size}" if size > 1 else ""
            raise RewindError(
                f"out of GPU memory with {size} rows encoded at once: set training.micro_batch to auto{smaller} (loss "
                "and gradients stay the same). The last saved state is kept."
            ) from error
        if size == 1:
            raise RewindError(
                "out of GPU memory even with one row encoded at once: set training.precision: bf16, lower "
                "frames.max_frames or training.batch.size, or use a larger GPU. The last saved state is kept."
            ) from error
        self.rows = size // 2

    def _fewer_pairs(self, error: ScoringOutOfMemory) -> None:
        if error.pairs is None or error.pairs == 1:
            raise RewindError(
                "out of GPU memory while the whole batch is scored, which needs the same memory however few rows are "
                "encoded at once: lower training.batch.size or frames.max_frames, or use a larger GPU. The last saved "
                "state is kept."
            ) from error
        if not self.shrinks:
            raise RewindError(
                f"out of GPU memory with {error.pairs:,} pairs scored at once: set training.micro_batch to auto, which "
                "scores fewer at once (loss and gradients stay the same). The last saved state is kept."
            ) from error
        self.pairs = error.pairs // 2


# ---- Scores of pairs on several processes: each scores its own texts against all items -----------------------------
# A head that looks at pairs (tightTransf) scores B · B of them per step. Every process needs all scores for the loss,
# but computing all of them on each would make further GPUs useless.


class SharedPairScores:
    """The retriever as the loss sees it: ``similarity`` of the global batch is assembled from all processes.

    The order of calls is fixed, because processes wait for one another in some: :meth:`score`, :meth:`gather`, the loss
    and its backward pass, :meth:`backward`, :meth:`collect`. On one process, and for heads that do not look at pairs,
    all of these do nothing and ``similarity`` is the retriever's own. All other attributes are the retriever's.
    ``text`` and ``items`` are leaf features of the global batch.
    """

    def __init__(self, retriever: Retriever, world: World, text: Features, items: Features) -> None:
        self.retriever, self.world, self.text, self.items = retriever, world, text, items
        self.own = world.share(len(next(iter(text.values()))))  # this process's rows of the texts
        self.rows: Tensor | None = None  # own texts' scores, with their graph
        self.scores: Tensor | None = None  # all scores, a leaf

    def __getattr__(self, name: str) -> Any:
        return getattr(self.retriever, name)

    def score(self) -> None:
        """Score this process's texts, with copies of the features as inputs.

        The copies get only this process's gradient. Features themselves get the loss's own gradient, which is the same
        on every process and must not be summed over them.
        """
        if self.world.size > 1:
            self.inputs = [
                {name: value.detach().requires_grad_(value.requires_grad) for name, value in side.items()}
                for side in (self.text, self.items)
            ]
            text, items = self.inputs
            self.rows = self.retriever.similarity_rows(text, items, self.own)

    def gather(self) -> None:
        """Assemble the whole matrix from the rows of all processes, as a leaf of the loss's graph."""
        if self.rows is not None:
            self.scores = self.world.gather({"scores": self.rows})["scores"].requires_grad_()

    def similarity(self, text: Features, items: Features) -> Tensor:
        """(n_text, n_items) logits; for features other than the batch's they are computed here."""
        if self.scores is not None and text is self.text and items is self.items:
            return self.scores
        return self.retriever.similarity(text, items)

    def backward(self) -> None:
        """Continue the gradient of the matrix into the head and the copies of the features, for this process's rows."""
        if self.rows is not None and self.scores is not None and self.scores.grad is not None:
            self.rows.backward(self.scores.grad[self.own])

    def collect(self) -> None:
        """Add the gradients of all processes' copies to those of the features themselves."""
        if self.scores is None or self.scores.grad is None:
            return
        for features, copies in zip((self.text, self.items), self.inputs, strict=True):
            for name, copy in copies.items():
                if copy.requires_grad:
                    summed = self.world.sum(cast(Tensor, copy.grad))
                    gradient = features[name].grad
                    features[name].grad = summed if gradient is None else gradient + summed


# ---- The exact step ------------------------------------------------------------------------------------------------

ENCODER_INPUTS = ("pixels", "frames")  # entries of a batch that are not gathered: large, and only encoders read them
AUTOCAST_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


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
    world: World = SINGLE_PROCESS,
) -> StepLoss:
    """The loss of a global batch, with its gradients left in ``.grad`` (what was there before is dropped).

    If the loss is not finite, no gradients are computed.

    Args:
        objective: ``(retriever, text, items, batch) -> Loss``; it sees features and entries of the whole global batch
            (on several processes without ``pixels`` and ``frames``).
        batch: this process's share of the global batch, every entry (n, ...), on the model's device.
        micro_batch: rows encoded at once; None, 0, or n and more: all n. A retriever that scores pairs in chunks (it
            has a number ``pairs_at_once``) scores at most the pairs of this many texts at once.
        pairs: pairs scored at once by such a retriever, if that is less.
        precision: ``fp32`` (the model's own), or autocast to ``bf16`` or ``fp16``.
        scaler: scales the loss before it goes backward; the gradients come out scaled.
        world: the processes that share the global batch. Random numbers: all ranks must enter with the same state and
            leave with the same state; dropout in the towers differs by rank, in the loss it does not.

    Raises:
        RewindError: for a batch norm in training mode, whose result depends on the rows encoded together, unless the
            whole batch is encoded at once.
        ScoringOutOfMemory: if memory runs out after the encoders, with micro-batches.
    """
    first = next(iter(batch.values()))
    step = _GradCacheStep(retriever, objective, first.device, precision, scaler or torch.amp.GradScaler(enabled=False))
    step.clear_gradients()
    size = min(micro_batch or len(first), len(first))
    # `size` texts with the items of all processes.
    with _limit_pairs_at_once(retriever, size * len(first) * world.size, pairs):
        if world.size == 1 and size == len(first):
            return step.whole(batch)
        _refuse_batch_norm(retriever)
        return step.cached(batch, size, world)


class ScoringOutOfMemory(torch.cuda.OutOfMemoryError):
    """Memory ran out while similarities and loss were computed, where smaller micro-batches alone do not help."""

    def __init__(self, pairs: int | None, message: str) -> None:
        super().__init__(message)
        self.pairs = pairs  # scored at once; None if the retriever has no such number


@contextlib.contextmanager
def _limit_pairs_at_once(retriever: Retriever, most: int, pairs: int | None) -> Iterator[None]:
    """Inside the block, let the retriever score at most this many pairs at once, if it scores pairs in chunks."""
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
def _as_scoring_error(retriever: Retriever) -> Iterator[None]:
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise ScoringOutOfMemory(retriever.pairs_at_once, str(error)) from None


class _GradCacheStep:
    """One step, either of the whole batch at once or by GradCache's three parts."""

    def __init__(self, retriever: Any, objective: Any, device: torch.device, precision: str, scaler: Any) -> None:
        self.retriever, self.objective, self.scaler = retriever, objective, scaler
        self.device, self.precision = device, precision
        loss = loss_module(objective)
        self.trained: list[nn.Module] = [retriever] if loss is None else [retriever, loss]

    def clear_gradients(self) -> None:
        """Drop the gradients of the retriever and of the loss."""
        for module in self.trained:
            # None and not 0: optimisers leave a parameter without a gradient alone, and do not even decay it.
            module.zero_grad(set_to_none=True)

    def whole(self, batch: Features) -> StepLoss:
        """Without parts: the plain forward and backward pass of a batch that one process encodes at once."""
        with self.autocast():
            text, items, *negatives = self.encode_sides(batch)
            loss = self.objective(self.retriever, text, items, batch, *negatives)
        return self.backward(loss)  # outside of autocast: it follows the types of the forward pass

    def cached(self, batch: Features, size: int, world: World) -> StepLoss:
        """By the three parts; ``size`` rows are encoded at once.

        ``world.one_memory()`` makes all processes raise if one of them runs out of memory inside it: they would wait
        for each other for ever if only one of them repeated the step.
        """
        rows, before = len(next(iter(batch.values()))), torch.get_rng_state()
        chunks = [{name: value[at : at + size] for name, value in batch.items()} for at in range(0, rows, size)]
        # Part 1. The gathered features are leaves: the loss's backward pass ends there and leaves ∂L/∂f(x_i) in .grad.
        with world.one_memory():
            parts, states = self.encode(chunks, world)
        sides = [_as_leaves(world.gather(concatenate(list(side)))) for side in zip(*parts, strict=True)]
        text, items, *negatives = sides
        entries = batch
        if world.size > 1:
            entries = world.gather({name: value for name, value in batch.items() if name not in ENCODER_INPUTS})
        # Part 2. Every process computes the same loss of the global batch.
        pairs = SharedPairScores(self.retriever, world, text, items)
        with _as_scoring_error(self.retriever), world.one_memory(), self.autocast():
            pairs.score()
        pairs.gather()
        with _as_scoring_error(self.retriever), world.one_memory():
            with self.autocast():
                loss = self.objective(pairs, text, items, entries, *negatives)
            step_loss = self.backward(loss)
            if math.isfinite(step_loss.value):
                # Every rank now has the same gradients of parameters that the loss itself uses (the logit scale, its
                # own). They are summed over ranks at the end and must count once. A head's parameters get theirs by
                # rank, below.
                if world.rank:
                    self.clear_gradients()
                pairs.backward()
        if math.isfinite(step_loss.value):
            pairs.collect()
            # Part 3, each process for its own rows of the global batch.
            own = world.share(rows * world.size)
            with world.one_memory():
                self.continue_backward(chunks, states, [_feature_gradients(side, own) for side in sides])
            for module in self.trained:
                world.sum_gradients(module)  # a sum and no mean: each rank has a part of one batch
        if world.size > 1 and torch.equal(torch.get_rng_state(), before):
            # The loss drew nothing, so that the state is what it was before the step and the towers' numbers would be
            # the same in the next step. One draw on every rank moves it.
            torch.rand(1)
        return step_loss

    def encode(self, chunks: list[Features], world: World) -> tuple[list[list[Features]], list[Any]]:
        """Part 1: features of every micro-batch without gradient, and the random state before each."""
        shared = random_state(self.device)
        if world.size > 1:  # other dropout on every rank, but reproducible from the shared state
            torch.manual_seed(_derived_seed(shared[0]) + world.rank)
        parts, states = [], []
        with torch.no_grad():
            for chunk in chunks:
                states.append(random_state(self.device))
                parts.append(self.features(chunk))
        if world.size > 1:
            set_random_state(shared, self.device)
        return parts, states

    def continue_backward(self, chunks: list[Features], states: list[Any], gradients: list[Features]) -> None:
        """Part 3: encode again with gradient and continue the cached gradients of the features into the towers.

        The same random ``states`` as in part 1, one before each chunk, mean the same dropout, and so the same features.
        ``gradients`` of texts, items and hard negatives have rows of all chunks.
        """
        after = random_state(self.device)
        start = 0
        for chunk, state in zip(chunks, states, strict=True):
            set_random_state(state, self.device)
            end = start + len(next(iter(chunk.values())))
            outputs, cached = [], []
            for features, gradient in zip(self.features(chunk), gradients, strict=True):
                for name, value in gradient.items():
                    if features[name].requires_grad:  # not those of a frozen tower
                        outputs.append(features[name])
                        cached.append(value[start:end])
            if outputs:
                # Adds ∂L/∂f(x_i) · ∂f(x_i)/∂Θ of this chunk to the gradients.
                torch.autograd.backward(outputs, cached)
            start = end
        set_random_state(after, self.device)

    def features(self, chunk: Features) -> list[Features]:
        # An autocast region per call: autocast caches casts of weights, and those made without gradient in part 1 must
        # not be reused in part 3, where the weights' gradient would be lost.
        with self.autocast():
            return self.encode_sides(chunk)

    def encode_sides(self, batch: Features) -> list[Features]:
        """Features of captions, of items and, if the batch has hard negatives, of these."""
        negatives = take_negatives(batch)
        sides = [self.retriever.encode_text(batch), self.retriever.encode_items(batch)]
        return [*sides, self.retriever.encode_text(negatives)] if negatives else sides

    def backward(self, loss: Loss) -> StepLoss:
        value = loss.value.item()
        if math.isfinite(value):
            self.scaler.scale(loss.value).backward()
        return StepLoss(value, {name: _to_float(entry) for name, entry in loss.logs.items()})

    def autocast(self) -> Any:
        if self.precision not in AUTOCAST_DTYPES:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, AUTOCAST_DTYPES[self.precision])


def random_state(device: torch.device) -> list[Tensor]:
    """States of torch's CPU generator and, on CUDA, of the device's generator."""
    return [torch.get_rng_state()] + ([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])


def set_random_state(state: list[Tensor], device: torch.device) -> None:
    """Restore what :func:`random_state` returned; a state taken without CUDA leaves CUDA's generator alone."""
    torch.set_rng_state(state[0])
    if device.type == "cuda" and len(state) > 1:
        torch.cuda.set_rng_state(state[1], device)


def _to_float(entry: float | Tensor) -> float:
    return entry.item() if isinstance(entry, Tensor) else float(entry)


def _derived_seed(state: Tensor) -> int:
    """A seed that follows from a random state without advancing it."""
    generator = torch.Generator()
    generator.set_state(state)
    return int(torch.randint(2**62, (), generator=generator))


def _as_leaves(features: Features) -> Features:
    return {name: value.requires_grad_(value.is_floating_point()) for name, value in features.items()}


def _feature_gradients(features: Features, rows: slice) -> Features:
    return {name: value.grad[rows] for name, value in features.items() if value.grad is not None}


def _refuse_batch_norm(retriever: Retriever) -> None:
    for name, module in retriever.named_modules():
        if isinstance(module, _BatchNorm) and module.training:
            raise RewindError(
                f"{name} is a batch norm in training mode: its result depends on the rows encoded together, so the "
                "result for the global batch would not be exact. Freeze that tower (training.freeze, or .eval() in the "
                "model), or encode the whole batch at once on one device (training.micro_batch: null)."
            )
