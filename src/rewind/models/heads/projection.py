"""A linear map of frame features: the least that frozen towers can learn, as the linear probes of CLIP's paper.

Under frozen towers `meanP` has one number to learn, the scale of its cosines, which changes no rank.
"""

from __future__ import annotations

from torch import Tensor, nn

from rewind.models.heads.base import Head, sort_by_content
from rewind.registry import HEADS


@HEADS.register("projection")
class Projection(Head):
    """Frames are mapped linearly, then averaged; blind to their order.

    The map starts as the identity, so that training begins with what `meanP` scores. Captions are not mapped.

    >>> import torch
    >>> frames, mask = torch.rand(2, 5, 64), torch.ones(2, 5)
    >>> torch.equal(Projection(width=64)(frames, mask), sort_by_content(frames, mask))
    True
    """

    def __init__(self, width: int, layers: int = 0, positions: int = 0) -> None:
        super().__init__()
        self.projection = nn.Linear(width, width)
        nn.init.eye_(self.projection.weight)
        nn.init.zeros_(self.projection.bias)

    def forward(self, frames: Tensor, mask: Tensor) -> Tensor:
        # In an order of their content: a matrix product may round a row differently in another place, and a clip and
        # its mirror would not tie.
        mapped: Tensor = self.projection(sort_by_content(frames, mask))
        return mapped
