"""Zero-shot image classification (Radford et al., 2021): the class whose prompts are most similar to an image.

Accuracy is in percent and takes ties into account: if k classes share the highest score and the true one is among them,
the image counts 1/k.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from rewind.config import RunSpec
from rewind.config.evaluation import Evaluation, ZeroShot
from rewind.data.formats.cifar10 import find_cifar10, read_cifar10
from rewind.distributed import SINGLE_PROCESS, World, join_process_group
from rewind.errors import RewindError
from rewind.evaluation.similarity import similarity_matrix
from rewind.io.files import write_npz
from rewind.loading.encode import encode_all_texts, frame_features
from rewind.loading.frame_source import FrameSource
from rewind.loading.run_data import RunData, job_device, load_trained_model
from rewind.models.backbone import Backbone
from rewind.models.embeddings import EmbeddingTowers
from rewind.models.retriever import Features, Retriever
from rewind.optional_packages import open_clip


def class_prompts(classes: Sequence[str], templates: str | Sequence[str]) -> list[str]:
    """Every template for the first class, then for the second, ….

    Templates are texts with ``{class}``, or ``simple`` or ``openai``: open_clip's templates for ImageNet.

    >>> class_prompts(["cat", "dog"], ["a photo of a {class}"])
    ['a photo of a cat', 'a photo of a dog']
    """
    if not isinstance(templates, str):
        return [text.replace("{class}", name) for name in classes for text in templates]
    makers = getattr(open_clip("zero_shot_metadata"), f"{templates.upper()}_IMAGENET_TEMPLATES")
    return [make(name) for name in classes for make in makers]


def resize_and_centre_crop(image: np.ndarray, size: int) -> np.ndarray:
    """uint8 (h, w, 3) → (size, size, 3): resized bicubically, the short side to 256/224 of ``size``, and cropped.

    For a size of 224 this is SANW's original: resize to 256, then cut out the centre.

    >>> resize_and_centre_crop(np.zeros((32, 48, 3), np.uint8), 28).shape
    (28, 28, 3)
    """
    height, width = image.shape[:2]
    short = round(size * 256 / 224)
    # Sizes are truncated and borders rounded as in the Resize and CenterCrop of torchvision.
    new_size = (short * width // min(height, width), short * height // min(height, width))  # (width, height), as Pillow
    resized = np.asarray(Image.fromarray(image).resize(new_size, Image.Resampling.BICUBIC))
    top, left = round((new_size[1] - size) / 2), round((new_size[0] - size) / 2)
    return resized[top : top + size, left : left + size]


class ImageFrames:
    """Images, uint8 RGB (n, h, w, 3), as clips of one frame: ``pixels`` uint8 (n, 1, 3, S, S) and ``mask`` (n, 1)."""

    copies = True  # batches are made by threads: resizing small images costs less than sending them between processes

    def __init__(self, images: np.ndarray, size: int) -> None:
        self.images, self.size = images, size

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, rows: np.ndarray) -> Features:
        cropped = np.stack([resize_and_centre_crop(self.images[row], self.size) for row in rows])
        pixels = torch.from_numpy(np.ascontiguousarray(cropped.transpose(0, 3, 1, 2)))
        return {"pixels": pixels[:, None], "mask": torch.ones(len(rows), 1, dtype=torch.uint8)}


class ZeroShotTask:
    """Labelled images, uint8 RGB (n, h, w, 3), and prompts of their classes, to be scored once or after every epoch.

    With ``frozen`` the visual tower does not change between scorings, so its features are computed only in the first.
    ``alike`` is the number of classes that the last model could not distinguish from another, since its vocabulary
    lacks the words of their names.
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
        self.texts = class_prompts(classes, templates)
        self.inputs: FrameSource = ImageFrames(images, size)
        self.alike = 0

    def credits(
        self, retriever: Retriever, device: torch.device, world: World = SINGLE_PROCESS, workers: int = 0
    ) -> np.ndarray:
        """float64 (n,): 1 if only the true class has the highest score, 1/k if it shares it with k − 1 others, else 0.

        All processes of ``world`` call it together and share the work.
        """
        backbone = require_towers(retriever)
        retriever.eval().to(device)
        if self.frozen and isinstance(self.inputs, ImageFrames):
            self.inputs = frame_features(backbone, self.inputs, self.keys.batch_size, device, workers=workers)
        text = backbone.prepare_text(self.texts)
        self.alike = _count_identical_prompts(text, len(self.classes))
        scores = similarity_matrix(retriever, text, self.inputs, self.keys, device, world, workers)
        lengths = self._mean_vector_lengths(retriever, text, device)
        return _top1_credits(_mean_by_class(scores, len(self.classes)) / lengths[:, None], self.labels)

    def accuracy(
        self, retriever: Retriever, device: torch.device, world: World = SINGLE_PROCESS, workers: int = 0
    ) -> float:
        """Percent of the images that are classified correctly."""
        return 100 * float(self.credits(retriever, device, world, workers).mean())

    @torch.inference_mode()
    def _mean_vector_lengths(self, retriever: Retriever, text: Tensor, device: torch.device) -> np.ndarray:
        """(C,) length of the mean of each class's prompt vectors.

        With unit vectors p_1, …, p_T of a class's prompts, their mean p̄ and the unit vector x of an image,
        cos(x, p̄) = x·p̄ / |p̄| = mean_t(x·p_t) / |p̄|. So scores divided by |p̄| are those of CLIP's prompt ensemble
        (Radford et al., 2021, section 3.1.4), which averages prompts' vectors. A retriever that scores pairs has no
        vectors; its scores are averaged, and the length is 1.
        """
        classes, size = len(self.classes), self.keys.batch_size
        if not retriever.compares_vectors or len(text) == classes:
            return np.ones(classes)
        # vectors() takes texts and items together; the first image serves for all texts.
        image = {name: value.to(device) for name, value in self.inputs.batch(np.arange(1)).items()}
        items = retriever.encode_items(image)

        def text_vectors(batch: Features) -> Features:
            return {"text": retriever.vectors(retriever.encode_text(batch), items)[0]}

        vectors = encode_all_texts(text_vectors, text, size, device)["text"].double()
        return vectors.reshape(classes, -1, vectors.shape[-1]).mean(dim=1).norm(dim=-1).cpu().numpy()


