"""Zero-shot classification: what every validation of a run scores, what its finished model does, and a table of all."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rewind.datasets.cifar10 import find_cifar10, read_cifar10
from rewind.distributed import World, joined
from rewind.errors import RewindError
from rewind.evaluation.zero_shot import ZeroShotTask
from rewind.feeding.folder import DataFolder, device, trained_retriever
from rewind.files import reading_user_file, write_csv, write_npz
from rewind.jobs.given import Given
from rewind.jobs.launch import on_all_gpus
from rewind.jobs.metrics import Run
from rewind.jobs.model_data import data_folder
from rewind.jobs.unpack import by_run
from rewind.statistics.accuracy import accuracy_interval, accuracy_pairs
from rewind.statistics.pairs import Random
from rewind.study import RunSpec
from rewind.study.model import Evaluation
from rewind.study.zero_shot import ZeroShot


def zero_shot(given: Given) -> None:
    """Rule ``zero_shot``."""
    on_all_gpus(compute_zero_shot, data_folder(given), given.input.model, given.output[0], log=given.log)


def zero_shot_table(given: Given) -> None:
    """Rule ``zero_shot_table``."""
    params, output = given.params, given.output
    files, keys = by_run(given, given.input), ZeroShot(**params.settings)
    found = join_zero_shot(files, keys, params.confidence, params.random["fixed"], output.runs, output.intervals)
    random, pairs = Random.of(params.random), [(first, second) for first, second in params.pairs]
    write_csv(output.pairs, accuracy_pairs(found, pairs, params.confidence, random))


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


def join_zero_shot(
    runs: dict[Run, str], keys: ZeroShot, confidence: float, fixed: list[str], rows: str, intervals: str
) -> dict[str, np.ndarray]:
    """One row per run, and one per method with its interval over training seeds and images (of ``fixed``: images).

    Returns:
        Method → (S, n) what every image counts in every seed.

    Raises:
        RewindError: if two runs classified different images.
    """
    found, digests, alike = {}, {}, {}
    for run, path in runs.items():
        with reading_user_file(path, "npz", "run again"), np.load(path, allow_pickle=False) as archive:
            found[run], digests[run], alike[run] = archive["credits"], str(archive["sha256"]), int(archive["alike"])
    first = next(iter(digests))
    for run, sha256 in digests.items():
        if sha256 != digests[first] or len(found[run]) != len(found[first]):
            raise RewindError(f"{runs[first]} and {runs[run]} are of different images; delete both and run again.")
    templates = keys.templates if isinstance(keys.templates, str) else "; ".join(keys.templates)
    content = {"data": keys.data, "templates": templates, "images": len(found[first])}
    table = [
        {"method": run[0], "seed": run[1]}
        | content
        | {"accuracy": 100 * credits.mean(), "alike": alike[run], "sha256": digests[run]}
        for run, credits in found.items()
    ]
    write_csv(rows, pd.DataFrame(table))
    methods = dict.fromkeys(method for method, _ in found)
    grouped = {method: np.stack([c for (m, _), c in found.items() if m == method]) for method in methods}
    most = {method: max(count for (m, _), count in alike.items() if m == method) for method in methods}
    table = [
        {"method": m} | content | {"alike": most[m]} | accuracy_interval(c, confidence, m in fixed)
        for m, c in grouped.items()
    ]
    write_csv(intervals, pd.DataFrame(table))
    return grouped
