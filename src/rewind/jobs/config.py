"""The workflow's configuration: which studies run, on which data sets, and whether their sources are there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from rewind.datasets.cifar10 import find_cifar10
from rewind.errors import RewindError
from rewind.files import digest
from rewind.jobs.places import annotation_files, videos_folder
from rewind.study import Dataset, Study, load_dataset, load_study
from rewind.study.load import merge

KNOWN = ("studies", "overrides")


def load_all(config: Mapping[str, Any]) -> tuple[dict[str, Study], dict[str, Dataset]]:
    """The selected studies and their data sets, validated whole.

    Args:
        config: ``studies`` (names) and ``overrides`` (``{studies: {name: {...}}, datasets: {name: {...}}}``, nested
            or with dotted keys), from ``config/config.yaml`` and the command line.

    Raises:
        RewindError: naming every faulty key with its file.
    """
    for name in config:
        if name not in KNOWN:
            near = difflib.get_close_matches(str(name), KNOWN, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"valid keys: {', '.join(KNOWN)}"
            raise RewindError(f"config/config.yaml: {name}: unknown key; {hint}")
    names = config.get("studies") or []
    names = [names] if isinstance(names, str) else list(names)
    if not names:
        raise RewindError("config/config.yaml: studies: name at least one study, for example [demo].")
    over = _overrides(config.get("overrides") or {})
    studies = {name: load_study(name, overrides=over["studies"].get(name)) for name in names}
    if "data" in studies:
        raise RewindError(
            "config/studies/data.yaml: a study cannot be called 'data': results/data holds the data sets."
        )
    used = _with_origins(dict.fromkeys(study.dataset for study in studies.values()), over["datasets"])
    for kind, known in (("studies", studies), ("datasets", used)):
        for name in over[kind]:
            if name not in known:
                raise RewindError(f"overrides.{kind}.{name}: not among the selected {kind} ({', '.join(known)}).")
    return studies, used


def _with_origins(names: Iterable[str], over: Mapping[str, Any]) -> dict[str, Dataset]:
    """Data sets by name, and those that vectors are made from.

    Raises:
        RewindError: where vectors would be made from vectors.
    """
    datasets: dict[str, Dataset] = {}
    for name in names:
        datasets[name] = chosen = load_dataset(name, overrides=over.get(name))
        made_from = chosen.source.made_from if chosen.vectors else None
        if made_from is None:
            continue
        origin = datasets[made_from.dataset] = load_dataset(made_from.dataset, overrides=over.get(made_from.dataset))
        if origin.vectors:
            raise RewindError(
                f"config/datasets/{name}.yaml: source.made_from.dataset: {made_from.dataset} holds vectors itself; "
                "name a data set of captioned clips or images."
            )
    return datasets


def _overrides(given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    nested = merge({}, given)
    for name in nested:
        if name not in ("studies", "datasets"):
            raise RewindError(
                f"overrides.{name}: begin with studies.<name> or datasets.<name>, for example "
                "studies.demo.training.epochs."
            )
    return {kind: _typed(nested.get(kind) or {}) for kind in ("studies", "datasets")}


def _typed(value: Any) -> Any:
    """Values with their YAML types: on Snakemake's command line every value of a nested block arrives as text."""
    if isinstance(value, Mapping):
        return {name: _typed(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_typed(part) for part in value]
    return yaml.safe_load(value) if isinstance(value, str) and value else value


def check_sources(dataset: Dataset) -> None:
    """Stop before the first job where a data set's files are not there at all.

    Raises:
        RewindError: naming what is missing, and how to get it.
    """
    made = dataset.vectors and dataset.source.made_from is not None
    if made or (dataset.made_here and not dataset.vectors):
        return
    missing = [path for path in annotation_files(dataset) if not Path(path).is_file()]
    folder = videos_folder(dataset)
    if not dataset.vectors and not folder.is_dir():
        missing.append(f"{folder}/ (folder of source {'images' if dataset.items == 'images' else 'clips'})")
    if missing:
        lines = "\n".join(f"  - {path}" for path in missing)
        how = f"\n{dataset.how_to_get.strip()}" if dataset.how_to_get else ""
        raise RewindError(f"config/datasets/{dataset.name}.yaml: these are not there yet:\n{lines}{how}")


def check_weights(study: Study) -> list[str]:
    """The study's weights file, if it names one.

    Raises:
        RewindError: if it is not there.
    """
    weights = study.backbone.weights
    if weights and not Path(weights).is_file():
        raise RewindError(
            f"config/studies/{study.name}.yaml: backbone.weights: {weights}: no such file. Put the weights of "
            f"{study.backbone.architecture} there (docs/rtime.md, section 2, shows how), or correct the key."
        )
    return [weights] if weights else []


def zero_shot_file(study: Study) -> list[str]:
    """The file of labelled images, if the study names one.

    Raises:
        RewindError: if it is not there.
    """
    keys = study.evaluation.zero_shot
    where = f"config/studies/{study.name}.yaml: evaluation.zero_shot.folder"
    return [str(find_cifar10(keys.folder, where))] if keys else []


def listing(dataset: Dataset) -> str | None:
    """Hash of names and sizes in the user's folders: adding or replacing a clip or image makes the video stage stale.

    None for data sets that are made here (their clips follow from their own rule) and for formats that look elsewhere.
    """
    folders = [getattr(dataset.source, name, None) for name in ("videos", "reversed_videos", "images")]
    if dataset.made_here or not any(folders):
        return None
    found = []
    for folder in filter(None, folders):
        if Path(folder).is_dir():
            found += sorted(
                (str(p.relative_to(folder)), p.stat().st_size) for p in Path(folder).rglob("*") if p.is_file()
            )
    return digest(found)
