"""Zero-shot classification: in every validation of a run, of its finished model, and a table of all runs."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rewind.config import RunSpec
from rewind.config.evaluation import Evaluation, ZeroShot
from rewind.data.formats.cifar10 import find_cifar10, read_cifar10
from rewind.distributed import World, join_process_group
from rewind.errors import RewindError
from rewind.evaluation.zero_shot import ZeroShotTask
from rewind.io.files import reading_user_file, write_csv, write_npz
from rewind.jobs.inputs import build_run_data, files_by_run
from rewind.jobs.metrics import RunKey
from rewind.loading.run_data import RunData, job_device, load_trained_model
from rewind.statistics.pairs import RandomFactors, accuracy_interval, accuracy_pairs
from rewind.workflow.job import Job
from rewind.workflow.launch import run_on_all_gpus


def zero_shot(job: Job) -> None:
    """Rule ``zero_shot``."""
    run_on_all_gpus(compute_zero_shot, build_run_data(job), job.input.model, job.output[0], log=job.log)


def zero_shot_table(job: Job) -> None:
    """Rule ``zero_shot_table``."""
    params, output = job.params, job.output
    files, keys = files_by_run(job, job.input), ZeroShot(**params.settings)
    credits = join_zero_shot(files, keys, params.confidence, params.random["fixed"], output.runs, output.intervals)
    random, pairs = RandomFactors.of(params.random), [(first, second) for first, second in params.pairs]
    write_csv(output.pairs, accuracy_pairs(credits, pairs, params.confidence, random))


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
    """Classify all images with a run's model and write an npz: ``credits`` float64 (n,), ``labels`` (n,), ``sha256`` of
    the images' file, and ``alike``, the number of classes whose names read alike to the text tower.

    Started by ``torchrun``, its processes share the work, and rank 0 writes the file.
    """
    with join_process_group() as world:
        _classify(data, model, result, world)


def _classify(data: RunData, model: str, result: str, world: World) -> None:
    retriever, keys = load_trained_model(data, model), data.spec.evaluation.zero_shot
    assert keys is not None  # the rule is of studies that ask for it
    task, sha256 = _make_task(data.spec, keys, None, False)
    credits = task.credits(retriever, job_device(), world, data.spec.frames.workers)
    if world.rank == 0:
        alike = f"; {task.alike} classes read alike: their names are no words of this vocabulary" if task.alike else ""
        print(f"zero-shot: {100 * credits.mean():.2f}% of {len(credits):,} images{alike}")
        write_npz(result, credits=credits, labels=task.labels, alike=np.array(task.alike), sha256=np.array(sha256))


def join_zero_shot(
    runs: dict[RunKey, str], keys: ZeroShot, confidence: float, fixed: list[str], run_table: str, intervals: str
) -> dict[str, np.ndarray]:
    """Write one row per run, and one per method with its interval over seeds and images (for ``fixed``: over images).

    Returns:
        Method → credit of every image in every seed, (S, n).

    Raises:
        RewindError: if two runs classified different images.
    """
    credits_of_run, digests, alike = {}, {}, {}
    for run, path in runs.items():
        with reading_user_file(path, "npz", "run again"), np.load(path, allow_pickle=False) as archive:
            credits_of_run[run], digests[run], alike[run] = (
                archive["credits"],
                str(archive["sha256"]),
                int(archive["alike"]),
            )
    first = next(iter(digests))
    for run, sha256 in digests.items():
        if sha256 != digests[first] or len(credits_of_run[run]) != len(credits_of_run[first]):
            raise RewindError(f"{runs[first]} and {runs[run]} are of different images; delete both and run again.")
    templates = keys.templates if isinstance(keys.templates, str) else "; ".join(keys.templates)
    content = {"data": keys.data, "templates": templates, "images": len(credits_of_run[first])}
    table = [
        {"method": run[0], "seed": run[1]}
        | content
        | {"accuracy": 100 * credits.mean(), "alike": alike[run], "sha256": digests[run]}
        for run, credits in credits_of_run.items()
    ]
    write_csv(run_table, pd.DataFrame(table))
    methods = dict.fromkeys(method for method, _ in credits_of_run)
    grouped = {method: np.stack([c for (m, _), c in credits_of_run.items() if m == method]) for method in methods}
    max_alike = {method: max(count for (m, _), count in alike.items() if m == method) for method in methods}
    table = [
        {"method": m} | content | {"alike": max_alike[m]} | accuracy_interval(c, confidence, m in fixed)
        for m, c in grouped.items()
    ]
    write_csv(intervals, pd.DataFrame(table))
    return grouped
