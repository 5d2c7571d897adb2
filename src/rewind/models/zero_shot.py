"""A backbone as it is (``model: zero_shot``): pretrained weights, or a data set's embeddings, without training.

``model: clip_zero_shot`` is the same with a CLIP of its own, kept for studies of earlier versions.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from rewind.config import Backbone as BackboneKeys
from rewind.config import Method
from rewind.config import Text as TextKeys
from rewind.config.base import fault_message
from rewind.errors import RewindError
from rewind.models.architectures import load_architecture
from rewind.models.clip4clip import Clip4Clip
from rewind.models.dual_encoder import DualEncoder, method_backbone
from rewind.models.heads.clip4clip import MeanP
from rewind.models.miniclip_checkpoint import is_miniclip
from rewind.models.precomputed import EmbeddingCosine
from rewind.models.registry import build_backbone
from rewind.models.retriever import Retriever
from rewind.models.towers import ModuleT, freeze_as_buffers
from rewind.models.weights import read_state
from rewind.registry import MODELS

# ---- model: zero_shot ----------------------------------------------------------------------------------------------

OPTIONS = ("backbone", "text", "unit_frames", "untrained")
CLIP_CONTEXT_LENGTH = 77  # tokens that CLIP reads if its architecture does not state it
_UNTRAINED_PARTS = {
    "towers": "kind: towers brings trained towers, but what joins them is new and random before training",
    "miniclip_towers": (
        "the projections and the text tower of kind: miniclip_towers are new and random before training, unless "
        "backbone.weights names a checkpoint of MiniCLIP"
    ),
}


def check_zero_shot(method: Method, backbone: BackboneKeys) -> None:
    """Refuse to score with random weights unless the method has ``untrained: true``.

    ``backbone`` is the study's, with the weights of its own pre-training if it has one.
    """
    keys = method_backbone(method, backbone)
    trained = keys.has_weights
    why = "" if _is_whole_miniclip(keys) else _UNTRAINED_PARTS.get(keys.kind, "")
    if keys.kind in ("clip", "viclip") and not trained:
        why = "its backbone has no trained weights (backbone.weights, backbone.pretrained, or pretraining)"
    if why and method.options.get("untrained") is not True:
        raise RewindError(
            f"methods.*.model: zero_shot: {why}, so its scores would mean nothing. Name trained weights, use ridge, "
            "which needs no training, or ask for a random network with options: {untrained: true}."
        )


@MODELS.register("zero_shot", tags=("as it is",), check=check_zero_shot)
def build_zero_shot(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Retriever:
    """The study's backbone, or that of ``options: {backbone: {…}}``, without any parameters.

    So nothing is trained, and the run's model file holds the weights as they were built. For a data set of vectors it
    is their own cosine, without a projection.

    Other options are ``text``, the keys for the captions of the method's own backbone, and ``unit_frames``, which gives
    each frame's vector unit length before the mean over frames, as CLIP4Clip's meanP does.
    """
    options = method.options
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise RewindError(f"methods.*.options.{unknown[0]}: model: zero_shot only has {', '.join(OPTIONS)}.")
    for name in ("unit_frames", "untrained"):
        if not isinstance(options.get(name, False), bool):
            raise RewindError(f"methods.*.options.{name}: {options[name]!r} is not true or false.")
    keys = method_backbone(method, backbone)
    if keys.kind == "embeddings":
        return EmbeddingCosine.of(keys)
    try:
        towers = build_backbone(keys, _own_text(method, keys, text), train_captions)
    except RewindError as error:
        own = str(error).startswith("backbone.") and "backbone" in options
        raise RewindError(f"methods.*.options.{error}" if own else str(error)) from error
    if not options.get("unit_frames"):
        return _parameters_to_buffers(DualEncoder(towers))
    return _parameters_to_buffers(Clip4Clip(towers, MeanP(towers.width)))


def _is_whole_miniclip(keys: BackboneKeys) -> bool:
    """Whether the weights are a checkpoint of MiniCLIP, and not of only its image network."""
    if keys.kind != "miniclip_towers" or not keys.weights or not Path(keys.weights).is_file():
        return False
    return is_miniclip(read_state(keys.weights))


def _own_text(method: Method, keys: BackboneKeys, text: TextKeys) -> TextKeys:
    """Keys for the captions of the method's own backbone; a CLIP reads as many tokens as it can."""
    text_options = method.options.get("text")
    if text_options is None:
        return text
    if "backbone" not in method.options:
        raise RewindError(
            "methods.*.options.text: only allowed together with options.backbone; otherwise the study's text is used."
        )
    defaults = {}
    if keys.kind == "clip":
        defaults = {
            "max_words": load_architecture(keys.architecture)["text_cfg"].get("context_length", CLIP_CONTEXT_LENGTH)
        }
    try:
        return TextKeys.model_validate(defaults | text_options if isinstance(text_options, dict) else text_options)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(["text", *map(str, first["loc"])])
        raise RewindError(f"methods.*.options.{where}: {fault_message(first)}.") from None


def _parameters_to_buffers(model: ModuleT) -> ModuleT:
    """Turn parameters into buffers, which are saved but never trained."""
    for part in list(model.modules()):
        for name, parameter in list(part.named_parameters(recurse=False)):
            delattr(part, name)
            part.register_buffer(name, parameter.detach())
    return model.eval()


# ---- model: clip_zero_shot – the earlier name; options are the keys of its backbone --------------------------------


@MODELS.register("clip_zero_shot", tags=("as it is",))
def build_clip_zero_shot(
    method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]
) -> Retriever:
    """``model: zero_shot`` with ``options: {backbone: {…}, text: {tokenizer: clip}, unit_frames: true}``.

    Runs of earlier versions stay valid: their files hold no weights, which are read each time.
    """
    keys = method.options | {"kind": "clip"}
    if not (keys.get("weights") or keys.get("pretrained")):
        raise RewindError(
            "methods.*.options: model: clip_zero_shot needs weights (a file) or pretrained (a tag of open_clip's)."
        )
    options = {"backbone": keys, "text": {"tokenizer": "clip"}, "unit_frames": True}
    try:
        model = build_zero_shot(method.model_copy(update={"options": options}), backbone, text, train_captions)
    except RewindError as error:
        raise RewindError(str(error).replace("options.backbone.", "options.")) from error
    return freeze_as_buffers(model)  # unlike the buffers of build_zero_shot, these are not saved
