"""Storing published results under ``docs/published``: one folder per study or benchmark and machine.

A folder holds the few CSV files from which the tables are rendered, the configuration, and a record of commit, date and
machine.
"""

from __future__ import annotations

import csv
import datetime
import importlib.util
import io
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from rewind.analyses import analysis_results
from rewind.config import Dataset, Study
from rewind.errors import RewindError
from rewind.io.files import check_id, read_csv, read_json, write_csv, write_json, write_text
from rewind.provenance import environment, hardware
from rewind.statistics.rank_files import read_not_evaluated
from rewind.workflow.checksums import verify_files_below
from rewind.workflow.config import load_configured_study
from rewind.workflow.plan.dataset import DatasetPlan
from rewind.workflow.plan.reporting import result_files, table_files
from rewind.workflow.plan.study import StudyPlan
from rewind.workflow.what_ran import study_that_ran, value_changes

# ---- Benchmarks with published results -----------------------------------------------------------------------------
# A program benchmarks/<name>.py has `published(table)`, which returns name → Markdown, and may have `slim(table)`,
# which returns the table without what need not be stored. One whose figures are no CSV has `read(figures)`, which
# returns them as a table, and `FIGURES`, where they are; one whose figures name their machine, so that they can be
# published on another, has `made(figures)`, with the keys of `run.json`. `UNPUBLISHED` is what documents print while
# nothing is published, by the same names, and as `made`.


def load_benchmark(root: Path, name: str) -> ModuleType:
    """The program ``benchmarks/<name>.py``, whose ``published(table)`` returns name → Markdown.

    Args:
        root: of the checkout.
        name: of the benchmark.

    Raises:
        RewindError: if there is no such program, or it has no such function.
    """
    file = root / f"benchmarks/{name}.py"
    if not file.is_file():
        raise RewindError(f"{name}: neither config/studies/{name}.yaml nor benchmarks/{name}.py is there.")
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", file)
    assert spec is not None and spec.loader is not None  # never None for the path of a .py file
    module = importlib.util.module_from_spec(spec)
    with _importing_from(file.parent):
        spec.loader.exec_module(module)
    if not hasattr(module, "published"):
        raise RewindError(f"{file}: has no function published(table), so its results cannot be published.")
    return module


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Let a program import its neighbours, as it can when it is run."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


# ---- Provenance of published results, as a record and as a sentence for readers ------------------------------------

_MAX_PAUSE_SECONDS = 60  # Snakemake needs less than this between two jobs


def study_record(study: Study, folder: Path) -> dict[str, Any]:
    """Provenance of a finished study: commits, date, machine and packages of its runs, each value once.

    Args:
        study: its configuration.
        folder: its results.
    """
    files = [folder / f"runs/{method}/seed{seed}/run.json" for method, seed in study.runs()]
    runs = [read_json(file) for file in files]
    trained = [run for run, (method, _) in zip(runs, study.runs(), strict=True) if method in study.trained()] or runs
    dates = [run.get("date") or _file_date(file) for run, file in zip(runs, files, strict=True)]
    record = _make_record(study.name, "study", runs, trained) | {"date": max(dates)}
    data = folder.parent / "data" / study.dataset / "benchmarks"
    return record | {
        "wall_seconds": wall_seconds([folder / "benchmarks", data], max(record["machine"]["cores"], default=0))
    }


def benchmark_record(name: str, figures: Path, made: dict[str, Any] | None = None) -> dict[str, Any]:
    """Provenance of a benchmark.

    Args:
        name: of the benchmark.
        figures: their file.
        made: what the figures say of their machine, commit and date; None: they say nothing, so that it is this
            checkout, this machine and the file's date.
    """
    run = made or environment() | {"hardware": hardware(), "date": _file_date(figures)}
    return _make_record(name, "benchmark", [run], [run]) | {"date": run["date"]}


