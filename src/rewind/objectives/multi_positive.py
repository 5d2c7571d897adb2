"""The translator's loss: InfoNCE over the batch and a memory of earlier ones, where every caption of an item is right.

After emanueleiacca/AML_Hackaton, ``L = NCE + 0.5 (1 − cos) + 0.02 moments + 0.05 agreement``. The original compares a
caption with a queue that holds its own image, and counts it as wrong; here items are told apart by id everywhere.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from pydantic import model_validator
from torch import Tensor

from rewind.errors import RewindError
from rewind.models.retriever import Features, Retriever
from rewind.objectives.contrast import agreement, hardest, moment_distance, multi_positive
from rewind.objectives.exclude import Exclude, Exclusions, exclude_key
from rewind.objectives.interface import OPTIONS, Loss, Objective, check_vectors, unit_vectors
from rewind.objectives.memory import Positives, Queue, newest_of_each
from rewind.study import Training
from rewind.study.keys import Keys, key, read_options


class Options(Keys):
    """Options of ``objective: multi_positive``."""

    tau: float | None = key(None, "Temperature of all epochs; none: it falls as the next three keys say.", gt=0, le=10)
    tau_start: float = key(0.10, "Temperature in the first epoch.", gt=0, le=10)
    tau_end: float = key(0.06, "Temperature in the last epoch of the schedule, and after it.", gt=0, le=10)
    tau_epochs: int = key(25, "Epochs over which the temperature falls, along half a cosine.", ge=1)
    queue: list[int] = key(
        [16_000, 32_000, 65_536],
        "Number of items of recent batches that are used as further negatives: in the queue's first epoch, the "
        "next, …; the last value stays; empty: no queue.",
    )
    queue_from: int = key(
        3, "Epoch, counted from 1, from which the queue is used; it is filled from the first epoch on.", ge=1
    )
    hard_negatives: int = key(64, "How many items of the queue each caption uses: its most similar ones; 0: all.", ge=0)
    cross_batch: int = key(4, "Earlier captions of an item that are used as further positives (XBP); 0: none.", ge=0)
    cross_batch_capacity: int = key(32_768, "Earlier captions that are kept in total.", ge=1)
    cosine: float = key(0.5, "Weight of 1 − cosine of caption and image.", ge=0)
    moment: float = key(
        0.02, "Weight of the distance between the means and standard deviations of mapped captions and of images.", ge=0
    )
    agreement: float = key(0.05, "Weight of the variance among mapped captions of one image.", ge=0)
    debias: Literal["none", "chuang", "seed"] = key(
        "none", "Debiased denominator: `chuang` (Chuang et al. 2020), or `seed`, the original's own form."
    )
    prior: float = key(0.01, "Probability that a negative is in truth a positive, for `debias`.", gt=0, lt=1)
    mask_ids: bool = key(
        True,
        "Items of the queue that belong to the caption are not used as negatives. `false`: they are, as in the "
        "original, to measure what that costs.",
    )
    exclude: list[Exclude] = exclude_key()

    @model_validator(mode="after")
    def _rising(self) -> Options:
        if any(size < 1 for size in self.queue):
            raise ValueError("queue: sizes are 1 or more; an empty list is no queue")
        return self


class MultiPositive(Objective):
    """The loss with its memory. Only captions search items; there is no loss the other way round.

    Args:
        options: what counts, and how much.
    """

    def __init__(self, options: Options) -> None:
        self.options, self.exclusions = options, Exclusions(options.exclude)
        self.queue = Queue(max(options.queue)) if options.queue else None
        self.positives = Positives(options.cross_batch, options.cross_batch_capacity) if options.cross_batch else None
        self.waiting: tuple[Tensor, ...] | None = None
        self.start_epoch(0)

    def check(self, retriever: Retriever, keys: Training) -> None:
        """Refuse a retriever that does not compare vectors, and a queue that is shorter than the batch."""
        check_vectors(retriever, "multi_positive")
        self._check_queue(keys.batch.size)

    def prepare(self, retriever: Retriever, data: Any, device: torch.device) -> None:
        """Which pairs are no negatives."""
        self.exclusions.prepare(data, device)

    def _check_queue(self, size: int) -> None:
        queue = self.options.queue
        if queue and min(queue) < size:
            raise RewindError(
                f"{OPTIONS}.queue: {min(queue)} is less than a batch of {size}: it would hold only a part of the last "
                "batch. Use several batches, or [] for no queue."
            )

    def start_epoch(self, epoch: int, retriever: Retriever | None = None) -> None:
        """Temperature and length of the queue of an epoch, counted from 0."""
        self.tau = temperature(self.options, epoch)
        self.recent = queue_length(self.options, epoch)

    def __call__(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
        """The loss of a batch, in float32 under autocast too; its vectors are remembered for the next one.

        Raises:
            RewindError: for a retriever without vectors, or a queue that is shorter than the batch.
        """
        with torch.autocast(batch["items"].device.type, enabled=False):
            return self._loss(retriever, text, items, batch)

    def _loss(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
        left, right = unit_vectors(retriever, text, items, "multi_positive")
        ids, keys = batch["items"], self.options
        self._check_queue(len(ids))
        self._remember(batch["rows"])
        nce = self._contrast(left, right, batch)
        cosine = (1 - (left * right).sum(dim=1)).mean()
        outputs = retriever.outputs(text, items) or (left, right)
        moments, agree = moment_distance(*outputs), agreement(left, ids)
        value = nce + keys.cosine * cosine + keys.moment * moments + keys.agreement * agree
        self.waiting = (batch["rows"].clone(), ids.clone(), right.detach(), left.detach())
        logs = {"nce": nce, "cosine": cosine, "moment": moments, "agreement": agree}
        held = self.queue.size if self.queue else 0
        return Loss(
            value, {k: v.detach() for k, v in logs.items()} | {"tau": self.tau, "queue": min(self.recent, held)}
        )

    def state_dict(self) -> dict[str, Any]:
        """The memory, the last batch included."""
        self._commit()
        return {
            "queue": self.queue.state_dict() if self.queue else {},
            "positives": self.positives.state_dict() if self.positives else {},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        self.waiting = None
        for memory, name in ((self.queue, "queue"), (self.positives, "positives")):
            if memory is not None:
                memory.load_state_dict(state[name])

    def _remember(self, rows: Tensor) -> None:
        """Take in the batch before, unless this is the same one again (a step that ran out of memory)."""
        if self.waiting is not None and not torch.equal(self.waiting[0], rows):
            self._commit()
        self.waiting = None

    def _commit(self) -> None:
        if self.waiting is not None:
            rows, ids, right, left = self.waiting
            captions = rows if self.exclusions else None
            if self.queue is not None:
                self.queue.add(right, ids, captions)
            if self.positives is not None:
                self.positives.add(left, ids, captions)
        self.waiting = None

    def _contrast(self, left: Tensor, right: Tensor, batch: Features) -> Tensor:
        ids = batch["items"]
        logits = [left @ right.T / self.tau]
        positive = [ids[:, None] == ids[None]]
        negative = [~positive[0]]
        if self.exclusions:
            negative[0] &= ~self.exclusions.batch(batch)
        for columns in (self._queued(left, batch), self._earlier(left, batch)):
            for part, whole in zip(columns, (logits, positive, negative), strict=True):
                whole.append(part)
        masks = (torch.cat(parts, dim=1) for parts in (positive, negative))
        keys = self.options
        return multi_positive(torch.cat(logits, dim=1), *masks, self.tau, keys.debias, keys.prior).mean()

    def _queued(self, left: Tensor, batch: Features) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (n, q) of queued items, and which are positive (none) and negative."""
        ids = batch["items"]
        vectors, owners = self.queue.recent(self.recent, left) if self.queue else (left[:0], ids[:0])
        logits = left @ vectors.to(left).T / self.tau
        negative = torch.ones_like(logits, dtype=torch.bool)
        if self.options.mask_ids:
            negative &= owners[None] != ids[:, None]
        if self.queue is not None and self.exclusions and len(owners):
            negative &= ~self.exclusions.between(batch["rows"], ids, self.queue.recent_rows(self.recent), owners)
        if self.options.hard_negatives and len(owners):
            # An item that is queued several times would take several of the places.
            logits, negative = hardest(logits, negative & newest_of_each(owners), self.options.hard_negatives)
        return logits, torch.zeros_like(negative), negative

    def _earlier(self, left: Tensor, batch: Features) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (n, k) of earlier captions of the batch's items, and which are positive and negative.

        Each is here once, a positive of its item and a negative of others. As in the original (``mask_ids: false``) it
        is here once for each of its item's rows, and a positive of that row alone.
        """
        ids = batch["items"]
        if self.positives is None:
            nothing = torch.zeros(len(ids), 0, dtype=torch.bool, device=left.device)
            return left[:, :0], nothing, nothing
        asked = list(dict.fromkeys(ids.tolist())) if self.options.mask_ids else ids.tolist()
        vectors, turns = self.positives.of(asked, left)
        logits = left @ vectors.to(left).T / self.tau
        if self.options.mask_ids:
            owners = torch.tensor([asked[turn] for turn in turns], dtype=ids.dtype, device=ids.device)
            positive = ids[:, None] == owners[None]
        else:
            rows = torch.tensor(turns, dtype=torch.int64, device=ids.device)
            positive = torch.arange(len(ids), device=ids.device)[:, None] == rows[None]
        negative = ~positive
        if self.exclusions and turns:
            captions, owners = (
                torch.tensor(found, dtype=ids.dtype, device=ids.device)
                for found in (self.positives.rows_of(asked), [asked[turn] for turn in turns])
            )
            negative &= ~self.exclusions.between(batch["rows"], ids, captions, owners)
        return logits, positive, negative


def temperature(keys: Options, epoch: int) -> float:
    """τ of an epoch counted from 0: ``tau``, or from ``tau_start`` half a cosine down (or up) to ``tau_end``."""
    if keys.tau is not None:
        return keys.tau
    if keys.tau_epochs == 1:
        return keys.tau_end
    done = min(1.0, epoch / (keys.tau_epochs - 1))
    return keys.tau_end + (keys.tau_start - keys.tau_end) / 2 * (1 + math.cos(math.pi * done))


def queue_length(keys: Options, epoch: int) -> int:
    """How many of the newest items count in an epoch counted from 0."""
    turn = epoch + 1 - keys.queue_from
    return keys.queue[min(turn, len(keys.queue) - 1)] if keys.queue and turn >= 0 else 0


def build(options: dict[str, Any]) -> MultiPositive:
    """The loss under ``training.objective_options``."""
    return MultiPositive(read_options(Options, options, OPTIONS, "objective: multi_positive"))
