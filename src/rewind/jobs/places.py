"""Where a data set's source files are."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path

from rewind.datasets.embedding_files import raw_files
from rewind.errors import RewindError
from rewind.files import atomic, reading_user_file
from rewind.study.dataset import Dataset
from rewind.study.embeddings import EmbeddingsSource
from rewind.video.packed import write_tar

SOURCES = "results/data/{dataset}/source"
READY, PACKED = "ready.json", "source.tar"


def annotation_files(dataset: Dataset) -> list[str]:
    """Annotation files that the user brings; of vectors also those that are made from another data set."""
    if isinstance(dataset.source, EmbeddingsSource):
        found = [path for path in raw_files(dataset) if path]
    else:
        found = dataset.source.files()
    return found + ([dataset.only] if dataset.only else [])


def videos_folder(dataset: Dataset, sources: Path | None = None) -> Path:
    """Folder of the source clips or images; ``sources`` is where those lie that the workflow makes, if elsewhere."""
    if dataset.made_here:
        return (sources or sources_folder(dataset.name)) / dataset.items
    folders = (getattr(dataset.source, name, None) for name in ("videos", "images"))
    return Path(next(filter(None, folders), "."))


def sources_folder(name: str) -> Path:
    """Where the workflow keeps source files that it made or fetched."""
    return Path(SOURCES.format(dataset=name))


def given_sources(dataset: Dataset, inputs: Iterable[str]) -> Path:
    """The same, where a job has it: its inputs may come from a store, to which single files do not go.

    Args:
        dataset: whose sources.
        inputs: of the job; of a data set that is made here ``source/ready.json`` and, of clips, ``source.tar``.
    """
    paths = [Path(path) for path in inputs]
    folder = next((path.parent for path in paths if path.name == READY), sources_folder(dataset.name))
    for path in paths:
        if path.name == PACKED:
            unpack(path, path.with_suffix(""))
    return folder


def pack(folder: Path) -> None:
    """Write ``<folder>.tar`` with all files of a folder of sources; the same files give the same bytes."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    members = ((path.relative_to(folder).as_posix(), path.read_bytes()) for path in files if path.name != READY)
    write_tar(folder.with_name(PACKED), members)


def unpack(packed: Path, folder: Path) -> None:
    """Lay down the files of :func:`pack` that are not there, or are others by now; each appears whole."""
    with reading_user_file(packed, "tar archive", "make it again"), tarfile.open(packed) as archive:
        for member in archive:
            path = folder / member.name
            stream = archive.extractfile(member)
            if stream is None or not path.resolve().is_relative_to(folder.resolve()):
                raise RewindError(f"{packed}: {member.name!r} is no file of this data set; make it again.")
            content = stream.read()
            if path.is_file() and path.stat().st_size == member.size and path.read_bytes() == content:
                continue
            with atomic(path) as draft:
                draft.write_bytes(content)
