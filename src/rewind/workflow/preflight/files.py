"""Checks that files, folders and packages named by a study or data set exist; each fault begins with its key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rewind import optional_packages
from rewind.config import Dataset, Study
from rewind.config.dataset import BUILT_IN_ENCODERS, MadeFrom
from rewind.config.encoders import Encoding
from rewind.config.training import opposites_file
from rewind.data.annotations import dataset_format
from rewind.data.formats.cifar10 import find_cifar10
from rewind.data.groups import group_file
from rewind.data.opposites import check_opposites
from rewind.errors import RewindError
from rewind.io.files import require_regular_file
from rewind.io.strict import read_user_json, read_user_text
from rewind.packaged import docs_page
from rewind.training.checkpoint_store import state_folder_problems
from rewind.video.sources import annotation_files, videos_folder

TEXT_KEYS = ("architecture", "vocabulary")  # keys that may name a JSON or text file


def absent_sources(dataset: Dataset) -> list[str]:
    """Files and folders of a data set that are missing, as they are named in its file."""
    made_from_dataset = dataset.vectors and dataset.source.made_from is not None
    files = [dataset.only] if made_from_dataset else annotation_files(dataset)
    missing = [path for path in [*files, group_file(dataset)] if path and not Path(path).is_file()]
    if made_from_dataset or (dataset.made_here and not dataset.vectors):
        return missing
    folder = videos_folder(dataset)
    if dataset.clips and not dataset.vectors and not folder.is_dir():
        missing.append(f"{folder}/ (folder of source {'images' if dataset.items == 'images' else 'clips'})")
    return missing


def dataset_faults(dataset: Dataset) -> list[str]:
    """Missing files and unusable encoders of a data set, as lines under its file's name."""
    faults: list[str] = []
    absent = absent_sources(dataset)
    faults += filter(None, map(_wrong_file_kind, absent))
    if missing := [path for path in absent if not _wrong_file_kind(path)]:
        instructions = [f"  {line}" for line in dataset.how_to_get.strip().splitlines()]
        faults += ["these files are missing:", *(f"  - {path}" for path in missing), *instructions]
    if "." in dataset.source.format:
        try:
            dataset_format(dataset)
        except RewindError as error:
            faults.append(str(error).removeprefix(f"config/datasets/{dataset.name}.yaml: "))
        return faults
    if find_faults := getattr(dataset_format(dataset), "find_faults", None):
        faults += find_faults(dataset)
    made_from: MadeFrom | None = dataset.source.made_from if dataset.vectors else None
    if made_from is None:
        return faults
    for side, encoder in made_from.sides.items():
        if (encoding := made_from.encoding(side)) is not None:
            faults += _side_encoder_faults(f"source.made_from.{side}", encoding)
            continue
        faults += _weights_file_fault(f"source.made_from.{side}.weights", encoder.weights, encoder.architecture)
        if encoder.name not in BUILT_IN_ENCODERS[side] and "." not in encoder.name:
            known = ", ".join(BUILT_IN_ENCODERS[side])
            faults.append(
                f"source.made_from.{side}.name: no encoder {encoder.name!r}; available: {known}, or a dotted path"
            )
        if encoder.name == "clip" and not encoder.weights:
            faults.append(
                f"source.made_from.{side}.weights: clip needs a local weights file; with random weights the "
                "vectors mean nothing"
            )
    return faults


def _wrong_file_kind(path: str) -> str:
    """Why a path is not a regular file, such as a named pipe, in words; empty for a regular file or a missing one."""
    try:
        require_regular_file(path, missing_ok=True)
    except RewindError as error:
        return str(error).removesuffix(".")
    return ""


def _side_encoder_faults(where: str, encoding: Encoding) -> list[str]:
    """What an encoder that is found by name lacks, as far as that is known before the first job."""
    from rewind.encoders.base import check_encoder  # late: it imports torch, which takes seconds

    try:
        check_encoder(encoding)
    except RewindError as error:
        return [f"{where}.{error}"]
    return []


