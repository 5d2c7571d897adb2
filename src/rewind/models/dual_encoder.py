"""One vector per caption and clip, compared by cosine; in training pairs may attend to one another first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import Tensor

from rewind.errors import RewindError
from rewind.models.clip4clip import Clip4Clip
from rewind.models.cross_attention import CrossAttention
from rewind.models.making import make_towers
from rewind.models.retriever import Backbone, Features, masked_mean, single
from rewind.models.temporal import MeanP
from rewind.study import Backbone as BackboneKeys
from rewind.study import Method
from rewind.study import Text as TextKeys

OPTIONS = ("cross_attention", "heads", "backbone")


class DualEncoder(Clip4Clip):
    """A clip's vector is the mean of its frames' features (of ViCLIP, its one vector).

    With ``attention``, the loss in training mode sees vectors of which each has attended to its own partner: row i of
    the captions and row i of the items must be a pair. In evaluation mode vectors are always those of the towers alone;
    :meth:`pair_vectors` gives the others on demand.
    """

    def __init__(self, backbone: Backbone, attention: CrossAttention | None = None) -> None:
        super().__init__(backbone, MeanP(backbone.width))
        self.attention = attention

    @property
    def attends_to_pairs(self) -> bool:
        """Whether it has cross-attention."""
        return self.attention is not None

    def encode_text(self, batch: Features) -> Features:
        """``text`` (n, D), not normalised."""
        return {"text": single(self.backbone.encode_text(batch["text"]))}

    def encode_items(self, batch: Features) -> Features:
        """``video`` (n, D), not normalised."""
        frames = single(self.backbone.encode_frames(self._frame_features(batch)))
        return {"video": masked_mean(frames, batch["mask"], torch.float64).to(frames.dtype)}

    def vectors(self, text: Features, items: Features) -> tuple[Tensor, Tensor]:
        """Unit vectors (n, D) and (m, D); in training with cross-attention those of :meth:`pair_vectors`."""
        if self.training and self.attention is not None:
            return self.pair_vectors(text, items)
        return F.normalize(text["text"], dim=-1), F.normalize(items["video"], dim=-1)

    def similarity(self, text: Features, items: Features) -> Tensor:
        """(n_text, n_items) logits, float32 under autocast too."""
        left, right = self.vectors(text, items)
        with torch.autocast(left.device.type, enabled=False):
            return self.backbone.logit_scale.exp() * left @ right.T

    def pair_vectors(self, text: Features, items: Features) -> tuple[Tensor, Tensor]:
        """Unit vectors (n, D) of pairs, row by row, that have seen one another.

        Raises:
            RewindError: if the rows cannot be pairs.
        """
        if len(text["text"]) != len(items["video"]):
            raise RewindError("cross-attention needs pairs: give as many captions as items, row by row.")
        return self.attention.pairs(text["text"], items["video"])


def build(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> DualEncoder:
    """The retriever with ``options: {cross_attention: false, heads: 4, backbone: {…}}``.

    ``backbone`` has the keys of a study's ``backbone`` and replaces it for this method alone.

    Raises:
        RewindError: for an unknown option or value, or what the towers refuse.
    """
    options = method.options
    _check(options)
    keys = own_backbone(method, backbone)
    towers = make_towers(keys, text, train_captions)
    attention = CrossAttention(towers.width, options.get("heads", 4)) if options.get("cross_attention") else None
    return DualEncoder(towers, attention)


def own_backbone(method: Method, backbone: BackboneKeys) -> BackboneKeys:
    """The method's own ``options.backbone``, or else the study's.

    Raises:
        RewindError: for a key that a backbone does not have, or with cached features of the study's towers.
    """
    if "backbone" not in method.options:
        return backbone
    if "visual" in method.training.freeze:
        raise RewindError("methods.*.training.freeze: a method with a backbone of its own reads pixels; remove visual.")
    try:
        return BackboneKeys.model_validate(method.options["backbone"])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(["backbone", *map(str, first["loc"])])
        raise RewindError(f"methods.*.options.{where}: {first['msg']}.") from None


def _check(options: Mapping[str, Any]) -> None:
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise RewindError(f"methods.*.options.{unknown[0]}: model: dual_encoder only has {', '.join(OPTIONS)}.")
    if not isinstance(options.get("cross_attention", False), bool):
        raise RewindError(f"methods.*.options.cross_attention: {options['cross_attention']!r} is not true or false.")
    heads = options.get("heads", 4)
    if not isinstance(heads, int) or isinstance(heads, bool) or heads < 1:
        raise RewindError(f"methods.*.options.heads: {heads!r} is not a number of heads.")
