"""InfoNCE with several positives per caption over the batch and a memory of earlier batches: the translator's loss.

After emanueleiacca/AML_Hackaton (docs/translator.md):

    L = NCE + 0.5 · (1 − cos) + 0.02 · moments + 0.05 · agreement.

The original compares a caption with a queue that holds its own image and counts it as a negative; here items are told
apart by id everywhere.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import model_validator
from torch import Tensor
from torch.nn import functional as F

from rewind.config import Training
from rewind.config.base import ConfigModel, config_field
from rewind.errors import RewindError
from rewind.losses.base import (
    OPTIONS_KEY,
    Exclude,
    Exclusions,
    Loss,
    Objective,
    exclude_field,
    require_vectors,
    unit_vectors,
)
from rewind.models.retriever import Features, Retriever
from rewind.registry import LOSSES

# ---- The terms of the loss, as functions of vectors without state --------------------------------------------------

Debias = Literal["none", "chuang", "seed"]
MIN_DENOMINATOR = 1e-8  # the original's clamp of a debiased denominator


def multi_positive_nce(
    logits: Tensor, positive: Tensor, negative: Tensor, tau: float, debias: Debias = "none", prior: float = 0.01
) -> Tensor:
    """``log Σ_all e^logit − log Σ_positive e^logit`` of every row, (n,).

    The sum over positives is inside the logarithm: it is enough that one of them is near.

    Args:
        logits: (n, c), cosines over ``tau``.
        positive, negative: bool (n, c); a column that is neither does not count. Every row has a positive.
        tau: the temperature in ``logits``; ``chuang`` needs it for its lower bound.
        debias: ``chuang``: the negatives are taken for a mixture with ``prior`` positives (Chuang et al. 2020, eq. 8):
            ``max((Σneg − prior · N · pos) / (1 − prior), N e^(−1/tau))`` with N negatives and ``pos`` the mean over
            positives. ``seed``: the original's ``log max(Z − prior · Σpos, 1e-8)``, with Z the sum over all columns; it
            only takes a part of the positives out of the denominator and can be negative.

    >>> positive = torch.tensor([[True, False]])
    >>> multi_positive_nce(torch.zeros(1, 2), positive, ~positive, tau=0.07).exp().item()  # (e^0 + e^0) / e^0
    2.0
    """
    log_positive, log_negative = (_masked_logsumexp(logits, mask) for mask in (positive, negative))
    if debias == "none":
        return torch.logaddexp(log_positive, log_negative) - log_positive
    # Debiasing subtracts sums, which logarithms cannot: every sum is divided by the row's largest e^logit, so that none
    # overflows, and its logarithm `top` is added again.
    top = logits.detach().masked_fill(~(positive | negative), -math.inf).amax(dim=1)
    positive_sum, negative_sum = (log_positive - top).exp(), (log_negative - top).exp()
    if debias == "seed":
        denominator = (positive_sum + negative_sum - prior * positive_sum).clamp(min=0)
        # The original clamps the sum itself. Here it is divided by e^top, and the bound with it.
        return torch.maximum(denominator, MIN_DENOMINATOR * (-top).exp()).log() + top - log_positive
    count = negative.sum(dim=1).to(logits.dtype)  # N
    mean = positive_sum / positive.sum(dim=1)
    corrected = (negative_sum - prior * count * mean) / (1 - prior)
    least = count * (-1 / tau - top).exp()  # N negatives of cosine −1: no sum can truly be less
    return (positive_sum + torch.maximum(corrected, least)).log() + top - log_positive


def hardest_negatives(logits: Tensor, allowed: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Every row's own ``count`` largest logits (n, h) among ``allowed`` columns, and whether each is one (bool).

    Where a row has fewer allowed columns, its other entries are 0 and marked False.

    >>> hardest_negatives(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[False, True, True]]), 1)
    (tensor([[2.]]), tensor([[True]]))
    """
    masked = logits.masked_fill(~allowed, -math.inf)
    values = masked.topk(min(count, logits.shape[1]), dim=1).values
    is_negative = torch.isfinite(values)
    return values.masked_fill(~is_negative, 0.0), is_negative


