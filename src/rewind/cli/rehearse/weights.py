"""Random weights in the layout of published files, and towers of fewer layers to load them into.

:class:`RehearsedTowers` decides which towers need them; the size of a tower is measured in FLOPs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from rewind.config import Backbone, Text
from rewind.encoders.tiny import write_open_clip
from rewind.errors import RewindError
from rewind.io.files import atomic_write, write_json
from rewind.models import clip, viclip
from rewind.models.architectures import load_architecture
from rewind.models.towers import load_image_tower

# ---- FLOPs of one forward pass of a visual tower -------------------------------------------------------------------

RESNET50_FRAME_FLOPS = 12e9  # about, of CLIP's RN50 for a frame of 224 × 224 pixels


def transformer_flops(layers: int, tokens: int, width: int) -> float:
    """FLOPs of a forward pass of a transformer; a multiplication with its addition counts as two.

    Per token and layer: 24 w² for the matrices of width w (4 w² weights of attention, 8 w² of the MLP), and 4 w for
    each token that it attends to.

    >>> transformer_flops(layers=1, tokens=2, width=10)
    4960
    """
    return layers * tokens * (24 * width**2 + 4 * tokens * width)


def visual_tower_flops(backbone: Mapping[str, Any], frames: int, size: int) -> float | None:
    """FLOPs of a forward pass of a visual tower over one item; None for towers whose size is not known here.

    ``backbone`` is a block like a study's, ``frames`` are those of the item, ``size`` is the side of one in pixels.
    """
    kind, name = backbone.get("kind", "clip"), backbone.get("architecture", "")
    if kind == "clip":
        vision = load_architecture(name)["vision_cfg"]
        if not isinstance(vision.get("layers", 12), int):
            # A list of four numbers: a ResNet. RN50 has 3 + 4 + 6 + 3 = 16 blocks.
            return frames * RESNET50_FRAME_FLOPS * sum(vision["layers"]) / 16
        tokens = (size // vision.get("patch_size", 16)) ** 2 + 1
        return frames * transformer_flops(vision.get("layers", 12), tokens, vision.get("width", 768))
    if kind == "viclip":
        vision = viclip.load_viclip_architecture(name).vision
        # Attention is over all patches of all frames at once.
        return transformer_flops(vision.layers, frames * (vision.image // vision.patch) ** 2 + 1, vision.width)
    return None


# ---- Random weights and shallow towers -----------------------------------------------------------------------------

ConfigValues = dict[str, Any]  # a block of configuration as plain values
MIN_DEEP_FLOPS = 1e9  # towers with more FLOPs per frame are made shallow


class RehearsedTowers:
    """Replaces the towers of a study or dataset whose weights are not there, and remembers what was replaced.

    Args:
        full: keep the depth of towers whose weights are not there.
        least: fewest layers that the visual and the text tower must keep (heads start from text blocks, and some
            layers are frozen).

    Attributes:
        notes: a sentence for each file of random weights and each tower made shallow.
        share: smallest share of its visual layers that is left of a tower.
        missing: largest number of parameters that were left out of a tower.
    """

    def __init__(self, folder: Path, full: bool, least: tuple[int, int] = (1, 1)) -> None:
        self.folder, self.full, self.least = folder, full, least
        self.notes: list[str] = []
        self.share, self.missing = 1.0, 0

    def rehearsed(self, keys: ConfigValues, where: str, size: int, fit: str = "crop") -> ConfigValues:
        """A block like a study's ``backbone``, with random weights in place of those that are not there.

        ``where`` is the path of the block in the configuration file, for notes and messages. Its frames have sides of
        ``size`` pixels, and become square by ``fit``.

        Raises:
            RewindError: for missing weights of a model of the user's own, whose layout is not known.
        """
        weights, tag = keys.get("weights"), keys.get("pretrained")
        if weights and Path(weights).is_file():
            return keys
        kind = keys.get("kind") or "clip"
        if kind == "encoder":
            return self._encoder(keys, where, size, fit)
        keys = keys | {"architecture": keys.get("architecture") or Backbone().architecture}
        new_keys = self._shallow(keys, kind, where, size)
        if not weights and not tag:
            return new_keys
        if kind not in WEIGHTS_WRITERS:
            raise RewindError(
                f"{where}.weights: {weights}: no such file, and kind: {kind} has no stand-in for it. Put the file "
                "there."
            )
        path = self.folder / (Path(weights).name if weights else f"{tag}.safetensors")
        path.parent.mkdir(parents=True, exist_ok=True)
        WEIGHTS_WRITERS[kind](new_keys, path)
        reason = f"{where}.weights: {weights}: missing" if weights else f"{where}.pretrained: {tag}: not downloaded"
        self.notes.append(f"{reason}; random weights are used instead")
        # OpenAI's files can be recognised by their constants; for all others the configuration names the family.
        family = {"family": "open_clip"} if kind == "clip" and not _uses_quick_gelu(new_keys) else {}
        return new_keys | {"weights": str(path), "pretrained": None, "allow_torchscript": False} | family

    def _encoder(self, keys: ConfigValues, where: str, size: int, fit: str) -> ConfigValues:
        """A model by name as it is, or if it is not on this machine a small one with random weights."""
        encoding = Backbone.model_validate(keys).encoding()
        if encoding is None or encoding.local() is not None:
            return keys
        folder = write_open_clip(
            self.folder / "encoder", image_size=size, resize_mode="squash" if fit == "stretch" else "shortest"
        )
        self.notes.append(
            f"{where}.name: {encoding.title()}: not on this machine; a small model with random weights is trained "
            "instead, whose time and memory say nothing about it"
        )
        given: ConfigValues = {"encoder": "open_clip", "name": str(folder), "revision": None, "encoder_options": {}}
        return keys | given

    def _shallow(self, keys: ConfigValues, kind: str, where: str, size: int) -> ConfigValues:
        name = keys["architecture"]
        if self.full or kind not in TOWER_SIZES or (visual_tower_flops(keys, 1, size) or 0) < MIN_DEEP_FLOPS:
            return keys
        load, visual, text = TOWER_SIZES[kind]
        config = copy.deepcopy(load(name))
        full_depth, missing = _depth(config[visual]), 0
        for tower, least, width in ((config[visual], self.least[0], 768), (config[text], self.least[1], 512)):
            layers = tower.get("layers", 12)
            if isinstance(layers, int):
                tower["layers"] = min(layers, least)
                # Parameters of a transformer block: attention 4 w², MLP 8 w², without biases.
                missing += (layers - tower["layers"]) * 12 * tower.get("width", width) ** 2
            else:
                tower["layers"] = [1] * len(layers)
        share = _depth(config[visual]) / full_depth
        if share == 1:
            return keys
        path = self.folder / "architectures" / f"{Path(name).stem}-shallow.json"
        write_json(path, config)
        self.notes.append(f"{where}.architecture: {name} keeps {share:.0%} of its visual layers (--full keeps all)")
        self.share, self.missing = min(self.share, share), max(self.missing, missing)
        return keys | {"architecture": str(path)}


def _depth(tower: Mapping[str, Any]) -> int:
    """Layers of a transformer; blocks of a ResNet, of which a list has the numbers by stage."""
    layers = tower.get("layers", 12)
    return layers if isinstance(layers, int) else sum(layers)


TOWER_SIZES: Mapping[str, tuple[Callable[[str], Any], str, str]] = {
    "clip": (load_architecture, "vision_cfg", "text_cfg"),
    "viclip": (lambda name: viclip.load_viclip_architecture(name).model_dump(), "vision", "text"),
}
"""``backbone.kind`` → what reads the sizes of towers that can be shallower, and the keys of both towers there."""


def _write_clip(keys: ConfigValues, path: Path) -> None:
    """Write open_clip's names in half precision; with QuickGELU also the constants that OpenAI's files contain."""
    architecture = {name: keys[name] for name in ("architecture", "patch") if name in keys}
    model = clip.build(Backbone(kind="clip", **architecture), Text(tokenizer="clip", max_words=4), []).clip
    state = {name: value.half() for name, value in model.state_dict().items()}
    if _uses_quick_gelu(keys):
        sizes = (224, model.positional_embedding.shape[0], len(model.token_embedding.weight))
        names = ("input_resolution", "context_length", "vocab_size")
        state |= {name: torch.tensor(size) for name, size in zip(names, sizes, strict=True)}
    _save_tensors(state, path)


def _uses_quick_gelu(keys: ConfigValues) -> bool:
    return bool(load_architecture(keys["architecture"]).get("quick_gelu", False))


def _write_viclip(keys: ConfigValues, path: Path) -> None:
    """Write upstream's ``.pth``: a mapping with ``model``, in which the temperature is ``temp`` = exp(−logit_scale)."""
    architecture = keys["architecture"]
    model = viclip.build(Backbone(kind="viclip", architecture=architecture), Text(tokenizer="clip", max_words=4), [])
    state = {name: value for name, value in model.state_dict().items() if name != "logit_scale"}
    state["temp"] = (-model.logit_scale.detach()).exp()
    with atomic_write(path) as temporary:
        torch.save({"model": state}, temporary)


def _write_resnet18(keys: ConfigValues, path: Path) -> None:
    """Write torchvision's names, its classifier (1000 classes of ImageNet) included."""
    state = dict(load_image_tower("resnet18").network.state_dict())
    _save_tensors(state | {"fc.weight": torch.randn(1000, 512) * 0.01, "fc.bias": torch.zeros(1000)}, path)


WEIGHTS_WRITERS: Mapping[str, Callable[[ConfigValues, Path], None]] = {
    "clip": _write_clip,
    "viclip": _write_viclip,
    "miniclip_towers": _write_resnet18,
}


def _save_tensors(state: Mapping[str, Tensor], path: Path) -> None:
    tensors = {name: value.contiguous() for name, value in state.items()}
    with atomic_write(path) as temporary:
        if path.suffix == ".safetensors":
            save_file(tensors, temporary)
        else:
            torch.save(tensors, temporary)
