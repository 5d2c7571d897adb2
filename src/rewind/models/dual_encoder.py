"""A dual encoder (``model: dual_encoder``): one vector per caption and per clip, compared by cosine.

In training, the two vectors of a pair may attend to one another before the loss sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import Tensor, nn

from rewind.config import Backbone as BackboneKeys
from rewind.config import Method
from rewind.config import Text as TextKeys
from rewind.config.base import fault_message
from rewind.errors import RewindError
from rewind.models.backbone import Backbone
from rewind.models.clip4clip import Clip4Clip
from rewind.models.heads.clip4clip import MeanP
from rewind.models.registry import build_backbone
from rewind.models.retriever import Features, at_least_float32, masked_mean
from rewind.registry import MODELS

# ---- Cross-attention between the vector of a caption and the vector of a clip --------------------------------------


class CrossAttention(nn.Module):
    """``LayerNorm(x + attention(x → y))`` on single vectors.

    With one key the softmax is 1, whatever query and key are: what is added is a linear map of only ``y``, and the
    query and key projections get no gradient.

    >>> CrossAttention(width=8, heads=2)(torch.rand(3, 8), torch.rand(3, 8)).shape
    torch.Size([3, 8])
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise RewindError(
                f"methods.*.options.heads: vectors of width {width} cannot be divided into {heads} heads."
            )
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln = nn.LayerNorm(width)

    def forward(self, query: Tensor, other: Tensor) -> Tensor:
        """(n, D) and (n, D), row by row → (n, D)."""
        # Sequences of one vector: softmax over a single key is 1, so each row takes in its partner and nothing else.
        query, other = query.unsqueeze(1), other.unsqueeze(1)
        return self.ln(query + self.attn(query, other, other, need_weights=False)[0]).squeeze(1)

    def pairs(self, text: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """Unit vectors (n, D) of texts and items whose rows are pairs.

        The items attend to the texts first, then the texts to the items' new vectors. Each has seen its partner, so
        comparing them tells nothing about search, in which the partner is not known.
        """
        with torch.autocast(text.device.type, enabled=False):
            items = self(items, text)
            return F.normalize(self(text, items), dim=-1), F.normalize(items, dim=-1)


# ---- The retriever -------------------------------------------------------------------------------------------------

OPTIONS = ("cross_attention", "heads", "backbone")


class DualEncoder(Clip4Clip):
    """A clip's vector is the mean of its frames' features (of ViCLIP, its one vector).

    With ``attention``, the loss in training mode sees vectors of which each has attended to its own partner: row i of
    the captions and row i of the items must be a pair. In evaluation mode vectors are always only those of the towers;
    :meth:`pair_vectors` gives the others.
    """

    def __init__(self, backbone: Backbone, attention: CrossAttention | None = None) -> None:
        super().__init__(backbone, MeanP(backbone.width))
        self.attention = attention

    @property
    def attends_to_pairs(self) -> bool:  # type: ignore[override]  # it depends on the options
        return self.attention is not None

    def encode_text(self, batch: Features) -> Features:
        """``text`` (n, D), not normalised."""
        return {"text": at_least_float32(self.backbone.encode_text(batch["text"]))}

    def encode_items(self, batch: Features) -> Features:
        """``video`` (n, D), not normalised."""
        frames = at_least_float32(self.backbone.encode_frames(self._frame_features(batch)))
        return {"video": masked_mean(frames, batch["mask"])}

    def vectors(self, text: Features, items: Features) -> tuple[Tensor, Tensor]:
        """Unit vectors (n, D) and (m, D); in training with cross-attention those of :meth:`pair_vectors`."""
        if self.training and self.attention is not None:
            return self.pair_vectors(text, items)
        return F.normalize(text["text"], dim=-1), F.normalize(items["video"], dim=-1)

    def similarity(self, text: Features, items: Features) -> Tensor:
        left, right = self.vectors(text, items)
        with torch.autocast(left.device.type, enabled=False):
            return self.backbone.logit_scale.exp() * left @ right.T

    def pair_vectors(self, text: Features, items: Features) -> tuple[Tensor, Tensor]:
        """Unit vectors (n, D) of pairs, row by row, that have seen one another."""
        if len(text["text"]) != len(items["video"]):
            raise RewindError("cross-attention needs pairs: give as many captions as items, row by row.")
        return cast(CrossAttention, self.attention).pairs(text["text"], items["video"])


@MODELS.register("dual_encoder")
def build(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> DualEncoder:
    """The retriever with ``options: {cross_attention: false, heads: 4, backbone: {…}}``.

    ``backbone`` has the keys of a study's ``backbone`` and replaces it only for this method.
    """
    options = method.options
    _check(options)
    keys = method_backbone(method, backbone)
    towers = build_backbone(keys, text, train_captions)
    attention = CrossAttention(towers.width, options.get("heads", 4)) if options.get("cross_attention") else None
    return DualEncoder(towers, attention)


def method_backbone(method: Method, backbone: BackboneKeys) -> BackboneKeys:
    """The method's own ``options.backbone``, or else the study's."""
    if "backbone" not in method.options:
        return backbone
    # Features of frozen visual towers are cached, and the cache is of the study's towers.
    if "visual" in method.training.freeze:
        raise RewindError("methods.*.training.freeze: a method with a backbone of its own reads pixels; remove visual.")
    try:
        return BackboneKeys.model_validate(method.options["backbone"])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(["backbone", *map(str, first["loc"])])
        raise RewindError(f"methods.*.options.{where}: {fault_message(first)}.") from None


def _check(options: Mapping[str, Any]) -> None:
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise RewindError(f"methods.*.options.{unknown[0]}: model: dual_encoder only has {', '.join(OPTIONS)}.")
    if not isinstance(options.get("cross_attention", False), bool):
        raise RewindError(f"methods.*.options.cross_attention: {options['cross_attention']!r} is not true or false.")
    heads = options.get("heads", 4)
    if not isinstance(heads, int) or isinstance(heads, bool) or heads < 1:
        raise RewindError(f"methods.*.options.heads: {heads!r} is not a number of heads.")
