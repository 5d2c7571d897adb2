"""Baseline without any network: a ridge map from counts of words to the pixels of a few small frames.

What it finds, colours and coarse movements tell; a network has to do better. It sees the order of frames.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rewind.errors import RewindError
from rewind.models.backbone import Backbone
from rewind.models.baselines import check_options
from rewind.models.retriever import Features
from rewind.models.ridge import Ridge
from rewind.study import Backbone as BackboneKeys
from rewind.study import Method
from rewind.study import Text as TextKeys
from rewind.text import MiniclipTokenizer

FRAMES, SIZE = 4, 8  # of a clip, and pixels of their sides
WHERE = "methods.*.training.freeze"


class Pictures(Backbone):
    """Captions as square roots of word counts, clips as ``FRAMES`` frames of ``SIZE`` × ``SIZE`` pixels in a row.

    Args:
        captions: of the training split, which give the words.
    """

    def __init__(self, captions: list[str]) -> None:
        super().__init__()
        words = sorted({word for caption in captions for word in MiniclipTokenizer.words(caption)})
        self.place = {word: at for at, word in enumerate(words)}
        self.text_width, self.feature_width = max(1, len(words)), FRAMES * 3 * SIZE * SIZE

    def prepare_text(self, captions: list[str]) -> Tensor:
        """(n, words) float32; words that no training caption has are left out."""
        rows = torch.zeros(len(captions), self.text_width)
        for row, caption in zip(rows, captions, strict=True):
            for word, count in Counter(MiniclipTokenizer.words(caption)).items():
                if word in self.place:
                    row[self.place[word]] = count**0.5
        return rows

    def clip_features(self, pixels: Tensor, mask: Tensor) -> Tensor:
        """uint8 (n, T, 3, S, S) and mask (n, T) → (n, T, FRAMES · 3 · SIZE²), the same at every frame of a clip."""
        found = []
        for clip, real in zip(pixels, mask.sum(dim=1).tolist(), strict=True):
            at = (2 * torch.arange(FRAMES) + 1) * int(real) // (2 * FRAMES)
            at[FRAMES - FRAMES // 2 :] = int(real) - 1 - at[: FRAMES // 2].flip(0)  # a twin shows them in reverse
            small = F.adaptive_avg_pool2d(clip[at].float() / 255, SIZE)
            found.append(small.flatten())
        return torch.stack(found)[:, None].expand(-1, pixels.shape[1], -1)


class Pixels(Ridge):
    """See the module; fitted on the training split, its strength chosen on validation as ridge's is."""

    def __init__(self, captions: list[str]) -> None:
        pictures = Pictures(captions)
        super().__init__(pictures.text_width, pictures.feature_width)
        self.backbone: nn.Module = pictures

    def encode_items(self, batch: Features) -> Features:
        """``pixels`` (n, T, 3, S, S) and ``mask`` (n, T) → ``items`` (n, d), of unit length."""
        if "frames" not in batch:
            batch = batch | {"frames": self.backbone.clip_features(batch["pixels"], batch["mask"])}
        return super().encode_items(batch)


def check(method: Method, backbone: BackboneKeys) -> None:
    """Refuse options, and cached features of other towers.

    Raises:
        RewindError: naming the key.
    """
    check_options(method.options, (), "pixels")
    if backbone.kind == "embeddings":
        raise RewindError("methods.*.model: pixels looks at clips or images, and the dataset consists of vectors.")
    if method.training.freeze:
        raise RewindError(
            f"{WHERE}: {', '.join(method.training.freeze)}: pixels has no towers; cached features are another's, "
            "so set freeze: [] for this method."
        )


def build(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Pixels:
    """The baseline; of a study it only takes the training captions."""
    return Pixels(train_captions)
