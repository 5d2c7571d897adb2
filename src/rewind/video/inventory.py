"""Which source file belongs to which clip or image."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pandas as pd

from rewind.datasets.annotations import Annotations, twin_of
from rewind.datasets.photos import IMAGE_SUFFIXES
from rewind.errors import RewindError
from rewind.study.dataset import Dataset

# GIF, WebP and PNG may move, and then they are clips; files of these kinds that do not are images.
_CONTAINERS = "3gp apng asf avi flv gif m2ts m4v mkv mov mp4 mpeg mpg mts mxf ogv ts vob webm webp wmv"
VIDEO_SUFFIXES = frozenset("." + name for name in _CONTAINERS.split())
COLUMNS = ("item_id", "split", "source", "reversed_source", "bytes", "twin", "shard")


class Folders:
    """Finds files by their name with or without one of ``suffixes``; each folder is listed once."""

    def __init__(self, root: Path, suffixes: frozenset[str] = VIDEO_SUFFIXES) -> None:
        self.root, self.suffixes = root, suffixes
        self._listed: dict[Path, dict[str, list[str]]] = {}

    def find(self, name: str) -> Path | None:
        """The file ``name``, or the one file ``name.<suffix>`` (suffix in any case).

        Raises:
            RewindError: if several files fit.
        """
        folder = (self.root / name).parent
        wanted = Path(name).name
        names = self._names(folder).get(wanted, [])
        if wanted in names:
            return folder / wanted
        if len(names) > 1:
            raise RewindError(f"{folder}: several files fit {wanted!r}: {', '.join(sorted(names))}; keep one.")
        return folder / names[0] if names else None

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


def inventory(dataset: Dataset, annotations: Annotations, videos: Path) -> pd.DataFrame:
    """One row per original item: its source file, an existing reversed file, and its shard.

    Args:
        dataset: the dataset file; where its source has ``reversed_videos``, that folder is searched for
            ``<id>_rev.*`` and ``<id>-reverse.*``.
        annotations: items with ``source`` relative to ``videos``.
        videos: folder of source clips or images.

    Returns:
        Columns item_id, split, source (path, "" if missing), reversed_source ("" if none), bytes (of the
        source, 0 if missing), twin (1 if the annotations have ``<id>_rev``), shard (CRC-32 of the id modulo
        ``video.shards`` or ``image.shards``, so that it does not change when items are added).

    Raises:
        RewindError: if several files fit one item, a folder does not exist, not one file is found, or images have
            reversed twins.
    """
    if dataset.items == "images":
        _refuse_twins(dataset, annotations)
    items = annotations.items
    originals, ids = items[items["reversed"] == 0], set(items["item_id"])
    suffixes = IMAGE_SUFFIXES if dataset.items == "images" else VIDEO_SUFFIXES
    sources, existing = Folders(videos, suffixes), _reversed_folder(dataset)
    rows = []
    for item_id, split, name in zip(originals["item_id"], originals["split"], originals["source"], strict=True):
        twin = twin_of(item_id) in ids
        source = sources.find(name)
        mapped = _find_reversed(existing, item_id) if existing and twin else None
        size = source.stat().st_size if source else 0
        shard = zlib.crc32(item_id.encode()) % dataset.media.shards
        rows.append((item_id, split, str(source or ""), str(mapped or ""), size, int(twin), shard))
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    if len(table) and not table["source"].any():
        _refuse(dataset, videos, len(table))
    return table


def _reversed_folder(dataset: Dataset) -> Folders | None:
    folder = getattr(dataset.source, "reversed_videos", None)
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise RewindError(
            f"config/datasets/{dataset.name}.yaml: source.reversed_videos: no folder {folder}; correct the "
            "path, or remove the key, and Rewind makes the reversed clips."
        )
    return Folders(Path(folder))


def _find_reversed(folders: Folders, item_id: str) -> Path | None:
    found = [path for name in (twin_of(item_id), f"{item_id}-reverse") if (path := folders.find(name))]
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise RewindError(f"{folders.root}: several files match the reversed clip of {item_id!r}: {names}; keep one.")
    return found[0] if found else None


def _refuse_twins(dataset: Dataset, annotations: Annotations) -> None:
    twins = annotations.items["item_id"][annotations.items["reversed"] == 1]
    if len(twins):
        raise RewindError(
            f"config/datasets/{dataset.name}.yaml: images have no reversed twins, but there are reverse captions "
            f"(first: {twins.iloc[0]!r}); set reverse: false."
        )


def _refuse(dataset: Dataset, videos: Path, expected: int) -> None:
    state = "holds none of" if videos.is_dir() else "does not exist; expected there:"
    noun, kind = ("images", "image") if dataset.items == "images" else ("clips", "video")
    advice = dataset.how_to_get or "Put them there, or correct the folder under `source`."
    raise RewindError(
        f"config/datasets/{dataset.name}.yaml: the folder of source {noun} {videos} {state} the "
        f"{expected} {noun} of the annotations (searched as <source>.<{kind} suffix>). {advice}"
    )
