"""A finished run on disk: its keys, where its data lie, and whether they are still what it learnt from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rewind.errors import RewindError
from rewind.jobs.seals import check_below
from rewind.provenance import file_hash
from rewind.reading.objects import read_json
from rewind.search.trust import check_record
from rewind.study import RunSpec

MODEL, RECORD = "model.safetensors", "run.json"
TRAIN = "_train.csv"
SHOWN = 6


@dataclass(frozen=True)
class FinishedRun:
    """What is known of a run without loading its model.

    Attributes:
        folder: holds ``model.safetensors`` and ``run.json``.
        name: for messages and titles, for example ``demo/meanP/seed0``.
        spec: its keys; files that they name are where they are now.
        max_frames: frames per clip.
        data: ``results/data/<dataset>``.
        dataset: the dataset's name.
        cache: features of frozen towers or a frame store that it learnt from, if any; it may be gone.
        hashes: content hash of each file that it learnt from, by its path now.
    """

    folder: Path
    name: str
    spec: RunSpec
    max_frames: int
    data: Path
    dataset: str
    cache: Path | None
    hashes: dict[Path, str]

    @property
    def model(self) -> Path:
        return self.folder / MODEL

    @property
    def train_captions(self) -> Path:
        """The captions that a word vocabulary is made from."""
        return self.data / "captions" / f"{self.dataset}{TRAIN}"

    def same(self, path: Path) -> bool:
        """Whether a file that the run learnt from is there and has the content it had then."""
        return path.is_file() and file_hash(path) == self.hashes.get(path)

    def index(self, split: str) -> Path:
        """Where the features of a gallery are kept by default: ``results/<study>/index/<method>.seed<k>.npz``."""
        folder, split = self.folder.resolve(), "" if split == "test" else f".{split}"
        if folder.parent.parent.name == "runs":
            return _near(folder.parents[2] / "index" / f"{folder.parent.name}.{folder.name}{split}.npz")
        return _near(folder.parent / "index" / f"{folder.name}{split}.npz")


def open_run(folder: str | Path) -> FinishedRun:
    """The run in ``results/<study>/runs/<method>/seed<k>``, from wherever it is looked at.

    Raises:
        RewindError: if there is no run, it is not finished, its record cannot be understood, or its data are gone.
    """
    folder = Path(folder)
    _check_finished(folder)
    check_below(folder, MODEL, RECORD)
    record = read_json(folder / RECORD)
    if isinstance(record, dict):
        check_record(record, folder, folder / RECORD)
    learnt = _learnt_from(record, folder / RECORD)
    root = _root(folder, learnt[0])
    towers = record["spec"].get("backbone")
    weights = towers.get("weights") if isinstance(towers, dict) else None
    caches = [root / path for path in learnt if path.suffix != ".csv" and str(path) != weights]
    return FinishedRun(
        folder=folder,
        name=_name(folder),
        spec=_spec(record["spec"], root, folder / RECORD),
        max_frames=record["max_frames"],
        data=root / learnt[0].parent,
        dataset=next(path.name for path in learnt if path.name.endswith(TRAIN)).removesuffix(TRAIN),
        cache=caches[0] if caches else None,
        hashes={root / path: record["data"][str(path)] for path in learnt},
    )


def _check_finished(folder: Path) -> None:
    if not folder.is_dir():
        raise RewindError(f"{folder}: no such folder; name a run: results/<study>/runs/<method>/seed<k>.")
    lost = [name for name in (MODEL, RECORD) if not (folder / name).is_file()]
    if not lost:
        return
    patterns = ("seed*", "*/seed*", "runs/*/seed*")
    inside = [run.parent for p in patterns for run in sorted(folder.glob(f"{p}/{RECORD}"))]
    if inside:
        more = f" and {len(inside) - SHOWN} more" if len(inside) > SHOWN else ""
        raise RewindError(f"{folder}: name one run: {', '.join(map(str, inside[:SHOWN]))}{more}.")
    missing = f"{' and '.join(lost)} {'are' if len(lost) > 1 else 'is'} missing"
    if folder.resolve().parent.parent.name != "runs":
        raise RewindError(f"{folder}: no run: {missing}; name a run: results/<study>/runs/<method>/seed<k>.")
    begun = " Training has started and will resume." if _state(folder).is_file() else ""
    raise RewindError(f"{folder}: the run is not finished: {missing}.{begun} `snakemake --cores all` finishes it.")


def _state(folder: Path) -> Path:
    """The state from which a killed run resumes; ``folder`` is ``…/runs/<method>/seed<k>``."""
    folder = folder.resolve()
    return folder.parents[2] / ".state/runs" / f"{folder.parent.name}.{folder.name}.pt"


def _learnt_from(record: Any, where: Path) -> list[Path]:
    """Files that the run learnt from, ``items.csv`` first.

    Raises:
        RewindError: if the record does not say.
    """
    keys = {"spec": dict, "max_frames": int, "data": dict}
    lost = [key for key, kind in keys.items() if not isinstance(record, dict) or not isinstance(record.get(key), kind)]
    paths = sorted(map(Path, record["data"]), key=lambda path: path.name != "items.csv") if not lost else []
    if lost or not paths or paths[0].name != "items.csv" or not any(path.name.endswith(TRAIN) for path in paths):
        lost = lost or ["data: items.csv and the training captions"]
        raise RewindError(
            f"{where}: {', '.join(lost)} missing; this is not the record of a training run. Train it again."
        )
    return paths


def _root(folder: Path, items: Path) -> Path:
    """The folder that paths of the record start from: the present one, or one above the run."""
    for base in (Path(), *folder.resolve().parents):
        if (base / items).is_file():
            return base
    raise RewindError(
        f"{folder / RECORD}: its data are missing: {items}. Run this from the folder that contains them, or create "
        "them with `snakemake --cores all prepared`."
    )


def _spec(given: dict[str, Any], root: Path, where: Path) -> RunSpec:
    try:
        spec = RunSpec.model_validate(given)
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(map(str, fault["loc"]))
        raise RewindError(
            f"{where}: spec.{key}: {fault['msg']}; it was made by another version of Rewind. Train the run again."
        ) from None
    keys = spec.backbone
    changes: dict[str, Any] = {"architecture": _there(root, keys.architecture)}
    if keys.kind == "clip":
        # The checkpoint holds both towers whole: what they started from is neither read nor fetched again.
        changes |= {"weights": None, "pretrained": None}
    elif keys.weights:
        changes["weights"] = _there(root, keys.weights)
    return spec.model_copy(update={"backbone": keys.model_copy(update=changes)})


def _there(root: Path, path: str) -> str:
    return str(root / path) if (root / path).is_file() else path


def _name(folder: Path) -> str:
    parts = folder.resolve().parts
    return "/".join((parts[-4], *parts[-2:])) if parts[-3:-2] == ("runs",) else str(folder)


def _near(path: Path) -> Path:
    """Relative to the present folder where it is below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
