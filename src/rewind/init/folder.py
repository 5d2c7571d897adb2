"""A folder of clips or images with their captions beside them."""

from __future__ import annotations

from pathlib import Path

from rewind.datasets.caption_lines import Names, read_caption_lines
from rewind.datasets.photos import IMAGE_SUFFIXES, item_id
from rewind.errors import RewindError, listed
from rewind.init.items import Brought
from rewind.init.rows import read_csv, read_json_lines
from rewind.reading.text import lines, read_text
from rewind.video.inventory import VIDEO_SUFFIXES

LISTS = ("captions.csv", "metadata.csv", "metadata.jsonl", "captions.jsonl", "captions.txt")
REVERSED = "_rev"
EXPECTED = (
    "put the captions there as captions.csv (first row `path,caption`, then `a.mp4,A door opens.`), captions.txt "
    "(`a.mp4,A door opens.` on each line), metadata.csv or metadata.jsonl, or for each clip a text file of its name "
    "(a.mp4 and a.txt, one caption a line)"
)


def read_folder(folder: Path) -> Brought:
    """Whichever form of captions the folder has; the first of :data:`LISTS`, else a text file beside each clip.

    Raises:
        RewindError: for a folder without clips, or without captions.
    """
    files = clips_in(folder)
    if not files:
        raise RewindError(f"{folder}: no clips and no images in this folder; name the folder that has them.")
    there = [name for name in LISTS if (folder / name).is_file()]
    beside = _texts(folder, files)
    if not there and not beside:
        raise RewindError(f"{folder}: {len(files):,} files, but no captions; {EXPECTED}.")
    found = _listed(folder, there[0], files) if there else _beside(folder, files, beside)
    found.folder, found.source = folder, folder
    unread = [*there[1:], *(["text files beside the clips"] if there and beside else [])]
    if unread:
        found.said.append(f"{folder}: captions are from {there[0]}; not read: {', '.join(unread)}")
    return found


def clips_in(folder: Path) -> list[str]:
    """Clips and images of a folder and those below it, relative to it, sorted."""
    suffixes = IMAGE_SUFFIXES | VIDEO_SUFFIXES
    files = (path for path in folder.rglob("*") if path.suffix.lower() in suffixes and path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in files)


def _texts(folder: Path, files: list[str]) -> dict[str, Path]:
    """Clip → the text file of its name."""
    beside = {name: (folder / name).with_suffix(".txt") for name in files}
    return {name: path for name, path in beside.items() if path.is_file() and path.name not in LISTS}


def _listed(folder: Path, name: str, files: list[str]) -> Brought:
    path = folder / name
    if name.endswith(".jsonl"):
        return read_json_lines(path)
    if name.endswith(".csv"):
        return read_csv(path)
    found = Brought(path)
    for line in read_caption_lines(path, Names(files, str(folder))):
        clip = files[line.image]
        found.add(item_id(clip), clip, line.caption, f"{path}: line {line.number}")
    return found


def _beside(folder: Path, files: list[str], beside: dict[str, Path]) -> Brought:
    """A text file for each clip; ``a_rev.txt`` says what ``a`` shows when it is played backwards."""
    found = Brought(folder)
    owner: dict[str, str] = {}
    for clip, path in beside.items():
        name = item_id(clip)
        if name in owner:
            found.faults.append(f"{folder}: {owner[name]!r} and {clip!r} share their captions; rename one of them.")
            continue
        owner[name] = clip
        backward = path.with_name(f"{path.stem}{REVERSED}.txt")
        reverse = _captions(backward) if backward.is_file() else []
        forward = _captions(path)
        for number, text in enumerate(forward):
            more = reverse[number] if number < len(reverse) else ""
            found.add(name, clip, text, str(path), reverse=more)
        if len(reverse) > len(forward):
            found.items[name].reverse += reverse[len(forward) :]
    silent = [f"  {clip}" for clip in files if clip not in beside]
    if silent:
        found.said.append(f"{folder}: {len(silent):,} without a caption are left out:\n{listed(silent)}")
    known = {path.name for path in beside.values()}
    known |= {f"{path.stem}{REVERSED}.txt" for path in beside.values()}
    alone = [f"  {path.name}" for path in sorted(folder.rglob("*.txt")) if path.name not in known]
    if alone:
        found.said.append(f"{folder}: {len(alone):,} text files without a clip of their name:\n{listed(alone)}")
    return found


def _captions(path: Path) -> list[str]:
    """Lines of a text file that are not blank."""
    return [line.strip() for line in lines(read_text(path)) if line.strip()]
