"""Losses whose price is known: one waits, one counts."""

from __future__ import annotations

import time

from patience import patience
from rewind.losses.infonce import infonce

WAIT = patience(0.02)


def waiting(retriever, text, items, batch):
    """InfoNCE that takes ``WAIT`` seconds longer."""
    time.sleep(WAIT)
    return infonce(retriever, text, items, batch)


class Prepared:
    """InfoNCE that must be prepared and told of the first epoch before a step."""

    @staticmethod
    def build(options):
        return Prepared()

    def __init__(self) -> None:
        self.calls: list[str] = []

    def prepare(self, retriever, data, device) -> None:
        self.calls.append("prepare")

    def start_epoch(self, epoch, retriever) -> None:
        self.calls.append(f"epoch {epoch}")

    def __call__(self, retriever, text, items, batch):
        assert self.calls == ["prepare", "epoch 0"]
        return infonce(retriever, text, items, batch)
