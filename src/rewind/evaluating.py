"""``rewind evaluate``: vectors, scores or a model by name; the study file is written for the user."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rewind.datasets.annotations import read_annotations
from rewind.datasets.table import rows_of
from rewind.errors import RewindError
from rewind.files import write_text
from rewind.study import Dataset, load_dataset, load_study
from rewind.study.together import without_twins
from rewind.study.yaml_file import parse_yaml, read_yaml

DATASETS, STUDIES = Path("config/datasets"), Path("config/studies")
LONGEST = 90  # letters of a name, which may get a number
TITLE = "# Written by `rewind evaluate`; edit it as you like, and run it with:\n"


@dataclass(frozen=True)
class Wishes:
    """What the command line says.

    Attributes:
        data: a CSV of captions, or the name of a file in ``config/datasets``.
        study: name of the study; empty: that of the data.
        videos: folder of the clips, if they are here.
        vectors: (captions, items) files, a pair for each model.
        scores: files of scores, one for each model.
        encoder, model: an encoder and what it loads.
        options: further ``key=value`` of ``model: vectors``.
        settings: what to evaluate; none: all that the data allow.
        cores: for Snakemake.
        dry: only write the files and show what would run.
    """

    data: str
    study: str = ""
    videos: str = ""
    vectors: list[tuple[str, str]] = field(default_factory=list)
    scores: list[str] = field(default_factory=list)
    encoder: str = ""
    model: str = ""
    options: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    cores: str = "all"
    dry: bool = False


def evaluate(wishes: Wishes) -> int:
    """Write the study, run it, and print its tables; Snakemake's exit code.

    Raises:
        RewindError: if the files cannot be made, or others with their names are there.
    """
    if not Path("Snakefile").is_file():
        raise RewindError(f"{Path.cwd()}: no Snakefile here; go to the folder in which you run snakemake.")
    methods = methods_of(wishes)
    dataset, written = _dataset(wishes)
    name = name_of(wishes.study or (f"{dataset.name}_models" if not written else dataset.name))
    where = STUDIES / f"{name}.yaml"
    if written:
        _write(DATASETS / f"{dataset.name}.yaml", written, f"snakemake --config 'studies=[{name}]' prepared")
    study = {
        "title": f"{dataset.title or dataset.name}: models",
        "dataset": dataset.name,
        "methods": methods,
        "evaluation": {"settings": wishes.settings or (["test"] if without_twins(dataset) else [*ALL])},
        "figures": {"method": next(iter(methods))},
    }
    command = ["--cores", wishes.cores, "--config", f"studies=[{name}]"]
    _write(where, study, f"snakemake {' '.join(command)}")
    load_study(name)  # a fault of the keys is told before Snakemake starts
    quiet = ["-n"] if wishes.dry else ["--quiet", "host", "reason", "rules"]
    summary = Path(f"results/{name}/tables/summary.txt")
    before = summary.stat().st_mtime_ns if summary.is_file() else None
    code = subprocess.run([sys.executable, "-m", "snakemake", *command, *quiet], check=False).returncode
    if code or wishes.dry:
        return code
    if summary.stat().st_mtime_ns == before:  # else the job has printed it
        print(summary.read_text(encoding="utf-8"))
    print(f"Study: {where}   Tables: results/{name}/tables   Every query: results/{name}/report.html")
    return 0


ALL = ("origin", "hard", "binary")


def methods_of(wishes: Wishes) -> dict[str, Any]:
    """The methods of a study in which nothing is trained, chance last.

    Raises:
        RewindError: if none is named, or options are no ``key=value``.
    """
    found: dict[str, Any] = {}

    def add(label: str, block: dict[str, Any]) -> None:
        name, count = name_of(label), 1
        while name in found:
            count += 1
            name = f"{name_of(label)}_{count}"
        found[name] = block | ({"label": label} if label != name else {})

    own = dict(_pair(option) for option in wishes.options)
    for captions, items in wishes.vectors:
        options = {"captions": captions, "items": items}
        add(_stem(items), {"model": "vectors", "options": options | own})
    for file in wishes.scores:
        add(_stem(file), {"model": "scores", "options": {"file": file}})
    if bool(wishes.encoder) != bool(wishes.model):
        raise RewindError("--encoder and --name belong together: how the model is loaded, and which it is.")
    if wishes.encoder:
        options = {"encoder": wishes.encoder, "name": wishes.model}
        add(Path(wishes.model).name, {"model": "vectors", "options": options | own})
    if not found:
        raise RewindError("name what to evaluate: --vectors CAPTIONS ITEMS, --scores FILE, or --encoder … --name ….")
    return found | {"chance": {"model": "chance"}}


def _dataset(wishes: Wishes) -> tuple[Dataset, dict[str, Any]]:
    """The data set, and the keys of its file where it has to be written."""
    if not wishes.data.endswith(".csv"):
        if wishes.videos:
            raise RewindError(f"--videos: config/datasets/{wishes.data}.yaml says where its clips are; remove it.")
        return load_dataset(wishes.data), {}
    twins = _has_twins(Path(wishes.data))
    if not wishes.videos and wishes.encoder:
        raise RewindError("--encoder looks at clips: say where they are with --videos FOLDER.")
    source = {"format": "table", "table": wishes.data}
    if wishes.videos:
        source["videos"] = wishes.videos
    keys = {"source": source, "reverse": twins} | ({} if wishes.videos else {"clips": False})
    dataset = Dataset(name=name_of(Path(wishes.data).stem), **keys)
    try:
        read_annotations(dataset, "")  # a fault of its rows is told before a file is written
    except RewindError as error:
        raise RewindError(f"--data: {error}") from error
    return dataset, keys


def _has_twins(path: Path) -> bool:
    """Whether some reverse caption is in a CSV."""
    try:
        return any(row.cells.get("reverse_caption") for row in rows_of(path))
    except RewindError as error:
        raise RewindError(f"--data: {error}") from error


def _write(path: Path, keys: dict[str, Any], command: str) -> None:
    """Write a file of keys; one that says the same stays, any other is not overwritten."""
    text = TITLE + f"#   {command}\n" + yaml.safe_dump(keys, sort_keys=False, allow_unicode=True, width=110)
    if clash := other_than(path, text, "--study NAME"):
        raise RewindError(clash)
    if put(path, text):
        print(f"wrote {path}")


def other_than(path: Path, text: str, option: str) -> str:
    """Why a file must not be written: there is one that says something else; empty where it may be.

    Args:
        path: of keys (``.yaml``), which are compared as such, or any other text.
        text: what would be written.
        option: how the user chooses another name.
    """
    if not os.path.lexists(path):
        return ""
    if path.suffix == ".yaml":
        with contextlib.suppress(RewindError):
            if read_yaml(path) == parse_yaml(text, str(path)):
                return ""
    elif path.is_file() and path.read_bytes() == text.encode():
        return ""
    return f"{path}: there is another file with this name; choose one with {option}, or remove it."


def put(path: Path, text: str) -> bool:
    """Write a file that :func:`other_than` does not object to; False if it was there already."""
    if path.exists():
        return False
    write_text(path, text)
    return True


def _stem(path: str) -> str:
    """A name from a file's: its folder's where the file is called by its side alone."""
    stem = Path(path).stem
    parent = Path(path).absolute().parent
    sides = ("items", "vectors", "scores", "similarity", "videos")
    return parent.name if stem in sides and parent != Path.cwd() and parent.name else stem


def _pair(option: str) -> tuple[str, Any]:
    key, equals, value = option.partition("=")
    if not equals or not key:
        raise RewindError(f"--option {option!r}: write key=value, for example score=dot.")
    return key, parse_yaml(value, f"--option {key}")


def name_of(text: str) -> str:
    """A name for files, from any text."""
    return re.sub(r"[^A-Za-z0-9_\-]+", "_", text).strip("_")[:LONGEST] or "model"
