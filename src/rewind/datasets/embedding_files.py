"""Which files the vectors of a data set are read from: apart, because rules of other data sets ask this too."""

from __future__ import annotations

from typing import NamedTuple

from rewind.study.dataset import Dataset

MADE = "results/data/{dataset}/made"
INDEX = "embeddings.json"  # among the sources, written last


class Files(NamedTuple):
    """Where the vectors come from: the npz, captions.txt, and the table of splits, if any."""

    train: str
    captions: str
    splits: str | None


def raw_files(dataset: Dataset) -> Files:
    """The files that the vectors of a data set are read from."""
    source = dataset.source
    if source.made_from is None:
        return Files(source.train, source.captions, source.splits)
    made = MADE.format(dataset=dataset.name)
    return Files(f"{made}/train.npz", f"{made}/captions.txt", f"{made}/splits.csv")
