"""Unpack the object that Snakemake hands to a script (whose attributes are all that is known of it here)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rewind.feeding.folder import DataFolder
from rewind.files import read_json
from rewind.jobs.runs import Job
from rewind.study import RunSpec


def training_job(given: Any) -> Job:
    """The training job of a rule with ``spec``, ``dataset``, ``state``, ``code`` and inputs ``items``, ``best``, …"""
    params, inputs = given.params, given.input
    frames = _max_frames(given)
    return Job(
        name=params.get("name", "sanity"),
        spec=_spec(given),
        seed=params.get("seed", 0),
        data=Path(inputs.item_table).parent,
        dataset=params.dataset,
        max_frames=frames,
        state=Path(params.state),
        code=params.code,
        cache=_cache(inputs, frames),
        pretrained=_path(inputs, "pretrained"),
    )


def timed_jobs(given: Any) -> dict[str, Job]:
    """Training jobs of a rule with ``specs``, a spec for each method, for the same data and seed."""
    inputs, params = given.input, given.params
    frames = _max_frames(given)
    return {
        name: Job(
            name=name,
            spec=RunSpec.model_validate(spec),
            seed=params.seed,
            data=Path(inputs.item_table).parent,
            dataset=params.dataset,
            max_frames=frames,
            state=Path(given.output[0]).with_suffix(".state"),  # never written: nothing here is resumed
            code=params.code,
            cache=_cache(inputs, frames),
            pretrained=_path(inputs, "pretrained"),
        )
        for name, spec in params.specs.items()
    }


def data_folder(given: Any) -> DataFolder:
    """The data of a rule that computes features or similarities."""
    spec = _spec(given)
    pretrained = _path(given.input, "pretrained")
    if pretrained is not None:
        spec = spec.model_copy(update={"backbone": spec.backbone.model_copy(update={"weights": str(pretrained)})})
    folder, frames = Path(given.input.item_table).parent, _max_frames(given)
    return DataFolder(folder, given.params.dataset, spec, frames, _cache(given.input, frames))


def _spec(given: Any) -> RunSpec:
    """The keys that results depend on are parameters; how frames are read comes with the resources."""
    spec = RunSpec.model_validate({"evaluation": {}, "method": {}} | given.params.spec)
    read = {"workers": given.resources.get("workers", 0), "keep_in_memory": bool(given.resources.get("keep_in_memory"))}
    return spec.model_copy(update={"frames": spec.frames.model_copy(update=read)})


def _max_frames(given: Any) -> int:
    fixed = given.params.get("max_frames")
    return fixed if fixed is not None else read_json(given.input.best)["max_frames"]


def _cache(inputs: Any, frames: int) -> Path | None:
    """The features or else the frame store for a number of frames, among those of all candidates of a sweep.

    A data set of vectors has the same for any number.
    """
    if vectors := _paths(inputs, "vectors"):
        return vectors[0]
    features = {path.stem: path for path in _paths(inputs, "features")}
    stores = {path.parent.name: path for path in _paths(inputs, "store")}
    found = features or stores
    return found[f"frames{frames}"] if found else None


def _paths(inputs: Any, name: str) -> list[Path]:
    given = inputs.get(name) or []
    return [Path(path) for path in ([given] if isinstance(given, str) else given)]


def _path(inputs: Any, name: str) -> Path | None:
    value = inputs.get(name)
    return Path(value) if value else None
