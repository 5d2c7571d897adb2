"""All checks before the first job, in the order in which they run and in which their faults are told.

Keys are checked where they are declared (:mod:`rewind.config`), before these. To add a check, write a function of a
:class:`Preflight` and give it its place in :data:`CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rewind.config import Dataset, Study
from rewind.errors import RewindError
from rewind.gpu import count_visible_gpus
from rewind.io.cache import JsonCache
from rewind.io.files import check_output_folder
from rewind.video.ffmpeg import require_encoder
from rewind.video.shards import how_to_restore_shards
from rewind.workflow.checksums import is_made_otherwise
from rewind.workflow.preflight import cluster, files, models
from rewind.workflow.preflight.annotations import annotation_faults
from rewind.workflow.preflight.faults import FaultCollector

STUDY_CONFIG, DATASET_CONFIG = "config/studies/{}.yaml", "config/datasets/{}.yaml"
CACHE_FILE = Path(".snakemake/rewind/preflight.json")
"""What passed before, next to Snakemake's own records."""
Faults = Mapping[str, Sequence[str]]
"""File → what is wrong in it, each ``key: what is wrong; what to do`` without a full stop."""


@dataclass(frozen=True)
class Preflight:
    """What checks look at. The last four are known when jobs are planned."""

    studies: Mapping[str, Study]
    datasets: Mapping[str, Dataset] = field(default_factory=dict)
    targets: Sequence[str] = ()  # the command line: a submission needs a file that nothing else does
    cache: JsonCache = field(default_factory=JsonCache)  # what passed before, by all that it depends on
    lost: Sequence[str] = ()  # clips' shards that were written and are now missing
    planned: Sequence[tuple[str, Sequence[str], str]] = ()  # rule, outputs and job_origin of every job that is to run
    local: bool = False  # whether jobs run on this machine, and not on nodes that may have more GPUs
    slurm: Any = None  # settings of Snakemake's Slurm plugin; None where it is not used


class Check(NamedTuple):
    """A check before the first job.

    Attributes:
        when: ``read``, whenever the workflow is read: all faults are told together; or ``start``, just before the first
            job: the first check that finds something ends it.
        run: returns what is wrong by file; what is not a fault of a file it raises.
    """

    name: str
    needs: str  # the attribute of :class:`Preflight` without which there is nothing to check
    when: Literal["read", "start"]
    run: Callable[[Preflight], Faults]
    only_once: bool = False  # whether later checks are silent about the keys that it refuses


def dataset_files(inputs: Preflight) -> Faults:
    return {DATASET_CONFIG.format(name): files.dataset_faults(dataset) for name, dataset in inputs.datasets.items()}


def study_files(inputs: Preflight) -> Faults:
    return {STUDY_CONFIG.format(name): files.study_faults(study) for name, study in inputs.studies.items()}


def texts_of_models(inputs: Preflight) -> Faults:
    return {STUDY_CONFIG.format(name): files.text_faults(study) for name, study in inputs.studies.items()}


def files_of_submissions(inputs: Preflight) -> Faults:
    faults: dict[str, list[str]] = {}
    for name, study in inputs.studies.items():
        wanted = any(target.startswith(f"results/{name}/submission/") for target in inputs.targets)
        if wanted and study.dataset in inputs.datasets:
            lines = files.submission_faults(study, inputs.datasets[study.dataset])
            faults.setdefault(DATASET_CONFIG.format(study.dataset), []).extend(lines)  # studies may share a dataset
    return faults


def encoders_by_name(inputs: Preflight) -> Faults:
    return {
        STUDY_CONFIG.format(name): models.encoder_faults(study, inputs.datasets.get(study.dataset), inputs.cache)
        for name, study in inputs.studies.items()
    }


def splits_of_annotations(inputs: Preflight) -> Faults:
    of_studies, of_datasets = annotation_faults(inputs.studies, inputs.datasets, inputs.cache)
    return {STUDY_CONFIG.format(name): lines for name, lines in of_studies.items()} | {
        DATASET_CONFIG.format(name): lines for name, lines in of_datasets.items()
    }


def models_on_meta_tensors(inputs: Preflight) -> Faults:
    faults = models.all_model_faults(inputs.studies, inputs.datasets, inputs.cache)
    return {STUDY_CONFIG.format(name): lines for name, lines in faults.items()}


