"""PK batches: P images with K captions each, for losses with several positives (docs/translator.md).

Every epoch holds every caption once (the original's sampler runs empty after two epochs).
"""

from __future__ import annotations

import numpy as np

from rewind.config.base import ConfigModel, config_field
from rewind.config.training import Batch
from rewind.errors import RewindError
from rewind.registry import SAMPLERS
from rewind.training.batches import cut_into_batches, group_by_item
from rewind.training.samplers.base import OPTIONS_KEY, Sampler, SamplerState


class PKOptions(ConfigModel):
    """Options of ``sampler: pk``."""

    captions: int = config_field(2, "K: captions of one image in a batch; P is the batch size over K.", ge=1, le=64)


@SAMPLERS.register("pk")
class PK(Sampler):
    """K captions of each image in a batch.

    >>> items = np.array([0, 0, 1, 1])
    >>> [sorted(items[rows].tolist()) for rows in PK(PKOptions()).batches(items, np.arange(2), Batch(size=2), 0, 0, {})]
    [[1, 1], [0, 0]]
    """

    Options = PKOptions

    def __init__(self, options: PKOptions) -> None:
        self.captions = options.captions

    def batches(
        self,
        item_of_caption: np.ndarray,
        cluster_of_item: np.ndarray,
        keys: Batch,
        seed: int,
        epoch: int,
        state: SamplerState,
    ) -> list[np.ndarray]:
        """Caption rows of every batch of one epoch, each of exactly ``keys.size`` (all rows if there are fewer).

        The captions of an image are shuffled and cut into groups of K, the last of which may be smaller. First come the
        first groups of all images, in random order, then the second ones, and so on; this sequence is cut into batches.
        The last batch is filled up from the beginning.
        """
        self.check(keys)
        rng = np.random.default_rng([seed, epoch])
        by_item, turn = group_by_item(item_of_caption, rng)
        if keys.captions == "one":
            by_item, turn = by_item[turn == 0], turn[turn == 0]
        rank = rng.permutation(int(item_of_caption.max()) + 1)[item_of_caption[by_item]]  # random order of images
        # lexsort's last key counts most: the group, then the image, then the caption within it.
        return cut_into_batches(by_item[np.lexsort((turn, rank, turn // self.captions))], keys.size)

    def check(self, keys: Batch) -> None:
        """Refuse a batch size that K does not divide, and K above 1 where an epoch has one caption per image."""
        if keys.size % self.captions:
            raise RewindError(
                f"{OPTIONS_KEY}.captions: {self.captions} does not divide training.batch.size {keys.size}."
            )
        if keys.captions == "one" and self.captions > 1:
            raise RewindError(
                f"{OPTIONS_KEY}.captions: {self.captions} captions of an image cannot share a batch if an epoch has "
                "only one per image: set training.batch.captions: all."
            )
