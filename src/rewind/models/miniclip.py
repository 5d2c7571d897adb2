"""MiniCLIP: one vector per caption and per image, compared by their cosine (SoroushRaeisian/miniclip).

On a clip of several frames it is the mean over frames, as CLIP4Clip's meanP.
"""

from __future__ import annotations

from torch import Tensor

from rewind.errors import RewindError
from rewind.models.clip4clip import Clip4Clip
from rewind.models.miniclip_towers import DROPOUT, MiniTowers
from rewind.models.miniclip_towers import build as build_towers
from rewind.models.temporal import MeanP
from rewind.study import Backbone as BackboneKeys
from rewind.study import Method
from rewind.study import Text as TextKeys

OPTIONS = ("text", "dropout")


class MiniClip(Clip4Clip):
    """``exp(logit_scale) · cos(text, image)``, the scale at most 100 and at first 1/0.07."""

    def __init__(self, backbone: MiniTowers) -> None:
        super().__init__(backbone, MeanP(backbone.width))

    def check_state(self, state: dict[str, Tensor], where: str) -> None:
        """Refuse a state dict of another vocabulary.

        Raises:
            RewindError: naming ``where``.
        """
        self.backbone.check_vocabulary(state, "backbone.", where)


def build(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> MiniClip:
    """The retriever of a method with ``options: {text: lstm | transformer, dropout: 0.2}``.

    Raises:
        RewindError: for an unknown option or value, another backbone, or what the towers refuse.
    """
    options = method.options
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise RewindError(f"methods.*.options.{unknown[0]}: model: miniclip only has {' and '.join(OPTIONS)}.")
    if backbone.kind != "miniclip_towers":
        raise RewindError(f"backbone.kind: {backbone.kind}: methods with model: miniclip need kind: miniclip_towers.")
    dropout = options.get("dropout", DROPOUT)
    if not isinstance(dropout, int | float) or isinstance(dropout, bool) or not 0 <= dropout < 1:
        raise RewindError(f"methods.*.options.dropout: {dropout!r} is not a number from 0 to below 1.")
    return MiniClip(build_towers(backbone, text, train_captions, str(options.get("text", "lstm")), float(dropout)))
