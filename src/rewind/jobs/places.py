"""Where a data set's source files are."""

from __future__ import annotations

from pathlib import Path

from rewind.datasets.embedding_files import raw_files
from rewind.study.dataset import Dataset
from rewind.study.embeddings import EmbeddingsSource

SOURCES = "results/data/{dataset}/source"


def annotation_files(dataset: Dataset) -> list[str]:
    """Annotation files that the user brings; of vectors also those that are made from another data set."""
    if isinstance(dataset.source, EmbeddingsSource):
        found = [path for path in raw_files(dataset) if path]
    else:
        found = dataset.source.files()
    return found + ([dataset.only] if dataset.only else [])


def videos_folder(dataset: Dataset) -> Path:
    """Folder of the source clips or images."""
    if dataset.made_here:
        return sources_folder(dataset.name) / dataset.items
    folders = (getattr(dataset.source, name, None) for name in ("videos", "images"))
    return Path(next(filter(None, folders), "."))


def sources_folder(name: str) -> Path:
    """Where the workflow keeps source files that it made or fetched."""
    return Path(SOURCES.format(dataset=name))
