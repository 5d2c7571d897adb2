"""What a sampler is, what it may offer beside batches, and how a study's keys become one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rewind.errors import RewindError
from rewind.models.making import with_defaults
from rewind.models.retriever import find
from rewind.study.training import Batch

if TYPE_CHECKING:
    from rewind.feeding.training_data import TrainingData

State = Mapping[str, np.ndarray]
"""Arrays of numbers that the order depends on; saved with the run. Rank 0 makes them and other processes get them."""


class Sampler:
    """Which captions share a batch. ``batches`` is enough; all else has a default.

    Attributes:
        refresh_every: epochs after which :meth:`refresh` is called; None: never.
    """

    refresh_every: int | None = None

    def batches(
        self,
        item_of_caption: np.ndarray,
        cluster_of_item: np.ndarray,
        keys: Batch,
        seed: int,
        epoch: int,
        state: State,
    ) -> list[np.ndarray]:
        """Caption rows of every batch of an epoch, as many batches in each epoch.

        A pure function of its arguments, so that a resumed run and every process see the same order.

        Args:
            item_of_caption: (n,) item of each caption.
            cluster_of_item: (m,) cluster of each item.
            keys: ``training.batch``.
            seed: of the run.
            epoch: counted from 0.
            state: what :meth:`prepare` or the last :meth:`refresh` gave.
        """
        raise NotImplementedError

    def check(self, keys: Batch) -> None:
        """Refuse keys of ``training.batch`` that do not fit. Called before a study's first job.

        Raises:
            RewindError: naming the key.
        """

    def prepare(self, data: TrainingData, keys: Batch, seed: int) -> State:
        """The state that a run begins with. Called once, before its first step and not where it is resumed."""
        return {}

    def refresh(self, epoch: int, text_vectors: np.ndarray, state: State) -> State:
        """A state made anew from the former one, every ``refresh_every`` epochs.

        Args:
            epoch: that begins.
            text_vectors: unit vectors (n, D) of all captions under the weights of that moment.
            state: the former one.
        """
        return state

    def describe(self, batches: list[np.ndarray], state: State) -> dict[str, float]:
        """Columns of ``history.csv`` about an epoch's batches. Called at the end of every epoch."""
        return {}


def make_sampler(keys: Batch) -> Sampler:
    """The sampler that ``training.batch.sampler`` names, with its options.

    What its module's ``build(options)`` makes need not be a :class:`Sampler`: the same names will do.

    Raises:
        RewindError: if there is no such sampler, or it has no such option.
    """
    module = find(keys.sampler, "rewind.training.samplers", "training.batch.sampler")
    if not hasattr(module, "build"):
        raise RewindError(
            f"training.batch.sampler: {keys.sampler} has no `build(options)` function, which makes a sampler."
        )
    return with_defaults(module.build(dict(keys.sampler_options)), Sampler)
