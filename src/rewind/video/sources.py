"""Find the source files of a data set, match them with its items, and notice when they change.

``build_inventory`` gives the table of items and source files, ``refuse_name_clashes`` refuses ids whose files the file
system would take for one, and ``SourceListing`` tells, whenever a workflow is read, if sources are still the same.
"""

from __future__ import annotations

import csv
import json
import os
import tarfile
import tempfile
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from rewind.config.dataset import Dataset, EmbeddingsSource
from rewind.data.annotations import Annotations, twin_of
from rewind.data.formats.embeddings import raw_embedding_files
from rewind.data.formats.photos import IMAGE_SUFFIXES
from rewind.errors import MAX_LISTED_LINES, RewindError, first_lines
from rewind.hashing import sha256_of, stable_hash
from rewind.io.files import atomic_write, open_member, reading_user_file
from rewind.io.schema import similar_name
from rewind.video.shards import write_tar

# ---- File systems that take two names for one ----------------------------------------------------------------------
# On macOS and Windows, for example, ``k1`` and ``K1`` are one file: one clip would replace another.


def ignores_case(folder: Path) -> bool:
    """Whether ``a`` and ``A`` name one file in a folder."""
    return _are_one_file(folder, "a", "A")


def ignores_unicode_form(folder: Path) -> bool:
    """Whether é, as one character or as an e and a combining accent, names one file in a folder."""
    return _are_one_file(folder, "\u00e9", "e\u0301")


def refuse_name_clashes(ids: Iterable[str], folder: Path, where: str) -> None:
    """Refuse ids whose files would be one in ``folder``, such as ``k1`` and ``K1``; ``where`` leads the message."""
    folder.mkdir(parents=True, exist_ok=True)
    # First the ids that might clash on some file system; the folder itself is tried only if there are any.
    names: dict[str, list[str]] = {}
    for name in dict.fromkeys(map(str, ids)):
        names.setdefault(unicodedata.normalize("NFC", name.casefold()), []).append(name)
    suspects = [group for group in names.values() if len(group) > 1]
    if not suspects:
        return
    case, forms = ignores_case(folder), ignores_unicode_form(folder)
    faults = []
    for group in suspects:
        files: dict[str, list[str]] = {}
        for name in group:
            key = name.casefold() if case else name
            files.setdefault(unicodedata.normalize("NFC", key) if forms else key, []).append(name)
        faults += [f"  {' and '.join(map(repr, clash))}" for clash in files.values() if len(clash) > 1]
    if faults:
        raise RewindError(
            f"{where}: these ids are names of one file in {folder}, whose file system does not tell them apart:\n"
            f"{first_lines(faults)}\nRename them, or put the results on a file system that does."
        )


def _are_one_file(folder: Path, name: str, other: str) -> bool:
    with tempfile.TemporaryDirectory(prefix=".probe-", dir=folder) as probe:
        try:
            (Path(probe) / name).touch()
            return (Path(probe) / other).exists()
        except (OSError, UnicodeError):  # a name that this file system cannot have
            return False


# ---- Which source file belongs to which clip or image --------------------------------------------------------------

# GIF, WebP and PNG may be animated, and then they are clips; still ones are images.
_CONTAINERS = "3gp apng asf avi flv gif m2ts m4v mkv mov mp4 mpeg mpg mts mxf ogv ts vob webm webp wmv"
VIDEO_SUFFIXES = frozenset("." + name for name in _CONTAINERS.split())
INVENTORY_COLUMNS = ("item_id", "split", "source", "reversed_source", "bytes", "twin", "shard")


class SourceFinder:
    """Finds files by their name with or without one of ``suffixes``; each folder is listed once.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "clip1.MP4").touch()
    >>> SourceFinder(folder).find("clip1").name
    'clip1.MP4'
    """

    def __init__(self, root: Path, suffixes: frozenset[str] = VIDEO_SUFFIXES) -> None:
        self.root, self.suffixes = root, suffixes
        self._listed: dict[Path, dict[str, list[str]]] = {}

    def find(self, name: str) -> Path | None:
        """The file ``name``, or else the only file ``name.<suffix>`` (suffix in any case); None if there is none."""
        folder = (self.root / name).parent
        file_name = Path(name).name
        names = self._names(folder).get(file_name, [])
        if file_name in names:
            return folder / file_name
        if len(names) > 1:
            raise RewindError(f"{folder}: several files fit {file_name!r}: {', '.join(sorted(names))}; keep one.")
        return folder / names[0] if names else None

    def near(self, name: str) -> str:
        """The sentence about a file that is nearly called ``name``, which is not there; empty if there is none."""
        return similar_name(Path(name).name, self._names((self.root / name).parent))

    def _names(self, folder: Path) -> dict[str, list[str]]:
        if folder not in self._listed:
            self._listed[folder] = _list_files(folder, self.suffixes)
        return self._listed[folder]


