"""Checks annotation files before the first job: whether they can be read, and which splits they leave empty.

Reading may take seconds, so counts are cached by size and time of the files. Files that are too large for that, or of a
format of the user's own, are first read by a job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rewind.config import Dataset, Study
from rewind.config.dataset import Split
from rewind.config.evaluation import TWIN_SETTINGS
from rewind.config.training import opposites_file
from rewind.data.annotations import SPLITS, Annotations, read_annotations
from rewind.data.groups import group_file, read_groups
from rewind.data.opposites import check_opposites
from rewind.data.questions import QUESTION_TABLES, question_files
from rewind.data.splits import check_split_overlap, shared_clusters
from rewind.errors import RewindError
from rewind.evaluation.twins import why_not_in_binary
from rewind.hashing import stable_hash
from rewind.io.cache import JsonCache, file_stamp
from rewind.video.sources import annotation_files
from rewind.workflow.preflight.files import absent_sources
from rewind.workflow.queries import known_annotations
from rewind.workflow.staleness.code_hash import library_hash

MAX_ANNOTATION_BYTES = 200 * 10**6  # larger annotation files are left to a job
READ_KEYS = {"name", "source", "reverse", "clips", "only", "groups", "allow_overlap"}  # keys that counts depend on
SplitCounts = dict[str, list[int]]
"""Split → number of originals, of twins and of queries of Binary."""


def count_items(dataset: Dataset, cache: JsonCache) -> SplitCounts | None:
    """Originals and twins of every split, where that is possible before any job; None where only a job can tell.

    Raises:
        RewindError: for annotations that the format refuses, overlapping splits or faulty groups.
    """
    if dataset.made_here or "." in dataset.source.format or absent_sources(dataset):
        return None
    files = [*annotation_files(dataset), *filter(None, [group_file(dataset)])]
    if sum(Path(path).stat().st_size for path in files) > MAX_ANNOTATION_BYTES:
        return None
    keys = dataset.model_dump(mode="json", include=READ_KEYS)
    cache_key = stable_hash(library_hash(), keys, [file_stamp(path) for path in files]) if cache.path else ""
    if _are_counts(known := cache.get(cache_key)):
        return known
    annotations = read_annotations(dataset, "")
    if not dataset.allow_overlap:
        check_split_overlap(dataset, shared_clusters(annotations.items))
    if group_file(dataset):
        read_groups(dataset, annotations)
    counts = {split: count_split(annotations, split) for split in SPLITS}
    if cache_key:
        cache[cache_key] = counts
    return counts


def count_split(annotations: Annotations, split: str) -> list[int]:
    """Originals, twins and queries of Binary of a split, as far as annotations tell."""
    items, captions = (table[table["split"] == split] for table in (annotations.items, annotations.captions))
    questions = why_not_in_binary(captions.reset_index(drop=True), items) == ""
    return [int((items["reversed"] == twin).sum()) for twin in (0, 1)] + [int(questions.sum())]


def _are_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(counts := value.get(split), list) and [type(count) for count in counts] == [int] * 3
        for split in SPLITS
    )


def question_faults(dataset: Dataset, cache: JsonCache) -> list[str]:
    """What is wrong with the files of the keys ``answers`` and ``foils``, whose ids are those of the annotations."""
    files = [*annotation_files(dataset), *question_files(dataset)]
    cache_key = stable_hash(library_hash(), dataset.model_dump(mode="json"), list(map(file_stamp, files)))
    if not question_files(dataset) or cache_key in cache:
        return []
    faults, annotations = [], cached_annotations(dataset)
    for key, table in QUESTION_TABLES.items():
        try:
            if getattr(dataset, key) and annotations:
                table(dataset, annotations)
        except RewindError as error:
            faults.append(str(error).removesuffix("."))
    if cache.path and annotations and not faults:
        cache[cache_key] = None
    return faults


def opposites_faults(study: Study, dataset: Dataset, cache: JsonCache) -> list[str]:
    """Ids in files of hard negatives that no caption of the data set has, as lines under the study's file."""
    keys = {opposites_file(block.training): block.path(study, "hard_negatives") for block in study.training_blocks()}
    faults = []
    for path in filter(None, keys):
        if not Path(path).is_file():
            continue  # reported by the check of files
        stamps = [file_stamp(name) for name in (*annotation_files(dataset), path)]
        cache_key = stable_hash(library_hash(), dataset.model_dump(mode="json"), stamps)
        try:
            if cache_key not in cache and (annotations := cached_annotations(dataset)):
                check_opposites(path, set(annotations.captions["caption_id"]))
                if cache.path:
                    cache[cache_key] = None
        except RewindError as error:
            faults.append(f"{keys[path]}: {str(error).removesuffix('.')}")
    return faults


