"""``rewind rehearse``: every stage of a study on a handful of items, and the price of the whole."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewind.datasets.annotations import SPLITS
from rewind.devices import visible_gpus
from rewind.errors import RewindError
from rewind.files import read_csv, read_json
from rewind.jobs.config import MAIN, load_all
from rewind.jobs.overrides import overrides
from rewind.rehearsal import report, stages
from rewind.rehearsal.cost import Cost, Machine, Measured, estimate
from rewind.rehearsal.data import Counts, counts_of
from rewind.rehearsal.folder import Stage, prepare
from rewind.rehearsal.measure import Job, Steps, jobs_in, steps_of
from rewind.rehearsal.rates import GUESS_TFLOPS, Rates
from rewind.rehearsal.run import Outcome, check_checkout, run
from rewind.study import Dataset, Study
from rewind.study.load import merge
from rewind.study.yaml_file import read_yaml

GUESSED = 1000  # training items of a data set whose size nobody knows


@dataclass(frozen=True)
class Wishes:
    """What the command line says.

    Attributes:
        here: cores that the rehearsal takes.
        machine: that the whole study will run on.
        full: keep the depth of towers whose weights are not there.
        items: originals of each split of the whole data set, where its annotations are not here.
    """

    here: int
    machine: Machine
    full: bool = False
    items: tuple[int, int, int] | None = None


def wishes(cores: int | None, gpus: int | None, tflops: float | None, full: bool, items: str | None) -> Wishes:
    """The command line's options, those that are not given from this machine.

    Raises:
        RewindError: for numbers that cannot be.
    """
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for name, value, least in (("cores", cores, 1), ("gpus", gpus, 0), ("gpu-tflops", tflops, 1e-3)):
        if value is not None and not least <= value < math.inf:
            raise RewindError(f"--{name}: {value:g}: must be at least {least:g}.")
    counts = None
    if items is not None:
        try:
            train, valid, test = (int(part) for part in items.split(","))
        except ValueError:
            raise RewindError(f"--items: {items!r}: give three numbers, for example 8000,1000,1000.") from None
        if min(train, valid, test) < 1:
            raise RewindError(f"--items: {items!r}: every split needs at least one item.")
        counts = (train, valid, test)
    machine = Machine(cores or here, visible_gpus() if gpus is None else gpus, tflops or GUESS_TFLOPS)
    return Wishes(min(here, machine.cores), machine, full, counts)


@dataclass
class Rehearsal:
    """One study's rehearsal: where it lies, how it ended, what its jobs took, what the whole will cost."""

    name: str
    stage: Stage
    outcome: Outcome
    jobs: list[Job]
    cost: Cost | None
    sanity: dict[str, Any] | None

    @property
    def good(self) -> bool:
        return self.outcome.code == 0


def rehearse(names: list[str], wishes: Wishes, json_file: Path | None) -> int:
    """Rehearse studies one after the other; 0 only if every stage of every method of each has ended.

    Raises:
        RewindError: for a folder without the workflow, or a study that is refused before its first job.
    """
    cwd = Path.cwd()
    check_checkout(cwd)
    loaded = [(name, *load(name)) for name in names]  # all are read before the first is run
    done = []
    for name, study, datasets in loaded:
        rehearsal = _rehearse(name, study, datasets, wishes, cwd)
        done.append(rehearsal)
        print(report.text(rehearsal, wishes.machine))
    if len(done) > 1:
        print(report.overview(done))
    if json_file is not None:
        report.write(done, wishes.machine, json_file)
    return 0 if all(rehearsal.good for rehearsal in done) else 1


def load(name: str) -> tuple[Study, dict[str, Dataset]]:
    """A study and its data sets, under the overrides of ``config/config.yaml`` that are theirs."""
    given = read_yaml(Path(MAIN)) if Path(MAIN).is_file() else {}
    over = given.get("overrides") or {}
    try:
        overrides(over)
    except RewindError as error:
        raise RewindError(f"{MAIN}: {error}") from None
    over = merge({}, over)
    studies, datasets = load_all({"studies": [name], "overrides": {"studies": _only(over, "studies", {name})}})
    own = _only(over, "datasets", set(datasets))
    if own:
        studies, datasets = load_all(
            {"studies": [name], "overrides": {"studies": _only(over, "studies", {name}), "datasets": own}}
        )
    return studies[name], datasets


def _only(over: Mapping[str, Any], kind: str, names: set[str]) -> dict[str, Any]:
    return {name: keys for name, keys in (over.get(kind) or {}).items() if name in names}


def _rehearse(name: str, study: Study, datasets: dict[str, Dataset], wishes: Wishes, cwd: Path) -> Rehearsal:
    print(f"{name}: preparing {Path('results/rehearsal') / name}", file=sys.stderr, flush=True)
    shown = visible_gpus()
    stage = prepare(study, datasets, cwd, wishes.full, wishes.here, shown)
    for note in stage.notes:
        print(f"  {note}", file=sys.stderr, flush=True)
    # Where there is no GPU, none is waited for.
    gpus = shown or wishes.here * max(1, study.resources.gpus)
    outcome = run(stage.folder, cwd, wishes.here, gpus, targets(study, datasets[study.dataset], stage))
    results = stage.results(name)
    folders = {dataset: stage.folder / "results/data" / dataset for dataset in datasets}
    jobs = [job for folder in (*folders.values(), results) for job in jobs_in(folder)]
    sanity = read_json(results / "sanity.json") if (results / "sanity.json").is_file() else None
    cost = None
    if outcome.code == 0:
        cost = price(study, datasets, stage, folders, wishes, outcome)
        for model in results.rglob("*.safetensors"):  # counted; several GB that are no results
            model.unlink()
    return Rehearsal(name, stage, outcome, jobs, cost, sanity)


