"""The workflow's configuration: selected studies, their data sets, overrides, and all that is wrong with them.

:func:`load_config` validates keys; :func:`load_checked_config` also runs the preflight checks. Both collect the errors
of all files before they raise.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rewind.config import Dataset, Study, checks, load_dataset, load_study
from rewind.config.base import NAME_PATTERN, NAME_RULE
from rewind.config.load import MAX_YAML_DEPTH, check_plain_values, find_config_file, merge_config, parse_yaml, read_yaml
from rewind.data.formats.cifar10 import find_cifar10
from rewind.errors import ConfigErrors, RewindError
from rewind.io.cache import JsonCache
from rewind.io.files import require_regular_file
from rewind.provenance import CONFIG_KEYS
from rewind.video.sources import SourceListing
from rewind.workflow.preflight.checks import DATASET_CONFIG, STUDY_CONFIG, Preflight, run_checks
from rewind.workflow.preflight.faults import FaultCollector
from rewind.workflow.preflight.files import dataset_faults

# ---- Overrides, from ``config/config.yaml`` and ``--config`` -------------------------------------------------------

EXAMPLE_OVERRIDES = "{studies.demo.training.epochs: 2}"


def parse_overrides(overrides: Any) -> dict[str, dict[str, Any]]:
    """Overrides as nested blocks with typed values, by kind (``studies``, ``datasets``) and name.

    Raises:
        RewindError: naming the key that is not a block, has an empty part, or whose value cannot be read.

    >>> parse_overrides({"studies.demo.training.epochs": "2"})
    {'studies': {'demo': {'training': {'epochs': 2}}}, 'datasets': {}}
    """
    check_plain_values(overrides, "overrides")
    nested = _nest_keys(overrides, "overrides")
    for name in nested:
        if name not in ("studies", "datasets"):
            raise RewindError(
                f"overrides.{name}: start with studies.<name> or datasets.<name>, for example "
                "studies.demo.training.epochs."
            )
    parsed = {kind: _nest_keys(nested.get(kind) or {}, f"overrides.{kind}") for kind in ("studies", "datasets")}
    for kind, blocks in parsed.items():
        for name, block in blocks.items():
            if not re.fullmatch(NAME_PATTERN, name):
                raise RewindError(
                    f"overrides.{kind}: {name!r} is not the name of a file in config/{kind}; {NAME_RULE}."
                )
            where = f"overrides.{kind}.{name}"
            blocks[name] = _parse_values(_nest_keys({} if block is None else block, where), where)
    return parsed


def main_overrides(config: Path = Path("config")) -> dict[str, dict[str, Any]]:
    """The overrides of ``config.yaml``, as :func:`parse_overrides` returns them: they hold for commands as for jobs.

    Raises:
        RewindError: for overrides that cannot be read.
    """
    path = config / Path(MAIN_CONFIG).name
    try:
        return parse_overrides((read_yaml(path).get("overrides") if path.is_file() else None) or {})
    except RewindError as error:
        raise RewindError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None


def load_configured_study(name: str, config: Path = Path("config"), typed: Mapping[str, Any] | None = None) -> Study:
    """A study with the overrides of ``config.yaml``, and with those that were ``typed`` when it was run."""
    overrides = merge_overrides(main_overrides(config), typed or {})
    return load_study(name, config / "studies", overrides["studies"].get(name))


def load_configured_dataset(
    name: str, config: Path = Path("config"), typed: Mapping[str, Any] | None = None
) -> Dataset:
    """A data set, likewise."""
    overrides = merge_overrides(main_overrides(config), typed or {})
    return load_dataset(name, config / "datasets", overrides["datasets"].get(name))


def merge_overrides(*parsed: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Several results of :func:`parse_overrides`, of which later ones take precedence."""
    merged: dict[str, Any] = {}
    for overrides in parsed:
        merged = merge_config(merged, overrides)
    return {kind: merged.get(kind) or {} for kind in ("studies", "datasets")}


def _nest_keys(value: Any, where: str) -> dict[str, Any]:
    """A block whose dotted keys (``training.epochs``) became nested blocks."""
    if not isinstance(value, Mapping):
        raise RewindError(
            f"{where}: a block of keys is expected, for example {EXAMPLE_OVERRIDES} (given: {str(value)[:100]!r})."
        )
    _check_key_parts(value, where)
    return merge_config({}, value)


def _check_key_parts(value: Any, where: str) -> None:
    """Refuse dotted keys with an empty part or too many parts, also in nested blocks."""
    for name, inner in value.items() if isinstance(value, Mapping) else ():
        shown = f"{str(name)[:100]!r}"
        if not all(str(name).split(".")):
            raise RewindError(f"{where}: the key {shown} has an empty part; write for example {EXAMPLE_OVERRIDES}.")
        if str(name).count(".") > MAX_YAML_DEPTH:
            raise RewindError(f"{where}: the key {shown}… has more parts than any key.")
        _check_key_parts(inner, f"{where}.{name}")


