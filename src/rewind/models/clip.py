"""CLIP's two towers from open_clip (``backbone.kind: clip``), with random or pretrained weights."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor, nn

from rewind.config import Backbone as BackboneKeys
from rewind.config import Frames
from rewind.config import Text as TextKeys
from rewind.data.tokenizers import make_tokenizer
from rewind.errors import RewindError
from rewind.models.architectures import is_clip4clip, load_architecture
from rewind.models.autocast import shorten_blocks
from rewind.models.backbone import Backbone, scatter_frames, trim_after_end_token
from rewind.models.clip4clip_checkpoint import check_clip4clip_towers, clip4clip_head
from rewind.models.patches import add_temporal_patches, encode_real_frames, has_temporal_patches
from rewind.models.weights import load_weights
from rewind.optional_packages import open_clip
from rewind.registry import BACKBONES
from rewind.video.frames import CLIP_MEAN, CLIP_STD

_BLOCK = re.compile(r"(?:visual\.)?transformer\.resblocks\.(\d+)\.")
# Parameters outside of blocks that are trained whatever the value of training.freeze_layers.
_NEVER_FROZEN = (
    "ln_final.",
    "text_projection",
    "logit_scale",
    "visual.ln_post.",
    "visual.proj",
    "visual.conv2.",  # patches over time: CLIP's weights know nothing of neighbouring frames
)


class ClipTowers(Backbone):
    """open_clip's CLIP with captions cut to ``max_words`` tokens, start and end token included."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: Any, tokenizer: Any, max_words: int) -> None:
        super().__init__()
        context = model.positional_embedding.shape[0]
        if max_words > context:
            raise RewindError(f"text.max_words: {max_words} is more than the architecture's context length {context}.")
        shorten_blocks(model)
        self.clip = model
        self.tokenizer = tokenizer
        self.max_words = max_words
        self.width = self.feature_width = model.text_projection.shape[1]
        # Times 255, because pixels come as bytes and the published numbers are for values from 0 to 1.
        self.register_buffer("mean", torch.tensor(CLIP_MEAN).view(3, 1, 1) * 255, persistent=False)
        self.register_buffer("std", torch.tensor(CLIP_STD).view(3, 1, 1) * 255, persistent=False)

    @property
    def logit_scale(self) -> nn.Parameter:  # type: ignore[override]  # it belongs to open_clip's model
        return self.clip.logit_scale

    def prepare_text(self, captions: list[str]) -> Tensor:
        return torch.from_numpy(self.tokenizer.encode(captions, self.max_words))

    def encode_text(self, prepared: Tensor) -> Tensor:
        x, end = self._words(prepared)
        return x[torch.arange(len(x), device=x.device), end] @ self.clip.text_projection

    def encode_words(self, prepared: Tensor) -> tuple[Tensor, Tensor]:
        """Every token through the last norm and the projection, from the start token to the end token."""
        x, end = self._words(prepared)
        real = torch.arange(prepared.shape[1], device=x.device) <= end.unsqueeze(1)
        projected = x @ self.clip.text_projection
        # At the full length again: features of several batches are concatenated, whatever their longest captions are.
        words = projected.new_zeros(*prepared.shape, projected.shape[-1])
        words[:, : x.shape[1]] = projected * real[:, : x.shape[1], None]
        return words, real.to(torch.long)

    def _words(self, prepared: Tensor) -> tuple[Tensor, Tensor]:
        """Features (n, L, F) after the last norm, and the position of the end token (n,)."""
        # open_clip always computes all 77 positions. Attention is causal, so those after the end token change nothing:
        # the batch is cut after its longest caption.
        clip, tokens = self.clip, trim_after_end_token(prepared)
        length = tokens.shape[1]
        x = clip.token_embedding(tokens) + clip.positional_embedding[:length]
        x = clip.transformer(x, attn_mask=clip.attn_mask[:length, :length])
        return clip.ln_final(x), tokens.argmax(dim=1)

    def frame_features(self, pixels: Tensor) -> Tensor:
        if has_temporal_patches(self.clip):  # clips of one frame
            return self.clip_features(pixels[:, None], pixels.new_ones(len(pixels), 1)).squeeze(1)
        return self.clip.visual(self._normalised(pixels))

    @property
    def sees_single_frames(self) -> bool:
        return not has_temporal_patches(self.clip)

    def clip_features(self, pixels: Tensor, mask: Tensor) -> Tensor:
        if not has_temporal_patches(self.clip):
            return super().clip_features(pixels, mask)
        real = mask.bool()
        return scatter_frames(encode_real_frames(self.clip.visual, self._normalised(pixels), real), real)

    def check_frames(self, frames: Frames) -> None:
        self._check_size(frames.size, frames.size)

    def _check_size(self, height: int, width: int) -> None:
        sides = getattr(self.clip.visual, "image_size", None)
        side = sides[0] if isinstance(sides, tuple) else sides
        if side is not None and (height, width) != (side, side):
            raise RewindError(
                f"frames.size: {width}, but the visual tower reads frames of {side} × {side} pixels: set "
                f"frames.size: {side}, or another backbone.architecture."
            )

    def _normalised(self, pixels: Tensor) -> Tensor:
        self._check_size(*pixels.shape[-2:])
        return (pixels.to(self.mean.dtype) - self.mean) / self.std

    def visual_parameters(self) -> list[nn.Parameter]:
        return list(self.clip.visual.parameters())

    def text_parameters(self) -> list[nn.Parameter]:
        # open_clip keeps the visual tower inside the model, next to the text tower's own parts.
        visual = {id(p) for p in self.clip.visual.parameters()}
        return [p for p in self.clip.parameters() if id(p) not in visual and p is not self.clip.logit_scale]

    def checkpoint_towers(self) -> None:
        for name, tower in (("text", self.clip), ("visual", self.clip.visual)):
            if hasattr(getattr(tower, "transformer", None), "grad_checkpointing"):
                tower.transformer.grad_checkpointing = True
            else:
                print(f"training.gradient_checkpointing: the {name} tower is not a transformer: activations are kept.")

    def compile_towers(self) -> None:
        # Block by block: all blocks of a tower share one compiled program, so the start is short. With dynamic shapes,
        # because each new length of captions would be compiled again otherwise, until torch gives up.
        for tower in (self.clip, self.clip.visual):
            stack: Any = getattr(tower, "transformer", None)
            for part in stack.resblocks if hasattr(stack, "resblocks") else [tower]:
                part.compile(dynamic=True)

    def freeze_layers(self, count: int) -> None:
        """Stop gradients into the embeddings and the first ``count`` blocks of both towers.

        As CLIP4Clip's ``freeze_layer_num``: later blocks, final norms, projections and the logit scale are trained, and
        0 freezes only patch, token, class and position embeddings and the first norm. Patches over time are never
        frozen; upstream's line for that has the effect that nothing at all is frozen with ``linear_patch 3d``.
        """
        stacks: list[Any] = [getattr(part, "transformer", None) for part in (self.clip.visual, self.clip)]
        if not all(hasattr(stack, "resblocks") for stack in stacks):
            raise RewindError("training.freeze_layers: both towers must be transformers; this architecture's are not.")
        fewest = min(len(stack.resblocks) for stack in stacks)
        if count > fewest:
            raise RewindError(f"training.freeze_layers: {count}, but a tower has only {fewest} blocks.")
        for name, parameter in self.clip.named_parameters():
            block = _BLOCK.match(name)
            frozen = int(block[1]) < count if block else not name.startswith(_NEVER_FROZEN)
            if frozen:
                parameter.requires_grad_(False)

    def text_blocks(self) -> dict[str, Tensor]:
        return {
            name: p for name, p in self.clip.state_dict().items() if name.startswith(("positional", "transformer."))
        }


