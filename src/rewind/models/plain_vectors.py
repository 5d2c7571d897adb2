"""A data set's vectors compared as they are: the zero-shot of networks that were trained elsewhere, as one."""

from __future__ import annotations

import torch
from torch import Tensor

from rewind.errors import RewindError
from rewind.models.baselines import PooledBaseline
from rewind.models.embeddings import widths
from rewind.study import Backbone as BackboneKeys


class PlainVectors(PooledBaseline):
    """Cosine of a caption's vector and an item's (the mean over its frames), nothing between.

    Args:
        width: of both.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        # Kept with the run: a model file needs one tensor at least, and vectors of another width are others.
        self.register_buffer("width", torch.tensor(width))

    @classmethod
    def of(cls, keys: BackboneKeys) -> PlainVectors:
        """For the vectors of a study's data set.

        Raises:
            RewindError: where captions and items have different widths, and so no common space.
        """
        text, items = widths(keys)
        if text != items:
            raise RewindError(
                f"methods.*.model: zero_shot compares vectors as they are, but captions have {text} numbers and items "
                f"{items}: without training they share no space. Use ridge, or a translator."
            )
        return cls(text)

    def map_text(self, text: Tensor) -> Tensor:
        """(n, D) as they are."""
        return text

    def map_items(self, items: Tensor) -> Tensor:
        """(n, D) as they are."""
        return items