def _list_files(folder: Path, suffixes: frozenset[str]) -> dict[str, list[str]]:
    """File names of ``folder`` by full name, and those with one of ``suffixes`` also without it."""
    listed: dict[str, list[str]] = {}
    if not folder.is_dir():
        return listed
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_file():
                continue
            listed.setdefault(entry.name, []).append(entry.name)
            stem, suffix = os.path.splitext(entry.name)
            if suffix.lower() in suffixes:
                listed.setdefault(stem, []).append(entry.name)
    return listed


def build_inventory(dataset: Dataset, annotations: Annotations, videos: Path) -> pd.DataFrame:
    """One row per original item: its source file, an existing reversed file, and its shard.

    The annotations' ``source`` is relative to ``videos``. If the data set's source has ``reversed_videos``, that folder
    is searched for ``<id>_rev.*`` and ``<id>-reverse.*``.

    Returns:
        :data:`INVENTORY_COLUMNS`: source and reversed_source are paths, "" if there is none; bytes is the size of the
        source, 0 if it is missing; twin is 1 if the annotations have ``<id>_rev``; shard is the CRC-32 of the id modulo
        ``video.shards`` or ``image.shards``, so that it does not change when items are added.

    Raises:
        RewindError: if several files fit one item, a folder does not exist, no file at all is found, or images have
            reversed twins.
    """
    if dataset.items == "images":
        _refuse_twins(dataset, annotations)
    items = annotations.items
    originals, ids = items[items["reversed"] == 0], set(items["item_id"])
    suffixes = IMAGE_SUFFIXES if dataset.items == "images" else VIDEO_SUFFIXES
    sources, reversed_sources = SourceFinder(videos, suffixes), _reversed_folder(dataset)
    rows = []
    for item_id, split, name in zip(originals["item_id"], originals["split"], originals["source"], strict=True):
        twin = twin_of(item_id) in ids
        source = sources.find(name)
        reversed_source = _find_reversed(reversed_sources, item_id) if reversed_sources and twin else None
        size = source.stat().st_size if source else 0
        shard = zlib.crc32(item_id.encode()) % dataset.media.shards
        rows.append((item_id, split, str(source or ""), str(reversed_source or ""), size, int(twin), shard))
    table = pd.DataFrame(rows, columns=list(INVENTORY_COLUMNS))
    missing = [name for name, source in zip(originals["source"], table["source"], strict=True) if not source]
    near = [
        f"  {name!r} is not there, but {hint}" for name in missing[:MAX_LISTED_LINES] if (hint := sources.near(name))
    ]
    if len(table) and len(missing) == len(table):
        _refuse_missing_sources(dataset, videos, len(table), near)
    if near:
        print(f"{videos}: {len(missing):,} files are missing:\n{first_lines(near)}")
    return table


def _reversed_folder(dataset: Dataset) -> SourceFinder | None:
    folder = getattr(dataset.source, "reversed_videos", None)
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise RewindError(
            f"config/datasets/{dataset.name}.yaml: source.reversed_videos: no folder {folder}; correct the "
            "path, or remove the key, and Rewind makes the reversed clips."
        )
    return SourceFinder(Path(folder))


def _find_reversed(folders: SourceFinder, item_id: str) -> Path | None:
    paths = [path for name in (twin_of(item_id), f"{item_id}-reverse") if (path := folders.find(name))]
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise RewindError(f"{folders.root}: several files match the reversed clip of {item_id!r}: {names}; keep one.")
    return paths[0] if paths else None


def _refuse_twins(dataset: Dataset, annotations: Annotations) -> None:
    twins = annotations.items["item_id"][annotations.items["reversed"] == 1]
    if len(twins):
        raise RewindError(
            f"config/datasets/{dataset.name}.yaml: images have no reversed twins, but there are reverse captions "
            f"(first: {twins.iloc[0]!r}); set reverse: false."
        )


def _refuse_missing_sources(dataset: Dataset, videos: Path, expected: int, near: list[str]) -> None:
    state = "holds none of" if videos.is_dir() else "does not exist; expected there:"
    noun, kind = ("images", "image") if dataset.items == "images" else ("clips", "video")
    advice = (
        "Names differ:\n" + first_lines(near)
        if near
        else dataset.how_to_get or "Put them there, or correct the folder under `source`."
    )
    raise RewindError(
        f"config/datasets/{dataset.name}.yaml: the folder of source {noun} {videos} {state} the "
        f"{expected} {noun} of the annotations (searched as <source>.<{kind} suffix>). {advice}"
    )


# ---- Whether source files are still the same -----------------------------------------------------------------------
# Names and sizes decide at once. A file of which only the time differs is compared with the checksum that was noted
# when its clip was written. The outcome is kept in a file: nothing is read twice, and copying or touching a folder
# makes nothing stale.

PATH_ERRORS = "surrogateescape"  # file names are bytes, and not all of them are UTF-8


class SeenFile(NamedTuple):
    """A source file; ``sha256`` is empty unless it replaced another file of the same name and size."""

    path: str
    size: int
    time: int
    sha256: str = ""


