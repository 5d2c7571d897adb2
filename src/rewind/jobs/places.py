"""Where a data set's source files are."""

from __future__ import annotations

from pathlib import Path

from rewind.study.dataset import Dataset, RTimeSource, TableSource

SOURCES = "results/data/{dataset}/source"


def annotation_files(dataset: Dataset) -> list[str]:
    """Annotation files that the user brings."""
    source = dataset.source
    if isinstance(source, RTimeSource):
        return [source.annotations[split] for split in ("train", "valid", "test") if split in source.annotations]
    return [source.table] if isinstance(source, TableSource) else []


def videos_folder(dataset: Dataset) -> Path:
    """Folder of the source clips."""
    if dataset.made_here:
        return sources_folder(dataset.name) / "videos"
    return Path(getattr(dataset.source, "videos", "."))


def sources_folder(name: str) -> Path:
    """Where the workflow keeps source files that it made or fetched."""
    return Path(SOURCES.format(dataset=name))