def moment_distance(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean squared difference of the means, plus that of the (biased) standard deviations, over a batch (n, D).

    >>> moment_distance(torch.ones(4, 3), torch.zeros(4, 3)).item()
    1.0
    """
    means = F.mse_loss(outputs.mean(dim=0), targets.mean(dim=0))
    return means + F.mse_loss(_biased_std(outputs), _biased_std(targets))


def within_item_variance(unit: Tensor, ids: Tensor) -> Tensor:
    """Variance of unit vectors (n, D) of captions within each item (``ids``, (n,)) that has two or more captions.

    It is the mean over dimensions and items; 0 if no item has two captions.

    >>> within_item_variance(torch.eye(2), torch.tensor([5, 5])).item()
    0.25
    """
    _, code, sizes = torch.unique(ids, return_inverse=True, return_counts=True)
    sums = unit.new_zeros(len(sizes), unit.shape[1]).index_add(0, code, unit)
    means = sums / sizes[:, None]
    spread = unit.new_zeros(len(sizes)).index_add(0, code, ((unit - means[code]) ** 2).mean(dim=1)) / sizes
    groups = sizes > 1
    return spread[groups].mean() if groups.any() else unit.sum() * 0.0  # a 0 with a gradient


def _biased_std(values: Tensor) -> Tensor:
    """(D,) biased standard deviations of a batch (n, D)."""
    variance = values.var(dim=0, unbiased=False)
    # The derivative of a root is infinite at 0; a dimension that does not vary gets gradient 0 instead.
    constant = variance == 0
    return variance.masked_fill(constant, 1.0).sqrt().masked_fill(constant, 0.0)


def _masked_logsumexp(logits: Tensor, mask: Tensor) -> Tensor:
    """(n,); very small where a row of ``mask`` is empty, with gradient 0."""
    return logits.masked_fill(~mask, torch.finfo(logits.dtype).min).logsumexp(dim=1)


# ---- Memory of earlier batches: items as further negatives, captions as further positives --------------------------

NO_ITEM = -1  # the id of no item


@dataclass(frozen=True)
class _Ring:
    """The tensors of a :class:`NegativeQueue`, with a row for each slot; ``rows`` None: it keeps no captions."""

    vectors: Tensor
    ids: Tensor
    rows: Tensor | None

    def to(self, device: torch.device) -> _Ring:
        rows = None if self.rows is None else self.rows.to(device)
        return _Ring(self.vectors.to(device), self.ids.to(device), rows)


class NegativeQueue:
    """The newest ``capacity`` vectors, first in, first out, each with the id of its item and, if given, of its caption.

    They are in a ring buffer, which the first :meth:`add` allocates: ``at`` is where the next vector goes, ``size``
    how many there are.

    >>> queue = NegativeQueue(3)
    >>> queue.add(torch.eye(4), torch.tensor([10, 11, 12, 13]))  # one too many
    >>> queue.recent(2, like=torch.eye(4))[1].tolist()
    [12, 13]
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.ring: _Ring | None = None
        self.at = self.size = 0

    def add(self, vectors: Tensor, ids: Tensor, rows: Tensor | None = None) -> None:
        """Remember (n, D) vectors of items (n,), the last row as the newest; the oldest leave a full queue.

        ``rows`` (n,), the captions that they were paired with, are passed always or never.
        """
        # Of more than fit only the newest: no slot may be written twice in one assignment, whose order is undefined.
        vectors, ids = vectors.detach()[-self.capacity :], ids[-self.capacity :]
        ring = self.ring
        if ring is None:
            no_items = ids.new_full((self.capacity,), NO_ITEM)
            no_vectors = vectors.new_zeros(self.capacity, vectors.shape[1])
            ring = _Ring(no_vectors, no_items, None if rows is None else no_items.clone())
        # A state file is read into the CPU's memory, wherever the run goes on.
        self.ring = ring = ring.to(vectors.device)
        slots = (self.at + torch.arange(len(ids), device=ids.device)) % self.capacity
        ring.vectors[slots], ring.ids[slots] = vectors.to(ring.vectors), ids.to(ring.ids)
        if rows is not None:
            assert ring.rows is not None  # they are passed always or never
            ring.rows[slots] = rows[-self.capacity :].to(ring.rows)
        self.at = (self.at + len(ids)) % self.capacity
        self.size = min(self.size + len(ids), self.capacity)

    def recent(self, count: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """The newest ``count`` vectors (q, D), oldest of them first, and their ids (q,); fewer where there are fewer.

        An empty result has the type and device of ``like`` (n, D).
        """
        count = min(count, self.size)
        if self.ring is None or count == 0:
            return like.new_zeros(0, like.shape[1]), torch.zeros(0, dtype=torch.int64, device=like.device)
        self.ring = ring = self.ring.to(like.device)
        slots = self._recent(count, ring.ids.device)
        return ring.vectors[slots], ring.ids[slots]

    def recent_rows(self, count: int) -> Tensor:
        """The captions (q,) that the vectors of :meth:`recent` were paired with."""
        ring = self.ring
        assert ring is not None and ring.rows is not None  # called only where captions were passed to `add`
        return ring.rows[self._recent(min(count, self.size), ring.ids.device)]

    def _recent(self, count: int, device: torch.device) -> Tensor:
        # `at` is behind the newest. Remainders are never negative, as in Python.
        return (self.at - count + torch.arange(count, device=device)) % self.capacity

    def state_dict(self) -> dict[str, Any]:
        """The vectors and their ids, oldest first; empty before the first :meth:`add`."""
        if self.ring is None:
            return {}
        vectors, ids = self.recent(self.size, self.ring.vectors)
        rows = {} if self.ring.rows is None else {"rows": self.recent_rows(self.size)}
        return {"vectors": vectors, "ids": ids, **rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state; the order is the same, but may start elsewhere in the buffer."""
        self.ring = None
        self.at = self.size = 0
        if state:
            self.add(state["vectors"], state["ids"], state.get("rows"))


def newest_per_item(ids: Tensor) -> Tensor:
    """Whether each entry (q,), oldest first, is the newest of its item: bool (q,). Empty slots count as newest.

    >>> newest_per_item(torch.tensor([4, 5, 4])).tolist()
    [False, True, True]
    """
    if not len(ids):
        return torch.zeros(0, dtype=torch.bool, device=ids.device)
    _, code = torch.unique(ids, return_inverse=True)
    last = torch.full((int(code.max()) + 1,), -1, device=ids.device)
    # Oldest first, so the largest place of an item is that of its newest entry.
    last.scatter_reduce_(0, code, torch.arange(len(ids), device=ids.device), "amax")
    newest = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    newest[last] = True
    return newest | (ids == NO_ITEM)


class PositiveMemory:
    """Vectors of earlier captions by item: at most ``per_item`` of one item and ``capacity`` in all, oldest out first.

    An entry that makes room for a newer one of its item no longer counts towards ``capacity`` (the original goes on
    counting it, and so drops others too early).

    >>> memory = PositiveMemory(per_item=1, capacity=10)
    >>> memory.add(torch.eye(3), torch.tensor([7, 7, 8]))
    >>> len(memory), memory.of([7], like=torch.eye(3))[0].tolist()
    (2, [[0.0, 1.0, 0.0]])
    """

    def __init__(self, per_item: int, capacity: int) -> None:
        self.per_item, self.capacity = per_item, capacity
        self._clear()

    def _clear(self) -> None:
        self.vectors: Tensor | None = None
        # A slot is a row of `vectors`. Every slot is either in `owner` or in `free`.
        self.owner: OrderedDict[int, int] = OrderedDict()  # slot → item, oldest first
        self.row: dict[int, int] = {}  # slot → caption, where captions are given
        self.slots: dict[int, deque[int]] = {}  # item → its slots, oldest first
        self.free = list(range(self.capacity - 1, -1, -1))  # taken from the end, slot 0 first

    def __len__(self) -> int:
        return len(self.owner)

    def add(self, vectors: Tensor, ids: Tensor, rows: Tensor | None = None) -> None:
        """Remember (n, D) vectors of captions of items (n,), in this order; ``rows`` (n,): of these captions."""
        captions = [] if rows is None else rows.tolist()
        if self.vectors is None:
            self.vectors = vectors.new_zeros(self.capacity, vectors.shape[1])
        self.vectors = self.vectors.to(vectors.device)  # after a state file was read
        # All vectors are written at once behind the loop; a slot may be used again within it, and its last row counts.
        written: dict[int, int] = {}
        for row, item in enumerate(ids.tolist()):
            own = self.slots.setdefault(item, deque())
            if len(own) == self.per_item:
                self._drop(own[0])  # the oldest of this item
            elif len(self.owner) == self.capacity:
                self._drop(next(iter(self.owner)))  # the oldest of all
            slot = self.free.pop()
            self.slots.setdefault(item, deque()).append(slot)  # dropping the item's last slot removed its deque
            self.owner[slot] = item
            if rows is not None:
                self.row[slot] = captions[row]
            written[slot] = row
        sources = torch.tensor(list(written.values()), device=vectors.device)
        slots = torch.tensor(list(written), device=self.vectors.device)
        self.vectors[slots] = vectors.detach()[sources].to(self.vectors)

    def rows_of(self, ids: list[int]) -> list[int]:
        """The captions whose vectors :meth:`of` gives, if they were passed to :meth:`add`."""
        return [self.row[slot] for item in ids for slot in self.slots.get(item, ())]

    def of(self, ids: list[int], like: Tensor) -> tuple[Tensor, list[int]]:
        """All vectors (k, D) that are kept of each item of ``ids`` in turn, and for each its item's index in ``ids``.

        An empty result has the type and device of ``like`` (n, D).
        """
        matches = [(slot, index) for index, item in enumerate(ids) for slot in self.slots.get(item, ())]
        if self.vectors is None or not matches:
            return like.new_zeros(0, like.shape[1]), []
        slots, indices = zip(*matches, strict=True)
        self.vectors = self.vectors.to(like.device)
        return self.vectors[torch.tensor(slots, device=self.vectors.device)], list(indices)

    def _drop(self, slot: int) -> None:
        item = self.owner.pop(slot)
        self.row.pop(slot, None)
        self.slots[item].remove(slot)
        if not self.slots[item]:
            del self.slots[item]
        self.free.append(slot)

    def state_dict(self) -> dict[str, Any]:
        """What is kept, oldest first; empty before the first :meth:`add`."""
        if self.vectors is None:
            return {}
        slots = torch.tensor(list(self.owner), dtype=torch.int64, device=self.vectors.device)
        rows = {"rows": torch.tensor([self.row[slot] for slot in self.owner])} if self.row else {}
        return {"vectors": self.vectors[slots], "ids": torch.tensor(list(self.owner.values())), **rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._clear()
        if state and len(state["ids"]):
            self.add(state["vectors"], state["ids"], state.get("rows"))


# ---- The loss ------------------------------------------------------------------------------------------------------


class MultiPositiveOptions(ConfigModel):
    """Options of ``objective: multi_positive``."""

    tau: float | None = config_field(
        None, "Temperature of all epochs; none: it falls as the next three keys say.", gt=0, le=10
    )
    tau_start: float = config_field(0.10, "Temperature in the first epoch.", gt=0, le=10)
    tau_end: float = config_field(0.06, "Temperature in the last epoch of the schedule, and after it.", gt=0, le=10)
    tau_epochs: int = config_field(25, "Epochs over which the temperature falls, along half a cosine.", ge=1)
    queue: list[int] = config_field(
        [16_000, 32_000, 65_536],
        "Number of items of recent batches that are used as further negatives: in the queue's first epoch, the "
        "next, …; the last value stays; empty: no queue.",
    )
    queue_from: int = config_field(
        3, "Epoch, counted from 1, from which the queue is used; it is filled from the first epoch on.", ge=1
    )
    hard_negatives: int = config_field(
        64, "How many items of the queue each caption uses: its most similar ones; 0: all.", ge=0
    )
    cross_batch: int = config_field(
        4, "Earlier captions of an item that are used as further positives (XBP); 0: none.", ge=0
    )
    cross_batch_capacity: int = config_field(32_768, "Earlier captions that are kept in total.", ge=1)
    cosine: float = config_field(0.5, "Weight of 1 − cosine of caption and image.", ge=0)
    moment: float = config_field(
        0.02, "Weight of the distance between the means and standard deviations of mapped captions and of images.", ge=0
    )
    agreement: float = config_field(0.05, "Weight of the variance among mapped captions of one image.", ge=0)
    debias: Debias = config_field(
        "none", "Debiased denominator: `chuang` (Chuang et al. 2020), or `seed`, the original's own form."
    )
    prior: float = config_field(0.01, "Probability that a negative is in truth a positive, for `debias`.", gt=0, lt=1)
    mask_ids: bool = config_field(
        True,
        "Items of the queue that belong to the caption are not used as negatives. `false`: they are, as in the "
        "original, to measure what that costs.",
    )
    exclude: list[Exclude] = exclude_field()

    @model_validator(mode="after")
    def _require_positive_sizes(self) -> MultiPositiveOptions:
        if any(size < 1 for size in self.queue):
            raise ValueError("queue: sizes are 1 or more; an empty list is no queue")
        return self


@LOSSES.register("multi_positive")
class MultiPositive(Objective):
    """The loss with its memory. Only captions search items; there is no loss in the other direction.

    A step may be repeated after it ran out of memory. A batch is therefore remembered only once the next one comes, or
    the run is saved; until then it is ``pending``.

    >>> MultiPositive(MultiPositiveOptions()).state_dict()
    {'queue': {}, 'positives': {}}
    """

    Options = MultiPositiveOptions

    def __init__(self, options: MultiPositiveOptions) -> None:
        self.options, self.exclusions = options, Exclusions(options.exclude)
        self.queue = NegativeQueue(max(options.queue)) if options.queue else None
        self.positives = (
            PositiveMemory(options.cross_batch, options.cross_batch_capacity) if options.cross_batch else None
        )
        self.pending: tuple[Tensor, ...] | None = None  # caption rows, items' ids, items' and captions' vectors
        self.start_epoch(0)

    def check(self, retriever: Retriever, keys: Training) -> None:
        require_vectors(retriever, "multi_positive")
        self._check_queue(keys.batch.size)

    def prepare(self, retriever: Retriever, data: Any, device: torch.device) -> None:
        self.exclusions.prepare(data, device)

    def _check_queue(self, size: int) -> None:
        queue = self.options.queue
        if queue and min(queue) < size:
            raise RewindError(
                f"{OPTIONS_KEY}.queue: {min(queue)} is less than a batch of {size}: it would hold only a part of the "
                "last batch. Use several batches, or [] for no queue."
            )

    def start_epoch(self, epoch: int, retriever: Retriever | None = None) -> None:
        self.tau = epoch_temperature(self.options, epoch)
        self.recent = epoch_queue_length(self.options, epoch)

    def __call__(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
        """The loss of a batch, in float32 under autocast too; its vectors are remembered for the next one."""
        with torch.autocast(batch["items"].device.type, enabled=False):
            return self._loss(retriever, text, items, batch)

    def _loss(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
        captions, views = unit_vectors(retriever, text, items, "multi_positive")
        ids, options = batch["items"], self.options
        self._check_queue(len(ids))
        # Before the terms: memory then holds all batches before this one, and never this one itself.
        self._commit_previous_batch(batch["rows"])
        nce = self._contrast(captions, views, batch)
        cosine = (1 - (captions * views).sum(dim=1)).mean()
        # Moments are compared before normalisation where the retriever has such outputs: on the unit sphere, lengths
        # are lost.
        outputs = retriever.outputs(text, items) or (captions, views)
        moments, agreement = moment_distance(*outputs), within_item_variance(captions, ids)
        value = nce + options.cosine * cosine + options.moment * moments + options.agreement * agreement
        self.pending = (batch["rows"].clone(), ids.clone(), views.detach(), captions.detach())
        logs = {"nce": nce, "cosine": cosine, "moment": moments, "agreement": agreement}
        queued = self.queue.size if self.queue else 0
        return Loss(
            value, {k: v.detach() for k, v in logs.items()} | {"tau": self.tau, "queue": min(self.recent, queued)}
        )

    def state_dict(self) -> dict[str, Any]:
        """The memory, the last batch included."""
        self._commit_pending()
        return {
            "queue": self.queue.state_dict() if self.queue else {},
            "positives": self.positives.state_dict() if self.positives else {},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.pending = None
        for memory, name in ((self.queue, "queue"), (self.positives, "positives")):
            if memory is not None:
                memory.load_state_dict(state[name])

    def _commit_previous_batch(self, rows: Tensor) -> None:
        """Remember the batch before, unless this is the same one again (a step that ran out of memory)."""
        if self.pending is not None and not torch.equal(self.pending[0], rows):
            self._commit_pending()
        self.pending = None

    def _commit_pending(self) -> None:
        if self.pending is not None:
            rows, ids, views, captions = self.pending
            caption_rows = rows if self.exclusions else None  # only `exclude` asks which captions these were
            if self.queue is not None:
                self.queue.add(views, ids, caption_rows)
            if self.positives is not None:
                self.positives.add(captions, ids, caption_rows)
        self.pending = None

    def _contrast(self, captions: Tensor, views: Tensor, batch: Features) -> Tensor:
        """NCE of captions, the columns being the batch's items, then queued items, then earlier captions."""
        ids = batch["items"]
        in_batch = ids[:, None] == ids[None]
        negative = ~in_batch
        if self.exclusions:
            negative &= ~self.exclusions.batch(batch)
        parts = [
            (captions @ views.T / self.tau, in_batch, negative),
            self._queued_items(captions, batch),
            self._earlier_captions(captions, batch),
        ]
        logits, positive, negative = (torch.cat(columns, dim=1) for columns in zip(*parts, strict=True))
        options = self.options
        return multi_positive_nce(logits, positive, negative, self.tau, options.debias, options.prior).mean()

    def _queued_items(self, captions: Tensor, batch: Features) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (n, q) of queued items, and which are positive (none) and negative."""
        ids = batch["items"]
        vectors, owners = self.queue.recent(self.recent, captions) if self.queue else (captions[:0], ids[:0])
        logits = captions @ vectors.to(captions).T / self.tau
        negative = torch.ones_like(logits, dtype=torch.bool)
        if self.options.mask_ids:
            # Otherwise a queued copy of a caption's own item is its negative, and by similarity the hardest one.
            negative &= owners[None] != ids[:, None]
        if self.queue is not None and self.exclusions and len(owners):
            negative &= ~self.exclusions.between(batch["rows"], ids, self.queue.recent_rows(self.recent), owners)
        if self.options.hard_negatives and len(owners):
            # An item that is queued several times would count several times among the hardest.
            logits, negative = hardest_negatives(
                logits, negative & newest_per_item(owners), self.options.hard_negatives
            )
        return logits, torch.zeros_like(negative), negative

    def _earlier_captions(self, captions: Tensor, batch: Features) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (n, k) of earlier captions of the batch's items, and which are positive and negative.

        Each is one column, a positive of its item and a negative of others. As in the original (``mask_ids: false``)
        it has a column for each of its item's rows, and is a positive of only that row.
        """
        ids = batch["items"]
        if self.positives is None:
            nothing = torch.zeros(len(ids), 0, dtype=torch.bool, device=captions.device)
            return captions[:, :0], nothing, nothing
        items = list(dict.fromkeys(ids.tolist())) if self.options.mask_ids else ids.tolist()
        vectors, indices = self.positives.of(items, captions)
        logits = captions @ vectors.to(captions).T / self.tau
        owners = torch.tensor([items[index] for index in indices], dtype=ids.dtype, device=ids.device)
        if self.options.mask_ids:
            positive = ids[:, None] == owners[None]
        else:
            rows = torch.tensor(indices, dtype=torch.int64, device=ids.device)
            positive = torch.arange(len(ids), device=ids.device)[:, None] == rows[None]
        negative = ~positive
        if self.exclusions and indices:
            earlier_rows = torch.tensor(self.positives.rows_of(items), dtype=ids.dtype, device=ids.device)
            negative &= ~self.exclusions.between(batch["rows"], ids, earlier_rows, owners)
        return logits, positive, negative


def epoch_temperature(options: MultiPositiveOptions, epoch: int) -> float:
    """τ of an epoch counted from 0: ``tau``, or from ``tau_start`` half a cosine down (or up) to ``tau_end``.

    >>> options = MultiPositiveOptions(tau_epochs=3)
    >>> epoch_temperature(options, 0), epoch_temperature(options, 2)
    (0.1, 0.06)
    """
    if options.tau is not None:
        return options.tau
    if options.tau_epochs == 1:
        return options.tau_end
    progress = min(1.0, epoch / (options.tau_epochs - 1))
    return options.tau_end + (options.tau_start - options.tau_end) / 2 * (1 + math.cos(math.pi * progress))


def epoch_queue_length(options: MultiPositiveOptions, epoch: int) -> int:
    """How many of the newest items are negatives in an epoch counted from 0.

    >>> [epoch_queue_length(MultiPositiveOptions(queue=[10, 20], queue_from=2), epoch) for epoch in range(4)]
    [0, 10, 20, 20]
    """
    turn = epoch + 1 - options.queue_from
    return options.queue[min(turn, len(options.queue) - 1)] if options.queue and turn >= 0 else 0
