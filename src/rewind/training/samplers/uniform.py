"""Batches at random, the captions of one item spread over the epoch: what :func:`epoch_batches` says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rewind.study.keys import Keys, read_options
from rewind.study.training import Batch
from rewind.training.batches import epoch_batches
from rewind.training.samplers.interface import Sampler, State


class Options(Keys):
    """None."""


class Uniform(Sampler):
    """The order of :func:`epoch_batches`, whatever was trained before."""

    def batches(
        self,
        item_of_caption: np.ndarray,
        cluster_of_item: np.ndarray,
        keys: Batch,
        seed: int,
        epoch: int,
        state: State,
    ) -> list[np.ndarray]:
        """Caption rows of every batch of one epoch."""
        return epoch_batches(item_of_caption, cluster_of_item, keys, seed, epoch)


def build(options: Mapping[str, Any]) -> Uniform:
    """The sampler; it has no options."""
    read_options(Options, options, "training.batch.sampler_options", "sampler: uniform")
    return Uniform()
