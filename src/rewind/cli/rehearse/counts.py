"""How much there is of everything in a whole study and in its rehearsal: the counts by which measured rates go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rewind.config import Dataset
from rewind.data.annotations import SPLITS, read_annotations
from rewind.data.dummy import find_dummy_data
from rewind.data.formats.cifar10 import CIFAR10_CLASSES
from rewind.io.files import read_csv
from rewind.video.sources import sources_folder
from rewind.workflow.preflight.files import dataset_faults

ASSUMED_TRAINING_ITEMS = 1000  # of a dataset whose size is not known
REHEARSED_IMAGES = 2 * len(CIFAR10_CLASSES)  # of zero-shot classification
REHEARSED_ROUNDS = 5  # of measuring step times (tables.verdict.rounds)


@dataclass
class DatasetCounts:
    """Numbers of items and captions of a dataset, counted or assumed; `rewind rehearse --json` writes these fields.

    >>> counts = DatasetCounts({"train": 16, "test": 20}, {"train": 80, "test": 20}, 18, "your annotations", True)
    >>> counts.units(frames=4)["pairs"]
    400
    """

    items: dict[str, int]  # by split, reversed twins included
    captions: dict[str, int]  # by split
    originals: int  # source files that are normalised
    said: str  # where the numbers are from, for the report
    known: bool = False  # counted in this dataset, and not assumed

    def units(self, frames: int, images: int = REHEARSED_IMAGES, rounds: int = REHEARSED_ROUNDS) -> dict[str, int]:
        """Unit of a stage (``Stage.grows``) → how many of them there are, with ``frames`` of a clip.

        ``images`` are those of zero-shot classification, ``rounds`` those of measuring step times.
        """
        items, test = sum(self.items.values()), self.items.get("test", 0)
        return {
            "originals": self.originals,
            "items": items,
            "frames": items * frames,
            "test": test,
            "valid_test": test + self.items.get("valid", 0),
            "pairs": test * self.captions.get("test", 0),
            "labelled": images,
            "rounds": rounds,
        }


def count_dataset(dataset: Dataset, items: tuple[int, int, int] | None, origin: Dataset | None = None) -> DatasetCounts:
    """Sizes of a whole dataset: those of ``--items``, or counted in the user's files, or as published, or assumed.

    ``items`` are originals of each split. ``origin`` is the dataset from which the embeddings are computed: then that
    one is counted.
    """
    if items:
        return _assume(dataset, items, "as given by --items")
    counted = origin or dataset
    source = counted.source
    if source.format == "shapes":
        twins = 1 + counted.reverse
        sizes = {split: twins * count for split, count in source.clips.items()}
        captions = {split: count * (source.paraphrases if split == "train" else 1) for split, count in sizes.items()}
        return DatasetCounts(sizes, captions, sum(source.clips.values()), "the data set's file", True)
    folder = sources_folder(counted.name)
    if not counted.vectors and (sources_present(counted) or (folder / "ready.json").is_file()):
        annotations = read_annotations(counted, str(folder))
        sizes, captions = (
            table["split"].value_counts().to_dict() for table in (annotations.items, annotations.captions)
        )
        originals = int((annotations.items["reversed"] == 0).sum())
        return DatasetCounts(sizes, captions, originals, "your annotations", True)
    if published := getattr(find_dummy_data(source.format), "published", None):
        sizes, captions = (dict(zip(SPLITS, column, strict=True)) for column in zip(*published[:3], strict=True))
        return DatasetCounts(sizes, captions, published.originals, published.source)
    tenth = ASSUMED_TRAINING_ITEMS // 10
    said = f"{ASSUMED_TRAINING_ITEMS:,} training items, assumed (set --items TRAIN,VALID,TEST)"
    return _assume(dataset, (ASSUMED_TRAINING_ITEMS, tenth, tenth), said)


def sources_present(dataset: Dataset) -> bool:
    """Whether the files that the user has to provide are there."""
    if dataset.made_here and not dataset.vectors:
        return False
    return not dataset_faults(dataset) and not ("." in dataset.source.format and _reader_misses_file(dataset))


def _reader_misses_file(dataset: Dataset) -> bool:
    """Whether the reader of a format of the user's own finds a file missing; nobody else knows which it reads."""
    try:
        read_annotations(dataset, str(sources_folder(dataset.name)))
    except Exception as error:  # any other fault is raised again where the annotations are needed
        causes = (error, error.__cause__, error.__context__)
        return any(isinstance(cause, FileNotFoundError) for cause in causes)
    return False


def _assume(dataset: Dataset, originals: tuple[int, int, int], said: str) -> DatasetCounts:
    twins = 2 if dataset.reverse and dataset.items == "videos" and not dataset.vectors else 1
    items = {split: twins * count for split, count in zip(SPLITS, originals, strict=True)}
    return DatasetCounts(items, dict(items), sum(originals), said)


def count_rehearsed(folder: Path, name: str) -> DatasetCounts:
    """Items and captions that a rehearsal had, from its prepared dataset in ``folder``."""
    table = read_csv(folder / "items.csv")
    captions = {split: len(read_csv(folder / "captions" / f"{name}_{split}.csv")) for split in SPLITS}
    originals = int((table["reversed"] == 0).sum())
    return DatasetCounts(table["split"].value_counts().to_dict(), captions, originals, "the rehearsal", True)
