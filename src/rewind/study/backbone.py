"""The keys of the towers under every head."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from rewind.study.keys import Keys, key


class Backbone(Keys):
    """The text and visual towers that all heads share."""

    kind: str = key(
        "clip",
        "`clip` (open_clip), `viclip` (ViCLIP, which encodes all frames together), `towers` (packaged pretrained "
        "towers), `miniclip_towers` (an image network and a small text tower, for `model: miniclip`), `embeddings` "
        "(for a dataset of vectors), or the dotted path of your own class.",
    )
    architecture: str = key(
        "ViT-B-32-quickgelu",
        "`clip`: open_clip's model name, or a JSON file in open_clip's format. `miniclip_towers`: `resnet18` (with "
        "`weights` in torchvision's names, else random) or `efficientnet_lite0` (packaged ImageNet weights). "
        "`viclip`: `viclip-b`, `viclip-l`, or a JSON file of sizes.",
    )
    weights: str | None = key(
        None,
        "Local weights file: safetensors, a plain state dict, Hugging Face's CLIP, or a CLIP4Clip checkpoint "
        "(methods with the same head load its head too). `miniclip_towers`: torchvision's resnet18, or a checkpoint of "
        "MiniCLIP (docs/miniclip.md). None: random weights, and the table says so.",
    )
    pretrained: str | None = key(None, "open_clip's tag of published weights, downloaded once, instead of `weights`.")
    family: Literal["openai", "open_clip"] | None = key(
        None,
        "Origin of weights whose file does not show it: `openai` (trained with QuickGELU, as MetaCLIP's and DFN's "
        "are too) or `open_clip` (trained with GELU). Needed if open_clip has the architecture with both.",
    )
    allow_torchscript: bool = key(
        False,
        "Allow `weights` that are a TorchScript archive, as OpenAI's `.pt` files are. Opening one loads a program: "
        "only for files that you trust.",
    )
    patch: Literal["2d", "3d"] = key(
        "2d",
        "How `clip` cuts a clip into patches: `2d`, each frame alone, or `3d`, over a frame and both its neighbours"
        " (CLIP4Clip's `linear_patch`).",
    )
    token_mask: float = key(
        0.0,
        "`viclip`: share of a clip's patches that training drops at random (upstream 0.9); evaluation sees all "
        "patches.",
        ge=0,
        lt=1,
    )
    width: int = key(
        256,
        "`towers`, `miniclip_towers`, `embeddings`: width of the shared embedding space, to which trained "
        "projections map.",
        ge=8,
        le=4096,
    )
    text_width: int | None = key(None, "`embeddings`: required width of the caption vectors; none: any.", ge=1)
    item_width: int | None = key(None, "`embeddings`: required width of the item vectors; none: any.", ge=1)

    @model_validator(mode="after")
    def _one_source(self) -> Backbone:
        if self.weights and self.pretrained:
            raise ValueError("weights and pretrained: give one of the two")
        return self
