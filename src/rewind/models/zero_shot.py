"""A study's backbone before any training: the weights that it was given, or a data set's vectors as they are."""

from __future__ import annotations

from rewind.errors import RewindError
from rewind.models.dual_encoder import DualEncoder, own_backbone
from rewind.models.making import make_towers
from rewind.models.plain_vectors import PlainVectors
from rewind.models.retriever import Retriever
from rewind.study import Backbone as BackboneKeys
from rewind.study import Method
from rewind.study import Text as TextKeys

OPTIONS = ("backbone", "untrained")
_NEW = {
    "towers": "kind: towers brings trained towers, but what joins them is new and random before training",
    "miniclip_towers": "the projections and the text tower of kind: miniclip_towers are new and random before training",
}


def build(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Retriever:
    """The study's backbone, or that of ``options: {backbone: {…}}``, of which nothing is a parameter.

    So nothing is trained, and the run's model file holds the weights as they were built. Of a data set of vectors
    it is their own cosine, without a projection.

    Raises:
        RewindError: for another option, or what the towers refuse.
    """
    options = method.options
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise RewindError(f"methods.*.options.{unknown[0]}: model: zero_shot has {' and '.join(OPTIONS)} alone.")
    if not isinstance(options.get("untrained", False), bool):
        raise RewindError(f"methods.*.options.untrained: {options['untrained']!r} is not true or false.")
    keys = own_backbone(method, backbone)
    if keys.kind == "embeddings":
        return PlainVectors.of(keys)
    return _fixed(DualEncoder(make_towers(keys, text, train_captions)))


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
    why = _NEW.get(keys.kind, "")
    if keys.kind in ("clip", "viclip") and not trained:
        why = "its backbone has no trained weights (backbone.weights, backbone.pretrained, or pretraining)"
    if why and method.options.get("untrained") is not True:
        raise RewindError(
            f"methods.*.model: zero_shot: {why}, so its scores would say nothing. Name trained weights, take ridge, "
            "which needs no training, or ask for a random network by options: {untrained: true}."
        )


def _fixed(model: DualEncoder) -> DualEncoder:
    """Parameters become buffers, which are saved but never trained."""
    for part in list(model.modules()):
        for name, parameter in list(part.named_parameters(recurse=False)):
            delattr(part, name)
            part.register_buffer(name, parameter.detach())
    return model.eval()