class SourceListing:
    """The source files of a data set.

    Args:
        videos: the data set's folder of normalised clips, whose shards note checksums of sources.
        memory: CSV file of what was seen last time; None to keep nothing.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> before = SourceListing([folder], folder / "videos").digest()
    >>> (folder / "clip1.mp4").touch()
    >>> SourceListing([folder], folder / "videos").digest() == before
    False
    """

    def __init__(self, folders: Iterable[str], videos: Path, memory: Path | None = None) -> None:
        self.folders, self.videos, self.memory = [Path(folder) for folder in folders], videos, memory

    def digest(self) -> str:
        """A hash of all names and sizes, and of the content of files that were replaced by others of their size."""
        before, after, parts = self._recall(), {}, []
        for folder in map(str, self.folders):
            start = len(folder) + 1  # a folder that was moved with all its files is the same
            for path, size, time in sorted(_walk_files(folder)):  # the order of a folder is the file system's
                seen = after[path] = self._compare(path, size, time, before.get(path))
                parts.append([path[start:], size, seen.sha256] if seen.sha256 else [path[start:], size])
        if self.memory and after != before:
            self._remember(self.memory, after)
        return stable_hash(parts)  # where nothing was replaced, the same hash as in earlier versions

    def _compare(self, path: str, size: int, time: int, before: SeenFile | None) -> SeenFile:
        if before is None or before.size != size:
            return SeenFile(path, size, time)
        if before.time == time:
            return before
        recorded = before.sha256 or self._noted_checksum(path)
        if not recorded:
            return SeenFile(path, size, time)
        actual = sha256_of(path)
        # Unchanged: the empty checksum of a file that never was replaced stays empty, and the digest as it was.
        return SeenFile(path, size, time, before.sha256 if actual == recorded else actual)

    def _noted_checksum(self, path: str) -> str:
        """The checksum of a source whose clip was made; empty if it is not known."""
        return self._checksums().get(path, "")

    def _checksums(self) -> Mapping[str, str]:
        if not hasattr(self, "_by_path"):
            self._by_path = dict(self._shard_checksums())
        return self._by_path

    def _shard_checksums(self) -> Iterator[tuple[str, str]]:
        notes: dict[str, Any] = {}
        for path in sorted((self.videos / ".state/shards").glob("*.json")):
            try:
                notes |= json.loads(path.read_text(encoding="utf-8"))["clips"]
            except (OSError, ValueError, KeyError, TypeError, RecursionError):
                continue  # a broken note is not a note: its files are then told apart by their times
        try:
            with (self.videos / "inventory.csv").open(newline="", encoding="utf-8") as stream:
                for row in csv.DictReader(stream):
                    checksums = notes.get(row["item_id"], {}).get("sources", ())
                    paths = [path for path in (row["source"], row["reversed_source"]) if path]
                    yield from zip(paths, checksums, strict=False)  # earlier versions noted no checksums
        except (OSError, KeyError, csv.Error):
            return

    def _recall(self) -> dict[str, SeenFile]:
        if self.memory is None:
            return {}
        try:
            with self.memory.open(newline="", encoding="utf-8", errors=PATH_ERRORS) as stream:
                return {path: SeenFile(path, int(size), int(time), sha) for path, size, time, sha in csv.reader(stream)}
        except (OSError, ValueError, csv.Error):
            return {}

    def _remember(self, memory: Path, files: Mapping[str, SeenFile]) -> None:
        try:
            with (
                atomic_write(memory) as target,
                target.open("w", newline="", encoding="utf-8", errors=PATH_ERRORS) as stream,
            ):
                csv.writer(stream).writerows((file.path, file.size, file.time, file.sha256) for file in files.values())
        except OSError as error:
            raise RewindError(
                f"{memory}: cannot be written ({error.strerror}); Snakemake's folder must be writable."
            ) from error


def _walk_files(folder: str) -> Iterator[tuple[str, int, int]]:
    """Path, size and time of every file in a folder and the folders below it; links to folders are not followed."""
    try:
        entries = os.scandir(folder)
    except OSError:
        return
    with entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _walk_files(entry.path)
            elif entry.is_file():
                stat = entry.stat()
                yield entry.path, stat.st_size, stat.st_mtime_ns


# ---- Where source files are: the user's own, and those that the workflow makes or fetches ---------------------------


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

    For a data set that is made here, ``inputs`` has ``source/ready.json`` and, for clips, ``source.tar``. They may come
    from a bucket under another path. Only declared outputs are stored there, not the single files.
    """
    paths = [Path(path) for path in inputs]
    folder = next((path.parent for path in paths if path.name == READY_FILE), sources_folder(dataset.name))
    for path in paths:
        if path.name == SOURCES_ARCHIVE:
            unpack_sources(path, path.with_suffix(""))
    return folder


def pack_sources(folder: Path) -> None:
    """Write ``source.tar`` next to a folder of sources, with its files but ``ready.json``, which is written last.

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
            opened = open_member(archive, member, folder)
            if opened is None:
                raise RewindError(f"{packed}: {member.name!r} is not a file of this data set; make it again.")
            path, content = opened[0], opened[1].read()
            # It keeps its time, by which its clip is known to be up to date.
            if path.is_file() and path.stat().st_size == member.size and path.read_bytes() == content:
                continue
            with atomic_write(path) as temporary:
                temporary.write_bytes(content)
