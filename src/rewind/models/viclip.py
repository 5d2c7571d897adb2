"""ViCLIP as a backbone (``backbone.kind: viclip``): one vector per clip, by joint attention over all of its frames.

Source: OpenGVLab/InternVideo (Apache-2.0; Wang et al., 2023), whose names of parameters are kept. ``VisionTower`` and
``TextTower`` are the networks, ``load_viclip`` reads weights, ``ViClip`` is the backbone that ``build`` makes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rewind.config import Backbone as BackboneKeys
from rewind.config import Frames
from rewind.config import Text as TextKeys
from rewind.config.base import ConfigModel, config_field, required_field
from rewind.data.tokenizers import Tokenizer, make_tokenizer
from rewind.errors import RewindError
from rewind.io.files import reading_user_file, require_intact_archive, require_regular_file
from rewind.models.autocast import quick_gelu_layers
from rewind.models.backbone import Backbone, clip_vectors_at_frames, trim_after_end_token
from rewind.models.towers import IMAGENET_MEAN, IMAGENET_STD
from rewind.models.weights import SHAPES_ONLY
from rewind.registry import BACKBONES

State = dict[str, Tensor]
_OURS = "backbone."  # prefix of the towers in checkpoints of runs here
_PARTS = ("vision_encoder.", "text_encoder.")
_CONV = "vision_encoder.conv1.weight"
_TEMPORAL_POSITIONS = "vision_encoder.temporal_positional_embedding"

# ---- Towers, under upstream's parameter names ----------------------------------------------------------------------
# The vision tower attends jointly over one class token and the patches of all frames; the text tower is CLIP's.


class TowerSize(ConfigModel):
    """Size of a transformer."""

    width: int = required_field("Width.", ge=1)
    heads: int = required_field("Attention heads.", ge=1)
    layers: int = required_field("Blocks.", ge=1)


class VisionSize(TowerSize):
    """Size of the vision tower."""

    patch: int = required_field("Side of a patch in pixels.", ge=1)
    image: int = config_field(224, "Side of a frame in pixels.", ge=1)
    frames: int = config_field(8, "Temporal positions; other numbers of frames interpolate them.", ge=1)
    drop_path: float = config_field(
        0.1, "Share of residual branches dropped in training, rising over the blocks.", ge=0, lt=1
    )


class TextSize(TowerSize):
    """Size of the text tower."""

    context: int = config_field(32, "Tokens per caption.", ge=1)
    vocabulary: int = config_field(49408, "Token ids.", ge=1)


class ViclipArchitecture(ConfigModel):
    """Sizes of both towers and of the space that they share."""

    embed_dim: int = required_field("Width of the shared space.", ge=1)
    vision: VisionSize
    text: TextSize


SIZES = {
    "viclip-b": ViclipArchitecture(
        embed_dim=512,
        vision=VisionSize(width=768, heads=12, layers=12, patch=16),
        text=TextSize(width=512, heads=8, layers=12),
    ),
    "viclip-l": ViclipArchitecture(
        embed_dim=768,
        vision=VisionSize(width=1024, heads=16, layers=24, patch=14),
        text=TextSize(width=768, heads=12, layers=12),
    ),
}


class Attention(nn.Module):
    """Self-attention with the parameter names of ``nn.MultiheadAttention``."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.randn(3 * width, width) * width**-0.5)
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor, causal: bool) -> Tensor:
        """(n, L, W) → (n, L, W)."""
        n, length, width = x.shape
        joint = F.linear(x, self.in_proj_weight, self.in_proj_bias).view(n, length, 3, self.heads, width // self.heads)
        query, keys, values = joint.permute(2, 0, 3, 1, 4)  # each (n, heads, L, W / heads)
        attended = F.scaled_dot_product_attention(query, keys, values, is_causal=causal)
        return self.out_proj(attended.transpose(1, 2).reshape(n, length, width))


class Mlp(nn.Module):
    """Two layers with QuickGELU between them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return quick_gelu_layers(x, self.c_fc, self.c_proj)


class Block(nn.Module):
    """A pre-norm block; in training each branch of a sample is dropped with probability ``drop`` (stochastic depth)."""

    def __init__(self, width: int, heads: int, drop: float) -> None:
        super().__init__()
        self.attn, self.ln_1 = Attention(width, heads), nn.LayerNorm(width)
        self.mlp, self.ln_2 = Mlp(width), nn.LayerNorm(width)
        self.drop = drop

    def forward(self, x: Tensor, causal: bool) -> Tensor:
        x = x + self._drop_branch(self.attn(self.ln_1(x), causal))
        return x + self._drop_branch(self.mlp(self.ln_2(x)))

    def _drop_branch(self, branch: Tensor) -> Tensor:
        """A residual branch (n, L, W); in training zero for some of the samples."""
        if not self.training or self.drop == 0:
            return branch
        keep = torch.rand(len(branch), 1, 1, device=branch.device) >= self.drop
        return branch * keep / (1 - self.drop)  # so that its expectation is that of evaluation


class Transformer(nn.Module):
    """A stack of blocks; ``recompute``: whether activations inside them are recomputed in the backward pass."""

    def __init__(self, width: int, heads: int, layers: int, drop: float = 0.0) -> None:
        super().__init__()
        # On the CPU even where models are built of meta tensors, which have no numbers.
        rates = torch.linspace(0, drop, layers, device="cpu").tolist()
        self.resblocks = nn.ModuleList(Block(width, heads, rate) for rate in rates)
        self.recompute = False

    def forward(self, x: Tensor, causal: bool = False) -> Tensor:
        """(n, L, W) → (n, L, W)."""
        for block in self.resblocks:
            if self.recompute and torch.is_grad_enabled():
                # It restores the random state as well, so that stochastic depth drops the same branches again.
                x = checkpoint(block, x, causal, use_reentrant=False)
            else:
                x = block(x, causal)
        return x


class VisionTower(nn.Module):
    """Joint attention over space and time: all patches of all frames and one class token are one sequence.

    Spatial positions are those of an image, the same in every frame. Temporal positions are added to patches only;
    a single frame gets their mean.

    >>> size = VisionSize(width=64, heads=2, layers=1, patch=8, image=16)
    >>> VisionTower(size, embed_dim=32)(torch.rand(2, 4, 3, 16, 16)).shape
    torch.Size([2, 32])
    """

    def __init__(self, size: VisionSize, embed_dim: int) -> None:
        super().__init__()
        width, grid = size.width, size.image // size.patch
        scale = width**-0.5
        self.image = size.image
        kernel = (1, size.patch, size.patch)  # one frame deep: a patch does not mix frames
        self.conv1 = nn.Conv3d(3, width, kernel, kernel, bias=False)
        self.class_embedding = nn.Parameter(scale * torch.randn(width))
        self.positional_embedding = nn.Parameter(scale * torch.randn(grid**2 + 1, width))
        # With zeros the tower cannot tell the order of frames: that is learnt, or comes with the weights.
        self.temporal_positional_embedding = nn.Parameter(torch.zeros(1, size.frames, width))
        self.ln_pre, self.ln_post = nn.LayerNorm(width), nn.LayerNorm(width)
        self.transformer = Transformer(width, size.heads, size.layers, size.drop_path)
        self.proj = nn.Parameter(scale * torch.randn(width, embed_dim))

    def forward(self, frames: Tensor, mask_share: float = 0.0) -> Tensor:
        """Normalised frames (n, T, 3, S, S) → (n, embed_dim), not normalised.

        ``mask_share`` of the patches is left out, drawn at random for every clip.
        """
        n, length = frames.shape[:2]
        patches = self.conv1(frames.transpose(1, 2)).flatten(3).permute(0, 2, 3, 1)  # (n, T, patches, width)
        # Row 0 is the class token's. Places broadcast over the frames, times over the patches of a frame.
        patches = patches + self.positional_embedding[1:] + self.times(length)
        # Only after positions were added: patches that stay keep their own place and time.
        patches = _drop_patches(patches.flatten(1, 2), mask_share)
        first = (self.class_embedding + self.positional_embedding[0]).expand(n, 1, -1)
        x = self.transformer(self.ln_pre(torch.cat([first, patches], dim=1)))
        return self.ln_post(x[:, 0]) @ self.proj

    def times(self, length: int) -> Tensor:
        """Temporal positions for ``length`` = T frames, (T, 1, width)."""
        return resize_positions(self.temporal_positional_embedding, length)[0].unsqueeze(1)


class TextTower(nn.Module):
    """CLIP's text tower: causal, pooled at the largest token id, which is the end token.

    >>> TextTower(TextSize(width=64, heads=2, layers=1, vocabulary=100), embed_dim=32)(torch.tensor([[5, 99]])).shape
    torch.Size([1, 32])
    """

    def __init__(self, size: TextSize, embed_dim: int) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(size.vocabulary, size.width)
        nn.init.normal_(self.token_embedding.weight, std=0.02)
        self.positional_embedding = nn.Parameter(torch.randn(size.context, size.width) * 0.01)
        self.transformer = Transformer(size.width, size.heads, size.layers)
        self.ln_final = nn.LayerNorm(size.width)
        self.text_projection = nn.Parameter(torch.randn(size.width, embed_dim) * size.width**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Token ids (n, L) → (n, embed_dim), not normalised."""
        x = self.token_embedding(tokens) + self.positional_embedding[: tokens.shape[1]]
        x = self.ln_final(self.transformer(x, causal=True))
        end = x[torch.arange(len(x), device=x.device), tokens.argmax(dim=1)]
        return end @ self.text_projection


def resize_positions(positions: Tensor, length: int) -> Tensor:
    """Temporal positions (1, F, W) → (1, length, W): the mean for one frame, else linear interpolation.

    >>> resize_positions(torch.zeros(1, 8, 64), 12).shape
    torch.Size([1, 12, 64])
    """
    if length == positions.shape[1]:
        return positions
    if length == 1:
        return positions.mean(dim=1, keepdim=True)
    # interpolate works along the last axis: (1, W, F) → (1, W, length).
    return F.interpolate(positions.transpose(1, 2), length, mode="linear").transpose(1, 2)


def _drop_patches(patches: Tensor, share: float) -> Tensor:
    """(n, L, W) without ``int(share · L)`` random patches of every clip, the others in order."""
    n, length, width = patches.shape
    dropped = int(share * length)
    if not dropped:
        return patches
    order = torch.rand(n, length, device=patches.device).argsort(dim=1)
    rows = order[:, dropped:].sort(dim=1).values
    return patches.gather(1, rows.unsqueeze(-1).expand(-1, -1, width))


# ---- Weights from files: upstream's .pth (a mapping with ``model``), or a checkpoint of a run here -----------------


def load_viclip(model: nn.Module, path: str | Path, architecture: str) -> None:
    """Fill ``model`` (``vision_encoder``, ``text_encoder``, ``logit_scale``); every tensor of the towers must fit.

    Upstream's ``temp`` becomes ``logit_scale = -log(temp)``; temporal positions of another number of frames are
    interpolated. No code of the file is run.

    Raises:
        RewindError: if the file is missing, damaged, not a ViCLIP, of another size (which is named), or holds values
            that are not numbers.
    """
    state = viclip_tensors(read_viclip(path), path)
    own = {name: value for name, value in model.state_dict().items() if name.startswith((*_PARTS, "logit_scale"))}
    if (size := detect_viclip_size(state)) and size != architecture and _other_size(own, state):
        raise RewindError(
            f"backbone.weights: {path}: this file has size {size[-1].upper()}: set backbone.architecture: {size} "
            f"(it is {architecture}), or name weights of that size."
        )
    if _TEMPORAL_POSITIONS in state and state[_TEMPORAL_POSITIONS].ndim == 3:
        state[_TEMPORAL_POSITIONS] = resize_positions(state[_TEMPORAL_POSITIONS], own[_TEMPORAL_POSITIONS].shape[1])
    _check(own, state, path)
    model.load_state_dict(state, strict=False)  # the model's other tensors, such as pixel means, are not weights


def read_viclip(path: str | Path) -> State:
    """Tensors of a file by name, as float32; a file that holds more than tensors and plain values is refused."""
    path = Path(path)
    require_regular_file(path, missing_ok=True)
    if not path.is_file():
        raise RewindError(f"backbone.weights: {path}: no such file; put the weights there or correct the key.")
    require_intact_archive(path)
    content: Any
    with reading_user_file(path, "weights file"):
        try:
            if path.suffix == ".safetensors":
                content = load_file(path)
            else:
                content = torch.load(path, map_location="cpu", weights_only=True)
        except SafetensorError as error:
            raise RewindError(f"backbone.weights: {path} is damaged or not a safetensors file ({error}).") from error
        except Exception as error:  # a damaged or foreign file fails in as many ways as there are formats
            raise RewindError(
                f"backbone.weights: {path} cannot be read safely ({type(error).__name__}): it is damaged, or holds "
                "more than tensors and plain values. Save only {'model': state_dict}."
            ) from error
    state = content.get("model", content) if isinstance(content, Mapping) else {}
    tensors = {name: value.float() for name, value in state.items() if isinstance(value, Tensor)}
    return tensors if len(tensors) == len(state) else {}  # nothing: viclip_tensors then refuses the file: not a ViCLIP


def viclip_tensors(state: State, path: str | Path) -> State:
    """The towers' tensors and ``logit_scale``, under upstream's names; anything that is not a ViCLIP is refused."""
    if any(name.startswith(_OURS) for name in state):
        state = {name.removeprefix(_OURS): value for name, value in state.items() if name.startswith(_OURS)}
    if _CONV not in state:
        raise RewindError(
            f"backbone.weights: {path} is not a ViCLIP: it has no tensor {_CONV!r}. `ViClip-InternVid-10M-FLT.pth`, or "
            "a model that a study here trained with `backbone.kind: viclip`, is needed."
        )
    if "temp" in state:  # upstream divides cosines by `temp`; here they are multiplied by exp(logit_scale)
        if not float(state["temp"]) > 0:
            raise RewindError(
                f"backbone.weights: {path}: its temperature `temp` is {float(state['temp'])}, not above 0."
            )
        state = {name: value for name, value in state.items() if name != "temp"} | {
            "logit_scale": -state["temp"].log().reshape(())
        }
    return dict(state)


def detect_viclip_size(state: State) -> str | None:
    """``viclip-b`` or ``viclip-l`` by the width and the patch of the vision tower; None if neither."""
    width, patch = state[_CONV].shape[0], state[_CONV].shape[-1]
    return next((n for n, a in SIZES.items() if (a.vision.width, a.vision.patch) == (width, patch)), None)


def _other_size(own: State, state: State) -> bool:
    return own[_CONV].shape != state[_CONV].shape


def _check(own: State, state: State, path: str | Path) -> None:
    wrong = [name for name in own if name not in state or own[name].shape != state[name].shape]
    wrong += [name for name in state if name not in own]
    if wrong:
        name = wrong[0]
        shapes = [str(tuple(d[name].shape)) if name in d else "absent" for d in (own, state)]
        hint = " Set text.tokenizer: clip." if name == "text_encoder.token_embedding.weight" else ""
        raise RewindError(
            f"backbone.weights: {path} does not fit backbone.architecture: {len(wrong)} tensors differ, first {name!r} "
            f"(model {shapes[0]}, file {shapes[1]}).{hint}"
        )
    broken = next((name for name, value in state.items() if not torch.isfinite(value).all()), None)
    if broken:
        raise RewindError(f"backbone.weights: {path}: {broken!r} contains values that are not numbers: it is damaged.")


# ---- The backbone, and how a study builds it -----------------------------------------------------------------------


class ViClip(Backbone):
    """A backbone with one vector per clip, repeated at each frame, so that the frames' mean (``meanP``) is that vector.

    Pixels are normalised with ImageNet's channel means and deviations. Only real frames are encoded; temporal positions
    are interpolated to their number. In training mode ``token_mask`` of the patches is left out (upstream 0.9).

    >>> vision = VisionSize(width=64, heads=2, layers=1, patch=8, image=16)
    >>> text = TextSize(width=64, heads=2, layers=1, vocabulary=100)
    >>> towers = ViClip(ViclipArchitecture(embed_dim=32, vision=vision, text=text), tokenizer=None, max_words=32)
    >>> pixels = torch.zeros(2, 4, 3, 16, 16, dtype=torch.uint8)
    >>> towers.clip_features(pixels, torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])).shape
    torch.Size([2, 4, 32])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, size: ViclipArchitecture, tokenizer: Tokenizer, max_words: int, token_mask: float = 0.0) -> None:
        super().__init__()
        if max_words > size.text.context:
            raise RewindError(
                f"text.max_words: {max_words} is more than the architecture's context length {size.text.context}."
            )
        self.vision_encoder = VisionTower(size.vision, size.embed_dim)
        self.text_encoder = TextTower(size.text, size.embed_dim)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(100)))  # upstream's `temp` is exp(-logit_scale), 0.01
        self.tokenizer, self.max_words, self.token_mask = tokenizer, max_words, token_mask
        self.width = self.feature_width = size.embed_dim
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN).view(3, 1, 1) * 255, persistent=False)
        self.register_buffer("std", torch.tensor(IMAGENET_STD).view(3, 1, 1) * 255, persistent=False)

    def prepare_text(self, captions: list[str]) -> Tensor:
        """Token ids int64 (n, max_words), 0 after the end token; longer captions are cut before it."""
        return torch.from_numpy(self.tokenizer.encode(captions, self.max_words))

    def encode_text(self, prepared: Tensor) -> Tensor:
        # Attention is causal: tokens after the end token change nothing and are left out.
        return self.text_encoder(trim_after_end_token(prepared))

    def frame_features(self, pixels: Tensor) -> Tensor:
        """uint8 RGB (n, 3, S, S), each a clip of one frame → (n, width)."""
        return self.clip_vectors(pixels[:, None])

    def clip_features(self, pixels: Tensor, mask: Tensor) -> Tensor:
        """uint8 RGB (n, T, 3, S, S) and mask (n, T) → (n, T, width): the clip's vector at every real frame, else 0."""
        return clip_vectors_at_frames(self.clip_vectors, pixels, mask, self.width)

    def clip_vectors(self, pixels: Tensor) -> Tensor:
        """uint8 RGB (n, T, 3, S, S) → (n, width), not normalised."""
        side = self.vision_encoder.image
        if pixels.ndim != 5 or tuple(pixels.shape[2:]) != (3, side, side):
            raise RewindError(
                f"frames: ViCLIP reads RGB frames of {side} × {side} pixels, not {tuple(pixels.shape[2:])}: set "
                f"frames.size: {side}, or another backbone.architecture."
            )
        frames = (pixels.to(self.mean.dtype) - self.mean) / self.std
        return self.vision_encoder(frames, self.token_mask if self.training else 0.0)

    def check_frames(self, frames: Frames) -> None:
        side = self.vision_encoder.image
        if frames.size != side:
            raise RewindError(
                f"frames.size: {frames.size}, but ViCLIP reads frames of {side} × {side} pixels: set frames.size: "
                f"{side}, or another backbone.architecture."
            )

    def visual_parameters(self) -> list[nn.Parameter]:
        return list(self.vision_encoder.parameters())

    def text_parameters(self) -> list[nn.Parameter]:
        return list(self.text_encoder.parameters())

    def checkpoint_towers(self) -> None:
        for tower in (self.vision_encoder, self.text_encoder):
            tower.transformer.recompute = True

    def compile_towers(self) -> None:
        for tower in (self.vision_encoder, self.text_encoder):
            for block in tower.transformer.resblocks:
                block.compile(dynamic=True)


@BACKBONES.register("viclip", tags=("seeded",))
def build(keys: BackboneKeys, text: TextKeys, train_captions: list[str]) -> ViClip:
    """The towers of a study with ``kind: viclip``; new parameters come from torch's global generator."""
    if keys.pretrained or keys.patch != "2d":
        name = "pretrained" if keys.pretrained else "patch"
        raise RewindError(f"backbone.{name}: kind: viclip has no such key; name a file with backbone.weights.")
    size = load_viclip_architecture(keys.architecture)
    tokenizer = make_tokenizer(text.tokenizer, train_captions)
    if text.tokenizer == "miniclip":
        raise RewindError("text.tokenizer: miniclip has no end token, which ViCLIP's text tower reads; use words.")
    if text.tokenizer == "words":
        size = size.model_copy(update={"text": size.text.model_copy(update={"vocabulary": tokenizer.vocabulary})})
    model = ViClip(size, tokenizer, text.max_words, keys.token_mask)
    if keys.weights and not SHAPES_ONLY.get():
        load_viclip(model, keys.weights, keys.architecture)
    return model


def load_viclip_architecture(name: str) -> ViclipArchitecture:
    """Sizes by name (``viclip-b``, ``viclip-l``) or from a JSON file with the fields of :class:`ViclipArchitecture`."""
    if name in SIZES:
        return SIZES[name]
    if not name.endswith(".json"):
        raise RewindError(f"backbone.architecture: {name!r}: kind: viclip has {', '.join(SIZES)}, or a JSON file.")
    path = Path(name)
    require_regular_file(path, missing_ok=True)
    if not path.is_file():
        raise RewindError(f"backbone.architecture: {name}: no such file.")
    with reading_user_file(path, "JSON file"):
        try:
            size = ViclipArchitecture.model_validate(json.loads(path.read_text()))
        except ValueError as error:  # not JSON, not UTF-8, or wrong fields
            raise RewindError(f"backbone.architecture: {name}: {error}") from None
    for tower, at in ((size.vision, "vision"), (size.text, "text")):
        if tower.width % tower.heads:
            raise RewindError(f"backbone.architecture: {name}: {at}: width {tower.width} in {tower.heads} heads.")
    if size.vision.image % size.vision.patch:
        raise RewindError(f"backbone.architecture: {name}: vision: image must be a multiple of patch.")
    return size
