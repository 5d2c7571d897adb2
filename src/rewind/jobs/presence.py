"""Files that a study names: all that are absent, with their keys, before the first job."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path

from rewind.datasets.annotations import format_module
from rewind.datasets.cifar10 import find_cifar10
from rewind.datasets.groups import group_file
from rewind.devices import visible_gpus
from rewind.errors import Faults, RewindError
from rewind.files import require_regular_file
from rewind.jobs.places import annotation_files, videos_folder
from rewind.packaged import page
from rewind.reading.objects import read_json
from rewind.reading.text import read_text
from rewind.study import Dataset, Study
from rewind.study.embeddings import ENCODERS
from rewind.study.encoding import Encoding, encoding_of_side
from rewind.training.places import url_faults

TEXTS = ("architecture", "vocabulary")  # keys that may name a JSON file, or a text


def absent_sources(dataset: Dataset) -> list[str]:
    """Files and folders of a data set that are not there, as they are named."""
    made = dataset.vectors and dataset.source.made_from is not None
    files = [dataset.only] if made else annotation_files(dataset)
    missing = [path for path in [*files, group_file(dataset)] if path and not Path(path).is_file()]
    if made or (dataset.made_here and not dataset.vectors):
        return missing
    folder = videos_folder(dataset)
    if dataset.clips and not dataset.vectors and not folder.is_dir():
        missing.append(f"{folder}/ (folder of source {'images' if dataset.items == 'images' else 'clips'})")
    return missing


def dataset_faults(dataset: Dataset) -> list[str]:
    """Absent files of a data set, as lines under its file's name."""
    found: list[str] = []
    unusable = absent_sources(dataset)
    found += filter(None, map(_other_kind, unusable))
    if missing := [path for path in unusable if not _other_kind(path)]:
        how = [f"  {line}" for line in dataset.how_to_get.strip().splitlines()]
        found += ["these files are missing:", *(f"  - {path}" for path in missing), *how]
    if "." in dataset.source.format:
        try:
            format_module(dataset)
        except RewindError as error:
            found.append(str(error).removeprefix(f"config/datasets/{dataset.name}.yaml: "))
    made = dataset.source.made_from if dataset.vectors else None
    for side, encoder in made.sides.items() if made else ():
        if (by_name := encoding_of_side(made, side)) is not None:
            found += _refused(f"source.made_from.{side}", by_name)
            continue
        found += _file(f"source.made_from.{side}.weights", encoder.weights, encoder.architecture)
        if encoder.name not in ENCODERS[side] and "." not in encoder.name:
            known = ", ".join(ENCODERS[side])
            found.append(
                f"source.made_from.{side}.name: no encoder {encoder.name!r}; available: {known}, or a dotted path"
            )
        if encoder.name == "clip" and not encoder.weights:
            found.append(
                f"source.made_from.{side}.weights: clip needs a local weights file; with random weights the "
                "vectors mean nothing"
            )
    return found


def _other_kind(path: str) -> str:
    """What stands where a file is needed, if it is none but a folder, a named pipe or a device."""
    try:
        require_regular_file(path, missing_ok=True)
    except RewindError as error:
        return str(error).removesuffix(".")
    return ""


def _refused(where: str, encoding: Encoding) -> list[str]:
    """What an encoder by name is known to lack, before the first job."""
    from rewind.encoders.interface import check  # starts torch, which other data sets need not wait for

    try:
        check(encoding)
    except RewindError as error:
        return [f"{where}.{error}"]
    return []


def study_faults(study: Study) -> list[str]:
    """Absent files and packages of a study, as lines under its file's name."""
    return list(dict.fromkeys([*_weights(study), *_zero_shot(study), *_packages(study)]))


def text_faults(study: Study) -> dict[str, str]:
    """Key → what is wrong with the JSON or the text that it names, of which models are made."""
    own = {f"methods.{name}.options": method.options for name, method in study.methods.items()}
    own |= {f"{where}.backbone": block.get("backbone") for where, block in own.items()}
    own |= {f"{where}.text": block.get("text") for where, block in own.items() if not where.endswith(".backbone")}
    blocks = {where: block for where, block in own.items() if isinstance(block, dict)}
    named = [("backbone.architecture", study.backbone.architecture), ("text.vocabulary", study.text.vocabulary)]
    named += [(f"{where}.{key}", block[key]) for where, block in blocks.items() for key in TEXTS if key in block]
    found: dict[str, str] = {}
    for where, path in named:
        if not isinstance(path, str) or not Path(path).is_file():
            continue  # a name of open_clip's, or absent, which is told by its own reader
        try:
            (read_json if path.lower().endswith(".json") else read_text)(path)
        except RewindError as error:
            found[where] = f"{where}: {error}"
    return found


def submission_faults(study: Study, dataset: Dataset) -> list[str]:
    """Why no submission of a study can be written, as lines under its data set's file."""
    path = dataset.source.test if dataset.vectors else None
    if path and Path(path).is_file():
        return []
    return [
        f"source.test: {path or 'empty'}: a submission of study {study.name} needs the npz of captions for which "
        "vectors are wanted; name that file here, with format: embeddings."
    ]


def gpu_faults(studies: Mapping[str, Study]) -> str:
    """Studies whose jobs want more GPUs than this machine shows, in words; where it shows none, jobs take the CPU."""
    shown = visible_gpus()
    greedy = {name: study.resources.gpus for name, study in studies.items() if study.resources.gpus > shown}
    if not shown or not greedy:
        return ""
    remedy = "lower the number, or run on a machine with that many"
    lines = {
        f"config/studies/{name}.yaml": [f"resources.gpus: {count}, but this machine has {shown}: {remedy}"]
        for name, count in greedy.items()
    }
    return str(Faults(lines))


def _weights(study: Study) -> Iterator[str]:
    keys = study.backbone
    yield from _file("backbone.weights", keys.weights, keys.architecture)
    for name, method in study.methods.items():
        where = f"methods.{name}.options"
        own = method.options.get("backbone")
        for path, block in ((where, method.options), (f"{where}.backbone", own if isinstance(own, dict) else {})):
            weights, architecture = block.get("weights"), block.get("architecture", keys.architecture)
            if isinstance(weights, str):
                yield from _file(f"{path}.weights", weights, architecture)


def _file(where: str, weights: str | None, architecture: str) -> Iterator[str]:
    if weights and (other := _other_kind(weights)):
        yield f"{where}: {other}"
    elif weights and not Path(weights).is_file():
        yield (
            f"{where}: {weights}: no such file. Put the weights of {architecture} there ({page('rtime.md')}, section "
            "2, shows how), or correct the key."
        )


def _packages(study: Study) -> Iterator[str]:
    if study.figures.embedding == "umap" and importlib.util.find_spec("umap") is None:
        yield (
            "figures.embedding: umap needs a package that is not installed: `pip install umap-learn`; or set the key "
            "to pca or tsne."
        )
    yield from url_faults(study.resources.state_folder or "")


def _zero_shot(study: Study) -> Iterator[str]:
    if study.evaluation.zero_shot is None:
        return
    try:
        find_cifar10(study.evaluation.zero_shot.folder)
    except RewindError as error:
        yield str(error)
