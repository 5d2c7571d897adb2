"""MiniCLIP's towers: an image network that learns in its upper part, and a small text tower on words."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor, nn

from rewind.errors import RewindError
from rewind.models.backbone import Backbone, scatter
from rewind.models.image_towers import ImageTower, load_tower
from rewind.models.miniclip_files import captions_of, is_miniclip, load, text_tower
from rewind.models.miniclip_text import TOWERS
from rewind.models.weights import FORM_ALONE, read_state
from rewind.study import Backbone as BackboneKeys
from rewind.study import Text as TextKeys
from rewind.text import MiniclipTokenizer, make_tokenizer

HIDDEN = 512  # of the image projection
DROPOUT = 0.2
_FRAMES_AT_ONCE = 32  # more would only hold more memory


class MiniTowers(Backbone):
    """The lower part of the image network is ``frame_features``, all that follows is ``encode_frames``.

    So a frozen visual tower (``training.freeze: [visual]``) has its maps computed once, and what learns is what learns
    in MiniCLIP. The frozen part's batch norms keep the statistics that they were pretrained with (upstream lets them
    drift with every training batch).

    Args:
        image: the image network.
        text: maps token ids (n, L) to (n, width).
        tokenizer: of the training captions.
        width: shared embedding width.
        max_words: tokens per caption.
        dropout: of the image projection.
    """

    def __init__(
        self,
        image: ImageTower,
        text: nn.Module,
        tokenizer: MiniclipTokenizer,
        width: int,
        max_words: int,
        dropout: float = DROPOUT,
    ) -> None:
        super().__init__()
        self.image, self.text, self.tokenizer = image, text, tokenizer
        self.width, self.max_words = width, max_words
        self.feature_width = image.channels * 14**2  # at 224 pixels; other sizes have other maps
        self.projection = nn.Sequential(
            nn.Flatten(),
            nn.Linear(image.width, HIDDEN),
            nn.BatchNorm1d(HIDDEN),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(HIDDEN, width),
        )
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        # Kept with the weights: the same number of other words would fit and mean nothing.
        self.register_buffer("vocabulary", _mark(tokenizer))

    def train(self, mode: bool = True) -> MiniTowers:
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
        """uint8 RGB (n, 3, S, S) → maps of the lower part, (n, channels · s · s)."""
        return torch.cat([self.image.lower(part).flatten(1) for part in pixels.split(_FRAMES_AT_ONCE)])

    def encode_frames(self, features: Tensor) -> Tensor:
        """(..., channels · s · s) → (..., width), not normalised; zero for padding, which is zero."""
        real = features.any(dim=-1)
        maps = features[real]
        side = math.isqrt(features.shape[-1] // self.image.channels)
        encoded = self.projection(self.image.upper(maps.view(len(maps), self.image.channels, side, side)))
        if features.ndim == 2:
            return scatter(encoded, real[None])[0]
        return scatter(encoded, real)

    def visual_parameters(self) -> list[nn.Parameter]:
        return self.image.frozen_parameters()

    def text_parameters(self) -> list[nn.Parameter]:
        return list(self.text.parameters())

    def check_vocabulary(self, state: dict[str, Tensor], prefix: str, where: str) -> None:
        """Refuse weights that were learnt with other words.

        Args:
            state: a state dict.
            prefix: of this module's names in it.
            where: names the file in the message.

        Raises:
            RewindError: if the vocabulary of ``state`` is another one.
        """
        other, words = state.get(f"{prefix}vocabulary"), state.get(f"{prefix}text.embedding.weight")
        if other is None or words is None or torch.equal(other.cpu(), self.vocabulary.cpu()):
            return
        raise RewindError(
            f"{where}: its vocabulary is different ({len(words):,} token ids there, {self.tokenizer.vocabulary:,} "
            "here): it was trained on other captions. Train this run again, or name the data set that it belongs to."
        )


def _mark(tokenizer: MiniclipTokenizer) -> Tensor:
    """uint8 (16,): a hash of the words in the order of their ids."""
    whole = hashlib.sha256("\n".join(tokenizer.ids).encode()).digest()[:16]
    return torch.tensor(list(whole), dtype=torch.uint8)


def build(
    keys: BackboneKeys,
    text: TextKeys,
    train_captions: list[str],
    tower: str | None = None,
    dropout: float = DROPOUT,
) -> MiniTowers:
    """The towers of a study's ``backbone`` block; every new parameter is drawn from torch's global generator.

    Args:
        keys: ``architecture``, ``weights`` (of the image network, or a checkpoint of MiniCLIP: of everything),
            ``width``.
        text: ``tokenizer: miniclip``, ``max_words``, ``vocabulary``.
        train_captions: what the vocabulary is made from, unless ``text.vocabulary`` names captions.
        tower: the text tower, ``lstm`` or ``transformer``; None: the checkpoint's, or ``lstm``.
        dropout: of the text tower and the image projection.

    Raises:
        RewindError: for an unknown image network or text tower, another tokenizer, or a key or file that does not fit.
    """
    if text.tokenizer != "miniclip":
        raise RewindError(
            f"text.tokenizer: {text.tokenizer}: backbone.kind: miniclip_towers needs tokenizer: miniclip; set that."
        )
    if keys.pretrained or keys.patch != "2d":
        raise RewindError("backbone.pretrained and backbone.patch are for kind: clip; remove them.")
    if tower is not None and tower not in TOWERS:
        raise RewindError(f"methods.*.options.text: no text tower {tower!r}; available: {', '.join(TOWERS)}.")
    trained = _checkpoint(keys, tower)
    image = load_tower(keys.architecture, None if trained else keys.weights)
    captions = captions_of(text.vocabulary) if text.vocabulary else train_captions
    tokenizer = make_tokenizer(text.tokenizer, captions, text.max_vocabulary)
    tower = tower or (text_tower(trained) if trained else "lstm")
    longest = {"most_words": text.max_words} if tower == "transformer" else {}
    words = TOWERS[tower](tokenizer.vocabulary, keys.width, dropout=dropout, **longest)
    made = MiniTowers(image, words, tokenizer, keys.width, text.max_words, dropout)
    if trained and not FORM_ALONE.get():
        load(made, trained, f"backbone.weights: {keys.weights}")
    return made


def _checkpoint(keys: BackboneKeys, tower: str | None) -> dict[str, Tensor] | None:
    """Tensors of a checkpoint of MiniCLIP; None where the weights are none, or an image network's alone."""
    state = read_state(keys.weights) if keys.weights and keys.architecture == "resnet18" else {}
    if not is_miniclip(state):
        return None
    if tower not in (None, found := text_tower(state)):
        raise RewindError(
            f"backbone.weights: {keys.weights} is a MiniCLIP with text tower {found}, which methods.*.options.text: "
            f"{tower} cannot start from."
        )
    return state