def require_towers(retriever: Retriever) -> Backbone:
    """The towers that encode prompts and images; a retriever without them is refused."""
    backbone = retriever.backbone
    if backbone is None or isinstance(backbone, EmbeddingTowers):
        raise RewindError(
            f"evaluation.zero_shot: {type(retriever).__name__} has no towers that would encode prompts and images; "
            "put such methods into a study of their own."
        )
    return backbone


def _count_identical_prompts(text: Tensor, classes: int) -> int:
    """Number of classes whose prepared prompts (C · T, …) are the same as another class's."""
    _, counts = text.reshape(classes, -1).unique(dim=0, return_counts=True)
    return int(counts[counts > 1].sum())


def _mean_by_class(scores: np.ndarray, classes: int) -> np.ndarray:
    """(C · T, n) scores of prompts → (C, n) means over the T prompts of each class."""
    return scores.reshape(classes, -1, scores.shape[1]).mean(axis=1, dtype=np.float64)


def _top1_credits(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    if not np.isfinite(scores).all():
        raise RewindError("evaluation.zero_shot: some scores are not numbers; the model's weights are broken.")
    best = scores == scores.max(axis=0)  # (C, n): ties are exact
    return best[labels, np.arange(len(labels))] / best.sum(axis=0)


# ---- The task of a study: in every validation of a run, and of its finished model -----------------------------------


def validation_file(keys: Evaluation) -> str | None:
    """The file of labelled images that every validation of a run classifies, if the study asks for it."""
    zero_shot_keys = keys.zero_shot
    return (
        str(find_cifar10(zero_shot_keys.folder)) if zero_shot_keys and zero_shot_keys.validation_images != 0 else None
    )


def validation_task(spec: RunSpec) -> ZeroShotTask | None:
    """The images that every validation of a run classifies, if any; a frozen visual tower encodes them only once."""
    keys = spec.evaluation.zero_shot
    if keys is None or validation_file(spec.evaluation) is None:
        return None
    return _make_task(spec, keys, keys.validation_images, "visual" in spec.method.training.freeze)[0]


def _make_task(spec: RunSpec, keys: ZeroShot, count: int | None, frozen: bool) -> tuple[ZeroShotTask, str]:
    """The task on the first ``count`` images (None: all), and the SHA-256 of its file."""
    data = read_cifar10(keys.folder, keys.sha256).first(count)
    images, labels, classes = data.images, data.labels, data.classes
    size = spec.frames.size
    return ZeroShotTask(images, labels, classes, keys.templates, size, spec.evaluation, frozen), data.sha256


def compute_zero_shot(data: RunData, model: str, result: str) -> None:
    """Classify all images with a run's model and write an npz.

    It has ``credits`` float64 (n,), ``labels`` (n,), ``sha256`` of the images' file, and ``alike``, see
    :class:`ZeroShotTask`. Started by ``torchrun``, its processes share the work, and rank 0 writes the file.
    """
    with join_process_group() as world:
        _classify(data, model, result, world)


def _classify(data: RunData, model: str, result: str, world: World) -> None:
    retriever, keys = load_trained_model(data, model), data.spec.evaluation.zero_shot
    assert keys is not None  # the rule exists only for studies that request it
    task, sha256 = _make_task(data.spec, keys, None, False)
    credits = task.credits(retriever, job_device(), world, data.spec.frames.workers)
    if world.rank == 0:
        alike = f"; {task.alike} classes read alike: their names are no words of this vocabulary" if task.alike else ""
        print(f"zero-shot: {100 * credits.mean():.2f}% of {len(credits):,} images{alike}")
        write_npz(result, credits=credits, labels=task.labels, alike=np.array(task.alike), sha256=np.array(sha256))
