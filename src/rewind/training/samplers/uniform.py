"""Uniform random batches, the captions of one item spread over the epoch.

See :func:`rewind.training.batches.epoch_batches`.
"""

from __future__ import annotations

import numpy as np

from rewind.config.training import Batch
from rewind.registry import SAMPLERS
from rewind.training.batches import epoch_batches
from rewind.training.samplers.base import Sampler, SamplerState


@SAMPLERS.register("uniform")
class Uniform(Sampler):
    """The order of :func:`epoch_batches`; it has no state.

    >>> batches = Uniform().batches(np.arange(4), np.arange(4), Batch(size=2), seed=0, epoch=0, state={})
    >>> [rows.shape for rows in batches]
    [(2,), (2,)]
    """

    def batches(
        self,
        item_of_caption: np.ndarray,
        cluster_of_item: np.ndarray,
        keys: Batch,
        seed: int,
        epoch: int,
        state: SamplerState,
    ) -> list[np.ndarray]:
        """Caption rows of every batch of one epoch."""
        return epoch_batches(item_of_caption, cluster_of_item, keys, seed, epoch)
