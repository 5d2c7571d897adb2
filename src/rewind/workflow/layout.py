"""Paths of a data set's source files: the user's own, and those that the workflow makes or fetches."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path

from rewind.config.dataset import Dataset, EmbeddingsSource
from rewind.data.formats.embeddings import raw_embedding_files
from rewind.errors import RewindError
from rewind.io.files import atomic_write, reading_user_file
from rewind.video.shards import write_tar

SOURCES_TEMPLATE = "results/data/{dataset}/source"
READY_FILE, SOURCES_ARCHIVE = "ready.json", "source.tar"


def annotation_files(dataset: Dataset) -> list[str]:
    """The user's annotation files; for a data set of vectors also those that are made from another data set."""
    if isinstance(dataset.source, EmbeddingsSource):
        files = [path for path in raw_embedding_files(dataset) if path]
    else:
        files = dataset.source.files()
    return files + ([dataset.only] if dataset.only else [])


def videos_folder(dataset: Dataset, sources: Path | None = None) -> Path:
    """Folder of the source clips or images; ``sources``: folder of those that the workflow makes, if elsewhere."""
    if dataset.made_here:
        return (sources or sources_folder(dataset.name)) / dataset.items
    folders = (getattr(dataset.source, name, None) for name in ("videos", "images"))
    return Path(next(filter(None, folders), "."))


def sources_folder(name: str) -> Path:
    """Folder of the source files that the workflow makes or fetches.

    >>> sources_folder("shapes").as_posix()
    'results/data/shapes/source'
    """
    return Path(SOURCES_TEMPLATE.format(dataset=name))


def job_sources_folder(dataset: Dataset, inputs: Iterable[str]) -> Path:
    """:func:`sources_folder` as a job sees it; sources that came packed are unpacked.

    Inputs may come from a bucket under another path. Only declared outputs are stored there, not the single files.

    Args:
        dataset: whose sources.
        inputs: of the job; for a data set that is made here ``source/ready.json`` and, for clips, ``source.tar``.
    """
    paths = [Path(path) for path in inputs]
    folder = next((path.parent for path in paths if path.name == READY_FILE), sources_folder(dataset.name))
    for path in paths:
        if path.name == SOURCES_ARCHIVE:
            unpack_sources(path, path.with_suffix(""))
    return folder


def pack_sources(folder: Path) -> None:
    """Write ``source.tar`` beside a folder of sources, with its files but ``ready.json``, which is written last.

    The same files give the same bytes.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    members = ((path.relative_to(folder).as_posix(), path.read_bytes()) for path in files if path.name != READY_FILE)
    write_tar(folder.with_name(SOURCES_ARCHIVE), members)


def unpack_sources(packed: Path, folder: Path) -> None:
    """Unpack the files of :func:`pack_sources` that are missing or differ; each is written atomically.

    Raises:
        RewindError: for an archive that cannot be read, or a member that would be written outside of ``folder``.
    """
    with reading_user_file(packed, "tar archive", "make it again"), tarfile.open(packed) as archive:
        for member in archive:
            path = folder / member.name
            stream = archive.extractfile(member)
            if stream is None or not path.resolve().is_relative_to(folder.resolve()):
                raise RewindError(f"{packed}: {member.name!r} is no file of this data set; make it again.")
            content = stream.read()
            if path.is_file() and path.stat().st_size == member.size and path.read_bytes() == content:
                continue
            with atomic_write(path) as temporary:
                temporary.write_bytes(content)
