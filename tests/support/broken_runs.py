"""A training state whose run breaks off after so many saves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rewind.training.checkpoint import StateFile


class Interrupt(Exception):
    """What a killed run is here."""


class BreakingFile(StateFile):
    """Raises :class:`Interrupt` right after its ``stop_after``-th save; without that number it never does."""

    def __init__(self, path: str | Path, fingerprint: str, stop_after: int | None = None) -> None:
        super().__init__(path, fingerprint)
        self.stop_after, self.saves = stop_after, 0

    def save(self, state: dict[str, Any]) -> None:
        super().save(state)
        self.saves += 1
        if self.saves == self.stop_after:
            raise Interrupt
