"""P images with K captions each: several captions of an image meet in a batch, as losses of several positives want.

Every epoch holds every caption once (the original's sampler is empty after two epochs).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rewind.errors import RewindError
from rewind.study.keys import Keys, key, read_options
from rewind.study.training import Batch
from rewind.training.batches import cut, turns
from rewind.training.samplers.interface import Sampler, State

WHERE = "training.batch.sampler_options"


class Options(Keys):
    """Options of ``sampler: pk``."""

    captions: int = key(2, "K: captions of one image in a batch; P is the batch size over K.", ge=1, le=64)


class PK(Sampler):
    """K captions of each image in a batch.

    Args:
        captions: K.
    """

    def __init__(self, captions: int) -> None:
        self.captions = captions

    def batches(
        self,
        item_of_caption: np.ndarray,
        cluster_of_item: np.ndarray,
        keys: Batch,
        seed: int,
        epoch: int,
        state: State,
    ) -> list[np.ndarray]:
        """Caption rows of every batch of one epoch, each of exactly ``keys.size`` (all rows where there are fewer).

        The captions of an image are shuffled and cut into groups of K, the last of which may be smaller; first come
        the first groups of all images, then the second ones, each time shuffled, and the line is cut into batches. The
        last batch is filled up from the beginning.

        Raises:
            RewindError: where K does not divide the batch, or an epoch is one caption per image.
        """
        self.check(keys)
        rng = np.random.default_rng([seed, epoch])
        by_item, turn = turns(item_of_caption, rng)
        if keys.captions == "one":
            by_item, turn = by_item[turn == 0], turn[turn == 0]
        place = rng.permutation(int(item_of_caption.max()) + 1)[item_of_caption[by_item]]
        return cut(by_item[np.lexsort((turn, place, turn // self.captions))], keys.size)

    def check(self, keys: Batch) -> None:
        """Refuse batches into which K captions of an image do not fit.

        Raises:
            RewindError: where K does not divide the batch, or an epoch is one caption per image.
        """
        if keys.size % self.captions:
            raise RewindError(f"{WHERE}.captions: {self.captions} does not divide training.batch.size {keys.size}.")
        if keys.captions == "one" and self.captions > 1:
            raise RewindError(
                f"{WHERE}.captions: {self.captions} captions of an image cannot share a batch if an epoch has only "
                "one per image: set training.batch.captions: all."
            )


def build(options: Mapping[str, Any]) -> PK:
    """The sampler under ``training.batch.sampler_options``."""
    return PK(read_options(Options, options, WHERE, "sampler: pk").captions)
