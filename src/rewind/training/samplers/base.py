"""The interface of samplers, and how `training.batch.sampler` becomes one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rewind.config.base import ConfigModel
from rewind.config.training import Batch
from rewind.errors import RewindError
from rewind.models.registry import make_component, with_default_hooks
from rewind.registry import SAMPLERS

if TYPE_CHECKING:
    from rewind.loading.run_data import TrainingData

OPTIONS_KEY = "training.batch.sampler_options"

SamplerState = Mapping[str, np.ndarray]
"""Arrays of numbers on which the order depends; saved with the run. Rank 0 computes them, the others get copies."""


class Sampler:
    """Which captions share a batch. ``batches`` is enough; everything else has a default.

    Attributes:
        Options: a :class:`rewind.config.base.ConfigModel` that declares ``training.batch.sampler_options``, of which
            the constructor gets an instance; None: it has none, and its constructor no arguments.

    >>> class InOrder(Sampler):
    ...     def batches(self, item_of_caption, cluster_of_item, keys, seed, epoch, state):
    ...         rows = np.arange(len(item_of_caption))
    ...         return [rows[start : start + keys.size] for start in range(0, len(rows), keys.size)]
    >>> [rows.tolist() for rows in InOrder().batches(np.zeros(4), np.zeros(1), Batch(size=2), 0, 0, {})]
    [[0, 1], [2, 3]]
    """

    Options: ClassVar[type[ConfigModel] | None] = None
    refresh_every: int | None = None  # epochs after which :meth:`refresh` is called; None: never

    def batches(
        self,
        item_of_caption: np.ndarray,
        cluster_of_item: np.ndarray,
        keys: Batch,
        seed: int,
        epoch: int,
        state: SamplerState,
    ) -> list[np.ndarray]:
        """Caption rows of every batch of an epoch; every epoch has the same number of batches.

        A pure function of its arguments, so that a resumed run and every process see the same order.

        Args:
            item_of_caption: (n,) item of each caption.
            cluster_of_item: (m,) cluster of each item.
            epoch: counted from 0.
            state: what :meth:`prepare` or the last :meth:`refresh` returned.
        """
        raise NotImplementedError

    def check(self, keys: Batch) -> None:
        """Refuse keys of ``training.batch`` that do not fit, naming the key. Called before a study's first job."""

    def prepare(self, data: TrainingData, keys: Batch, seed: int) -> SamplerState:
        """The state that a run begins with. Called once, before its first step, and not when it is resumed."""
        return {}

    def refresh(self, epoch: int, text_vectors: np.ndarray, state: SamplerState) -> SamplerState:
        """The next state, from the former one and unit vectors (n, D) of all captions under the current weights.

        Called every ``refresh_every`` epochs, before ``epoch``, counted from 0.
        """
        return state

    def describe(self, batches: list[np.ndarray], state: SamplerState) -> dict[str, float]:
        """Columns of ``history.csv`` about an epoch's batches. Called at the end of every epoch."""
        return {}


def make_sampler(keys: Batch) -> Sampler:
    """The sampler that ``training.batch.sampler`` names, with its options.

    A class of the user's own need not be a subclass of :class:`Sampler`: one with the same methods will do.
    """
    sampler = make_component(SAMPLERS.find(keys.sampler), SAMPLERS, keys.sampler, keys.sampler_options, OPTIONS_KEY)
    if not hasattr(sampler, "batches"):
        raise RewindError(f"training.batch.sampler: {keys.sampler} has no `batches(…)`, which every sampler has.")
    return with_default_hooks(sampler, Sampler)
