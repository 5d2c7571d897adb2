"""Published results: the few files of a finished study from which its tables are rendered, a folder per machine."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path
from typing import Any

from rewind.errors import RewindError
from rewind.files import check_id, read_csv, read_json, write_csv, write_json, write_text
from rewind.jobs.config import MAIN, load_all, selected
from rewind.jobs.metrics import read_reasons
from rewind.jobs.seals import check_below
from rewind.publishing.benchmarks import benchmark
from rewind.publishing.record import benchmark_record, machine_name, study_record
from rewind.study import Dataset, Study
from rewind.study.report import RANK, split_column
from rewind.study.yaml_file import read_yaml

FOLDER = Path("docs/published")
MAIN_FILES = {
    "metrics.csv": "metrics.csv",
    "intervals.csv": "statistics/intervals.csv",
    "pairs.csv": "statistics/pairs.csv",
    "gaps.csv": "statistics/gaps.csv",
}
ZERO_SHOT = {"zero_shot.csv": "statistics/zero_shot.csv"}
STEP_TIME = {"step_time.csv": "step_time.csv"}
CONTROL = {"control.csv": "statistics/control.csv"}
RANKS = {"ranks.csv": "statistics/ranks.csv"}
COSINE_GAP = {
    "cosine_gap_runs.csv": "cosine_gap.csv",
    "cosine_gap.csv": "statistics/cosine_gap.csv",
    "cosine_gap_pairs.csv": "statistics/cosine_gap_pairs.csv",
}
EFFICIENCY = {"efficiency.csv": "efficiency/efficiency.csv"}
FIGURES = "figures.csv"  # of a benchmark
_UNREAD = ("boot_procedure",)  # long, the same in every row, and no table prints it
_TEXT_ALONE = ("label", "train", "seeds")  # keys of a method that change no number


def machines(root: Path, source: str) -> list[Path]:
    """Folders of a study's or benchmark's published results, by name; documents print the first one's numbers."""
    return sorted(file.parent for file in (root / FOLDER / source).glob("*/record.json"))


def publish_study(root: Path, name: str, results: Path, machine: str | None) -> Path:
    """Store a finished study; returns the folder.

    Raises:
        RewindError: for a study that is not finished, that ran with other keys than its file has, or whose machine's
            name another machine has.
    """
    study, dataset = _configured(name)
    for method, seed in study.runs():
        _check_keys(study, method, seed, results / f"runs/{method}/seed{seed}/run.json")
    files = dict(MAIN_FILES)
    files |= ZERO_SHOT if study.evaluation.zero_shot else {}
    files |= STEP_TIME if study.tables.verdict else {}
    files |= CONTROL if study.tables.verdict and study.tables.verdict.control else {}
    files |= RANKS if any(split_column(column)[1] == RANK for column in study.tables.columns) else {}
    files |= COSINE_GAP if study.evaluation.cosine_gap else {}
    files |= {name: file for name, file in EFFICIENCY.items() if (results / file).is_file()}
    for file in files.values():
        if not (results / file).is_file():
            raise RewindError(f"{results / file}: no such file; finish the study, then publish it.")
    check_below(results, *files.values(), "ranks/*/*", "runs/*/*/run.json")
    record = study_record(study, results)
    if reasons := read_reasons(study.runs(), str(results / "ranks")):
        record["not_evaluated"] = reasons
    folder = _folder(root, record, machine)
    texts = {stored: lean((results / file).read_text(encoding="utf-8")) for stored, file in files.items()}
    shutil.rmtree(folder, ignore_errors=True)
    for stored, text in texts.items():
        write_text(folder / stored, text)
    keys = {"study": study.model_dump(mode="json"), "dataset": dataset.model_dump(mode="json")}
    write_json(folder / "keys.json", keys)
    write_json(folder / "record.json", record)
    return folder


def publish_benchmark(root: Path, name: str, figures: Path, machine: str | None) -> Path:
    """Store the figures of ``benchmarks/<name>.py``, less what its ``slim`` leaves out; returns the folder."""
    if not figures.is_file():
        raise RewindError(f"{figures}: no such file; run `python benchmarks/{name}.py` first, or give --from FILE.")
    record = benchmark_record(name, figures)
    folder = _folder(root, record, machine)
    shutil.rmtree(folder, ignore_errors=True)
    slim = getattr(benchmark(root, name), "slim", None)
    if slim:
        write_csv(folder / FIGURES, slim(read_csv(figures, text=("seeds", "seed_sd"))))
    else:
        write_text(folder / FIGURES, lean(figures.read_text(encoding="utf-8")))
    write_json(folder / "record.json", record)
    return folder


def lean(text: str) -> str:
    """A CSV without columns that no table reads. Numbers stay as they were written, digit for digit: a mean that lies
    between two printed values would be rounded to the other one after any loss."""
    rows = list(csv.reader(io.StringIO(text)))
    kept = [at for at, name in enumerate(rows[0]) if name not in _UNREAD] if rows else []
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([row[at] for at in kept] for row in rows)
    return out.getvalue()


def changed_keys(name: str, folder: Path) -> list[str]:
    """Keys of a published study that its file now has otherwise; those alone on which numbers or tables depend."""
    study, _ = _configured(name)
    stored = Study.model_validate(read_json(folder / "keys.json")["study"])
    return differences(stored.signature(), study.signature())


def _configured(name: str) -> tuple[Study, Dataset]:
    """A study and its data set as the workflow would run them now."""
    given = read_yaml(Path(MAIN))
    names = selected(given) if given.get("studies") else []
    studies, datasets = load_all(given | {"studies": list(dict.fromkeys([*names, name]))})
    return studies[name], datasets[studies[name].dataset]


def _check_keys(study: Study, method: str, seed: int, file: Path) -> None:
    ran, now = read_json(file).get("spec", {}), study.run_spec(method, seed=seed).signature()
    if study.pretraining:  # the weights are those of the pre-training
        now["backbone"].pop("weights")
    now["method"] = {key: value for key, value in now["method"].items() if key not in _TEXT_ALONE}
    parts = ("backbone", "frames", "text", "method")
    if found := differences({p: ran.get(p, {}) for p in parts}, {p: now[p] for p in parts}):
        raise RewindError(
            f"{file}: this run's keys differ from those now in config/studies/{study.name}.yaml: "
            f"{'; '.join(found[:3])}. Run the study with its present file, then publish it."
        )


def differences(before: Any, after: Any, key: str = "") -> list[str]:
    """``training.epochs: 2, now 12`` for every value that both have and that differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        both = [name for name in after if name in before]
        return [line for name in both for line in differences(before[name], after[name], f"{key}.{name}".strip("."))]
    return [] if before == after else [f"{key}: {before}, now {after}"]


def _folder(root: Path, record: dict[str, Any], machine: str | None) -> Path:
    name = check_id(machine or machine_name(record), "--name")
    folder = root / FOLDER / record["name"] / name
    if machine is None and (folder / "record.json").is_file():
        there = read_json(folder / "record.json")["machine"]["processor"]
        if there != record["machine"]["processor"]:
            raise RewindError(
                f"{folder}: contains results of another processor ({', '.join(there)}); give this machine its own name "
                "with --name, or use --name " + name + " to replace them."
            )
    return folder
