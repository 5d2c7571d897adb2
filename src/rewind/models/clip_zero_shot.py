"""``zero_shot`` with a CLIP of its own, under the name that this had before: options are the keys of its backbone."""

from __future__ import annotations

from rewind.errors import RewindError
from rewind.models import zero_shot
from rewind.models.retriever import Retriever
from rewind.models.towers import freeze
from rewind.study import Backbone as BackboneKeys
from rewind.study import Method
from rewind.study import Text as TextKeys


def build(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Retriever:
    """``model: zero_shot`` with ``options: {backbone: {…}, text: {tokenizer: clip}, unit_frames: true}``.

    Runs of earlier versions stay valid: their files hold no weights, which are read each time.

    Raises:
        RewindError: for an unknown option, or weights that are not named, not there or do not fit.
    """
    keys = method.options | {"kind": "clip"}
    if not (keys.get("weights") or keys.get("pretrained")):
        raise RewindError(
            "methods.*.options: model: clip_zero_shot needs weights (a file) or pretrained (a tag of open_clip's)."
        )
    options = {"backbone": keys, "text": {"tokenizer": "clip"}, "unit_frames": True}
    try:
        model = zero_shot.build(method.model_copy(update={"options": options}), backbone, text, train_captions)
    except RewindError as error:
        raise RewindError(str(error).replace("options.backbone.", "options.")) from error
    return freeze(model)