def gpus_of_this_machine(inputs: Preflight) -> Faults:
    """A run on one machine takes no more GPUs than it has; where it has none, jobs use the CPU."""
    count = count_visible_gpus()
    return _too_many_gpus(
        inputs, count, f"this machine has {count}: lower the number, or run on a machine with that many"
    )


def folders_of_results(inputs: Preflight) -> Faults:
    """Snakemake makes the folders of outputs, and reports one that it cannot make as an error of Python."""
    folders = {Path(path).parent for _, paths, _ in inputs.planned for path in paths if path.startswith("results/")}
    for folder in sorted({next(part for part in (path, *path.parents) if part.exists()) for path in folders}):
        check_output_folder(folder, "results")
    return {}


def ffmpeg_of_this_machine(inputs: Preflight) -> Faults:
    """Clips are drawn and normalised by an ffmpeg that can code them."""
    has_clips = any(dataset.items == "videos" and not dataset.vectors for dataset in inputs.datasets.values())
    if has_clips and any(rule.endswith(("video_shard", "sources")) for rule, *_ in inputs.planned):
        require_encoder()
    return {}


def lost_clips(inputs: Preflight) -> Faults:
    """Shards of clips that are gone are made again by themselves or not at all, or all that follows would run.

    One that will hold other clips, as a key of theirs was changed, is a stage like any other, killed or not.
    """
    again = {path: origin for _, paths, origin in inputs.planned for path in paths}
    gone = [path for path in inputs.lost if path in again and not is_made_otherwise(path, again[path])]
    if gone and not all(rule.endswith("video_shard") for rule, *_ in inputs.planned):
        raise RewindError(how_to_restore_shards(gone))
    return {}


def states_of_slurm_jobs(inputs: Preflight) -> Faults:
    settings = inputs.slurm
    if fault := cluster.status_fault(settings.status_command, settings.init_seconds_before_status_checks):
        raise RewindError(fault)
    return {}


def gpus_of_slurm_nodes(inputs: Preflight) -> Faults:
    """A job runs on one node."""
    count = cluster.gpus_of_largest_node()
    return _too_many_gpus(
        inputs, count, f"no node of this cluster has more than {count}, and a run is on one node: lower the number"
    )


def _too_many_gpus(inputs: Preflight, available: int, reason: str) -> Faults:
    return {
        STUDY_CONFIG.format(name): [f"resources.gpus: {study.resources.gpus}, but {reason}"]
        for name, study in inputs.studies.items()
        if 0 < available < study.resources.gpus
    }


CHECKS = (
    Check("files and folders of datasets", "datasets", "read", dataset_files),
    Check("weights, images and packages of studies", "studies", "read", study_files),
    Check("texts from which models are built", "studies", "read", texts_of_models, only_once=True),
    Check("captions for which a submission needs vectors", "targets", "read", files_of_submissions),
    Check("encoders that methods name", "studies", "read", encoders_by_name),
    Check("splits and twins in annotations", "datasets", "read", splits_of_annotations),
    Check("models, losses and samplers", "datasets", "read", models_on_meta_tensors),
    Check("folders of results", "planned", "start", folders_of_results),
    Check("GPUs of this machine", "local", "start", gpus_of_this_machine),
    Check("the ffmpeg of this machine", "local", "start", ffmpeg_of_this_machine),
    Check("clips that are gone", "lost", "start", lost_clips),
    Check("how Slurm tells the states of jobs", "slurm", "start", states_of_slurm_jobs),
    Check("GPUs of Slurm's nodes", "slurm", "start", gpus_of_slurm_nodes),
)


def run_checks(when: Literal["read", "start"], inputs: Preflight, faults: FaultCollector | None = None) -> None:
    """Run the checks of :data:`CHECKS` that are due, in their order.

    Args:
        faults: what was found before them, and is told with what they find.

    Raises:
        ConfigErrors: everything that is wrong in files.
        RewindError: what is not a fault of a file, from the first check that finds it.

    >>> run_checks("start", Preflight({}, lost=["0-of-1.tar"], planned=[("train", ["model.safetensors"], "")]))
    """
    faults = faults or FaultCollector()
    try:
        for check in CHECKS:
            if check.when != when or not getattr(inputs, check.needs):
                continue
            for path, lines in check.run(inputs).items():
                faults.add(path, lines, check.only_once)
            if when == "start":
                faults.end()
    finally:
        inputs.cache.save()  # after a fault too: what passed is not checked again
    faults.end()
