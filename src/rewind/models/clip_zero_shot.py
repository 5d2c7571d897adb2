"""A pretrained CLIP as it is: what a user who trains nothing would take."""

from __future__ import annotations

from pydantic import ValidationError

from rewind.errors import RewindError
from rewind.models.architectures import architecture
from rewind.models.clip import build as build_clip
from rewind.models.clip4clip import POSITIONS, Clip4Clip
from rewind.models.temporal import HEADS
from rewind.models.towers import freeze
from rewind.study import Backbone as BackboneKeys
from rewind.study import Method
from rewind.study import Text as TextKeys


def build(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Clip4Clip:
    """CLIP by ``options``, which has the keys of a study's ``backbone`` of kind ``clip``; its weights must be named.

    Nothing in it is a parameter, so nothing is trained and its checkpoint is empty: weights are read each time.

    Raises:
        RewindError: for an unknown option, or weights that are not named, not there or do not fit.
    """
    try:
        keys = BackboneKeys.model_validate({**method.options, "kind": "clip"})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RewindError(f"methods.*.options.{where}: {first['msg']} (model: clip_zero_shot).") from None
    if not (keys.weights or keys.pretrained):
        raise RewindError(
            "methods.*.options: model: clip_zero_shot needs weights (a file) or pretrained (a tag of open_clip's)."
        )
    if method.training.freeze:
        raise RewindError(
            "methods.*.training.freeze: model: clip_zero_shot reads pixels; give it training: {freeze: []}."
        )
    try:
        context = architecture(keys.architecture)["text_cfg"].get("context_length", 77)
        towers = build_clip(keys, TextKeys(tokenizer="clip", max_words=context), train_captions)
    except RewindError as error:
        raise RewindError(f"methods.*.options (model: clip_zero_shot): {error}") from error
    head = HEADS["meanP"](towers.width, layers=1, positions=POSITIONS)
    return freeze(Clip4Clip(towers, head))
