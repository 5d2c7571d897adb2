"""What a loss remembers of earlier batches: vectors of items as negatives, of captions as further positives."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

import torch
from torch import Tensor

NOBODY = -1  # the id of no item


class Queue:
    """The newest ``capacity`` vectors, first in, first out, each with the id of its item and, if given, of its caption.

    Args:
        capacity: how many are kept.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.vectors: Tensor | None = None
        self.ids: Tensor | None = None
        self.rows: Tensor | None = None
        self.at = self.size = 0

    def add(self, vectors: Tensor, ids: Tensor, rows: Tensor | None = None) -> None:
        """Remember (n, D) vectors of items (n,), the last row as the newest; older ones leave where it is full.

        Args:
            vectors: of the items.
            ids: of the items.
            rows: (n,), the captions that they were paired with; given always or never.
        """
        vectors, ids = vectors.detach()[-self.capacity :], ids[-self.capacity :]
        if self.vectors is None:
            self.vectors = vectors.new_zeros(self.capacity, vectors.shape[1])
            self.ids = ids.new_full((self.capacity,), NOBODY)
            self.rows = None if rows is None else self.ids.clone()
        self._move(vectors.device)
        places = (self.at + torch.arange(len(ids), device=ids.device)) % self.capacity
        self.vectors[places], self.ids[places] = vectors.to(self.vectors), ids.to(self.ids)
        if rows is not None:
            self.rows[places] = rows[-self.capacity :].to(self.rows)
        self.at = (self.at + len(ids)) % self.capacity
        self.size = min(self.size + len(ids), self.capacity)

    def recent(self, count: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """The newest ``count`` vectors (q, D), oldest of them first, and their ids (q,); fewer where there are fewer.

        Args:
            like: (n, D), whose type and device an empty answer has.
        """
        count = min(count, self.size)
        if self.vectors is None or count == 0:
            return like.new_zeros(0, like.shape[1]), torch.zeros(0, dtype=torch.int64, device=like.device)
        self._move(like.device)
        places = self._recent(count)
        return self.vectors[places], self.ids[places]

    def recent_rows(self, count: int) -> Tensor:
        """The captions (q,) that those of :meth:`recent` were paired with."""
        return self.rows[self._recent(min(count, self.size))]

    def _recent(self, count: int) -> Tensor:
        return (self.at - count + torch.arange(count, device=self.ids.device)) % self.capacity

    def _move(self, device: torch.device) -> None:
        """A state file is read into the CPU's memory, wherever the run goes on."""
        self.vectors, self.ids = self.vectors.to(device), self.ids.to(device)
        self.rows = None if self.rows is None else self.rows.to(device)

    def state_dict(self) -> dict[str, Any]:
        """Only what is filled."""
        if self.vectors is None:
            return {}
        vectors, ids = self.recent(self.size, self.vectors)
        rows = {} if self.rows is None else {"rows": self.recent_rows(self.size)}
        return {"vectors": vectors, "ids": ids, **rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`: the order is the same, where it starts in memory need not be."""
        self.vectors = self.ids = self.rows = None
        self.at = self.size = 0
        if state:
            self.add(state["vectors"], state["ids"], state.get("rows"))


def newest_of_each(ids: Tensor) -> Tensor:
    """Whether each entry (q,), oldest first, is the newest of its item: bool (q,)."""
    if not len(ids):
        return torch.zeros(0, dtype=torch.bool, device=ids.device)
    _, code = torch.unique(ids, return_inverse=True)
    last = torch.full((int(code.max()) + 1,), -1, device=ids.device)
    last.scatter_reduce_(0, code, torch.arange(len(ids), device=ids.device), "amax")
    newest = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    newest[last] = True
    return newest | (ids == NOBODY)


class Positives:
    """Vectors of earlier captions by item: at most ``per_item`` of one item and ``capacity`` in all, oldest out first.

    The count is of what is held: an entry that makes room for a newer one of its item leaves the count too (the
    original forgets that, and so drops others too early).
    """

    def __init__(self, per_item: int, capacity: int) -> None:
        self.per_item, self.capacity = per_item, capacity
        self.vectors: Tensor | None = None
        self.owner: OrderedDict[int, int] = OrderedDict()  # place → item, oldest first
        self.row: dict[int, int] = {}  # place → caption, where captions are given
        self.places: dict[int, deque[int]] = {}
        self.free = list(range(capacity - 1, -1, -1))

    def __len__(self) -> int:
        return len(self.owner)

    def add(self, vectors: Tensor, ids: Tensor, rows: Tensor | None = None) -> None:
        """Remember (n, D) vectors of captions of items (n,), in this order; ``rows`` (n,): of these captions."""
        captions = [] if rows is None else rows.tolist()
        if self.vectors is None:
            self.vectors = vectors.new_zeros(self.capacity, vectors.shape[1])
        self.vectors = self.vectors.to(vectors.device)  # after a state file was read
        written: dict[int, int] = {}
        for row, item in enumerate(ids.tolist()):
            held = self.places.setdefault(item, deque())
            if len(held) == self.per_item:
                self._drop(held[0])
            elif len(self.owner) == self.capacity:
                self._drop(next(iter(self.owner)))
            place = self.free.pop()
            self.places.setdefault(item, deque()).append(place)
            self.owner[place] = item
            if rows is not None:
                self.row[place] = captions[row]
            written[place] = row
        chosen = torch.tensor(list(written.values()), device=vectors.device)
        places = torch.tensor(list(written), device=self.vectors.device)
        self.vectors[places] = vectors.detach()[chosen].to(self.vectors)

    def rows_of(self, ids: list[int]) -> list[int]:
        """The captions of what :meth:`of` gives, where they were given."""
        return [self.row[place] for item in ids for place in self.places.get(item, ())]

    def of(self, ids: list[int], like: Tensor) -> tuple[Tensor, list[int]]:
        """All vectors held of each of some items in turn (k, D), and for each its place in ``ids``."""
        found = [(place, turn) for turn, item in enumerate(ids) for place in self.places.get(item, ())]
        if self.vectors is None or not found:
            return like.new_zeros(0, like.shape[1]), []
        places, turns = zip(*found, strict=True)
        self.vectors = self.vectors.to(like.device)
        return self.vectors[torch.tensor(places, device=self.vectors.device)], list(turns)

    def _drop(self, place: int) -> None:
        item = self.owner.pop(place)
        self.row.pop(place, None)
        self.places[item].remove(place)
        if not self.places[item]:
            del self.places[item]
        self.free.append(place)

    def state_dict(self) -> dict[str, Any]:
        """What is held, oldest first."""
        if self.vectors is None:
            return {}
        places = torch.tensor(list(self.owner), dtype=torch.int64, device=self.vectors.device)
        rows = {"rows": torch.tensor([self.row[place] for place in self.owner])} if self.row else {}
        return {"vectors": self.vectors[places], "ids": torch.tensor(list(self.owner.values())), **rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        self.__init__(self.per_item, self.capacity)
        if state and len(state["ids"]):
            self.add(state["vectors"], state["ids"], state.get("rows"))
