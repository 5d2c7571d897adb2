"""MiniCLIP (``model: miniclip``, ``backbone.kind: miniclip_towers``): one vector per caption and image.

An image network whose upper part learns, and a small text tower on words (an LSTM or a transformer). Vectors are
compared by cosine; a clip of several frames is the mean over its frames, as in CLIP4Clip's meanP.

Source: SoroushRaeisian/miniclip, whose names of parameters are kept in the text towers, so that its state dicts load.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from rewind.config import Backbone as BackboneKeys
from rewind.config import Method
from rewind.config import Text as TextKeys
from rewind.data.tokenizers import MiniclipTokenizer, make_tokenizer
from rewind.errors import RewindError
from rewind.hashing import sha256_hex
from rewind.models.backbone import Backbone, scatter_frames
from rewind.models.clip4clip import Clip4Clip
from rewind.models.heads.clip4clip import MeanP
from rewind.models.lstm import Lstm
from rewind.models.miniclip_checkpoint import is_miniclip, load_miniclip, read_vocabulary_captions, text_tower_kind
from rewind.models.towers import ImageTower, load_image_tower
from rewind.models.weights import SHAPES_ONLY, read_state
from rewind.registry import BACKBONES, MODELS

# ---- Text towers, on token ids that are 0 after the last word ------------------------------------------------------


class LstmText(nn.Module):
    """Two bidirectional LSTM layers; the last forward and backward states under a small projection.

    >>> LstmText(vocabulary=100)(torch.tensor([[5, 7, 0], [9, 0, 0]])).shape
    torch.Size([2, 256])
    """

    def __init__(
        self,
        vocabulary: int,
        width: int = 256,
        word_width: int = 128,
        hidden: int = 256,
        layers: int = 2,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, word_width, padding_idx=0)
        self.lstm = Lstm(word_width, hidden, layers, batch_first=True, bidirectional=True, dropout=dropout)
        self.layer_norm = nn.LayerNorm(2 * hidden)
        self.projection = nn.Sequential(
            nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, width)
        )

    def forward(self, ids: Tensor) -> Tensor:
        """int64 (n, L) → (n, width), not normalised. A caption without words is read as one padding token."""
        # Packed, because the backward direction must begin at the last word and not at padding.
        packed = pack_padded_sequence(
            self.embedding(ids), token_counts(ids).cpu(), batch_first=True, enforce_sorted=False
        )
        _, (states, _) = self.lstm(packed)  # the last layer's two directions come last
        return self.projection(self.layer_norm(torch.cat([states[-2], states[-1]], dim=1)))


class TransformerText(nn.Module):
    """Two pre-norm transformer layers over a class token and the words; the class token under a small projection."""

    def __init__(
        self,
        vocabulary: int,
        width: int = 256,
        word_width: int = 128,
        heads: int = 4,
        layers: int = 2,
        most_words: int = 32,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, word_width))
        self.embedding = nn.Embedding(vocabulary, word_width, padding_idx=0)
        self.pos_encoding = SinusoidalPositions(most_words + 1, word_width, dropout)
        layer = nn.TransformerEncoderLayer(
            word_width, heads, 4 * word_width, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.transformer = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.layer_norm = nn.LayerNorm(word_width)
        self.projection = nn.Sequential(
            nn.Linear(word_width, word_width), nn.GELU(), nn.Dropout(dropout), nn.Linear(word_width, width)
        )

    def forward(self, ids: Tensor) -> Tensor:
        """int64 (n, L) → (n, width), not normalised. A caption without words attends to one padding token."""
        words = torch.cat([self.cls_token.expand(len(ids), -1, -1), self.embedding(ids)], dim=1)
        positions = torch.arange(words.shape[1], device=ids.device)
        padding = positions > token_counts(ids)[:, None]  # the class token is at position 0, words begin at 1
        encoded = self.transformer(self.pos_encoding(words), src_key_padding_mask=padding)
        return self.projection(self.layer_norm(encoded[:, 0]))


class SinusoidalPositions(nn.Module):
    """Adds fixed sines and cosines of the position; position 0 is the class token.

    ``pe[p, 2i] = sin(p / 10000^(2i/d))`` and ``pe[p, 2i + 1] = cos(p / 10000^(2i/d))`` (Vaswani et al., 2017).

    >>> SinusoidalPositions(length=33, width=128, dropout=0.0)(torch.zeros(2, 5, 128)).shape
    torch.Size([2, 5, 128])
    """

    pe: Tensor

    def __init__(self, length: int, width: int, dropout: float) -> None:
        super().__init__()
        positions = torch.arange(length)[:, None]
        frequencies = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
        # (length, width / 2, 2), flattened: sines and cosines alternate, as in the formula.
        table = torch.stack([torch.sin(positions * frequencies), torch.cos(positions * frequencies)], dim=2).flatten(1)
        self.register_buffer("pe", table[None])
        self.dropout = nn.Dropout(dropout)

    def forward(self, words: Tensor) -> Tensor:
        """(n, L, d) with its positions added; L is at most ``length``."""
        return self.dropout(words + self.pe[:, : words.shape[1]])


def token_counts(ids: Tensor) -> Tensor:
    """Tokens of each caption, (n,), at least 1."""
    return ids.ne(0).sum(dim=1).clamp(min=1)


TEXT_TOWERS = {"lstm": LstmText, "transformer": TransformerText}


# ---- The backbone: an image network that learns in its upper part, and a small text tower on words -----------------

PROJECTION_WIDTH = 512  # of the image projection
DEFAULT_DROPOUT = 0.2
_FRAMES_AT_ONCE = 32  # more would only take more memory


class MiniclipTowers(Backbone):
    """MiniCLIP's towers: the lower part of the image network is ``frame_features``, the rest ``encode_frames``.

    So with a frozen visual tower (``training.freeze: [visual]``) the lower part's maps are computed once, and the parts
    that learn are those that learn in MiniCLIP. The frozen part's batch norms keep their pretrained statistics
    (upstream lets them drift with every training batch).
    """

    vocabulary: Tensor

    def __init__(
        self,
        image: ImageTower,
        text: nn.Module,
        tokenizer: MiniclipTokenizer,
        width: int,
        max_words: int,
        dropout: float = DEFAULT_DROPOUT,
    ) -> None:
        super().__init__()
        self.image, self.text, self.tokenizer = image, text, tokenizer
        self.width, self.max_words = width, max_words
        self.feature_width = image.channels * 14**2  # at 224 pixels; other sizes have other maps
        self.projection = nn.Sequential(
            nn.Flatten(),
            nn.Linear(image.width, PROJECTION_WIDTH),
            nn.BatchNorm1d(PROJECTION_WIDTH),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(PROJECTION_WIDTH, width),
        )
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        # Saved with the weights: embeddings of the same number of other words would fit and mean nothing.
        self.register_buffer("vocabulary", _vocabulary_hash(tokenizer))

    def train(self, mode: bool = True) -> MiniclipTowers:
        """Set the mode; a frozen lower part stays in eval mode, or its batch norms would move."""
        super().train(mode)
        for module in self.image.lower_modules():
            module.train(mode and any(parameter.requires_grad for parameter in module.parameters()))
        return self

    def prepare_text(self, captions: list[str]) -> Tensor:
        """Token ids int64 (n, max_words), 0 after the last word."""
        return torch.from_numpy(self.tokenizer.encode(captions, self.max_words))

    def encode_text(self, prepared: Tensor) -> Tensor:
        return self.text(prepared)

    def frame_features(self, pixels: Tensor) -> Tensor:
        """uint8 RGB (n, 3, S, S) → maps of the lower part, flattened: (n, channels · s · s)."""
        return torch.cat([self.image.lower(part).flatten(1) for part in pixels.split(_FRAMES_AT_ONCE)])

    def encode_frames(self, features: Tensor) -> Tensor:
        """(..., channels · s · s) → (..., width), not normalised. Padding, whose features are zero, gives zero."""
        # Padding is left out: it would count in the statistics of batch norms.
        real = features.any(dim=-1)
        maps = features[real]
        side = math.isqrt(features.shape[-1] // self.image.channels)
        encoded = self.projection(self.image.upper(maps.view(len(maps), self.image.channels, side, side)))
        if features.ndim == 2:
            return scatter_frames(encoded, real[None])[0]
        return scatter_frames(encoded, real)

    def visual_parameters(self) -> list[nn.Parameter]:
        return self.image.frozen_parameters()

    def text_parameters(self) -> list[nn.Parameter]:
        return list(self.text.parameters())

    def check_vocabulary(self, state: dict[str, Tensor], prefix: str, where: str) -> None:
        """Refuse a state dict, names under ``prefix``, that was trained with other words; ``where`` is its file."""
        other, words = state.get(f"{prefix}vocabulary"), state.get(f"{prefix}text.embedding.weight")
        if other is None or words is None or torch.equal(other.cpu(), self.vocabulary.cpu()):
            return
        raise RewindError(
            f"{where}: its vocabulary has other words ({len(words):,} token ids there, {self.tokenizer.vocabulary:,} "
            "here): it was trained on other captions. Train this run again, or name the data set that it belongs to."
        )


def _vocabulary_hash(tokenizer: MiniclipTokenizer) -> Tensor:
    """A hash of the words in the order of their ids, uint8 (16,)."""
    digest = bytes.fromhex(sha256_hex("\n".join(tokenizer.ids).encode()))
    return torch.tensor(list(digest[:16]), dtype=torch.uint8)


@BACKBONES.register("miniclip_towers")
def build_miniclip_towers(
    keys: BackboneKeys,
    text: TextKeys,
    train_captions: list[str],
    tower: str | None = None,
    dropout: float = DEFAULT_DROPOUT,
) -> MiniclipTowers:
    """The towers of a study's ``backbone`` block; every new parameter is drawn from torch's global generator.

    Args:
        keys: its ``weights`` are of the image network, or a checkpoint of MiniCLIP with all weights.
        train_captions: give the vocabulary, unless ``text.vocabulary`` names captions.
        tower: the text tower, ``lstm`` or ``transformer``; None: the checkpoint's, or ``lstm``.
    """
    if text.tokenizer != "miniclip":
        raise RewindError(
            f"text.tokenizer: {text.tokenizer}: backbone.kind: miniclip_towers needs tokenizer: miniclip; set that."
        )
    if keys.pretrained or keys.patch != "2d":
        raise RewindError("backbone.pretrained and backbone.patch are for kind: clip; remove them.")
    if tower is not None and tower not in TEXT_TOWERS:
        raise RewindError(f"methods.*.options.text: no text tower {tower!r}; available: {', '.join(TEXT_TOWERS)}.")
    checkpoint = _checkpoint(keys, tower)
    # A checkpoint of MiniCLIP holds the image network too, and fills it with all else below.
    image = load_image_tower(keys.architecture, None if checkpoint else keys.weights)
    captions = read_vocabulary_captions(text.vocabulary) if text.vocabulary else train_captions
    tokenizer = cast(MiniclipTokenizer, make_tokenizer(text.tokenizer, captions, text.max_vocabulary))
    tower = tower or (text_tower_kind(checkpoint) if checkpoint else "lstm")
    limits = {"most_words": text.max_words} if tower == "transformer" else {}  # an LSTM has no table of positions
    text_tower = TEXT_TOWERS[tower](tokenizer.vocabulary, keys.width, dropout=dropout, **limits)
    towers = MiniclipTowers(image, text_tower, tokenizer, keys.width, text.max_words, dropout)
    if checkpoint and not SHAPES_ONLY.get():
        load_miniclip(towers, checkpoint, f"backbone.weights: {keys.weights}")
    return towers


def _checkpoint(keys: BackboneKeys, tower: str | None) -> dict[str, Tensor] | None:
    """Tensors of a checkpoint of MiniCLIP; None if there are no weights, or only an image network's."""
    state = read_state(keys.weights) if keys.weights and keys.architecture == "resnet18" else {}
    if not is_miniclip(state):
        return None
    if tower not in (None, stored := text_tower_kind(state)):
        raise RewindError(
            f"backbone.weights: {keys.weights} is a MiniCLIP with text tower {stored}, which methods.*.options.text: "
            f"{tower} cannot start from."
        )
    return state


