"""The workflow's configuration: which studies run, on which data sets, and all that is wrong with them."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rewind.command import OURS as KEYS
from rewind.datasets.cifar10 import find_cifar10
from rewind.errors import Faults, RewindError
from rewind.jobs import annotated, presence, sound
from rewind.jobs.named import encoder_faults
from rewind.jobs.overrides import overrides
from rewind.study import Dataset, Study, load_dataset, load_study, rules, together
from rewind.study.keys import NAME, NAMES
from rewind.study.places import found as found_at
from rewind.video.sources import SourceListing

MAIN, STUDY, DATASET = "config/config.yaml", "config/studies/{}.yaml", "config/datasets/{}.yaml"


def load_all(
    config: Mapping[str, Any], home: Path | None = None, typed: Mapping[str, Any] | None = None
) -> tuple[dict[str, Study], dict[str, Dataset]]:
    """The selected studies and their data sets, validated whole.

    Args:
        config: ``studies`` (names) and ``overrides`` (``{studies: {name: {...}}, datasets: {name: {...}}}``, nested
            or with dotted keys), from ``config/config.yaml`` and the command line.
        home: the workflow's own folder, where it is run from another (see :mod:`rewind.study.places`).
        typed: the part of ``config`` that the command line gave. Overrides in ``config/config.yaml`` of studies that
            are not selected are kept for another time where the command line selected others; all other overrides
            must be of what is selected.

    Raises:
        Faults: every faulty key of every file, and what files ask of one another in vain.
    """
    found = _Found()
    studies, datasets = _read(config, found, home, typed)
    found.end()
    return studies, datasets


def load_checked(
    config: Mapping[str, Any],
    memory: Path | None = None,
    wanted: Iterable[str] = (),
    home: Path | None = None,
    typed: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Study], dict[str, Dataset]]:
    """As :func:`load_all`; besides, every file that is named is there, and every part that is named can be made.

    Args:
        config: see :func:`load_all`.
        memory: file that remembers which parts were found sound (see :mod:`rewind.jobs.sound`); None: none does.
        wanted: what is asked for on the command line: a submission needs a file that nothing else does.
        home, typed: see :func:`load_all`.

    Raises:
        Faults: everything that is wrong, of all studies and data sets at once.
    """
    found, wanted = _Found(), list(wanted)
    studies, datasets = _read(config, found, home, typed)
    for dataset in datasets.values():
        found.add(DATASET.format(dataset.name), presence.dataset_faults(dataset))
    for study in studies.values():
        found.add(STUDY.format(study.name), presence.study_faults(study))
        texts = presence.text_faults(study)
        found.add(STUDY.format(study.name), texts.values())
        found.left_out.setdefault(STUDY.format(study.name), []).extend(texts)  # the parts would say it once more
        dataset = datasets.get(study.dataset)
        if dataset and any(target.startswith(f"results/{study.name}/submission/") for target in wanted):
            found.add(DATASET.format(dataset.name), presence.submission_faults(study, dataset))
        found.add(
            STUDY.format(study.name), encoder_faults(study, dataset, memory and memory.with_name("encoders.json"))
        )
    empty, unread = annotated.faults(studies, datasets, memory and memory.with_name("annotations.json"))
    for kind, said in ((STUDY, empty), (DATASET, unread)):
        for name, lines in said.items():
            found.add(kind.format(name), lines)
    for name, lines in sound.faults(studies, datasets, memory).items():
        found.add(STUDY.format(name), lines)
    found.end()
    return studies, datasets


class _Found:
    """Faults by file, in the order in which files were looked at."""

    def __init__(self) -> None:
        self.files: dict[str, list[str]] = {}
        self.drafts: dict[str, Any] = {}
        self.left_out: dict[str, list[str]] = {}

    def add(self, path: str, lines: Iterable[str]) -> None:
        """Keep lines, but for those of keys that were refused already: a default stands there meanwhile."""
        void = self.left_out.get(path, ())
        self.files.setdefault(path, []).extend(line for line in lines if not _within(line, void))

    @contextlib.contextmanager
    def caught(self, path: str) -> Iterator[None]:
        """Keep what the block refuses, and go on behind it."""
        try:
            yield
        except Faults as error:
            for name, lines in error.files.items():
                self.add(name, lines)
            self.drafts[path] = error.draft
            self.left_out.setdefault(path, []).extend(error.left_out)
        except RewindError as error:
            self.add(path, [str(error).removeprefix(f"{path}: ")])

    def end(self) -> None:
        faults = Faults(self.files)
        if faults.files:
            raise faults


def _read(
    config: Mapping[str, Any], found: _Found, home: Path | None, typed: Mapping[str, Any] | None
) -> tuple[dict[str, Study], dict[str, Dataset]]:
    """Those studies and data sets that are sound by themselves; what is wrong goes to ``found``."""
    with found.caught(MAIN):
        _check_keys(config)
    names: list[str] = []
    with found.caught(MAIN):
        names = selected(config)
    over: dict[str, dict[str, Any]] = {"studies": {}, "datasets": {}}
    with found.caught(MAIN):
        over = overrides({} if config.get("overrides") is None else config["overrides"])
    studies: dict[str, Study] = {}
    for name in names:
        with found.caught(STUDY.format(name)):
            studies[name] = load_study(name, overrides=over["studies"].get(name), home=home)
        if draft := found.drafts.get(STUDY.format(name)):
            studies[name] = draft
            found.add(STUDY.format(name), rules.faults(draft))
    datasets = _with_origins(dict.fromkeys(study.dataset for study in studies.values()), over["datasets"], found, home)
    if len(studies) == len(names):
        with found.caught(MAIN):
            _check_overrides(over, _binding(over, typed or {}), studies, datasets, found, home)
    for name, study in studies.items():
        if study.dataset in datasets:
            found.add(STUDY.format(name), together.faults(study, datasets[study.dataset]))
    return studies, datasets


def _check_keys(config: Mapping[str, Any]) -> None:
    for name in config:
        if name not in KEYS:
            near = difflib.get_close_matches(str(name), KEYS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"valid keys: {', '.join(KEYS)}"
            raise RewindError(f"{name}: unknown key; {hint}")


def custom_rules(config: Mapping[str, Any]) -> list[str]:
    """Files of further rules that the user names, as whole paths.

    Raises:
        RewindError: if they are no list, or one is not there.
    """
    names = config.get("custom_rules") or []
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list):
        raise RewindError(f"{MAIN}: custom_rules: must be a list of files with rules, for example [mine/more.smk].")
    for name in names:
        if not _is_file(str(name)):
            raise RewindError(
                f"{MAIN}: custom_rules: {name}: no such file in {Path.cwd()}; correct the path, or remove it."
            )
    return [str(Path(str(name)).absolute()) for name in names]


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # too long for a name, or not to be looked at
        return False


def selected(config: Mapping[str, Any]) -> list[str]:
    """Names of the studies that are selected.

    Raises:
        RewindError: for none, one that cannot be the name of a file, or one that is there twice.
    """
    names = config.get("studies") or []
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not names:
        raise RewindError("studies: name at least one study, for example [demo].")
    for name in names:
        if not re.fullmatch(NAME, str(name)):
            raise RewindError(
                f"studies: {str(name)[:100]!r} is not the name of a file in config/studies (without .yaml); {NAMES}."
            )
        if name == "data":
            raise RewindError("studies: a study cannot be called 'data': results/data is the folder of the datasets.")
        if names.count(name) > 1:
            raise RewindError(f"studies: {name!r} is there twice; keep one.")
    return [str(name) for name in names]


def _binding(over: dict[str, dict[str, Any]], typed: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Those overrides that must be of what is selected: all, or the typed ones where the selection was typed too."""
    if "studies" not in typed:
        return over
    given = typed.get("overrides") or {}
    return overrides(given) if isinstance(given, Mapping) else {"studies": {}, "datasets": {}}  # text: a job's, encoded


