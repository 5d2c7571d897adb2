"""Reads a job's inputs: runs, pairs, configuration, cached files, and the data that its model computes on.

Jobs without torch, which takes seconds to import, import this module too: it imports torch for a job's model alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rewind.config import RunSpec
from rewind.io.files import read_json
from rewind.jobs.metrics import RunKey
from rewind.workflow.job import Job, NamedList

if TYPE_CHECKING:
    from rewind.loading.run_data import RunData


def job_runs(job: Job) -> list[RunKey]:
    """Method and seed of every run of a rule, in the order of the study."""
    return [(method, seed) for method, seed in job.params.runs]


def files_by_run(job: Job, files: Iterable[str]) -> dict[RunKey, str]:
    """Files of all runs, by method and seed."""
    return dict(zip(job_runs(job), files, strict=True))


def job_pairs(job: Job) -> list[tuple[str, str]]:
    """Pairs of methods that a study compares."""
    return [(first, second) for first, second in job.params.pairs]


def job_run_spec(job: Job) -> RunSpec:
    """The run's keys: those that results depend on are parameters of the rule, how frames are read are resources."""
    spec = RunSpec.model_validate({"evaluation": {}, "method": {}} | job.params.spec)
    frame_options = {
        "workers": job.resources.get("workers", 0),
        "keep_in_memory": bool(job.resources.get("keep_in_memory")),
    }
    return spec.model_copy(update={"frames": spec.frames.model_copy(update=frame_options)})


def job_max_frames(job: Job) -> int:
    """Frames per clip: a parameter, or else the sweep's choice; 0 for a model that sees no frames."""
    value, best = job.params.get("max_frames"), job.input.get("best")
    return value if value is not None else read_json(best)["max_frames"] if best else 0


def cached_input(inputs: NamedList, frames: int) -> Path | None:
    """The cached features, or else the frame store, for a number of frames, among those of all candidates of a sweep.

    A data set of vectors has one file for any number.
    """
    if vectors := _input_paths(inputs, "vectors"):
        return vectors[0]
    features = {path.stem: path for path in _input_paths(inputs, "features")}
    stores = {path.parent.name: path for path in _input_paths(inputs, "store")}
    paths = features or stores
    return paths[f"frames{frames}"] if paths else None


def _input_paths(inputs: NamedList, name: str) -> list[Path]:
    value = inputs.get(name) or []
    return [Path(path) for path in ([value] if isinstance(value, str) else value)]


def optional_input(inputs: NamedList, name: str) -> Path | None:
    """An input file that only some studies have."""
    value = inputs.get(name)
    return Path(value) if value else None


def build_run_data(job: Job) -> RunData:
    """The data of a job that computes features or similarities.

    Weights of the study's own pre-training, if it is an input, take the place of the backbone's.
    """
    from rewind.loading.run_data import RunData  # late: it imports torch, which jobs without a model need not wait for

    spec = job_run_spec(job)
    pretrained = optional_input(job.input, "pretrained")
    if pretrained is not None:
        spec = spec.model_copy(update={"backbone": spec.backbone.model_copy(update={"weights": str(pretrained)})})
    folder, frames = Path(job.input.item_table).parent, job_max_frames(job)
    return RunData(folder, job.params.dataset, spec, frames, cached_input(job.input, frames))