# ---- The retriever -------------------------------------------------------------------------------------------------

OPTIONS = ("text", "dropout")


class MiniClip(Clip4Clip):
    """``exp(logit_scale) · cos(text, image)``, the scale at most 100 and 1/0.07 at first."""

    backbone: MiniclipTowers

    def __init__(self, backbone: MiniclipTowers) -> None:
        super().__init__(backbone, MeanP(backbone.width))

    def check_state(self, state: dict[str, Tensor], where: str) -> None:
        self.backbone.check_vocabulary(state, "backbone.", where)


@MODELS.register("miniclip")
def build_miniclip(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> MiniClip:
    """The retriever of a method with ``options: {text: lstm | transformer, dropout: 0.2}``."""
    options = method.options
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise RewindError(f"methods.*.options.{unknown[0]}: model: miniclip only has {' and '.join(OPTIONS)}.")
    if backbone.kind != "miniclip_towers":
        raise RewindError(f"backbone.kind: {backbone.kind}: methods with model: miniclip need kind: miniclip_towers.")
    dropout = options.get("dropout", DEFAULT_DROPOUT)
    if not isinstance(dropout, int | float) or isinstance(dropout, bool) or not 0 <= dropout < 1:
        raise RewindError(f"methods.*.options.dropout: {dropout!r} is not a number from 0 to below 1.")
    return MiniClip(
        build_miniclip_towers(backbone, text, train_captions, str(options.get("text", "lstm")), float(dropout))
    )
