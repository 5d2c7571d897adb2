"""``rewind evaluate``: vectors, scores or a model by name; the study file is written for the user."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rewind.datasets.annotations import read_annotations
from rewind.datasets.table import rows_of
from rewind.errors import RewindError
from rewind.files import write_text
from rewind.jobs.config import MAIN, load_checked
from rewind.study import Dataset, load_dataset
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
        labels: names of the methods in tables, in the order of ``vectors``, ``scores`` and the encoder; none: those of
            their files.
        add: put the methods into the study that is there.
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
    labels: list[str] = field(default_factory=list)
    add: bool = False
    cores: str = "all"
    dry: bool = False


def evaluate(wishes: Wishes) -> int:
    """Write the study, run it, and print its tables; Snakemake's exit code.

    Files are written once the workflow's checks pass, and taken back where a job fails before the study has any
    numbers, so that they do not stand in the way of the corrected command.

    Raises:
        RewindError: if the files cannot be made, or others with their names are there.
    """
    if not Path("Snakefile").is_file():
        raise RewindError(f"{Path.cwd()}: no Snakefile here; go to the folder in which you run snakemake.")
    methods = methods_of(wishes)
    dataset, written = _dataset(wishes)
    name = name_of(wishes.study or (f"{dataset.name}_models" if not written else dataset.name))
    where = STUDIES / f"{name}.yaml"
    command = ["--cores", wishes.cores, "--config", f"studies=[{name}]"]
    texts: dict[Path, str] = {}
    if written:
        texts[DATASETS / f"{dataset.name}.yaml"] = _text(written, f"snakemake --config 'studies=[{name}]' prepared")
    if wishes.add:
        texts[where] = _with_methods(where, wishes, dataset.name, methods)
    else:
        study = {
            "title": f"{dataset.title or dataset.name}: models",
            "dataset": dataset.name,
            "methods": methods,
            "evaluation": {"settings": wishes.settings or (["test"] if without_twins(dataset) else [*ALL])},
            "figures": {"method": next(iter(methods))},
        }
        texts[where] = _text(study, f"snakemake {' '.join(command)}")
    before = _write(texts, name, replaced=[where] if wishes.add else [])
    quiet = ["-n"] if wishes.dry else ["--quiet", "host", "reason", "rules"]
    summary = Path(f"results/{name}/tables/summary.txt")
    shown = summary.stat().st_mtime_ns if summary.is_file() else None
    code = subprocess.run([sys.executable, "-m", "snakemake", *command, *quiet], check=False).returncode
    if code and before and (wishes.add or not Path(f"results/{name}/metrics.csv").is_file()):
        _take_back(before)
        print(f"{', '.join(map(str, before))}: as before this command, which can be corrected; finished jobs are kept")
    if code or wishes.dry:
        return code
    if summary.stat().st_mtime_ns == shown:  # else the job has printed it
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
    count = len(wishes.vectors) + len(wishes.scores) + bool(wishes.encoder)
    if wishes.labels and len(wishes.labels) != count:
        raise RewindError(f"--label: {len(wishes.labels)} for {count} models; give one for each, in their order.")
    labels = iter(wishes.labels)

    def add(stem: str, block: dict[str, Any]) -> None:
        label = " ".join(next(labels, stem).split())
        name = _free(name_of(label), found)
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


def _free(name: str, taken: Collection[str]) -> str:
    """The name, with a number where it is taken."""
    return next(free for n in itertools.count(1) if (free := f"{name}_{n}" if n > 1 else name) not in taken)


def _text(keys: dict[str, Any], command: str) -> str:
    return TITLE + f"#   {command}\n" + _yaml(keys)


def _yaml(keys: dict[str, Any]) -> str:
    return yaml.safe_dump(keys, sort_keys=False, allow_unicode=True, width=110)


def _with_methods(path: Path, wishes: Wishes, dataset: str, methods: dict[str, Any]) -> str:
    """A study's text with further methods, before ``chance`` where that is the last; all else stays as it is written.

    Raises:
        RewindError: if there is no such study, it is of other data, or its methods do not stand below one another.
    """
    if not path.is_file():
        raise RewindError(f"--add: there is no {path} yet; leave --add out, or name the study with --study NAME.")
    keys, text = read_yaml(path), path.read_text(encoding="utf-8")
    there = keys.get("methods")
    if keys.get("dataset") != dataset:
        raise RewindError(f"--add: {path} is about the data set {keys.get('dataset')!r}, and --data about {dataset!r}.")
    if wishes.settings and wishes.settings != (keys.get("evaluation") or {}).get("settings"):
        raise RewindError(f"--settings: all methods of a study have the same; change evaluation.settings in {path}.")
    if not isinstance(there, dict):
        raise RewindError(f"{path}: methods: a block of keys is expected here.")
    new: dict[str, Any] = {}
    for name, block in methods.items():
        if name != "chance" and block not in there.values():
            free = _free(name, {*there, *new})
            new[free] = block | ({"label": name} if free != name and "label" not in block else {})
    if not new:
        return text
    lines = text.splitlines(keepends=True)
    start = next((at for at, line in enumerate(lines) if re.match(r"methods:\s*(#.*)?$", line)), len(lines)) + 1
    end = next((at for at in range(start, len(lines)) if re.match(r"[^\s#]", lines[at])), len(lines))
    while end > start and not re.match(r"\s+[^\s#]", lines[end - 1]):
        end -= 1  # comments and empty lines there belong to what follows
    depth = next((found[1] for line in lines[start:end] if (found := re.match(r"(\s+)[^\s#]", line))), "  ")
    last = next((at for at in range(start, end) if re.match(rf"{depth}chance:", lines[at])), end)
    if last < end and any(re.match(rf"{depth}\S", line) for line in lines[last + 1 : end]):
        last = end  # other methods follow it
    lines[last:last] = textwrap.indent(_yaml(new), depth).splitlines(keepends=True)
    made = "".join(lines)
    wanted = keys | {"methods": there | new}
    with contextlib.suppress(RewindError):
        if parse_yaml(made, str(path)) == wanted:
            return made
    raise RewindError(f"{path}: its methods do not stand below one another, so add them by hand:\n{_yaml(new)}")


def _write(texts: dict[Path, str], name: str, replaced: Collection[Path]) -> dict[Path, str | None]:
    """Write files of keys that the workflow's checks accept; those that say the same stay, others are not overwritten.

    Args:
        texts: path → what is to stand there.
        name: of the study.
        replaced: files that are changed.

    Returns:
        Files that were written → what stood there before; None: nothing.

    Raises:
        RewindError: for another file of this name, and for what is wrong with the study; nothing is left behind.
    """
    for path, text in texts.items():
        if path not in replaced and (clash := other_than(path, text, "--study NAME")):
            raise RewindError(f"{clash} To put further models into the study of an earlier command: --add.")
    before: dict[Path, str | None] = {}
    try:
        for path, text in texts.items():
            old = path.read_text(encoding="utf-8") if path.exists() else None
            if old is None or (path in replaced and old != text):
                before[path] = old
                write_text(path, text)
        load_checked(_configuration(name), Path(".snakemake/rewind/sound.json"), typed={"studies": [name]})
    except BaseException:
        _take_back(before)
        raise
    for path, old in before.items():
        print(f"{'wrote' if old is None else 'changed'} {path}")
    return before


def _configuration(name: str) -> dict[str, Any]:
    """What Snakemake will be started with."""
    given = read_yaml(Path(MAIN)) if Path(MAIN).is_file() else {}
    return given | {"studies": [name]}


def _take_back(before: dict[Path, str | None]) -> None:
    for path, text in before.items():
        if text is None:
            path.unlink(missing_ok=True)
        else:
            write_text(path, text)


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