_LAST_READ: dict[str, Annotations | None] = {}


def cached_annotations(dataset: Dataset) -> Annotations | None:
    """Items and captions of a data set before any job; None where only a job can tell.

    Those that were read last are kept in memory for further methods of the same study.

    Raises:
        RewindError: for annotations that the format refuses.
    """
    if "." in dataset.source.format or absent_sources(dataset):
        return None
    files = annotation_files(dataset)
    if sum(Path(path).stat().st_size for path in files if Path(path).is_file()) > MAX_ANNOTATION_BYTES:
        return None
    cache_key = stable_hash(dataset.model_dump(mode="json"), list(map(file_stamp, files)))
    if cache_key not in _LAST_READ:
        _LAST_READ.clear()  # only one data set is kept: its captions may be many
        _LAST_READ[cache_key] = known_annotations(dataset, Path("results"))
    return _LAST_READ[cache_key]


def missing_splits(study: Study, dataset: Dataset, counts: SplitCounts) -> Iterator[str]:
    """Splits and twins that a study needs and the annotations lack, as lines under the study's file."""
    where = f"dataset: config/datasets/{dataset.name}.yaml: {', '.join(annotation_files(dataset))}"
    for split, reason in study.needed_splits().items():
        if not counts[split][0]:
            yield f"{where}: no item is in the split {split!r}, but {reason}: add some, or remove what needs them"
    checks: list[tuple[Split, str, list[str]]] = [
        ("test", "evaluation.settings", [s for s in study.evaluation.settings if s in TWIN_SETTINGS])
    ]
    for block in study.training_blocks():
        if (chosen := block.training.select_setting) in TWIN_SETTINGS:
            checks.append(("valid", block.path(study, "select_setting"), [chosen]))
    for split, key, settings in checks:
        if settings and counts[split][0] and not counts[split][1]:
            yield (
                f"{where}: no item of the split {split!r} has a reverse caption, but {key} names "
                f"{', '.join(settings)}, which need time-reversed twins; use test"
            )
    if "binary" in study.evaluation.settings and counts["test"][1] and not counts["test"][2]:
        yield (
            f"{where}: no caption of the split 'test' tells a clip from its reverse, because the reverse has none "
            "or they are the same word for word: correct reverse_caption, or remove binary from "
            "evaluation.settings"
        )


def annotation_faults(
    studies: Mapping[str, Study], datasets: Mapping[str, Dataset], cache: JsonCache
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Study → what its data set's annotations lack; data set → why its annotations cannot be read."""
    of_studies: dict[str, list[str]] = {}
    of_datasets: dict[str, list[str]] = {}
    for name, dataset in datasets.items():
        try:
            counts = count_items(dataset, cache)
        except RewindError as error:
            of_datasets[name] = [str(error).removeprefix(f"config/datasets/{name}.yaml: ")]
            continue
        own = [study for study in studies.values() if study.dataset == name]
        for study in own:
            if lines := opposites_faults(study, dataset, cache):
                of_studies[study.name] = lines
        if counts is None:
            continue
        if lines := question_faults(dataset, cache):
            of_datasets[name] = lines
        for study in own:
            of_studies.setdefault(study.name, []).extend(missing_splits(study, dataset, counts))
    return of_studies, of_datasets