def _check_overrides(
    over: Mapping[str, Mapping[str, Any]],
    binding: Mapping[str, Mapping[str, Any]],
    studies: Mapping[str, Study],
    used: Mapping[str, Dataset],
    found: _Found,
    home: Path | None,
) -> None:
    whole = found.files.keys() <= {MAIN}  # else a data set may be missing for another reason
    for kind, known, file in (("studies", studies, STUDY), ("datasets", used, DATASET)):
        for name in over[kind] if whole else ():
            if name in known:
                continue
            if not found_at(Path(file.format(name)), home).is_file():
                raise RewindError(
                    f"overrides.{kind}.{name}: there is no {file.format(name)}; selected are {', '.join(known)}."
                )
            if name in binding[kind]:
                what = "this study is not selected" if kind == "studies" else "no selected study uses this data set"
                raise RewindError(
                    f"overrides.{kind}.{name}: {what}, so the override would change nothing; selected are "
                    f"{', '.join(known)}. Select {'it' if kind == 'studies' else 'a study that uses it'} (`studies`), "
                    "or remove the override."
                )


def _with_origins(
    names: Iterable[str], over: Mapping[str, Any], found: _Found, home: Path | None
) -> dict[str, Dataset]:
    """Data sets by name, and those that vectors are made from."""
    datasets: dict[str, Dataset] = {}
    for name in names:
        with found.caught(DATASET.format(name)):
            datasets[name] = chosen = load_dataset(name, overrides=over.get(name), home=home)
            made_from = chosen.source.made_from if chosen.vectors else None
            if made_from is None:
                continue
            with found.caught(DATASET.format(made_from.dataset)):
                origin = load_dataset(made_from.dataset, overrides=over.get(made_from.dataset), home=home)
                if origin.vectors:
                    found.add(
                        DATASET.format(name),
                        [
                            f"source.made_from.dataset: {made_from.dataset} consists of vectors itself; name a dataset "
                            "of captioned clips or images."
                        ],
                    )
                datasets[made_from.dataset] = origin
        if draft := found.drafts.get(DATASET.format(name)):
            datasets[name] = draft
    return datasets


