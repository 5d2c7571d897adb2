"""What annotation files say, before the first job: whether they can be read, and which splits they leave empty.

Reading them may take seconds, so what was found is remembered with the state of the files. Where they are too large for
that, or of a format of the user's own, the first stage reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from rewind.datasets.annotations import SPLITS, Annotations, read_annotations
from rewind.datasets.groups import group_file, groups_of
from rewind.datasets.leaks import settle, shared_clusters
from rewind.errors import RewindError
from rewind.files import digest, remembered, write_json
from rewind.identity.marks import library
from rewind.jobs import presence
from rewind.jobs.places import annotation_files
from rewind.jobs.queries import known_annotations
from rewind.jobs.sound import state
from rewind.study import Dataset, Study
from rewind.study.together import TWINS, blocks, needed_splits

MOST = 200 * 10**6  # bytes of annotation files that are read here
READ = {"name", "source", "reverse", "clips", "only", "groups", "allow_overlap"}
RESULTS = Path("results")
KEPT = 1000  # marks, the newest
Counts = dict[str, list[int]]
"""Split → originals and twins."""


class Annotated:
    """Counts of data sets, as far as they can be known before anything is made.

    Args:
        memory: JSON file of what was counted before; None: nothing is remembered.
    """

    def __init__(self, memory: Path | None = None) -> None:
        self.memory, self.known = memory, _recall(memory)
        self._code = library() if memory else ""

    def counts(self, dataset: Dataset) -> Counts | None:
        """Originals and twins of every split; None where only a job can tell.

        Raises:
            RewindError: for what the format refuses.
        """
        if dataset.made_here or "." in dataset.source.format or presence.absent_sources(dataset):
            return None
        files = [*annotation_files(dataset), *filter(None, [group_file(dataset)])]
        if sum(Path(path).stat().st_size for path in files) > MOST:
            return None
        keys = dataset.model_dump(mode="json", include=READ)
        mark = digest(self._code, keys, [state(path) for path in files])
        if mark not in self.known:
            found = read_annotations(dataset, "")
            if not dataset.allow_overlap:
                settle(dataset, shared_clusters(found.items))
            if group_file(dataset):
                groups_of(dataset, found)
            self.known[mark] = _count(found)
            if self.memory:
                write_json(self.memory, dict(list(self.known.items())[-KEPT:]))
        return self.known[mark]


_LAST_READ: dict[str, Annotations | None] = {}


def annotations_of(dataset: Dataset) -> Annotations | None:
    """Items and captions of a data set before anything is made; None where only a job can tell.

    Those that were read last are kept for further methods of the same study.

    Raises:
        RewindError: for what the format refuses.
    """
    if "." in dataset.source.format or presence.absent_sources(dataset):
        return None
    files = annotation_files(dataset)
    if sum(Path(path).stat().st_size for path in files if Path(path).is_file()) > MOST:
        return None
    mark = digest(dataset.model_dump(mode="json"), list(map(state, files)))
    if mark not in _LAST_READ:
        _LAST_READ.clear()
        _LAST_READ[mark] = known_annotations(dataset, RESULTS)
    return _LAST_READ[mark]


def lacking(study: Study, dataset: Dataset, counts: Counts) -> Iterator[str]:
    """What a study needs of its data set that the annotations leave empty, as lines under the study's file."""
    where = f"dataset: config/datasets/{dataset.name}.yaml: {', '.join(annotation_files(dataset))}"
    for split, who in needed_splits(study).items():
        if not counts[split][0]:
            yield f"{where}: no item is in the split {split!r}, but {who}: add some, or remove what needs them"
    wanted = [("test", "evaluation.settings", [s for s in study.evaluation.settings if s in TWINS])]
    for block in blocks(study):
        if (chosen := block.training.select_setting) in TWINS:
            wanted.append(("valid", block.path(study, "select_setting"), [chosen]))
    for split, key, settings in wanted:
        if settings and counts[split][0] and not counts[split][1]:
            yield (
                f"{where}: no item of the split {split!r} has a reverse caption, but {key} names "
                f"{', '.join(settings)}, which are about time-reversed twins; without them use test"
            )


def faults(
    studies: Mapping[str, Study], datasets: Mapping[str, Dataset], memory: Path | None = None
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Study → what its data set's annotations lack; data set → why they cannot be read.

    Args:
        studies, datasets: those that are sound by their keys.
        memory: see :class:`Annotated`.
    """
    annotated = Annotated(memory)
    of_studies: dict[str, list[str]] = {}
    of_datasets: dict[str, list[str]] = {}
    for name, dataset in datasets.items():
        try:
            counts = annotated.counts(dataset)
        except RewindError as error:
            of_datasets[name] = [str(error).removeprefix(f"config/datasets/{name}.yaml: ")]
            continue
        for study in studies.values() if counts else ():
            if study.dataset == name and (lines := list(lacking(study, dataset, counts))):
                of_studies[study.name] = lines
    return of_studies, of_datasets


def _count(found: Annotations) -> Counts:
    items = found.items
    return {
        split: [int(((items["split"] == split) & (items["reversed"] == twin)).sum()) for twin in (0, 1)]
        for split in SPLITS
    }


def _recall(memory: Path | None) -> dict[str, Counts]:
    try:
        found = remembered(memory) or {}
        return {mark: {split: [int(n) for n in counts[split]] for split in SPLITS} for mark, counts in found.items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}
