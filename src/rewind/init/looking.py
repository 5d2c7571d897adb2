"""Clips and images themselves: which are there, which can be decoded, how long they last, which are the same."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from rewind.datasets.leaks import copies
from rewind.datasets.photos import IMAGE_SUFFIXES, open_picture
from rewind.errors import RewindError, listed
from rewind.init.items import Brought
from rewind.progress import track
from rewind.study.dataset import Video
from rewind.video.images import upright_rgb
from rewind.video.inventory import VIDEO_SUFFIXES, Folders
from rewind.video.transcode import Refused, transcode

FOLDERS = ("videos", "clips", "images")  # names of folders beside a table in which clips are looked for
TOLERATED = 0.2  # share of clips that may be missing or broken; with more the folder or the table is at fault
SETTINGS = Video(short_side=16)  # decodes every picture, and writes next to nothing


@dataclass
class Looked:
    """What was found.

    Attributes:
        folder: of the clips.
        items: ``videos`` or ``images``.
        files: of the items that are there, by id.
        missing: ids of items without a file.
        broken: id → why its file cannot be used.
        seconds: of the clips that were decoded.
        decoded: how many were.
        same: groups of ids whose files are one, or have the same content.
    """

    folder: Path
    items: str = "videos"
    files: dict[str, Path] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    decoded: int = 0
    same: list[list[str]] = field(default_factory=list)


def look(found: Brought, videos: str, most: int, cores: int) -> Looked:
    """Find the files of all items, and decode up to ``most`` of them, spread evenly, to their ends.

    What is wrong with the whole is added to the faults of ``found``.

    Args:
        found: items.
        videos: folder that the user named; empty: where the table is, or beside it.
        most: number of files that are decoded.
        cores: files that are decoded at once.

    Raises:
        RewindError: if no file is found at all.
    """
    looked = _find(found, videos)
    example = _kinds(list(looked.files.values()))
    if len(example) > 1:
        shown = " and ".join(f"{kind} ({path.name})" for kind, path in sorted(example.items()))
        found.faults.append(f"{looked.folder}: holds {shown}; a data set has one kind: name a folder of one.")
    looked.items = "videos" if "videos" in example else "images"
    owners: dict[str, list[str]] = {}
    for name, path in looked.files.items():
        owners.setdefault(str(path), []).append(name)
    looked.same = [[name for path in group for name in owners[path]] for group in copies(owners)]
    looked.same += [names for names in owners.values() if len(names) > 1 and not _in(names[0], looked.same)]
    _decode(looked, most, cores)
    _refuse_too_many(found, looked)
    return looked


def _find(found: Brought, videos: str) -> Looked:
    if videos and not Path(videos).is_dir():
        raise RewindError(f"--videos {videos}: no such folder; name the one that has the clips.")
    beside = found.folder or found.source.parent
    places = [Path(videos)] if videos else [beside, *(beside / name for name in FOLDERS), Path()]
    tried = [_found_in(place, found) for place in dict.fromkeys(places) if place.is_dir()]
    best = max(tried, key=lambda one: len(one.files))
    if not best.files:
        first = next(iter(found.items.values()))
        where = ", ".join(str(one.folder) for one in tried)
        raise RewindError(
            f"{found.source}: none of its {len(found.items):,} clips is in {where} (looked for {first.path!r}, with or "
            "without a suffix); name their folder with --videos FOLDER, or correct the names."
        )
    return best


def _found_in(place: Path, found: Brought) -> Looked:
    looked, videos, images = Looked(place), Folders(place), Folders(place, IMAGE_SUFFIXES)
    for name, item in found.items.items():
        try:
            path = videos.find(item.path) or images.find(item.path)
        except RewindError as error:  # several files fit
            looked.broken[name] = str(error)
            continue
        if path is None:
            looked.missing.append(name)
        else:
            looked.files[name] = path
    return looked


def _kinds(paths: list[Path]) -> dict[str, Path]:
    """``videos`` and ``images``, as far as they are there → a file of this kind.

    What may be either by its suffix is a clip where any of it moves, or other clips are beside it.
    """
    either = [path for path in paths if path.suffix.lower() in VIDEO_SUFFIXES & IMAGE_SUFFIXES]
    videos = [path for path in paths if path.suffix.lower() in VIDEO_SUFFIXES - IMAGE_SUFFIXES]
    images = [path for path in paths if path.suffix.lower() not in VIDEO_SUFFIXES]
    if either:
        (videos if videos or any(map(_moves, either)) else images).append(either[0])
    return {kind: files[0] for kind, files in (("images", images), ("videos", videos)) if files}


def _moves(path: Path) -> bool:
    """Whether an image file holds several pictures; one that cannot be read is not asked, decoding will tell."""
    try:
        with open_picture(path) as image:
            return getattr(image, "n_frames", 1) > 1
    except Exception:  # as many types as Pillow has formats
        return False


def _in(name: str, groups: list[list[str]]) -> bool:
    return any(name in group for group in groups)


def _decode(looked: Looked, most: int, cores: int) -> None:
    names = list(looked.files)
    chosen = names if len(names) <= most else [names[int(at * len(names) / most)] for at in range(most)]
    looked.decoded = len(chosen)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(cores) as pool:

        def one(name: str) -> tuple[str, float, str]:
            if looked.items == "images":
                return name, 0.0, _image_fault(looked.files[name])
            report = transcode(looked.files[name], Path(folder) / f"{name}.mp4", None, SETTINGS)
            (Path(folder) / f"{name}.mp4").unlink(missing_ok=True)
            return name, report.seconds, "" if report.status == "ok" else _why(looked.files[name], report.reason)

        for name, seconds, fault in track(pool.map(one, chosen), "looked at", len(chosen), "files"):
            if fault:
                looked.broken[name] = fault
            elif looked.items == "videos":
                looked.seconds.append(seconds)


def _why(path: Path, reason: str) -> str:
    """Why a file is no clip; of a picture beside others that move, in words of what it is."""
    still = path.suffix.lower() in VIDEO_SUFFIXES & IMAGE_SUFFIXES and not _image_fault(path) and not _moves(path)
    return "a picture that does not move, beside others that do" if still else reason


def _image_fault(path: Path) -> str:
    try:
        upright_rgb(path)
    except Refused as error:
        return str(error)
    return ""


def _refuse_too_many(found: Brought, looked: Looked) -> None:
    """Where much is missing or broken, the folder or the table is not what the user means."""
    lost = [f"  {found.items[name].where}: {name}: no file {found.items[name].path!r}" for name in looked.missing]
    lost += [f"  {name}: {reason}" for name, reason in looked.broken.items()]
    if len(lost) > TOLERATED * len(found.items):
        found.faults.append(
            f"{looked.folder}: {len(lost):,} of {len(found.items):,} clips are missing or cannot be decoded:\n"
            f"{listed(lost)}\nCorrect the names or the folder, or delete their rows."
        )