def study_faults(study: Study) -> list[str]:
    """Missing files and packages of a study, as lines under its file's name."""
    return list(
        dict.fromkeys(
            [*_weights_faults(study), *_opposites_faults(study), *_zero_shot_faults(study), *_package_faults(study)]
        )
    )


def text_faults(study: Study) -> list[str]:
    """What is wrong with the JSON and text files from which models are built, as lines under the study's file."""
    blocks_by_path: dict[str, Any] = {
        f"methods.{name}.options": method.options for name, method in study.methods.items()
    }
    blocks_by_path |= {f"{where}.backbone": block.get("backbone") for where, block in blocks_by_path.items()}
    blocks_by_path |= {
        f"{where}.text": block.get("text") for where, block in blocks_by_path.items() if not where.endswith(".backbone")
    }
    option_blocks = {where: block for where, block in blocks_by_path.items() if isinstance(block, dict)}
    named_files = [("backbone.architecture", study.backbone.architecture), ("text.vocabulary", study.text.vocabulary)]
    named_files += [
        (f"{where}.{key}", block[key]) for where, block in option_blocks.items() for key in TEXT_KEYS if key in block
    ]
    faults = []
    for where, path in named_files:
        if not isinstance(path, str) or not Path(path).is_file():
            continue  # a model name of open_clip, or a missing file, which its reader reports
        try:
            (read_user_json if path.lower().endswith(".json") else read_user_text)(path)
        except RewindError as error:
            faults.append(f"{where}: {error}")
    return faults


def submission_faults(study: Study, dataset: Dataset) -> list[str]:
    """Why no submission of a study can be written, as lines under its data set's file."""
    path = dataset.source.test if dataset.vectors else None
    if path and Path(path).is_file():
        return []
    return [
        f"source.test: {path or 'empty'}: a submission of study {study.name} needs the npz of captions for which "
        "vectors are wanted; name that file here, with format: embeddings."
    ]


def _weights_faults(study: Study) -> Iterator[str]:
    keys = study.backbone
    yield from _weights_file_fault("backbone.weights", keys.weights, keys.architecture)
    for name, method in study.methods.items():
        where = f"methods.{name}.options"
        own = method.options.get("backbone")
        for path, block in ((where, method.options), (f"{where}.backbone", own if isinstance(own, dict) else {})):
            weights, architecture = block.get("weights"), block.get("architecture", keys.architecture)
            if isinstance(weights, str):
                yield from _weights_file_fault(f"{path}.weights", weights, architecture)


def _weights_file_fault(where: str, weights: str | None, architecture: str) -> Iterator[str]:
    if weights and (wrong_kind := _wrong_file_kind(weights)):
        yield f"{where}: {wrong_kind}"
    elif weights and not Path(weights).is_file():
        yield (
            f"{where}: {weights}: no such file. Put the weights of {architecture} there ({docs_page('rtime.md')}, "
            "section 2, shows how), or correct the key."
        )


def _opposites_faults(study: Study) -> Iterator[str]:
    """Files of hard negatives that are missing or wrong, whatever the captions are."""
    for block in study.training_blocks():
        path = opposites_file(block.training)
        try:
            if path:
                check_opposites(path)
        except RewindError as error:
            yield f"{block.path(study, 'hard_negatives')}: {str(error).removesuffix('.')}"


def _package_faults(study: Study) -> Iterator[str]:
    if study.figures.embedding == "umap" and not optional_packages.is_installed("umap"):
        yield (
            "figures.embedding: umap needs a package that is not installed: `pip install umap-learn`; or set the key "
            "to pca or tsne."
        )
    if study.tracking and not optional_packages.is_installed(study.tracking):
        yield (
            f"tracking: the package {study.tracking} is not installed: `pip install 'rewind-bench[{study.tracking}]'`; "
            "or remove the key"
        )
    yield from state_folder_problems(study.resources.state_folder or "")


def _zero_shot_faults(study: Study) -> Iterator[str]:
    if study.evaluation.zero_shot is None:
        return
    try:
        find_cifar10(study.evaluation.zero_shot.folder)
    except RewindError as error:
        yield str(error)
