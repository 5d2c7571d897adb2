"""Labelled images in CIFAR-10's binary format, and a retriever whose answer to them is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from rewind.data.formats.cifar10 import CIFAR10_CLASSES
from rewind.models.backbone import Backbone
from rewind.models.retriever import Features, Retriever

COLOURS = np.array(
    [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1], [3, 1, 0], [0, 3, 1], [1, 0, 3]]
)
"""Ten directions in the space of colours, one for each class."""


def write_cifar10(folder: Path, labels: list[int], painted: list[int], file: str = "test_batch.bin") -> Path:
    """One image of a single colour per label, painted as the class ``painted`` says."""
    records = []
    for label, colour in zip(labels, painted, strict=True):
        pixel = (60 * COLOURS[colour] + 20).astype(np.uint8)
        records.append(bytes([label]) + b"".join(bytes([value]) * 1024 for value in pixel))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(b"".join(records))
    return folder / file


class ColourTower(Backbone):
    """Sees the mean colour; a prompt is the colour of the class that it names, turned by its template's length."""

    width = feature_width = 3

    def __init__(self) -> None:
        super().__init__()
        self.logit_scale = nn.Parameter(torch.tensor(2.0))
        self.looked = 0

    def prepare_text(self, captions: list[str]) -> Tensor:
        rows = [next(k for k, name in enumerate(CIFAR10_CLASSES) if name in caption.split()) for caption in captions]
        return torch.tensor([[row, len(caption)] for row, caption in zip(rows, captions, strict=True)])

    def encode_text(self, prepared: Tensor) -> Tensor:
        turned = torch.sin(prepared[:, 1:] * torch.tensor([1.0, 2.0, 3.0])) * self.turn
        return torch.from_numpy(60 * COLOURS + 20)[prepared[:, 0]].float() + turned

    turn = 0.0

    def frame_features(self, pixels: Tensor) -> Tensor:
        self.looked += len(pixels)
        return pixels.float().mean((2, 3))


class ColourCosine(Retriever):
    """Cosine of a prompt's and a picture's colour."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = ColourTower()

    def encode_text(self, batch: Features) -> Features:
        return {"text": nn.functional.normalize(self.backbone.encode_text(batch["text"]), dim=-1)}

    def encode_items(self, batch: Features) -> Features:
        frames = batch["frames"] if "frames" in batch else self.backbone.clip_features(batch["pixels"], batch["mask"])
        return {"item": nn.functional.normalize(frames.mean(dim=1), dim=-1)}

    def similarity(self, text: Features, items: Features) -> Tensor:
        return self.backbone.logit_scale.exp() * text["text"] @ items["item"].T


class ColourVectors(ColourCosine):
    """The same, and it says which vectors it compares."""

    def vectors(self, text: Features, items: Features) -> tuple[Tensor, Tensor]:
        return text["text"], items["item"]
