"""How much a visual tower computes, in floating-point operations of one forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rewind.models import viclip
from rewind.models.clip import architecture

RESNET = 12e9  # a frame of RN50 at 224 pixels and the like, about


def transformer(layers: int, tokens: int, width: int) -> float:
    """FLOPs of a transformer: per token and layer 24 w² for its matrices, 4 w for each token that it attends to."""
    return layers * tokens * (24 * width**2 + 4 * tokens * width)


def per_item(backbone: Mapping[str, Any], frames: int, size: int) -> float | None:
    """FLOPs of a visual tower over an item of so many frames; None for towers whose size is not known here."""
    kind, name = backbone.get("kind", "clip"), backbone.get("architecture", "")
    if kind == "clip":
        vision = architecture(name)["vision_cfg"]
        if not isinstance(vision.get("layers", 12), int):
            return frames * RESNET * sum(vision["layers"]) / 16
        tokens = (size // vision.get("patch_size", 16)) ** 2 + 1
        return frames * transformer(vision.get("layers", 12), tokens, vision.get("width", 768))
    if kind == "viclip":
        vision = viclip.architecture(name).vision
        return transformer(vision.layers, frames * (vision.image // vision.patch) ** 2 + 1, vision.width)
    return None