def targets(study: Study, dataset: Dataset, stage: Stage) -> list[str]:
    """What is asked of Snakemake: all that a run makes, and what is made on request."""
    folder = f"results/{study.name}"
    found = ["all", f"{folder}/trec"]
    translators = [method for method in study.trained() if study.methods[method].model == "translator"]
    if translators:
        found.append(f"{folder}/efficiency")
    if translators and dataset.vectors and dataset.source.test:
        seed = stage.study["methods"][translators[0]]["seeds"] or stage.study["seeds"]
        found.append(f"{folder}/submission/{translators[0]}.seed{seed[0]}.csv")
    return found


def price(
    study: Study,
    datasets: dict[str, Dataset],
    stage: Stage,
    folders: dict[str, Path],
    wishes: Wishes,
    outcome: Outcome,
) -> Cost:
    """What the whole study will cost, by the files that its rehearsal left.

    Args:
        study, datasets: the real ones.
        stage: the rehearsal, and ``folders`` of its data sets' results by name.
        wishes: the machine that is asked about.
        outcome: how long the rehearsal took.
    """
    results = stage.results(study.name)
    frames = max(study.sweep.max_frames) if study.sweep else study.frames.max_frames
    rounds = study.tables.verdict.rounds if study.tables.verdict else 1
    own = datasets[study.dataset]
    origin = datasets.get(own.source.made_from.dataset) if own.vectors and own.source.made_from else None
    parts = []
    for name, dataset in datasets.items():
        of = origin if dataset is own else None
        whole = _sizes(dataset, of, wishes)
        here = rehearsed(folders[name], name)
        parts.append(_measured(folders[name], dataset, whole, here, frames, rounds))
        if dataset is own:
            counts, few = whole, here
    parts.append(_measured(results, own, counts, few, frames, rounds))
    steps = _steps(results)
    share, missing = min(stage.shares.values(), default=1.0), max(stage.missing.values(), default=0)
    threads = {"runs": stage.study["resources"]["threads"]}
    pretraining = stage.study["pretraining"]
    threads["pretraining"] = (pretraining and pretraining["threads"]) or threads["runs"]
    machine = wishes.machine
    rates = Rates(study, counts, few, steps, machine.gpus, machine.tflops, share, missing, machine.cores, threads)
    return estimate(study, parts, rates, machine, outcome.seconds, wishes.here, frames)


def _measured(folder: Path, dataset: Dataset, whole: Counts, here: Counts, frames: int, rounds: int) -> Measured:
    return Measured(
        folder,
        dataset,
        jobs_in(folder),
        stages.quantities(whole, frames, stages.ZERO_SHOT_IMAGES, rounds),
        stages.quantities(here, frames, stages.REHEARSED_IMAGES, stages.REHEARSED_ROUNDS),
    )


def _sizes(dataset: Dataset, origin: Dataset | None, wishes: Wishes) -> Counts:
    if wishes.items:
        return _guessed(dataset, dict(zip(SPLITS, wishes.items, strict=True)), "as --items says")
    found = counts_of(dataset, origin)
    if found is None:
        several = {"train": GUESSED, "valid": GUESSED // 10, "test": GUESSED // 10}
        found = _guessed(dataset, several, f"{GUESSED:,} training items, assumed (set --items TRAIN,VALID,TEST)")
    return found


def _guessed(dataset: Dataset, originals: dict[str, int], said: str) -> Counts:
    twins = 2 if dataset.reverse and dataset.items == "videos" and not dataset.vectors else 1
    items = {split: twins * count for split, count in originals.items()}
    return Counts(items, dict(items), sum(originals.values()), said)


def rehearsed(folder: Path, name: str) -> Counts:
    """Items and captions that a rehearsal had, from its prepared data set."""
    table = read_csv(folder / "items.csv")
    captions = {split: len(read_csv(folder / "captions" / f"{name}_{split}.csv")) for split in SPLITS}
    originals = int((table["reversed"] == 0).sum())
    return Counts(table["split"].value_counts().to_dict(), captions, originals, "the rehearsal", True)


def _steps(results: Path) -> dict[str, Steps]:
    """The fastest steps of every method and of any pre-training."""
    found: dict[str, Steps] = {}
    records = [(path.parents[1].name, path) for path in sorted(results.glob("runs/*/seed*/run.json"))]
    records += [("pretraining", path) for path in sorted(results.glob("pretrained/**/run.json"))]
    for method, record in records:
        steps = steps_of(record.with_name("history.csv"), record)
        if steps and (method not in found or steps.seconds < found[method].seconds):
            found[method] = steps
    return found
