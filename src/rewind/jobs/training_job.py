"""A training job as the workflow describes it: what it learns from, and what it goes on from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rewind.feeding.folder import DataFolder
from rewind.files import digest, read_json
from rewind.jobs.given import Given
from rewind.jobs.unpack import cache_of, frames_of, path_of, spec_of
from rewind.jobs.zero_shot import validation_file
from rewind.provenance import file_hash
from rewind.study import RunSpec
from rewind.study.brought import files
from rewind.training.state import StateFile


@dataclass
class Job:
    """One training job as the workflow describes it.

    Attributes:
        name: for messages, for example ``seqTransf/seed0``.
        spec: the keys it depends on.
        seed: its seed.
        data: ``results/data/<dataset>``.
        dataset: the dataset's name.
        max_frames: frames per clip.
        state: the undeclared state file, a path or a URL.
        code: fingerprint of the code.
        cache: cached features of frozen towers, or the index of a frame store, if any.
        pretrained: weights made by the study's own pre-training that the run starts from, if any.
        max_frames_tried: what the study's sweep chose ``max_frames`` from, if it has one.
    """

    name: str
    spec: RunSpec
    seed: int
    data: Path
    dataset: str
    max_frames: int
    state: str | Path
    code: str
    cache: Path | None = None
    pretrained: Path | None = None
    max_frames_tried: list[int] | None = None

    def __post_init__(self) -> None:
        if self.pretrained is not None:
            backbone = self.spec.backbone.model_copy(update={"weights": str(self.pretrained)})
            self.spec = self.spec.model_copy(update={"backbone": backbone})

    def folder(self) -> DataFolder:
        return DataFolder(Path(self.data), self.dataset, self.spec, self.max_frames, self.cache)

    def hashes(self) -> dict[str, str]:
        """Content hashes of the files that the run learns from."""
        captions = Path(self.data) / "captions"
        paths = [Path(self.data) / "items.csv", *(captions / f"{self.dataset}_{s}.csv" for s in ("train", "valid"))]
        weights = self.spec.backbone.weights  # the study's own pre-training included
        paths += [Path(path) for path in (self.cache, weights, validation_file(self.spec.evaluation)) if path]
        paths += [Path(path) for path in files(self.spec.method)]
        return {str(path): file_hash(path) for path in paths}

    def content(self) -> str | None:
        """Content hash of the data set's clips, images or vectors; none where they were made without one."""
        report = Path(self.data) / "captions" / "report.json"
        return read_json(report).get("digest") if report.is_file() else None

    def state_file(self) -> StateFile:
        mark = digest(self.code, self.spec.signature(), self.seed, self.max_frames, self.hashes(), self.content())
        return StateFile(self.state, mark)


def training_job(given: Given) -> Job:
    """The training job of a rule with ``spec``, ``dataset``, ``state``, ``code`` and inputs ``items``, ``best``, …"""
    params, inputs = given.params, given.input
    frames, best = frames_of(given), inputs.get("best")
    return Job(
        name=params.get("name", "sanity"),
        spec=spec_of(given),
        seed=params.get("seed", 0),
        data=Path(inputs.item_table).parent,
        dataset=params.dataset,
        max_frames=frames,
        state=state_path(params.state, given.resources.get("state_folder")),
        code=params.code,
        cache=cache_of(inputs, frames),
        pretrained=path_of(inputs, "pretrained"),
        max_frames_tried=read_json(best).get("tried") if best else None,
    )


def state_path(path: str, folder: str | None = None) -> str:
    """Where a run's state is: ``results/<study>/.state/…``, or ``<folder>/<study>/…`` where a folder or URL is given.

    Args:
        path: the former, which the rule names.
        folder: ``resources.state_folder`` of the study.
    """
    if not folder:
        return path
    before, _, rest = path.partition("/.state/")
    return "/".join([folder.rstrip("/"), Path(before).name, rest])


def timed_jobs(given: Given) -> dict[str, Job]:
    """Training jobs of a rule with ``specs``, a spec for each method, for the same data and seed."""
    inputs, params = given.input, given.params
    frames = frames_of(given)
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
            cache=cache_of(inputs, frames),
            pretrained=path_of(inputs, "pretrained"),
        )
        for name, spec in params.specs.items()
    }
