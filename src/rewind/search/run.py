"""A finished run on disk: its configuration, its data, and whether these are still what it was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rewind.commands import prepare_command, snakemake_command, working_folder_of
from rewind.config import RunSpec
from rewind.config.base import fault_message
from rewind.errors import RewindError
from rewind.io.strict import read_user_json
from rewind.provenance import file_hash
from rewind.search.trust import check_record
from rewind.workflow.checksums import how_to_restore, lost_outputs, verify_files_below

MODEL_FILE, RECORD_FILE = "model.safetensors", "run.json"
TRAIN_CAPTIONS_ENDING = "_train.csv"
MAX_SHOWN_RUNS = 6


@dataclass(frozen=True)
class FinishedRun:
    """What is known about a run without loading its model."""

    folder: Path  # holds model.safetensors and run.json
    name: str  # for messages and titles, for example `demo/meanP/seed0`
    spec: RunSpec  # files that it names are at their present paths
    max_frames: int
    data: Path  # results/data/<dataset>
    dataset: str
    cache: Path | None  # features of frozen towers or a frame store that it was trained on, if any; it may be gone
    hashes: dict[Path, str]  # present path → content hash of each file that it was trained on

    @property
    def model(self) -> Path:
        """The checkpoint."""
        return self.folder / MODEL_FILE

    @property
    def train_captions(self) -> Path:
        """The captions from which a word vocabulary is built."""
        return self.data / "captions" / f"{self.dataset}{TRAIN_CAPTIONS_ENDING}"

    def same(self, path: Path) -> bool:
        """Whether a file that the run was trained on exists, and has the content that it had then."""
        return path.is_file() and file_hash(path) == self.hashes.get(path)

    def index(self, split: str) -> Path:
        """Default file for the features of a gallery: ``results/<study>/index/<method>.seed<k>.npz``."""
        folder, split = self.folder.resolve(), "" if split == "test" else f".{split}"
        if folder.parent.parent.name == "runs":
            return _relative_path(folder.parents[2] / "index" / f"{folder.parent.name}.{folder.name}{split}.npz")
        return _relative_path(folder.parent / "index" / f"{folder.name}{split}.npz")


def open_run(folder: str | Path) -> FinishedRun:
    """Open the run in ``results/<study>/runs/<method>/seed<k>``; the working folder may be another one.

    Raises:
        RewindError: if there is no run, it is not finished, its record cannot be understood, or its data are gone.
    """
    folder = Path(folder)
    _check_finished(folder)
    verify_files_below(folder, MODEL_FILE, RECORD_FILE)
    record = read_user_json(folder / RECORD_FILE)
    if isinstance(record, dict):
        check_record(record, folder, folder / RECORD_FILE)
    files = _training_files(record, folder / RECORD_FILE)
    root = _data_root(folder, files[0])
    backbone = record["spec"].get("backbone")
    weights = backbone.get("weights") if isinstance(backbone, dict) else None
    caches = [root / path for path in files if path.suffix != ".csv" and str(path) != weights]
    return FinishedRun(
        folder=folder,
        name=_run_name(folder),
        spec=_run_spec(record["spec"], root, folder / RECORD_FILE),
        max_frames=record["max_frames"],
        data=root / files[0].parent,
        dataset=next(path.name for path in files if path.name.endswith(TRAIN_CAPTIONS_ENDING)).removesuffix(
            TRAIN_CAPTIONS_ENDING
        ),
        cache=caches[0] if caches else None,
        hashes={root / path: record["data"][str(path)] for path in files},
    )


def _check_finished(folder: Path) -> None:
    if not folder.is_dir():
        raise RewindError(f"{folder}: no such folder; name a run: results/<study>/runs/<method>/seed<k>.")
    missing_files = [name for name in (MODEL_FILE, RECORD_FILE) if not (folder / name).is_file()]
    if not missing_files:
        return
    patterns = ("seed*", "*/seed*", "runs/*/seed*")
    inside = [run.parent for p in patterns for run in sorted(folder.glob(f"{p}/{RECORD_FILE}"))]
    if inside:
        more = f" and {len(inside) - MAX_SHOWN_RUNS} more" if len(inside) > MAX_SHOWN_RUNS else ""
        raise RewindError(f"{folder}: name one run: {', '.join(map(str, inside[:MAX_SHOWN_RUNS]))}{more}.")
    missing = f"{' and '.join(missing_files)} {'are' if len(missing_files) > 1 else 'is'} missing"
    if folder.resolve().parent.parent.name != "runs":
        raise RewindError(f"{folder}: not a run: {missing}; name a run: results/<study>/runs/<method>/seed<k>.")
    if gone := [path for path in lost_outputs(folder.parents[2]) if path.parent == folder]:
        raise RewindError(f"{folder}: {how_to_restore(gone)}")
    begun = " Training has started and will resume." if _training_state_file(folder).is_file() else ""
    finish = snakemake_command(folder / MODEL_FILE)
    raise RewindError(f"{folder}: the run is not finished: {missing}.{begun} `{finish}` finishes it.")


def _training_state_file(folder: Path) -> Path:
    """The training state from which a killed run resumes; ``folder`` is ``…/runs/<method>/seed<k>``."""
    folder = folder.resolve()
    return folder.parents[2] / ".state/runs" / f"{folder.parent.name}.{folder.name}.pt"


def _training_files(record: Any, where: Path) -> list[Path]:
    """Files that the run was trained on, ``items.csv`` first."""
    keys = {"spec": dict, "max_frames": int, "data": dict}
    missing = [
        key for key, kind in keys.items() if not isinstance(record, dict) or not isinstance(record.get(key), kind)
    ]
    paths = sorted(map(Path, record["data"]), key=lambda path: path.name != "items.csv") if not missing else []
    if (
        missing
        or not paths
        or paths[0].name != "items.csv"
        or not any(path.name.endswith(TRAIN_CAPTIONS_ENDING) for path in paths)
    ):
        missing = missing or ["data: items.csv and the training captions"]
        raise RewindError(
            f"{where}: {', '.join(missing)} missing; this is not the record of a training run. Train it again."
        )
    return paths


def _data_root(folder: Path, items: Path) -> Path:
    """The folder to which paths of the record are relative: the working folder, or one above the run."""
    for base in (Path(), *folder.resolve().parents):
        if (base / items).is_file():
            return base
    raise RewindError(
        f"{folder / RECORD_FILE}: its data are missing: {items}. Run this from the folder that contains them, or "
        f"create them with `{prepare_command(working_folder_of(folder)[0] / items)}`."
    )


def _run_spec(values: dict[str, Any], root: Path, where: Path) -> RunSpec:
    try:
        spec = RunSpec.model_validate(values)
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(map(str, fault["loc"]))
        raise RewindError(
            f"{where}: spec.{key}: {fault_message(fault)}; another version of Rewind wrote it. Train the run again."
        ) from None
    backbone = spec.backbone
    changes: dict[str, Any] = {"architecture": _existing_path(root, backbone.architecture)}
    if backbone.kind == "clip":
        # The checkpoint holds both towers completely: the weights that they started from are not needed again.
        changes |= {"weights": None, "pretrained": None}
    elif backbone.name and (root / backbone.name).is_dir():
        changes["name"] = str(root / backbone.name)
    elif backbone.weights:
        changes["weights"] = _existing_path(root, backbone.weights)
    return spec.model_copy(update={"backbone": backbone.model_copy(update=changes)})


def _existing_path(root: Path, path: str) -> str:
    return str(root / path) if (root / path).is_file() else path


def _run_name(folder: Path) -> str:
    parts = folder.resolve().parts
    return "/".join((parts[-4], *parts[-2:])) if parts[-3:-2] == ("runs",) else str(folder)


def _relative_path(path: Path) -> Path:
    """The path relative to the working folder, where it is below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
