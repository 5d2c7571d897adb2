"""A backbone before any training: the weights that it was given, or a data set's vectors as they are."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError
from torch import nn

from rewind.errors import RewindError
from rewind.models.architectures import architecture
from rewind.models.clip4clip import Clip4Clip
from rewind.models.dual_encoder import DualEncoder, own_backbone
from rewind.models.making import make_towers
from rewind.models.miniclip_files import is_miniclip
from rewind.models.plain_vectors import PlainVectors
from rewind.models.retriever import Retriever
from rewind.models.temporal import MeanP
from rewind.models.weights import read_state
from rewind.study import Backbone as BackboneKeys
from rewind.study import Method
from rewind.study import Text as TextKeys

OPTIONS = ("backbone", "text", "unit_frames", "untrained")
CONTEXT = 77  # tokens that CLIP reads where its architecture does not say
_NEW = {
    "towers": "kind: towers brings trained towers, but what joins them is new and random before training",
    "miniclip_towers": (
        "the projections and the text tower of kind: miniclip_towers are new and random before training, unless "
        "backbone.weights names a checkpoint of MiniCLIP"
    ),
}


def build(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Retriever:
    """The study's backbone, or that of ``options: {backbone: {…}}``, of which nothing is a parameter.

    So nothing is trained, and the run's model file holds the weights as they were built. Of a data set of vectors
    it is their own cosine, without a projection.

    ``text`` are the keys of the own backbone's captions; ``unit_frames`` gives each frame's vector unit length before
    the mean over frames, as CLIP4Clip's meanP does.

    Raises:
        RewindError: for another option, or what the towers refuse.
    """
    options = method.options
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise RewindError(f"methods.*.options.{unknown[0]}: model: zero_shot only has {', '.join(OPTIONS)}.")
    for name in ("unit_frames", "untrained"):
        if not isinstance(options.get(name, False), bool):
            raise RewindError(f"methods.*.options.{name}: {options[name]!r} is not true or false.")
    keys = own_backbone(method, backbone)
    if keys.kind == "embeddings":
        return PlainVectors.of(keys)
    try:
        towers = make_towers(keys, _own_text(method, keys, text), train_captions)
    except RewindError as error:
        own = str(error).startswith("backbone.") and "backbone" in options
        raise RewindError(f"methods.*.options.{error}" if own else str(error)) from error
    if not options.get("unit_frames"):
        return _fixed(DualEncoder(towers))
    return _fixed(Clip4Clip(towers, MeanP(towers.width)))


def check(method: Method, backbone: BackboneKeys) -> None:
    """Refuse to score with what was neither trained nor given, unless that is asked for.

    Args:
        method: its keys.
        backbone: the study's, with the weights of its own pre-training where it has one.

    Raises:
        RewindError: where something is random and ``untrained: true`` is not said.
    """
    keys = own_backbone(method, backbone)
    trained = bool(keys.weights or keys.pretrained)
    why = "" if _whole_miniclip(keys) else _NEW.get(keys.kind, "")
    if keys.kind in ("clip", "viclip") and not trained:
        why = "its backbone has no trained weights (backbone.weights, backbone.pretrained, or pretraining)"
    if why and method.options.get("untrained") is not True:
        raise RewindError(
            f"methods.*.model: zero_shot: {why}, so its scores would say nothing. Name trained weights, use ridge, "
            "which needs no training, or ask for a random network with options: {untrained: true}."
        )


def _whole_miniclip(keys: BackboneKeys) -> bool:
    """Whether the weights are a checkpoint of MiniCLIP, and not of its image network alone."""
    there = keys.kind == "miniclip_towers" and keys.weights and Path(keys.weights).is_file()
    return bool(there) and is_miniclip(read_state(keys.weights))


def _own_text(method: Method, keys: BackboneKeys, text: TextKeys) -> TextKeys:
    """Keys of the captions that a backbone of the method's own reads; a CLIP reads as many tokens as it can."""
    given = method.options.get("text")
    if given is None:
        return text
    if "backbone" not in method.options:
        raise RewindError(
            "methods.*.options.text: only allowed together with options.backbone; otherwise the study's text is used."
        )
    most = {}
    if keys.kind == "clip":
        most = {"max_words": architecture(keys.architecture)["text_cfg"].get("context_length", CONTEXT)}
    try:
        return TextKeys.model_validate(most | given if isinstance(given, dict) else given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(["text", *map(str, first["loc"])])
        raise RewindError(f"methods.*.options.{where}: {first['msg']}.") from None


def _fixed(model: nn.Module) -> nn.Module:
    """Parameters become buffers, which are saved but never trained."""
    for part in list(model.modules()):
        for name, parameter in list(part.named_parameters(recurse=False)):
            delattr(part, name)
            part.register_buffer(name, parameter.detach())
    return model.eval()
