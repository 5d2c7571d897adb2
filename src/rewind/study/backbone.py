"""The keys of the towers under every head."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from rewind.study.keys import Keys, key


class Backbone(Keys):
    """The text and frame towers under every head."""

    kind: str = key(
        "clip",
        "`clip` (open_clip), `viclip` (ViCLIP, which sees all frames at once), `towers` (packaged pretrained towers), "
        "`miniclip_towers` (an image network and a small text tower, for `model: miniclip`), `embeddings` (a data set "
        "of vectors), or a dotted path of your own.",
    )
    architecture: str = key(
        "ViT-B-32-quickgelu",
        "`clip`: open_clip's model name, or a JSON file in open_clip's format. `miniclip_towers`: `resnet18` (with "
        "`weights` in torchvision's names, else random) or `efficientnet_lite0` (packaged ImageNet weights). `viclip`: "
        "`viclip-b`, `viclip-l`, or a JSON file of sizes.",
    )
    weights: str | None = key(
        None,
        "Local weights file: safetensors, a plain state dict, Hugging Face's CLIP, or a CLIP4Clip checkpoint (its head "
        "is loaded too where a method has that head); none: random weights, and the table says so.",
    )
    pretrained: str | None = key(
        None, "open_clip's tag of published weights, fetched once over the network, instead of `weights`."
    )
    family: Literal["openai", "open_clip"] | None = key(
        None,
        "Whose weights a file holds that does not show it: `openai` (trained with QuickGELU, as MetaCLIP's and DFN's "
        "are too) or `open_clip` (trained with GELU). Needed where open_clip has the architecture with either.",
    )
    allow_torchscript: bool = key(
        False, "Open `weights` that are a program archive, as OpenAI's `.pt` files are. Only for files that you trust."
    )
    patch: Literal["2d", "3d"] = key(
        "2d",
        "How `clip` cuts a frame into patches: `2d`, each frame alone, or `3d`, over a frame and both its neighbours "
        "(CLIP4Clip's `linear_patch`).",
    )
    token_mask: float = key(
        0.0,
        "`viclip`: share of the patches of a clip that training leaves out at random (upstream 0.9); evaluation sees "
        "all of them.",
        ge=0,
        lt=1,
    )
    width: int = key(
        256,
        "Shared embedding width of the trained projections of `towers`, `miniclip_towers` and `embeddings`.",
        ge=8,
        le=4096,
    )
    text_width: int | None = key(
        None, "`embeddings`: width of the caption vectors that are expected; none: what the data set has.", ge=1
    )
    item_width: int | None = key(
        None, "`embeddings`: width of the item vectors that are expected; none: what the data set has.", ge=1
    )

    @model_validator(mode="after")
    def _one_source(self) -> Backbone:
        if self.weights and self.pretrained:
            raise ValueError("weights and pretrained: give one of the two")
        return self