def _parse_values(value: Any, where: str) -> Any:
    """Values with their YAML types: on Snakemake's command line every value of a nested block arrives as text."""
    if isinstance(value, Mapping):
        return {name: _parse_values(part, f"{where}.{name}") for name, part in _nest_keys(value, where).items()}
    if isinstance(value, list):
        return [_parse_values(part, where) for part in value]
    if not isinstance(value, str) or not value:
        return value
    parsed = parse_yaml(value, where)
    check_plain_values(parsed, where)
    return parsed


# ---- Loading and checking the selected studies ---------------------------------------------------------------------

MAIN_CONFIG = "config/config.yaml"
ONLY_KEYS = "REWIND_ONLY_KEYS"
"""Environment variable of a dry run that asks what is stale: nothing is checked but keys, since no job will start."""


def load_config(
    config: Mapping[str, Any], home: Path | None = None, typed: Mapping[str, Any] | None = None
) -> tuple[dict[str, Study], dict[str, Dataset]]:
    """The selected studies and their data sets, with all keys validated.

    Args:
        config: ``studies`` (names) and ``overrides`` (``{studies: {name: {...}}, datasets: {name: {...}}}``, nested
            or with dotted keys), from ``config/config.yaml`` and the command line.
        home: see :mod:`rewind.config.load`.
        typed: the part of ``config`` that came from the command line. Where it selects studies, overrides in
            ``config/config.yaml`` may be of studies that are not selected; all others must be of selected ones.

    Raises:
        ConfigErrors: every faulty key of every file, and what files need of one another and do not find.
    """
    faults = FaultCollector()
    studies, datasets = _read_config(config, faults, home, typed)
    faults.end()
    return studies, datasets


def load_checked_config(
    config: Mapping[str, Any],
    cache: Path | None = None,
    targets: Iterable[str] = (),
    home: Path | None = None,
    typed: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Study], dict[str, Dataset]]:
    """As :func:`load_config`; besides, all :mod:`checks <rewind.workflow.preflight.checks>` pass.

    Args:
        cache: JSON file of what passed before; None: nothing is cached.
        targets: the command line: a submission needs a file that nothing else does.

    Raises:
        ConfigErrors: everything that is wrong, of all studies and data sets at once.
    """
    faults = FaultCollector()
    studies, datasets = _read_config(config, faults, home, typed)
    run_checks("read", Preflight(studies, datasets, list(targets), JsonCache(cache)), faults)
    return studies, datasets


def _read_config(
    config: Mapping[str, Any], faults: FaultCollector, home: Path | None, typed: Mapping[str, Any] | None
) -> tuple[dict[str, Study], dict[str, Dataset]]:
    """The studies and data sets that are valid by themselves; faults are added to ``faults``."""
    with faults.caught(MAIN_CONFIG):
        _check_keys(config)
    names: list[str] = []
    with faults.caught(MAIN_CONFIG):
        names = selected_studies(config)
    overrides: dict[str, dict[str, Any]] = {"studies": {}, "datasets": {}}
    with faults.caught(MAIN_CONFIG):
        overrides = parse_overrides({} if config.get("overrides") is None else config["overrides"])
    studies: dict[str, Study] = {}
    for name in names:
        with faults.caught(STUDY_CONFIG.format(name)):
            studies[name] = load_study(name, overrides=overrides["studies"].get(name), home=home)
        if draft := faults.drafts.get(STUDY_CONFIG.format(name)):
            studies[name] = draft
            faults.add(STUDY_CONFIG.format(name), draft.faults())
    datasets = _load_datasets(
        dict.fromkeys(study.dataset for study in studies.values()), overrides["datasets"], faults, home
    )
    if len(studies) == len(names):
        with faults.caught(MAIN_CONFIG):
            _check_overrides(overrides, _binding_overrides(overrides, typed or {}), studies, datasets, faults, home)
    for name, study in studies.items():
        if study.dataset in datasets:
            faults.add(STUDY_CONFIG.format(name), checks.study_dataset_faults(study, datasets[study.dataset]))
    return studies, datasets