@BACKBONES.register("clip", tags=("seeded",))
def build(keys: BackboneKeys, text: TextKeys, train_captions: list[str]) -> ClipTowers:
    config = load_architecture(keys.architecture)
    if text.tokenizer == "miniclip":
        raise RewindError("text.tokenizer: miniclip has no end token, which CLIP's text tower reads; use words.")
    tokenizer = make_tokenizer(text.tokenizer, train_captions)
    if text.tokenizer == "words":
        config["text_cfg"] = {**config["text_cfg"], "vocab_size": tokenizer.vocabulary}
    elif (ids := config["text_cfg"].get("vocab_size", tokenizer.vocabulary)) < tokenizer.vocabulary:
        raise RewindError(
            f"backbone.architecture: {keys.architecture}: text_cfg.vocab_size: {ids} is less than the "
            f"{tokenizer.vocabulary} ids of CLIP's tokenizer: set text.tokenizer: words, or choose another "
            "architecture."
        )
    model = ClipTowers(open_clip("model").CLIP(**config), tokenizer, text.max_words)
    if keys.patch == "3d":
        add_temporal_patches(model.clip, keys.architecture)
    if keys.weights or keys.pretrained:
        state = load_weights(model.clip, keys, bool(config.get("quick_gelu", False)))
        if is_clip4clip(state):
            check_clip4clip_towers(model.clip, str(keys.weights))
            # The method builds its head later, and fills it from these tensors if it has the same one.
            model.stored_head = clip4clip_head(state, str(keys.weights))
    return model
