"""Zero-shot classification (Radford et al., 2021): the class whose prompts are nearest to an image.

Accuracy is in percent and honest about ties: where several classes share the highest score, the truth among them counts
its share.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from rewind.compat import open_clip
from rewind.distributed import ALONE, World
from rewind.errors import RewindError
from rewind.evaluation.similarity import similarity_matrix
from rewind.feeding.encode import encode_all, encode_texts, in_memory, tower_features
from rewind.feeding.inputs import CachedFrames, Inputs
from rewind.models.embeddings import EmbeddingTowers
from rewind.models.retriever import Backbone, Features, Retriever
from rewind.study.model import Evaluation


def prompts(classes: Sequence[str], templates: str | Sequence[str]) -> list[str]:
    """Every template for the first class, then for the second, ….

    Args:
        classes: names.
        templates: texts with ``{class}``, or ``simple`` or ``openai``: open_clip's for ImageNet.
    """
    if not isinstance(templates, str):
        return [text.replace("{class}", name) for name in classes for text in templates]
    makers = getattr(open_clip("zero_shot_metadata"), f"{templates.upper()}_IMAGENET_TEMPLATES")
    return [make(name) for name in classes for make in makers]


def centre(image: np.ndarray, size: int) -> np.ndarray:
    """uint8 (h, w, 3) → (size, size, 3): bicubic, the short side to 256/224 of ``size``, then the centre."""
    height, width = image.shape[:2]
    short = round(size * 256 / 224)
    scaled = (short * width // min(height, width), short * height // min(height, width))
    enlarged = np.asarray(Image.fromarray(image).resize(scaled, Image.Resampling.BICUBIC))
    top, left = round((scaled[1] - size) / 2), round((scaled[0] - size) / 2)
    return enlarged[top : top + size, left : left + size]


class Pictures:
    """Images as clips of one frame: ``pixels`` uint8 (n, 1, 3, S, S) and ``mask`` (n, 1).

    Args:
        images: uint8 RGB (n, h, w, 3).
        size: S, see :func:`centre`.
    """

    copies = True  # made by threads: scaling small images costs less than sending them between processes

    def __init__(self, images: np.ndarray, size: int) -> None:
        self.images, self.size = images, size

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, rows: np.ndarray) -> Features:
        squares = np.stack([centre(self.images[row], self.size) for row in rows])
        pixels = torch.from_numpy(np.ascontiguousarray(squares.transpose(0, 3, 1, 2)))
        return {"pixels": pixels[:, None], "mask": torch.ones(len(rows), 1, dtype=torch.uint8)}


class ZeroShotTask:
    """Labelled images and the prompts of their classes, to be scored by a model once or after every epoch.

    Args:
        images: uint8 RGB (n, h, w, 3).
        labels: (n,) places in ``classes``.
        classes: names.
        templates: see :func:`prompts`.
        size: side of the model's input.
        keys: batch sizes.
        frozen: the visual tower does not change between scorings, so its features are computed in the first alone.

    Attributes:
        alike: classes that the last model's text tower cannot tell from another, as it knows their names' words not.
    """

    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        classes: Sequence[str],
        templates: str | Sequence[str],
        size: int,
        keys: Evaluation,
        frozen: bool = False,
    ) -> None:
        self.labels, self.classes, self.keys, self.frozen = labels, classes, keys, frozen
        self.texts = prompts(classes, templates)
        self.inputs: Inputs = Pictures(images, size)
        self.alike = 0

    def credits(self, retriever: Retriever, device: torch.device, world: World = ALONE, workers: int = 0) -> np.ndarray:
        """float64 (n,): 1 where the truth alone is the nearest class, 1/k where it is one of k, else 0.

        All processes of ``world`` call it together and share the work.

        Raises:
            RewindError: for a retriever without towers, or scores that are not numbers.
        """
        backbone = towers_of(retriever)
        retriever.eval().to(device)
        if self.frozen and isinstance(self.inputs, Pictures):
            self.inputs = encoded(backbone, self.inputs, self.keys.batch_size, device, workers)
        text = backbone.prepare_text(self.texts)
        self.alike = _alike(text, len(self.classes))
        scores = similarity_matrix(retriever, text, self.inputs, self.keys, device, world, workers)
        lengths = self._lengths(retriever, text, device)
        return _credits(_by_class(scores, len(self.classes)) / lengths[:, None], self.labels)

    def accuracy(self, retriever: Retriever, device: torch.device, world: World = ALONE, workers: int = 0) -> float:
        """Percent of the images whose class is found."""
        return 100 * float(self.credits(retriever, device, world, workers).mean())

    @torch.inference_mode()
    def _lengths(self, retriever: Retriever, text: Tensor, device: torch.device) -> np.ndarray:
        """(C,) length of the mean of each class's prompt vectors.

        An image's cosine to the mean vector is its mean cosine to the vectors, divided by that length: with several
        prompts this is CLIP's ensemble in the space of vectors. A retriever that scores pairs has no vectors; its
        scores are averaged, and the length is 1.
        """
        classes, size = len(self.classes), self.keys.batch_size
        if not retriever.compares_vectors or len(text) == classes:
            return np.ones(classes)
        image = {name: value.to(device) for name, value in self.inputs.batch(np.arange(1)).items()}
        items = retriever.encode_items(image)

        def vector(batch: Features) -> Features:
            return {"text": retriever.vectors(retriever.encode_text(batch), items)[0]}

        vectors = encode_texts(vector, text, size, device)["text"].double()
        return vectors.reshape(classes, -1, vectors.shape[-1]).mean(dim=1).norm(dim=-1).cpu().numpy()


@torch.inference_mode()
def encoded(backbone: Backbone, inputs: Inputs, size: int, device: torch.device, workers: int = 0) -> CachedFrames:
    """Features of a frozen visual tower, as its runs have them of their own items."""
    found = encode_all(lambda batch: in_memory(tower_features(backbone, batch)), inputs, size, device, workers=workers)
    return CachedFrames(found["frames"].numpy(), found["mask"].numpy())


def towers_of(retriever: Retriever) -> Backbone:
    """The towers that encode prompts and images.

    Raises:
        RewindError: if there are none.
    """
    backbone = retriever.backbone
    if backbone is None or isinstance(backbone, EmbeddingTowers):
        raise RewindError(
            f"evaluation.zero_shot: {type(retriever).__name__} has no towers that would encode prompts and images; "
            "take such methods into a study of their own."
        )
    return backbone


def _alike(text: Tensor, classes: int) -> int:
    """Classes whose prepared prompts (C · T, …) are those of another class too."""
    _, counts = text.reshape(classes, -1).unique(dim=0, return_counts=True)
    return int(counts[counts > 1].sum())


def _by_class(scores: np.ndarray, classes: int) -> np.ndarray:
    """(C · T, n) scores of prompts → (C, n) means over the T prompts of each class."""
    return scores.reshape(classes, -1, scores.shape[1]).mean(axis=1, dtype=np.float64)


def _credits(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    if not np.isfinite(scores).all():
        raise RewindError("evaluation.zero_shot: some scores are not numbers; the model's weights are broken.")
    best = scores == scores.max(axis=0)
    return best[labels, np.arange(len(labels))] / best.sum(axis=0)
