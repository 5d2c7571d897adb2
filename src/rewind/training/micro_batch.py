"""Micro-batches that fit: how many rows and pairs go through the model at once, fewer when GPU memory runs out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from rewind.errors import RewindError
from rewind.training.grad_cache import ScoringOutOfMemory, random_state, set_random_state

T = TypeVar("T")


class MicroBatch:
    """How many rows are encoded at once: a number, all, or ``auto``, which halves when GPU memory runs out.

    Where it runs out behind the encoders, ``auto`` halves the number of pairs that a head scores at once instead.

    Attributes:
        rows: rows encoded at once; None: the whole batch.
        pairs: pairs scored at once; None: what rows and head allow.
    """

    def __init__(self, key: int | str | None) -> None:
        self.shrinks = key == "auto"
        self.rows: int | None = None if self.shrinks else (key or None)
        self.pairs: int | None = None

    def run(self, step: Callable[[int | None, int | None], T], total: int, device: torch.device) -> T:
        """``step(rows, pairs)``, again with half of what was too much while memory runs out; what fitted is kept.

        Args:
            step: one exact step of ``total`` rows, repeatable from the same random state.
            total: rows of this process.
            device: whose random state is put back before a repetition.

        Raises:
            RewindError: with advice, if one row does not fit, or memory runs out and ``auto`` is not set.
        """
        before, rows, pairs = random_state(device), self.rows, self.pairs
        while (value := self._try(step, total)) is None:
            set_random_state(before, device)
            if device.type == "cuda":
                torch.cuda.empty_cache()
        if self.rows != rows:
            print(
                f"training.micro_batch: {min(rows or total, total)} rows at once do not fit into GPU memory; "
                f"{self.rows} are encoded at once from now on, with the same loss and gradients."
            )
        if self.pairs != pairs:
            print(
                f"training.micro_batch: so many pairs cannot be scored at once in GPU memory; {self.pairs:,} "
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
            raise RewindError(
                f"out of GPU memory with {size} rows encoded at once: set training.micro_batch to auto{_or_less(size)} "
                "(loss and gradients stay the same). The last saved state is kept."
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


def _or_less(rows: int) -> str:
    return f" or to less than {rows}" if rows > 1 else ""