def _check_keys(config: Mapping[str, Any]) -> None:
    for name in config:
        if name not in CONFIG_KEYS:
            near = difflib.get_close_matches(str(name), CONFIG_KEYS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"valid keys: {', '.join(CONFIG_KEYS)}"
            raise RewindError(f"{name}: unknown key; {hint}")


def selected_studies(config: Mapping[str, Any]) -> list[str]:
    """Names of the studies that are selected.

    Raises:
        RewindError: for none, one that cannot be the name of a file, or one that is listed twice.

    >>> selected_studies({"studies": "demo"})
    ['demo']
    """
    names = config.get("studies") or []
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not names:
        raise RewindError("studies: name at least one study, for example [demo].")
    for name in names:
        if not re.fullmatch(NAME_PATTERN, str(name)):
            raise RewindError(
                f"studies: {str(name)[:100]!r} is not the name of a file in config/studies (without .yaml); "
                f"{NAME_RULE}."
            )
        if name == "data":
            raise RewindError("studies: a study cannot be called 'data': results/data is the folder of the datasets.")
        if names.count(name) > 1:
            raise RewindError(f"studies: {name!r} is listed twice; keep one.")
    return [str(name) for name in names]


def _load_datasets(
    names: Iterable[str], overrides: Mapping[str, Any], faults: FaultCollector, home: Path | None
) -> dict[str, Dataset]:
    """Data sets by name, also those from which vectors are made (``source.made_from``)."""
    datasets: dict[str, Dataset] = {}
    for name in names:
        with faults.caught(DATASET_CONFIG.format(name)):
            datasets[name] = dataset = load_dataset(name, overrides=overrides.get(name), home=home)
            made_from = dataset.source.made_from if dataset.vectors else None
            if made_from is None:
                continue
            with faults.caught(DATASET_CONFIG.format(made_from.dataset)):
                origin = load_dataset(made_from.dataset, overrides=overrides.get(made_from.dataset), home=home)
                if origin.vectors:
                    faults.add(
                        DATASET_CONFIG.format(name),
                        [
                            f"source.made_from.dataset: {made_from.dataset} consists of vectors itself; name a dataset "
                            "of captioned clips or images."
                        ],
                    )
                datasets[made_from.dataset] = origin
        if draft := faults.drafts.get(DATASET_CONFIG.format(name)):
            datasets[name] = draft
    return datasets


def _check_overrides(
    overrides: Mapping[str, Mapping[str, Any]],
    binding: Mapping[str, Mapping[str, Any]],
    studies: Mapping[str, Study],
    datasets: Mapping[str, Dataset],
    faults: FaultCollector,
    home: Path | None,
) -> None:
    all_loaded = faults.files.keys() <= {MAIN_CONFIG}  # else a data set may be missing for another reason
    for kind, loaded, template in (("studies", studies, STUDY_CONFIG), ("datasets", datasets, DATASET_CONFIG)):
        for name in overrides[kind] if all_loaded else ():
            if name in loaded:
                continue
            if not find_config_file(Path(template.format(name)), home).is_file():
                raise RewindError(
                    f"overrides.{kind}.{name}: there is no {template.format(name)}; selected are {', '.join(loaded)}."
                )
            if name in binding[kind]:
                reason = "this study is not selected" if kind == "studies" else "no selected study uses this data set"
                raise RewindError(
                    f"overrides.{kind}.{name}: {reason}, so the override would change nothing; selected are "
                    f"{', '.join(loaded)}. Select {'it' if kind == 'studies' else 'a study that uses it'} (`studies`), "
                    "or remove the override."
                )


def _binding_overrides(
    overrides: dict[str, dict[str, Any]], typed: Mapping[str, Any]
) -> Mapping[str, Mapping[str, Any]]:
    """The overrides that must be of selected studies: all, or those of the command line where it selects studies."""
    if "studies" not in typed:
        return overrides
    typed_overrides = typed.get("overrides") or {}
    if not isinstance(typed_overrides, Mapping):  # Snakemake passes them to a job's process encoded as text
        return {"studies": {}, "datasets": {}}
    return parse_overrides(typed_overrides)


def check_sources(dataset: Dataset) -> None:
    """Refuse a data set whose files are missing, before the first job.

    Raises:
        ConfigErrors: naming what is missing, and how to get it.
    """
    if lines := dataset_faults(dataset):
        raise ConfigErrors({DATASET_CONFIG.format(dataset.name): lines})


def zero_shot_file(study: Study) -> list[str]:
    """The file of labelled images, if the study names one; a missing one is refused."""
    keys = study.evaluation.zero_shot
    where = f"config/studies/{study.name}.yaml: evaluation.zero_shot.folder"
    return [str(find_cifar10(keys.folder, where))] if keys else []


def source_digest(dataset: Dataset, memory: Path = Path(".snakemake/rewind/sources")) -> str | None:
    """A hash of the user's folders of clips or images: adding or replacing a file makes the video stage stale.

    None for data sets that are made here (their clips follow from a rule of their own) and for formats without folders.
    """
    folders = [getattr(dataset.source, name, None) for name in ("videos", "reversed_videos", "images")]
    if dataset.made_here or not any(folders):
        return None
    videos = Path(f"results/data/{dataset.name}/videos")
    return SourceListing(filter(None, folders), videos, memory / f"{dataset.name}.csv").digest()


def custom_rules(config: Mapping[str, Any]) -> list[str]:
    """Files of the user's own rules (``custom_rules``), as absolute paths.

    Raises:
        RewindError: if the key is not a list, or a file is missing.
    """
    names = config.get("custom_rules") or []
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list):
        raise RewindError(
            f"{MAIN_CONFIG}: custom_rules: must be a list of files with rules, for example [mine/more.smk]."
        )
    for name in names:
        try:
            require_regular_file(str(name), f"in {Path.cwd()}; correct the path, or remove it")
        except RewindError as error:
            raise RewindError(f"{MAIN_CONFIG}: custom_rules: {error}") from None
    return [str(Path(str(name)).absolute()) for name in names]