def _make_record(
    name: str, kind: str, runs: Sequence[dict[str, Any]], trained: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    machines = [run["hardware"] for run in trained]
    gits = [run.get("git") or {} for run in runs]
    return {
        "name": name,
        "kind": kind,
        "commits": _distinct_values(git.get("commit") for git in gits),
        "dirty": any(git.get("dirty") for git in gits),
        "machine": {
            "processor": _distinct_values(run.get("processor") for run in trained),
            "instance": _distinct_values(run.get("instance") for run in trained),
            "cores": _distinct_values(machine.get("cores") for machine in machines),
            "instructions": _distinct_values(machine.get("instructions") for machine in machines),
            "onednn_max": _distinct_values(machine.get("onednn_max") for machine in machines),
            "devices": _distinct_values(
                device for machine in machines if machine["gpus"] for device in machine["devices"]
            ),
        },
        "python": _distinct_values(run.get("python") for run in trained),
        "packages": trained[0].get("packages", {}),
        "ffmpeg": _distinct_values(run.get("ffmpeg") for run in trained),
        "driver": _distinct_values(run.get("driver") for run in trained),
    }


def machine_name(record: dict[str, Any]) -> str:
    """A name for the machine's folder: its GPU, else the instruction set that torch chose.

    >>> machine_name({"machine": {"devices": [], "instructions": ["AVX512"], "processor": [], "onednn_max": []}})
    'avx512'
    """
    machine = record["machine"]
    parts = machine["devices"] or machine["instructions"] or machine["processor"] or ["unknown"]
    parts = [*parts, *(f"onednn {name}" for name in machine["onednn_max"] if not machine["devices"])]
    return "-".join("".join(c if c.isalnum() else "-" for c in part.lower()).strip("-") for part in parts)


def describe_record(record: dict[str, Any]) -> str:
    """A record in a sentence: ``commit 8a66043, 22 November 2026, AMD EPYC, 2 cores, AVX512``."""
    machine = record["machine"]
    commits = " and ".join(commit[:7] for commit in record["commits"])
    changed = " with uncommitted changes" if record["dirty"] else ""
    cores = " or ".join(map(str, machine["cores"]))
    parts = [
        f"commit {commits}{changed}" if commits else "unknown commit",
        _format_date(record["date"]),
        *machine["instance"],
        *machine["devices"],
        *machine["processor"],
        f"{cores} {'core' if cores == '1' else 'cores'}" if cores else "",
        describe_instructions(record),
    ]
    return ", ".join(part for part in parts if part)


def describe_instructions(record: dict[str, Any]) -> str:
    """The vector instructions that torch and oneDNN were allowed to use."""
    machine = record["machine"]
    instructions = " and ".join(machine["instructions"]).replace("DEFAULT", "torch's default instructions")
    limit = " and ".join(machine["onednn_max"])
    return f"{instructions} (oneDNN at most {limit})" if instructions and limit else instructions


def format_wall_time(seconds: float) -> str:
    """Minutes and seconds, with hours from one hour on.

    >>> format_wall_time(394), format_wall_time(3661)
    ('6:34', '1:01:01')
    """
    total = round(seconds)
    hours, rest = divmod(total, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def wall_seconds(folders: Iterable[Path], cores: int) -> float | None:
    """Seconds from the start of the first job to the end of the last; None unless all ran without interruption.

    Snakemake's benchmark files say how long a job took, and their modification times when it ended. A longer pause
    between jobs, or more work than ``cores`` can do in the time, means that jobs ran on different days or that the
    files were copied.

    Args:
        folders: of benchmark files; one that did not run together with the first (data that existed before) is left
            out.
        cores: of the machine; 0: unknown, and then so is the time.
    """
    spans: list[tuple[float, float]] = []
    for folder in folders:
        candidates = spans + [_job_span(file) for file in sorted(folder.rglob("*.tsv"))]
        if not spans or _ran_at_once(candidates, cores):
            spans = candidates
    if not spans or not _ran_at_once(spans, cores):
        return None
    return round(max(end for _, end in spans) - min(start for start, _ in spans), 1)


def _job_span(file: Path) -> tuple[float, float]:
    with file.open(newline="") as stream:
        seconds = float(next(csv.DictReader(stream, delimiter="\t"))["s"])
    end = file.stat().st_mtime
    return end - seconds, end


def _ran_at_once(spans: list[tuple[float, float]], cores: int) -> bool:
    earliest_start = latest_end = min(start for start, _ in spans)
    for start, end in sorted(spans):
        if start > latest_end + _MAX_PAUSE_SECONDS:
            return False
        latest_end = max(latest_end, end)
    # 10% more than possible is allowed, since file times are not exact.
    return sum(end - start for start, end in spans) <= 1.1 * cores * (latest_end - earliest_start)


def _distinct_values(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(value for value in values if value is not None))


def _file_date(file: Path) -> str:
    return datetime.datetime.fromtimestamp(file.stat().st_mtime, datetime.UTC).date().isoformat()


def _format_date(text: str) -> str:
    day = datetime.date.fromisoformat(text)
    return f"{day.day} {day:%B %Y}"


# ---- Writing the files ---------------------------------------------------------------------------------------------

PUBLISHED_FOLDER = Path("docs/published")
EFFICIENCY_FILES = {"efficiency.csv": "efficiency/efficiency.csv"}
BENCHMARK_FILE = "figures.csv"
_UNREAD_COLUMNS = ("boot_procedure",)  # long, the same in every row, and in no table


LATER_TABLES = ("places", "groups", "trials", "transductive", "zero_shot_pairs")
"""What results of an earlier version may lack."""
_NO_TABLES = ("best", "videos")  # footnotes alone read them


def result_tables(study: Study, dataset: Dataset) -> dict[str, dict[str, str]]:
    """Key of a report's input, as the workflow's plan lists it → name as stored → path within the results.

    Files of the deciding numbers lie side by side; those of trials, one per method and seed, keep their folders.
    """
    plan = StudyPlan(study, DatasetPlan(dataset, {dataset.name: dataset}))
    tables: dict[str, dict[str, str]] = {}
    for key, paths in (result_files(plan) | table_files(plan)).items():
        files = [Path(path) for path in ([paths] if isinstance(paths, str) else paths)]
        if key not in _NO_TABLES and all(file.suffix == ".csv" for file in files):
            within = [file.relative_to(plan.folder).as_posix() for file in files]
            names = within if key == "trials" else [f"{key}.csv" if key in analysis_results() else files[0].name]
            tables[key] = dict(zip(names, within, strict=True))
    return tables


def machine_folders(root: Path, source: str) -> list[Path]:
    """Folders of a study's or benchmark's published results, by name; documents print the numbers of the first."""
    return sorted(file.parent for file in (root / PUBLISHED_FOLDER / source).glob("*/record.json"))


def publish_study(root: Path, name: str, results: Path, machine: str | None) -> Path:
    """Store a finished study, and return the folder.

    Args:
        root: of the checkout.
        name: of the study.
        results: its results folder.
        machine: name of the machine's folder; None: see :func:`machine_name`.

    Raises:
        RewindError: for a study that is not finished, that ran with another configuration than its file has now, or
            whose folder has results of another machine.
    """
    study, dataset = study_that_ran(results, Path("config"), name=name)
    tables = result_tables(study, dataset)
    files = {stored: file for table in tables.values() for stored, file in table.items()}
    may_lack = {stored for key in LATER_TABLES for stored in tables.get(key, ())}
    files |= {name: file for name, file in EFFICIENCY_FILES.items() if (results / file).is_file()}
    for stored, file in list(files.items()):
        if not (results / file).is_file():
            if stored not in may_lack:
                raise RewindError(f"{results / file}: no such file; finish the study, then publish it.")
            del files[stored]
    verify_files_below(results, *files.values(), "ranks/*/*", "runs/*/*/run.json")
    record = study_record(study, results)
    if reasons := read_not_evaluated(study.runs(), str(results / "ranks")):
        record["not_evaluated"] = reasons
    folder = _machine_folder(root, record, machine)
    texts = {
        stored: drop_unread_columns((results / file).read_text(encoding="utf-8")) for stored, file in files.items()
    }
    shutil.rmtree(folder, ignore_errors=True)
    for stored, text in texts.items():
        write_text(folder / stored, text)
    keys = {"study": study.model_dump(mode="json"), "dataset": dataset.model_dump(mode="json")}
    write_json(folder / "keys.json", keys)
    write_json(folder / "record.json", record)
    return folder


def publish_benchmark(root: Path, name: str, figures: Path, machine: str | None) -> Path:
    """Store the figures of ``benchmarks/<name>.py``, without what its ``slim`` leaves out, and return the folder."""
    if not figures.is_file():
        raise RewindError(f"{figures}: no such file; run `python benchmarks/{name}.py` first, or give --from FILE.")
    module = load_benchmark(root, name)
    read, made, slim = (getattr(module, part, None) for part in ("read", "made", "slim"))
    table = read(figures) if read else None  # before the former figures are deleted
    record = benchmark_record(name, figures, made(figures) if made else None)
    folder = _machine_folder(root, record, machine)
    shutil.rmtree(folder, ignore_errors=True)
    if table is not None:
        write_csv(folder / BENCHMARK_FILE, table)
    elif slim:
        write_csv(folder / BENCHMARK_FILE, slim(read_csv(figures, text=("seeds", "seed_sd"))))
    else:
        write_text(folder / BENCHMARK_FILE, drop_unread_columns(figures.read_text(encoding="utf-8")))
    write_json(folder / "record.json", record)
    return folder


def drop_unread_columns(text: str) -> str:
    """A CSV without the columns that no table reads.

    Numbers are not parsed, so that they keep every digit: a mean half-way between two printed values would be rounded
    to the other one after any loss.
    """
    rows = list(csv.reader(io.StringIO(text)))
    columns = [column for column, name in enumerate(rows[0]) if name not in _UNREAD_COLUMNS] if rows else []
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([row[column] for column in columns] for row in rows)
    return out.getvalue()


def changed_keys(name: str, folder: Path) -> list[str]:
    """Keys of a published study that have another value in its file now, of those that change numbers or tables."""
    study = load_configured_study(name)
    stored = Study.model_validate(read_json(folder / "keys.json")["study"])
    return list(value_changes(stored.fingerprint(), study.fingerprint(), shared=True))


def _machine_folder(root: Path, record: dict[str, Any], machine: str | None) -> Path:
    name = check_id(machine or machine_name(record), "--name")
    folder = root / PUBLISHED_FOLDER / record["name"] / name
    if machine is None and (folder / "record.json").is_file():
        stored_processor = read_json(folder / "record.json")["machine"]["processor"]
        if stored_processor != record["machine"]["processor"]:
            raise RewindError(
                f"{folder}: contains results of another processor ({', '.join(stored_processor)}); give this machine "
                f"its own name with --name, or use --name {name} to replace them."
            )
    return folder
