"""Where a data set's source files are."""

from __future__ import annotations

from pathlib import Path

from rewind.datasets.embedding_rows import raw_files
from rewind.study.dataset import Dataset, Flickr8kSource, InternvidSource, PhotosSource, RTimeSource, TableSource
from rewind.study.embeddings import EmbeddingsSource

SOURCES = "results/data/{dataset}/source"


def annotation_files(dataset: Dataset) -> list[str]:
    """Annotation files that the user brings; of vectors also those that are made from another data set."""
    source = dataset.source
    if isinstance(source, RTimeSource):
        return [source.annotations[split] for split in ("train", "valid", "test") if split in source.annotations]
    if isinstance(source, PhotosSource | InternvidSource):
        return [source.captions]
    if isinstance(source, Flickr8kSource):
        return [source.captions] + ([source.split_file] if source.split_file else [])
    if isinstance(source, EmbeddingsSource):
        return [path for path in raw_files(dataset) if path]
    return [source.table] if isinstance(source, TableSource) else []


def videos_folder(dataset: Dataset) -> Path:
    """Folder of the source clips or images."""
    if dataset.made_here:
        return sources_folder(dataset.name) / dataset.items
    folders = (getattr(dataset.source, name, None) for name in ("videos", "images"))
    return Path(next(filter(None, folders), "."))


def sources_folder(name: str) -> Path:
    """Where the workflow keeps source files that it made or fetched."""
    return Path(SOURCES.format(dataset=name))
