"""A data set of embeddings as a backbone (``backbone.kind: embeddings``).

Nothing is encoded: trained linear projections map caption and item embeddings to a shared width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rewind.config import Backbone as BackboneKeys
from rewind.config import Text as TextKeys
from rewind.errors import RewindError
from rewind.models.backbone import Backbone
from rewind.registry import BACKBONES

NO_ENCODER_MESSAGE = (
    "this data set holds vectors, and the towers that computed them are not available: other captions and pictures "
    "cannot be encoded. Encode them elsewhere, with the networks that computed the vectors."
)


class EmbeddingTowers(Backbone):
    """Vectors of a data set under two trained projections.

    >>> EmbeddingTowers(text_width=384, item_width=512, width=256).encode_text(torch.rand(2, 384)).shape
    torch.Size([2, 256])
    """

    caches_text = True

    def __init__(self, text_width: int, item_width: int, width: int) -> None:
        super().__init__()
        self.width, self.text_width, self.feature_width = width, text_width, item_width
        self.text_projection = nn.Linear(text_width, width)
        self.frame_projection = nn.Linear(item_width, width)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))  # as CLIP starts

    def prepare_text(self, captions: list[str]) -> Tensor:
        raise RewindError(NO_ENCODER_MESSAGE)

    def encode_text(self, prepared: Tensor) -> Tensor:
        return self.text_projection(prepared.float())

    def frame_features(self, pixels: Tensor) -> Tensor:
        raise RewindError(NO_ENCODER_MESSAGE)

    def encode_frames(self, features: Tensor) -> Tensor:
        return self.frame_projection(features.float())

    def visual_parameters(self) -> list[nn.Parameter]:
        return []

    def text_parameters(self) -> list[nn.Parameter]:
        return []


def embedding_widths(keys: BackboneKeys) -> tuple[int, int]:
    """Widths of caption and item vectors, as the data set's reader has filled them in."""
    if keys.text_width is None or keys.item_width is None:
        raise RewindError(
            f"backbone.kind: {keys.kind}: this needs a dataset of vectors (source.format: embeddings), or "
            "backbone.text_width and backbone.item_width."
        )
    return keys.text_width, keys.item_width


@BACKBONES.register("embeddings")
def build(backbone: BackboneKeys, text: TextKeys, captions: list[str]) -> EmbeddingTowers:
    return EmbeddingTowers(*embedding_widths(backbone), backbone.width)