def _within(line: str, keys: Iterable[str]) -> bool:
    """Whether a line is about one of the keys, or about a part of it."""
    return any(line.startswith((f"{key}: ", f"{key}.")) for key in keys)


def check_sources(dataset: Dataset) -> None:
    """Stop before the first job where a data set's files are not there at all.

    Raises:
        Faults: naming what is missing, and how to get it.
    """
    if lines := presence.dataset_faults(dataset):
        raise Faults({DATASET.format(dataset.name): lines})


def weights_file(study: Study) -> list[str]:
    """The study's weights file, if it names one."""
    return [study.backbone.weights] if study.backbone.weights else []


def zero_shot_file(study: Study) -> list[str]:
    """The file of labelled images, if the study names one.

    Raises:
        RewindError: if it is not there.
    """
    keys = study.evaluation.zero_shot
    where = f"config/studies/{study.name}.yaml: evaluation.zero_shot.folder"
    return [str(find_cifar10(keys.folder, where))] if keys else []


def listing(dataset: Dataset, memory: Path = Path(".snakemake/rewind/sources")) -> str | None:
    """A sum of the user's folders: adding or replacing a clip or image makes the video stage stale.

    None for data sets that are made here (their clips follow from their own rule) and for formats that look elsewhere.
    """
    folders = [getattr(dataset.source, name, None) for name in ("videos", "reversed_videos", "images")]
    if dataset.made_here or not any(folders):
        return None
    videos = Path(f"results/data/{dataset.name}/videos")
    return SourceListing(filter(None, folders), videos, memory / f"{dataset.name}.csv").digest()
