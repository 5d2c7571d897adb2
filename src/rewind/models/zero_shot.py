"""A study's backbone before any training: its weights as they are, or, where none are named, random ones."""

from __future__ import annotations

from rewind.errors import RewindError
from rewind.models.dual_encoder import DualEncoder, own_backbone
from rewind.models.retriever import find
from rewind.study import Backbone as BackboneKeys
from rewind.study import Method
from rewind.study import Text as TextKeys


def build(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> DualEncoder:
    """The study's backbone, or that of ``options: {backbone: {…}}``, of which nothing is a parameter.

    So nothing is trained, and the run's model file holds the weights as they were built.

    Raises:
        RewindError: for another option, or what the towers refuse.
    """
    if unknown := sorted(set(method.options) - {"backbone"}):
        raise RewindError(f"methods.*.options.{unknown[0]}: model: zero_shot has the option backbone alone.")
    keys = own_backbone(method, backbone)
    return _fixed(DualEncoder(find(keys.kind, "rewind.models", "backbone.kind").build(keys, text, train_captions)))


def _fixed(model: DualEncoder) -> DualEncoder:
    """Parameters become buffers, which are saved but never trained."""
    for part in list(model.modules()):
        for name, parameter in list(part.named_parameters(recurse=False)):
            delattr(part, name)
            part.register_buffer(name, parameter.detach())
    return model.eval()
