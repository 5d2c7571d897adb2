"""``rewind rehearse``: make a study small, run Snakemake on it, estimate the cost of the whole study."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewind.cli.rehearse import report
from rewind.cli.rehearse.cost import DEFAULT_GPU_TFLOPS, Machine, estimate_cost
from rewind.cli.rehearse.measured import finished_jobs
from rewind.cli.rehearse.report import Rehearsal, SnakemakeOutcome
from rewind.cli.rehearse.shrink import REHEARSAL_FOLDER, prepare_rehearsal
from rewind.config import Dataset, Study
from rewind.errors import RewindError
from rewind.gpu import count_visible_gpus
from rewind.io.files import read_json
from rewind.platform import usable_cores
from rewind.processes import run_snakemake
from rewind.progress import format_duration
from rewind.workflow.config import load_config, main_overrides
from rewind.workflow.plan.reporting import targets_on_request
from rewind.workflow.plan.rules import WorkflowPlan
from rewind.working_folder import SNAKEFILES, find_snakefile, require_snakefile

# ---- Running the checkout's own workflow in that folder ------------------------------------------------------------

_PROGRESS_LINE = re.compile(r"(\d+) of (\d+) steps")
_FAILED_RULE_LINE = re.compile(r"Error in rule (\w+)")
_LOG_LINE = re.compile(r"^\s+log: (\S+)")
PROGRESS_SECONDS = 10.0  # least time between two lines of progress
MAX_SHOWN_LOG_LINES = 40  # last lines of Snakemake's log that are shown where it failed


def run_workflow(folder: Path, checkout: Path, cores: int, gpus: int, targets: list[str]) -> SnakemakeOutcome:
    """Run the checkout's workflow in ``folder``, which is prepared; its output goes to ``snakemake.log`` there.

    ``checkout`` is the working folder, which has the Snakefile and the profiles.
    """
    snakefile, profile = find_snakefile(checkout) or checkout / SNAKEFILES[0], checkout / "profiles/default"
    arguments = ["--snakefile", str(snakefile), "--directory", str(folder.absolute())]
    arguments += ["--cores", str(cores), "--resources", f"gpu={gpus}", "--keep-going"]
    arguments += ["--workflow-profile", str(profile)] if profile.is_dir() else []
    log, started, printed_at = folder / "snakemake.log", time.monotonic(), 0.0
    with log.open("w", encoding="utf-8") as stream, log.open(encoding="utf-8", errors="replace") as written:

        def print_progress() -> None:
            nonlocal printed_at
            steps = _PROGRESS_LINE.findall(written.read())
            now = time.monotonic() - started
            if steps and (now - printed_at >= PROGRESS_SECONDS or steps[-1][0] == steps[-1][1]):
                printed_at = now
                print(f"  {steps[-1][0]} of {steps[-1][1]} jobs, {format_duration(now)}", file=sys.stderr, flush=True)

        code = run_snakemake([*arguments, *targets], folder, print_progress, stdout=stream, stderr=subprocess.STDOUT)
        print_progress()
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    failed = list(dict.fromkeys(match[1] for line in lines if (match := _FAILED_RULE_LINE.search(line))))
    tail = "\n".join(lines[-MAX_SHOWN_LOG_LINES:])
    return SnakemakeOutcome(code, time.monotonic() - started, failed, tail, _failure_reasons(lines, folder))


def _failure_reasons(lines: list[str], folder: Path) -> list[str]:
    """A line for each failed job that has a log: rule, log and last error."""
    reasons, rule = {}, None
    for line in lines:
        if match := _FAILED_RULE_LINE.search(line):
            rule = match[1]
        elif rule and (match := _LOG_LINE.match(line)):
            reasons[match[1]] = f"{rule}, {folder / match[1]}: {last_error_line(folder / match[1])}"
            rule = None
    return list(reasons.values())


def last_error_line(log: Path) -> str:
    """Why a job failed, by its log: the last ``error: …`` for users, or else the last line."""
    if not log.is_file():
        return "it left no log"
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    return (errors or lines or ["its log is empty"])[-1].strip()


# ---- The command ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RehearseOptions:
    """The options of ``rewind rehearse``."""

    cores: int  # that the rehearsal uses
    machine: Machine  # on which the whole study will run
    full: bool = False  # keep the depth of towers whose weights are missing
    items: tuple[int, int, int] | None = None  # originals of train, valid and test, where annotations are missing


def parse_rehearse_options(
    cores: int | None,
    gpus: int | None,
    tflops: float | None,
    full: bool,
    items: str | None,
    price: float | None = None,
) -> RehearseOptions:
    """Check the command line's options, and take those that are missing from this machine.

    Raises:
        RewindError: for numbers that are out of range, or ``items`` that are not three numbers.

    >>> parse_rehearse_options(cores=4, gpus=0, tflops=None, full=False, items="8000,1000,1000").items
    (8000, 1000, 1000)
    """
    own_cores = usable_cores()
    for name, value, minimum in (
        ("cores", cores, 1),
        ("gpus", gpus, 0),
        ("gpu-tflops", tflops, 1e-3),
        ("price", price, 0),
    ):
        if value is not None and not minimum <= value < math.inf:
            raise RewindError(f"--{name}: {value:g}: must be at least {minimum:g}.")
    counts = None
    if items is not None:
        try:
            train, valid, test = (int(part) for part in items.split(","))
        except ValueError:
            raise RewindError(f"--items: {items!r}: give three numbers, for example 8000,1000,1000.") from None
        if min(train, valid, test) < 1:
            raise RewindError(f"--items: {items!r}: every split needs at least one item.")
        counts = (train, valid, test)
    gpus = count_visible_gpus() if gpus is None else gpus
    machine = Machine(cores or own_cores, gpus, tflops or DEFAULT_GPU_TFLOPS, price)
    return RehearseOptions(min(own_cores, machine.cores), machine, full, counts)


def rehearse(names: list[str], options: RehearseOptions, json_file: Path | None) -> int:
    """Rehearse studies one after the other; return 0 only if every stage of every method of each has finished.

    Raises:
        RewindError: for a folder without the workflow, or a study that is refused before its first job.
    """
    require_snakefile()
    cwd = Path.cwd()
    studies = [(name, *load_with_overrides(name)) for name in names]  # all are read before the first is run
    rehearsals = []
    for name, study, datasets in studies:
        rehearsal = _rehearse_study(name, study, datasets, options, cwd)
        rehearsals.append(rehearsal)
        print(report.report_text(rehearsal, options.machine))
    if len(rehearsals) > 1:
        print(report.overview_table(rehearsals))
    if json_file is not None:
        report.write_json_report(rehearsals, options.machine, json_file)
    return 0 if all(rehearsal.good for rehearsal in rehearsals) else 1


def load_with_overrides(name: str) -> tuple[Study, dict[str, Dataset]]:
    """A study and its datasets, with those overrides of ``config/config.yaml`` that are about them."""
    overrides = main_overrides()
    # Overrides of a study or dataset that is not loaded are refused: which datasets exist is known only after the
    # study was loaded once.
    own_overrides = {"studies": _overrides_of(overrides, "studies", {name})}
    studies, datasets = load_config({"studies": [name], "overrides": own_overrides})
    if dataset_overrides := _overrides_of(overrides, "datasets", set(datasets)):
        own_overrides["datasets"] = dataset_overrides
        studies, datasets = load_config({"studies": [name], "overrides": own_overrides})
    return studies[name], datasets


def _overrides_of(overrides: Mapping[str, Any], kind: str, names: set[str]) -> dict[str, Any]:
    return {name: keys for name, keys in (overrides.get(kind) or {}).items() if name in names}


def _rehearse_study(
    name: str, study: Study, datasets: dict[str, Dataset], options: RehearseOptions, cwd: Path
) -> Rehearsal:
    print(f"{name}: preparing {REHEARSAL_FOLDER / name}", file=sys.stderr, flush=True)
    visible_gpus = count_visible_gpus()
    prepared = prepare_rehearsal(study, datasets, cwd, options.full, options.cores, visible_gpus)
    for note in prepared.notes:
        print(f"  {note}", file=sys.stderr, flush=True)
    # Without a GPU the resource gpu must not make jobs wait: as many as all jobs at once could request.
    gpus = visible_gpus or options.cores * max(1, study.resources.gpus)
    # A rehearsal keeps the first seeds, so its files have the names that the whole study's have.
    targets = ["all", *targets_on_request(WorkflowPlan({name: study}, datasets).studies[name])]
    outcome = run_workflow(prepared.folder, cwd, options.cores, gpus, targets)
    results = prepared.folder / "results" / name
    folders = [*(prepared.folder / "results/data" / dataset for dataset in datasets), results]
    jobs = [job for folder in folders for job in finished_jobs(folder)]
    sanity = read_json(results / "sanity.json") if (results / "sanity.json").is_file() else None
    cost = None
    if outcome.code == 0:
        cost = estimate_cost(study, datasets, prepared, options.machine, options.items, outcome.seconds, options.cores)
        # Their size has been counted; they are not results, and may take several GB.
        for model in results.rglob("*.safetensors"):
            model.unlink()
    return Rehearsal(name, prepared, outcome, jobs, cost, sanity)
