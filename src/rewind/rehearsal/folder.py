"""A working folder of its own for each rehearsal: configuration, raw files, weights, results."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rewind.errors import RewindError
from rewind.files import write_text
from rewind.rehearsal import data, shrink
from rewind.rehearsal.pictures import Sizes
from rewind.rehearsal.weights import Towers
from rewind.study import Dataset, Study

PLACE = Path("results/rehearsal")
MARK = ".rehearsal"


@dataclass
class Stage:
    """A rehearsal that is ready to run.

    Attributes:
        folder: its working folder; Snakemake's results are in ``results/<study>`` below it.
        study: the study as rehearsed, as plain values.
        notes: what stands in for what, a sentence each.
        sizes: originals of each split.
        shares: of towers that were made shallow, the share of visual layers that is left, by architecture.
        missing: likewise, parameters that were left out.
    """

    folder: Path
    study: dict[str, Any]
    notes: list[str]
    sizes: Sizes
    shares: dict[str, float]
    missing: dict[str, int]

    def results(self, name: str) -> Path:
        return self.folder / "results" / name


def prepare(study: Study, datasets: Mapping[str, Dataset], cwd: Path, full: bool, cores: int, gpus: int) -> Stage:
    """Lay down the working folder of a rehearsal, anew.

    Args:
        study: the real study.
        datasets: its data set, and the one that vectors are made from, by name; the study's own first.
        cwd: the folder where the workflow is run, and the process is.
        full: keep the depth of towers whose weights are not there.
        cores, gpus: of this machine.
    """
    folder = cwd / PLACE / study.name
    _clear(folder)
    towers = Towers(folder / "weights", full, shrink.fewest_layers(study))
    keys = shrink.small(study, cwd, towers, cores, gpus, data.there(datasets[study.dataset]))
    sizes = shrink.sizes(study, towers)
    notes = []
    for name, dataset in datasets.items():
        values, said = data.small(dataset, cwd, folder / "raw" / name, sizes, towers)
        _write(folder / "config/datasets" / f"{name}.yaml", values)
        notes.append(said)
    if keys["evaluation"]["zero_shot"]:
        keys["evaluation"]["zero_shot"], said = data.small_labelled(
            study.evaluation.zero_shot, folder / "raw/zero_shot"
        )
        notes.append(said)
    _write(folder / "config/studies" / f"{study.name}.yaml", keys)
    _write(folder / "config/config.yaml", {"studies": [study.name]})
    return Stage(folder, keys, [*notes, *towers.notes], sizes, towers.shares, towers.missing)


def _clear(folder: Path) -> None:
    if folder.exists() and not (folder / MARK).exists():
        raise RewindError(f"{folder}: this is not a rehearsal's folder; move it away, and rehearse again.")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_text(folder / MARK, "A rehearsal on a handful of items: nothing in this folder is a result.\n")


def _write(path: Path, values: Mapping[str, Any]) -> None:
    write_text(path, yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True))
