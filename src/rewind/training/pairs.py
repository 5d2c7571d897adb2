"""Scoring pairs on several processes: each scores its own texts against all items of the global batch.

A head that looks at pairs (tightTransf) scores B · B of them a step. Every process needs all scores for the loss, but
computing them all on each would make further GPUs useless.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rewind.distributed import World
from rewind.models.retriever import Features, Retriever


class SharedPairs:
    """The retriever as the loss sees it: ``similarity`` of the global batch is put together from all processes.

    The order is fixed by where processes wait for one another: :meth:`score`, :meth:`gather`, the loss and its backward
    pass, :meth:`backward`, :meth:`collect`. On one process, and for heads that do not look at pairs, all of these do
    nothing and ``similarity`` is the retriever's own.

    Args:
        retriever: the model.
        world: its processes.
        text, items: leaf features of the global batch.
    """

    def __init__(self, retriever: Retriever, world: World, text: Features, items: Features) -> None:
        self.retriever, self.world, self.text, self.items = retriever, world, text, items
        self.own = world.share(len(next(iter(text.values()))))
        self.rows: Tensor | None = None  # own texts' scores, with their graph
        self.scores: Tensor | None = None  # all scores, a leaf

    def __getattr__(self, name: str) -> Any:
        return getattr(self.retriever, name)

    def score(self) -> None:
        """Score this process's texts. Copies of the features take the gradient, so that none counts twice."""
        if self.world.size > 1:
            self.inputs = [
                {name: value.detach().requires_grad_(value.requires_grad) for name, value in side.items()}
                for side in (self.text, self.items)
            ]
            self.rows = self.retriever.similarity_rows(*self.inputs, self.own)

    def gather(self) -> None:
        """Make the whole matrix from the rows of all processes."""
        if self.rows is not None:
            self.scores = self.world.gather({"scores": self.rows})["scores"].requires_grad_()

    def similarity(self, text: Features, items: Features) -> Tensor:
        """(n_text, n_items) logits; of other features than the batch's they are computed here."""
        if self.scores is not None and text is self.text and items is self.items:
            return self.scores
        return self.retriever.similarity(text, items)

    def backward(self) -> None:
        """Continue the gradient of the matrix into the head and the features, by this process's rows."""
        if self.scores is not None and self.scores.grad is not None:
            self.rows.backward(self.scores.grad[self.own])

    def collect(self) -> None:
        """Add what all processes' rows say to the gradients of the features that were given."""
        if self.scores is None or self.scores.grad is None:
            return
        for given, copies in zip((self.text, self.items), self.inputs, strict=True):
            for name, copy in copies.items():
                if copy.requires_grad:
                    summed = self.world.sum(copy.grad)
                    given[name].grad = summed if given[name].grad is None else given[name].grad + summed
