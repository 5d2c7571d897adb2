"""Zero-shot classification: what every validation of a run scores, and what its finished model does."""

from __future__ import annotations

import numpy as np

from rewind.datasets.cifar10 import find_cifar10, read_cifar10
from rewind.distributed import World, joined
from rewind.evaluation.zero_shot import ZeroShotTask
from rewind.feeding.folder import DataFolder, device, trained_retriever
from rewind.files import write_npz
from rewind.study import RunSpec
from rewind.study.model import Evaluation


def validation_file(keys: Evaluation) -> str | None:
    """The file that every validation of a run looks at, if it does."""
    chosen = keys.zero_shot
    return str(find_cifar10(chosen.folder)) if chosen and chosen.validation_images != 0 else None


def validation_task(spec: RunSpec) -> ZeroShotTask | None:
    """What every validation of a run classifies, if anything; a frozen visual tower encodes it once."""
    if validation_file(spec.evaluation) is None:
        return None
    return _task(spec, spec.evaluation.zero_shot.validation_images, "visual" in spec.method.training.freeze)[0]


def _task(spec: RunSpec, count: int | None, frozen: bool) -> tuple[ZeroShotTask, str]:
    """The task, and the digest of its file."""
    keys = spec.evaluation.zero_shot
    data = read_cifar10(keys.folder, keys.sha256).first(count)
    images, labels, classes = data.images, data.labels, data.classes
    size = spec.frames.size
    return ZeroShotTask(images, labels, classes, keys.templates, size, spec.evaluation, frozen), data.sha256


def compute_zero_shot(data: DataFolder, model: str, result: str) -> None:
    """Classify all images with a run's model: ``credits`` float64 (n,), ``labels`` (n,), ``alike``, ``sha256``.

    Started by ``torchrun``, its processes share the work, and rank 0 writes the file.
    """
    with joined() as world:
        _compute(data, model, result, world)


def _compute(data: DataFolder, model: str, result: str, world: World) -> None:
    retriever = trained_retriever(data, model)
    task, sha256 = _task(data.spec, None, False)
    found = task.credits(retriever, device(), world, data.spec.frames.workers)
    if world.rank == 0:
        alike = f"; {task.alike} classes read alike: their names are no words of this vocabulary" if task.alike else ""
        print(f"zero-shot: {100 * found.mean():.2f}% of {len(found):,} images{alike}")
        write_npz(result, credits=found, labels=task.labels, alike=np.array(task.alike), sha256=np.array(sha256))
