"""What several jobs read of what they are given: runs, keys, caches. Without torch, which takes seconds to import."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rewind.files import read_json
from rewind.jobs.given import Given, Named
from rewind.jobs.metrics import Run
from rewind.study import RunSpec


def runs_of(given: Given) -> list[Run]:
    """Method and seed of every run that a rule is about, in the order of the study."""
    return [(method, seed) for method, seed in given.params.runs]


def by_run(given: Given, files: Iterable[str]) -> dict[Run, str]:
    """Files of all runs, by method and seed."""
    return dict(zip(runs_of(given), files, strict=True))


def pairs_of(given: Given) -> list[tuple[str, str]]:
    """Pairs of methods that a study compares."""
    return [(first, second) for first, second in given.params.pairs]


def spec_of(given: Given) -> RunSpec:
    """The keys that results depend on are parameters; how frames are read comes with the resources."""
    spec = RunSpec.model_validate({"evaluation": {}, "method": {}} | given.params.spec)
    read = {"workers": given.resources.get("workers", 0), "keep_in_memory": bool(given.resources.get("keep_in_memory"))}
    return spec.model_copy(update={"frames": spec.frames.model_copy(update=read)})


def frames_of(given: Given) -> int:
    """Frames of a clip: a parameter, or else the sweep's choice; 0 for a model that looks at none."""
    fixed, best = given.params.get("max_frames"), given.input.get("best")
    return fixed if fixed is not None else read_json(best)["max_frames"] if best else 0


def cache_of(inputs: Named, frames: int) -> Path | None:
    """The features or else the frame store for a number of frames, among those of all candidates of a sweep.

    A data set of vectors has the same for any number.
    """
    if vectors := _paths(inputs, "vectors"):
        return vectors[0]
    features = {path.stem: path for path in _paths(inputs, "features")}
    stores = {path.parent.name: path for path in _paths(inputs, "store")}
    found = features or stores
    return found[f"frames{frames}"] if found else None


def _paths(inputs: Named, name: str) -> list[Path]:
    given = inputs.get(name) or []
    return [Path(path) for path in ([given] if isinstance(given, str) else given)]


def path_of(inputs: Named, name: str) -> Path | None:
    """An input file that only some studies have."""
    value = inputs.get(name)
    return Path(value) if value else None
