"""Samplers decide which captions share a batch; a study names one in `training.batch.sampler`.

They are importable from here as well; :class:`rewind.training.samplers.base.Sampler` is their interface.

    >>> import numpy as np
    >>> from rewind.config.training import Batch
    >>> from rewind.training.samplers import PK
    >>> items = np.array([0, 0, 1, 1])  # captions 0 and 1 describe item 0
    >>> batches = PK(PK.Options(captions=2)).batches(items, np.arange(2), Batch(size=2), seed=0, epoch=0, state={})
    >>> [sorted(items[rows].tolist()) for rows in batches]
    [[1, 1], [0, 0]]
"""

from typing import TYPE_CHECKING, Any

from rewind.registry import SAMPLERS

if TYPE_CHECKING:
    from rewind.training.samplers.pk import PK
    from rewind.training.samplers.topical import Topical
    from rewind.training.samplers.uniform import Uniform

__all__ = ["PK", "Topical", "Uniform"]


def __getattr__(name: str) -> Any:
    # On first access, as in rewind.losses.
    return SAMPLERS.attribute(name)
